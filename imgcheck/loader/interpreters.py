"""Interpreters besides Python, and where their modules of machine code lie (rules/analysis/native_modules.toml)."""

import posixpath
from collections.abc import Iterable, Mapping
from functools import cache

import msgspec

from imgcheck.globs import fits_any
from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Data


class Interpreter(Data, frozen=True):
    """One kind of interpreter."""

    id: str
    programs: tuple[str, ...]
    """Shell patterns of the file names of its programs."""
    modules: tuple[str, ...]
    """Shell patterns of the paths of its modules, of which a star stands for directories, too."""
    sources: tuple[str, ...]


@cache
def interpreters() -> tuple[Interpreter, ...]:
    """All that are known."""
    table = Knowledge().table("analysis/native_modules.toml")["interpreter"]
    return msgspec.convert(table, tuple[Interpreter, ...])


def interpreter_of(name: str) -> Interpreter | None:
    """The interpreter whose programs are called so."""
    return next((each for each in interpreters() if fits_any(name, each.programs)), None)


def openers(programs: Iterable[str]) -> dict[tuple[str, ...], str]:
    """The patterns of modules to the first of `programs` that loads such."""
    found: dict[tuple[str, ...], str] = {}
    for program in programs:
        if known := interpreter_of(posixpath.basename(program)):
            found.setdefault(known.modules, program)
    return found


def opener(path: str, found: Mapping[tuple[str, ...], str]) -> str:
    """The one of `openers` that loads the module at `path`; "" where none of them does."""
    return next((program for patterns, program in found.items() if fits_any(path, patterns)), "")
