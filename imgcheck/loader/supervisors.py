"""Supervisors: programs that start others which no word of a command names (rules/analysis/supervisors.toml)."""

import posixpath
from collections.abc import Collection, Iterator, Sequence
from functools import cache

import msgspec

from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Data
from imgcheck.loader.launchers import operands


class Supervisor(Data, frozen=True):
    """One kind of supervisor; what each field means stands at the head of the table."""

    id: str
    programs: tuple[str, ...]
    sources: tuple[str, ...]
    options: tuple[str, ...] = ()
    first_of: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    operand: bool = False
    valued: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    names: str = ".*"
    path: tuple[str, ...] = ()
    without: dict[str, tuple[str, ...]] = {}
    command: bool = False
    on_condition: bool = False
    unread: bool = False


class Supervised(msgspec.Struct, frozen=True):
    """Where a supervisor that was started looks for what it starts; relative paths are of its working directory."""

    first_of: tuple[str, ...]
    """Configurations, of which the first is read that there is."""
    files: tuple[str, ...]
    """Patterns of those that are all read."""
    scripts: tuple[str, ...]
    """Patterns of programs."""
    hooks: tuple[str, ...]
    """The same of those without which it goes on."""
    words: tuple[str, ...]
    """A command that it starts as well."""
    told: bool
    """Its words say where: to find nothing there is not to know."""


class _Table(Data, frozen=True):
    supervisor: tuple[Supervisor, ...]
    usual: tuple[str, ...]


@cache
def _table() -> _Table:
    return msgspec.convert(Knowledge().table("analysis/supervisors.toml"), _Table)


def supervisors() -> tuple[Supervisor, ...]:
    """All that are known."""
    return _table().supervisor


def service_places() -> tuple[str, ...]:
    """How the paths of services begin, where these lie as is usual."""
    return _table().usual


def supervisor_of(names: Collection[str]) -> Supervisor | None:
    """The supervisor that has one of `names`: file names or whole paths."""
    return next((each for each in supervisors() if not set(names).isdisjoint(each.programs)), None)


def supervised(kind: Supervisor, program: str, arguments: tuple[str, ...]) -> Supervised:
    """What a supervisor of a kind, which is the file `program`, does with `arguments`."""
    values = dict(_options(kind, arguments))
    behind = operands(arguments, kind.valued)
    directory = next((values[name] for name in kind.directories if name in values), "")
    if kind.operand:
        directory = next(iter(behind), "")
    named = next((values[name] for name in kind.options if name in values), "")
    prefix = posixpath.dirname(posixpath.dirname(program))
    first_of = [named] if named else [each.replace("{prefix}", prefix) for each in kind.first_of]

    def within(patterns: Sequence[str]) -> tuple[str, ...]:
        return tuple(posixpath.join(directory, each) for each in patterns)

    left_out = {pattern for option in arguments for pattern in kind.without.get(option, ())}
    scripts = [pattern for pattern in kind.scripts if pattern not in left_out]
    places = within(first_of), within(kind.files), within(scripts), within(kind.hooks)
    return Supervised(*places, behind if kind.command else (), bool(kind.options or kind.operand))


def _options(kind: Supervisor, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options with their values, as getopt_long(3) reads them: `-c FILE`, `-cFILE`, `-nc FILE`, `--name=FILE`."""
    told = {*kind.options, *kind.directories}
    for word, following in zip(arguments, (*arguments[1:], ""), strict=False):
        name, equals, value = word.partition("=")
        if name in told:
            yield name, value if equals else following
        elif word[:1] == "-" and word[1:2] != "-":
            letters = (f"-{letter}" for letter in word[1:])
            place = next((at for at, letter in enumerate(letters, 2) if letter in told or letter in kind.valued), 0)
            if place and f"-{word[place - 1]}" in told:
                yield f"-{word[place - 1]}", word[place:] or following
