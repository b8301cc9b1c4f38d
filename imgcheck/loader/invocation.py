"""How a shell is invoked: what it is given to run, and the files that it reads before that.

Sources: bash(1), "INVOCATION"; dash(1), "Invocation"; POSIX, XCU sh.
"""

import re

from msgspec import Struct

_VALUED = ("--rcfile", "--init-file")
HOME = "${HOME:-/root}"
"""The home directory, as a template: that of root where nothing tells."""


class Invocation(Struct, frozen=True):
    """The words behind a shell's name."""

    line: bool
    """A line of commands is given (`-c`), else a script."""
    operands: tuple[str, ...]
    """The line or the script, and what follows it; empty for a shell that somebody types to."""
    startup: tuple[tuple[str, ...], ...] = ()
    """Templates of the files that are read first, in order; of each group the first one that is there."""
    errexit: bool = False
    """It ends where a command fails (`-e`)."""
    named: str = ""
    """Template of one more, which a variable names; empty where none does."""


def invocation(name: str, arguments: tuple[str, ...]) -> Invocation:
    """What the shell called `name` does with `arguments`."""
    letters, words, operands = _parted(arguments)
    login = "l" in letters or "--login" in words
    interactive = "i" in letters
    startup = _startup(name, login, interactive, words)
    return Invocation("c" in letters, operands, startup, "e" in letters, _named(name, login, interactive))


def _named(name: str, login: bool, interactive: bool) -> str:
    if name == "bash":
        return "" if login or interactive else "${BASH_ENV:-}"
    return "${ENV:-}" if interactive else ""


def _startup(name: str, login: bool, interactive: bool, words: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    if name == "bash":
        if login:
            own = tuple(f"{HOME}/{file}" for file in (".bash_profile", ".bash_login", ".profile"))
            return () if "--noprofile" in words else (("/etc/profile",), own)
        if interactive and "--norc" not in words:  # the first is a choice of Debian's
            return ("/etc/bash.bashrc",), (f"{HOME}/.bashrc",)
        return ()
    return (("/etc/profile",), (f"{HOME}/.profile",)) if login else ()


def _parted(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The letters of a shell's options, its options that are words, and what stands behind them."""
    letters, words, index = "", [], 0
    while index < len(arguments) and arguments[index][:1] in ("-", "+") and arguments[index] != "-":
        word = arguments[index]
        index += 1
        if word == "--":
            break
        if word.startswith("--"):
            words.append(word)
            index += word in _VALUED
            continue
        letters += word[1:] if word[0] == "-" else ""
        index += bool(re.search("[oO]", word))
    return letters, tuple(words), arguments[index:]
