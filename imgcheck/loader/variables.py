"""Variables that scripts may find set though nothing in the image sets them (rules/analysis/variables.toml)."""

from functools import cache

import msgspec

from imgcheck.globs import fits_any
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Data


class Given(Data, frozen=True):
    """Those that come from one side."""

    id: str
    names: tuple[str, ...]
    """Shell patterns."""
    sources: tuple[str, ...]


@cache
def variables_given() -> tuple[Given, ...]:
    """All that are known."""
    return msgspec.convert(Knowledge().table("analysis/variables.toml")["given"], tuple[Given, ...])


@cache
def may_be_given(name: str) -> bool:
    """Whether a container's runtime, a shell or a job may set the variable called `name`."""
    return any(fits_any(name, each.names) for each in variables_given())
