"""Scripts: what runs them, and what they run or import."""

import re

from imgcheck.documents.image import Script
from imgcheck.documents.shell_commands import ShellCommand, packed
from imgcheck.loader.closure import in_python_packages
from imgcheck.loader.execline import EXECLINE, read_execline
from imgcheck.loader.python import python_version
from imgcheck.loader.shell import SHELLS, asks_cpu, read_commands
from imgcheck.loader.shell_words import UNKNOWN
from imgcheck.loader.statements import Statements, of_application, of_package

_OWN_LIBRARY = re.compile(r"(?:^|/)(?:python|pypy)\d[^/]*/(?!(?:site|dist)-packages/)|^usr/share/").search
"""Python's own, and what systems keep beside it."""
_ANYTHING = (ShellCommand((UNKNOWN,), conditional=True),)
"""What stands where it is not known what is run."""
_FIRST_LINE = 256
"""Linux reads no more of a `#!` line (BINPRM_BUF_SIZE)."""


def read_script(data: bytes, executable: bool = True, whole: bool = True) -> Script | None:
    """The script in `data`; None where a `#!` has no interpreter behind it.

    Without `#!` it is a shell's. `whole` is false where the file goes on behind `data`. `path` stays empty: only the
    finished tree tells it.
    """
    words = _words(data) if data[:2] == b"#!" else ()
    if not words and data[:2] == b"#!":
        return None
    execline = any(EXECLINE in _names((word,)) for word in words)
    if not execline and not _is_shell(words):
        return Script("", words, "", executable)
    text = data.decode("utf-8", "backslashreplace")
    commands = read_execline(text) if execline else read_commands(text)
    return Script("", words, packed(commands + (() if whole else _ANYTHING)), executable, asks_cpu(text))


def script_untold(data: bytes, executable: bool = True) -> Script:
    """The script in `data` where nothing is told of what it runs."""
    return Script("", _words(data) if data[:2] == b"#!" else (), packed(_ANYTHING), executable)


def is_module(path: str) -> bool:
    """Whether the file at `path` is a Python text that somebody may import, of another library than Python's own."""
    return path.endswith(".py") and not _OWN_LIBRARY(path)


def is_program(path: str, script: Script) -> bool:
    """Whether the script at `path` is one of Python, whose first line may name it behind a launcher.

    Where the path of a virtual environment is too long for that line, or has a blank, installers write a text that a
    shell reads too, and hands to Python: `exec /my venv/bin/python "$0" "$@"` (distlib, and pip with it).
    """
    if _OWN_LIBRARY(path):
        return False
    words = (*script.interpreter, *(each.words[1] for each in script.commands[:1] if _hands_itself_on(each.words)))
    return any(python_version(name) is not None for name in _names(words))


def _hands_itself_on(words: tuple[str, ...]) -> bool:
    return words[:1] == ("exec",) and words[2:] == ("${0}", "${@}")


def read_python(path: str, data: bytes) -> Statements:
    """What the Python text at `path` imports."""
    return of_package(data) if in_python_packages((f"/{path}",)) else of_application(data)


def _is_shell(words: tuple[str, ...]) -> bool:
    """A launcher may stand before the shell (`#!/usr/bin/env bash`, `#!/usr/bin/dumb-init /bin/sh`)."""
    return not words or not _names(words).isdisjoint(SHELLS)


def _names(words: tuple[str, ...]) -> set[str]:
    """File names of what a first line asks for."""
    return {name.rpartition("/")[2].rstrip("\r") for word in words for name in word.split(" ")}


def _words(data: bytes) -> tuple[str, ...]:
    """As the kernel splits it: the interpreter, and the rest of the line as one argument (fs/binfmt_script.c).

    A carriage return stays: to the kernel it is a part of the name.
    """
    line = data[2:_FIRST_LINE].partition(b"\n")[0].partition(b"\0")[0]
    name, _, argument = line.decode("utf-8", "backslashreplace").replace("\t", " ").strip(" ").partition(" ")
    return tuple(word for word in (name, argument.strip(" ")) if word)
