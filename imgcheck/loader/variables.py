"""Variables that scripts may find set though no script of the image sets them (rules/analysis/variables.toml)."""

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


class Setting(Data, frozen=True):
    """A file of every system that sets variables, and does nothing else."""

    id: str
    paths: tuple[str, ...]
    names: tuple[str, ...]
    sources: tuple[str, ...]


@cache
def variables_given() -> tuple[Given, ...]:
    """All that are known."""
    return msgspec.convert(Knowledge().table("analysis/variables.toml")["given"], tuple[Given, ...])


@cache
def may_be_given(name: str) -> bool:
    """Whether a container's runtime, a shell or a job may set the variable called `name`."""
    return any(fits_any(name, each.names) for each in variables_given())


@cache
def setting_files() -> tuple[Setting, ...]:
    """All such files that are known."""
    return msgspec.convert(Knowledge().table("analysis/variables.toml")["file"], tuple[Setting, ...])


def set_by(path: str) -> tuple[str, ...]:
    """The variables that a script may have set which has read the file at `path`, where no others can be."""
    return next((each.names for each in setting_files() if path in each.paths), ())
