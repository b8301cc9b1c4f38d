"""Programs that run the command in their arguments (rules/analysis/launchers.toml): where in these it begins."""

import re
from functools import cache

import msgspec
from msgspec import Struct, structs

from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.types import Data
from imgcheck.loader.environment import LOADER_VARIABLES
from imgcheck.loader.execline import becomes
from imgcheck.loader.expansion import GAP


class Launcher(Data, frozen=True):
    """How a command line is built; what each field means stands at the head of the table."""

    id: str = ""
    programs: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    operands: int = 0
    valued: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    search: bool = False
    optional: bool = False
    verbs: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    activates: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    shells: tuple[str, ...] = ()
    user: bool = False
    alone: bool = False
    found: bool = False
    strict: bool = False


class Front(Data, frozen=True):
    """A program that starts others of its own package; as the table tells."""

    id: str = ""
    programs: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    always: bool = False
    sources: tuple[str, ...] = ()


class _Table(Data, frozen=True):
    launcher: tuple[Launcher, ...]
    front: tuple[Front, ...]
    makes_nothing: frozenset[str]
    keeps_output: frozenset[str]


class Launched(Struct, frozen=True):
    """What a launcher starts."""

    words: tuple[str, ...] = ()
    """From the command on."""
    assignments: tuple[str, ...] = ()
    """`NAME=VALUE` that it puts in the environment."""
    removed: tuple[str, ...] = ()
    """Variables that it takes out of the environment."""
    emptied: bool = False
    """It takes out all of them."""
    untold: bool = False
    """What it puts in the environment is not known: `env $(cat FILE) COMMAND`."""
    directory: str = ""
    """The working directory that it changes to."""
    by_loader: bool = False
    """A dynamic loader starts it that is named, in place of the one that the command asks for."""
    certain: bool = True
    """The command is the first of `words`; else an option's value may stand before it."""
    optional: bool = False
    """As Launcher.optional."""
    own: tuple[str, ...] = ()
    """As Launcher.own."""
    environment: str = ""
    """Conda's environment in which it does so, by its name or its directory."""
    for_user: bool = False
    """It does so for another user, for whom PATH may be another one (login.defs, sudoers)."""
    alone: bool = False
    """As Launcher.alone."""
    perhaps: bool = False
    """It does so for each of what it finds, which may be nothing."""


_LOADER = re.compile(r"ld-linux.*\.so\.\d|ld-musl-.*\.so\.1|ld64\.so\.\d|ld-\d.*\.so")
_LOADER_OPTIONS = (
    "--library-path", "--preload", "--argv0", "--inhibit-rpath", "--audit", "--glibc-hwcaps-prepend",
    "--glibc-hwcaps-mask",
)  # fmt: skip
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_LETTERS = re.compile("-[A-Za-z]+")
"""Options of one letter, of which the last may have a value."""


@cache
def _table() -> _Table:
    return msgspec.convert(Knowledge().table("analysis/launchers.toml"), _Table)


@cache
def launchers() -> dict[str, Launcher]:
    """All that are known, by the names of their programs."""
    return {name: launcher for launcher in _table().launcher for name in launcher.programs}


@cache
def fronts() -> dict[str, Front]:
    """All that are known, by the names of their programs."""
    return {name: front for front in _table().front for name in front.programs}


def makes_nothing(name: str) -> bool:
    """Whether no other program is there behind the program called `name` that was not before."""
    return name in _table().makes_nothing


def is_worker(name: str) -> bool:
    """Whether the program called `name` may be what a script is there for: it does more than look, say or keep."""
    return not makes_nothing(name) and name not in _table().keeps_output


def activated(name: str, arguments: tuple[str, ...]) -> str | None:
    """The environment of conda that the program called `name` puts before PATH in the shell that calls it, if any."""
    launcher = launchers().get(name)
    if launcher is None or not arguments or arguments[0] not in launcher.activates:
        return None
    inner, options = _parted(launcher, arguments[1:])
    named = (value for option, value in options if option in launcher.environments)
    return next(iter((*named, *inner.words)), "") or "base"


def launched(name: str, arguments: tuple[str, ...]) -> Launched | None:
    """What the program called `name` starts with `arguments`; None where it is no launcher."""
    if _LOADER.fullmatch(name):
        inner, options = _parted(Launcher(valued=_LOADER_OPTIONS), arguments)
        told = dict(options)
        variables = (("LD_LIBRARY_PATH", "--library-path"), ("LD_PRELOAD", "--preload"))
        assignments = tuple(f"{name}={told[option]}" for name, option in variables if option in told)
        return structs.replace(inner, assignments=assignments, by_loader=True)
    if (parts := becomes(name, arguments)) and parts[1]:
        return _of_execline(name, *parts)
    launcher = launchers().get(name)
    if launcher is None:
        return None
    if launcher.verbs:
        verb = next((at for at, word in enumerate(arguments) if word in launcher.verbs), len(arguments))
        arguments = arguments[verb + 1 :]
        if not arguments:
            return None
    ways = {"for_user": launcher.user, "alone": launcher.alone, "perhaps": launcher.found}
    return structs.replace(_arranged(name, launcher, arguments), **ways)


def _arranged(name: str, launcher: Launcher, arguments: tuple[str, ...]) -> Launched:
    if line := _line_of(launcher, arguments):
        return Launched(line)
    if launcher.search:
        return Launched(arguments, certain=False, optional=launcher.optional, own=launcher.own)
    if name in ("env", "sudo"):
        return _with_environment(name, launcher, arguments)
    inner, options = _parted(launcher, arguments)
    told = dict(options)
    directory, environment = (
        next((told[each] for each in named if each in told), "")
        for named in (launcher.directories, launcher.environments)
    )
    return structs.replace(inner, directory=directory, environment=environment)


def _of_execline(name: str, operands: tuple[str, ...], words: tuple[str, ...]) -> Launched:
    # Other programs have these names, too: ImageMagick has an `import`.
    return Launched(
        words,
        assignments=("=".join(operands),) if name == "export" else (),
        removed=operands if name == "unexport" else (),
        emptied=name == "emptyenv",
        directory=operands[0] if name == "cd" else "",
        certain=False,
        optional=True,
    )


def _line_of(launcher: Launcher, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The shell that a launcher starts, and the line that it gets; empty where it gets none."""
    _, options = _parted(launcher, arguments)
    line = next((value for option, value in options if option in launcher.lines), "")
    shell = next((value for option, value in options if option in launcher.shells), "/bin/sh")
    return (shell, "-c", line) if line else ()


def _with_environment(name: str, launcher: Launcher, arguments: tuple[str, ...]) -> Launched:
    inner, options = _parted(launcher, _split(arguments))
    words = inner.words
    count = next((index for index, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    directory = next((value for option, value in options if option in launcher.directories), "")
    if name == "sudo":
        # ld.so takes them from programs with the rights of others (ld.so(8), "secure-execution mode").
        return Launched(words[count:], words[:count], LOADER_VARIABLES, directory=directory, certain=inner.certain)
    removed = tuple(value for option, value in options if option in ("-u", "--unset"))
    emptied = any(option in ("-", "-i", "--ignore-environment") for option, _ in options)
    untold = any(GAP in word for word in words[count : count + 1])
    return Launched(words[count:], words[:count], removed, emptied, untold, directory, certain=inner.certain)


def _split(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """`env -S "words"`, `-Swords` and `--split-string=words`, which a `#!` line needs for more than one word."""
    for index, word in enumerate(arguments):
        if word in ("-S", "--split-string", "-vS"):
            return (*arguments[:index], *_words(arguments[index + 1 : index + 2]), *arguments[index + 2 :])
        if word.startswith(("-S", "--split-string=")):
            text = word.removeprefix("-S") if word.startswith("-S") else word.partition("=")[2]
            return (*arguments[:index], *_words((text,)), *arguments[index + 1 :])
        if not word.startswith("-"):
            break
    return arguments


def _words(text: tuple[str, ...]) -> list[str]:
    import shlex

    try:
        words = shlex.split(text[0]) if text else []
    except ValueError:
        return []
    return [GAP if "${" in word else word for word in words]  # a variable that env puts in


def operands(arguments: tuple[str, ...], valued: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The first word that is no option, and what follows it; `valued` are options with a value of their own."""
    return _parted(Launcher(valued=valued), arguments)[0].words


def _parted(launcher: Launcher, arguments: tuple[str, ...]) -> tuple[Launched, list[tuple[str, str]]]:
    """What is behind options and operands, and the options with their values."""
    options: list[tuple[str, str]] = []
    valued = {*launcher.valued, *launcher.lines, *launcher.shells}
    index, operands, certain = 0, launcher.operands, True
    while index < len(arguments):
        word = arguments[index]
        index += 1
        if word == "--":
            return Launched(arguments[index + operands :]), options
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            if name not in valued and _LETTERS.fullmatch(name) and f"-{name[-1]}" in valued:
                name = f"-{name[-1]}"
            if name in valued and not equals:
                value = arguments[index] if index < len(arguments) else ""
                index += 1
            certain &= name in valued or name in launcher.flags or bool(equals)
            options.append((name, value))
        elif operands:
            operands -= 1
        else:
            return Launched(arguments[index - 1 :], certain=certain), options
    return Launched(), options
