"""Scripts: what runs them, and what they hand over to."""

import re
import shlex

from imgcheck.documents.image import Script

_SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "mksh", "zsh"})
_EXEC = re.compile(rb"(?:^|[;&|{]|\b(?:then|else|do)\b)[ \t]*exec[ \t]+([^\n;&|]+)", re.MULTILINE)
"""`exec` where a command begins."""
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_FIRST_LINE = 256
"""Linux reads no more of a `#!` line (BINPRM_BUF_SIZE)."""
_EXECS_LIMIT = 32


def read_script(data: bytes) -> Script | None:
    """The script in `data`, which begins with `#!`; None where no interpreter stands behind it.

    `execs` holds the commands of `exec COMMAND` lines of shell scripts whose name stands there plainly, and `$@`
    where the script hands over to its own arguments (`exec "$@"`). `path` stays empty: only the finished tree tells it.
    """
    words = _words(data)
    if not words:
        return None
    shell = words[0] if posix_name(words[0]) != "env" else next((w for w in words[1:] if w[:1] != "-"), "")
    execs = _execs(data) if posix_name(shell) in _SHELLS else ()
    return Script("", words, execs)


def posix_name(path: str) -> str:
    return path.rpartition("/")[2]


def _words(data: bytes) -> tuple[str, ...]:
    """As the kernel splits it: the interpreter, then the rest of the line as words (`env -S` splits them again)."""
    line = data[2:_FIRST_LINE].partition(b"\n")[0].partition(b"\0")[0]
    return tuple(line.decode("utf-8", "backslashreplace").split())


def _execs(data: bytes) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for match in _EXEC.finditer(data):
        command = _command(match[1].decode("utf-8", "backslashreplace"))
        if command and len(found) < _EXECS_LIMIT:
            found[command] = None
    return tuple(found)


def _command(line: str) -> str:
    """The command that `exec LINE` runs; empty where only the shell can tell."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        # A quote that closes on a later line: the words before it still stand.
        words = line.split()
    while words[:1] and words[0] in ("-a", "-c", "-l", "--"):
        del words[: 2 if words[0] == "-a" else 1]
    if not words:
        return ""
    if words[0] == "$@":
        return "$@"
    return words[0] if _PLAIN.fullmatch(words[0]) and words[0].strip("-0123456789") else ""
