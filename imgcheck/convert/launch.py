"""What a runtime starts: the image's config as Docker understands it, checked for what cannot be carried over."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from imgcheck.documents.image import ImageConfig
from imgcheck.errors import ConvertError

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_KERNEL_DIRECTORIES = ("/proc", "/sys", "/dev")
_MAX_ID = 2**31 - 1


@dataclass(frozen=True)
class Launch:
    """Entrypoint, arguments, environment and place of the image's process."""

    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    environment: dict[str, str]
    """In the config's order; of a name given twice the last value, as Docker does."""
    working_directory: str
    """Absolute and clean; "/" where the config names none."""
    user: str
    """As in the config."""
    uid: int | None = None
    """USER resolved in the image's passwd file; None where it cannot be. 0 where the config names nobody."""
    gid: int | None = None
    home: str = "/root"
    labels: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """What runs where the user gives no arguments; a shell where the image names nothing."""
        return (self.entrypoint + self.command) or ("/bin/sh",)

    @property
    def searchable(self) -> dict[str, str]:
        """The environment with Docker's own PATH where the config names none; for runtimes that add none."""
        return {"PATH": DEFAULT_PATH, **self.environment}


ReadText = Callable[[str], bytes | None]
"""The bytes of a small file at a path of the image, links resolved inside it; None where there is none."""


def read_launch(config: ImageConfig, read: ReadText) -> Launch:
    """Make a Launch of the config.

    Raises ConvertError where an argument holds a NUL, which no process can be given.
    """
    notes: list[str] = []
    for word in config.entrypoint + config.command:
        if "\0" in word:
            raise ConvertError("the image's ENTRYPOINT or CMD holds a NUL byte, which no process can be given")
    environment = _environment(config.environment, notes)
    uid, gid, home = _user(config.user, read, notes)
    return Launch(
        entrypoint=config.entrypoint,
        command=config.command,
        environment=environment,
        working_directory=_working_directory(config.working_directory, notes),
        user=config.user,
        uid=uid,
        gid=gid,
        home=home,
        labels=tuple(sorted(config.labels.items())),
        notes=tuple(notes),
    )


def _environment(lines: tuple[str, ...], notes: list[str]) -> dict[str, str]:
    result = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or not name or "\0" in line:
            notes.append(f"the ENV entry {line!r} is no NAME=value and was left out, as Docker does")
            continue
        result[name] = value
    return result


def _working_directory(path: str, notes: list[str]) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    clean = "/" + "/".join(parts)
    if "\0" in clean or any(clean == top or clean.startswith(top + "/") for top in _KERNEL_DIRECTORIES):
        notes.append(f"WORKDIR {path!r} lies in a directory of the kernel; / is used instead")
        return "/"
    return clean


def _user(user: str, read: ReadText, notes: list[str]) -> tuple[int | None, int | None, str]:
    """(uid, gid, home) of a USER in any of Docker's forms: name or id, with or without :group or :gid."""
    name, _, group = user.partition(":")
    accounts = _colon_lines(read("/etc/passwd"), 7)
    if name.isdecimal():
        account = next((row for row in accounts if row[2] == name), None)
        uid, gid = _number(name), _number(account[3]) if account else 0
    else:
        account = next((row for row in accounts if row[0] == (name or "root")), None)
        uid = _number(account[2]) if account else (None if name else 0)
        gid = _number(account[3]) if account else (None if name else 0)
    home = account[5] if account and account[5].startswith("/") else "/"
    if not account and uid == 0:
        home = "/root"
    if group:
        rows = _colon_lines(read("/etc/group"), 4)
        gid = _number(group) if group.isdecimal() else next((_number(r[2]) for r in rows if r[0] == group), None)
    if uid is None or gid is None:
        notes.append(f"USER {user!r} is not in the image's passwd and group files: Docker refuses to start it")
    return uid, gid, home


def _colon_lines(data: bytes | None, fields: int) -> list[list[str]]:
    lines = (data or b"").decode("utf-8", "backslashreplace").split("\n")
    return [row for row in (line.split(":") for line in lines) if len(row) >= fields]


def _number(text: str) -> int | None:
    """A user or group id; None beyond what Docker takes (CVE-2024-40635 is an id that wraps round to 0)."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= _MAX_ID else None


def is_identifier(name: str) -> bool:
    """Whether a shell can export a variable of this name."""
    return bool(_IDENTIFIER.match(name))


def words(arguments: tuple[str, ...]) -> str:
    """Arguments quoted for a shell; the form holds for dash, bash, busybox and Apptainer's own shell alike."""
    return " ".join(shlex.quote(word) for word in arguments)
