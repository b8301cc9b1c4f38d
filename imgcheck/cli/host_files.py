"""The hosts that an image is held against: this machine, or documents kept by `imgcheck probe -o`."""

from collections.abc import Sequence
from pathlib import Path

from imgcheck.documents import HostProfile, decode
from imgcheck.documents.codec import kind_of, read_document, read_whole
from imgcheck.errors import DocumentError, UsageError
from imgcheck.knowledge import Knowledge

THIS_HOST = ""
"""Stands for the machine we run on among the values of `--host-probe`."""

_OPTION = "--host-probe"
_NAMES = (_OPTION, "--host")
_WAY_OUT = "make one on that host with: imgcheck probe -o HOST.json"


def split_host_probe(arguments: Sequence[str]) -> list[str]:
    """`--host-probe [HOST.json ...]` as one `--host-probe=VALUE` each, so that REF may stand before or after it.

    `--host`, as preflight calls it, means the same. A token after it is a host file only if it ends in `.json` or is a
    file that holds a HostProfile; the first other token ends the list. Without any file the value is THIS_HOST. Raises
    UsageError for an empty one: an unset shell variable must not stand for this machine.
    """
    result: list[str] = []
    rest = list(arguments)
    while rest:
        token = rest.pop(0)
        name = token.removesuffix("=")
        if name in _NAMES and (token != name or rest[:1] == [""]):
            raise UsageError(f"{name} is empty", "name a file, or let nothing follow for this machine")
        if token not in _NAMES:
            result.append(token)
            continue
        files = 0
        while rest and _is_host_file(rest[0]):
            result.append(f"{_OPTION}={rest.pop(0)}")
            files += 1
        if not files:
            result.append(f"{_OPTION}={THIS_HOST}")
    return result


def load_hosts(values: Sequence[str], knowledge: Knowledge) -> list[HostProfile]:
    """The profile of each value of `--host-probe`: files are read, THIS_HOST is probed."""
    return [_read(Path(value)) if value else _probe(knowledge) for value in values]


def _is_host_file(token: str) -> bool:
    if token.startswith("-"):
        return False
    if token.endswith(".json"):
        return True
    try:
        data = read_document(token)
    except OSError:
        return False
    return data is not None and kind_of(data) == "host"


def _read(path: Path) -> HostProfile:
    try:
        data = read_whole(path)
    except OSError as error:
        raise DocumentError(f"{path}: {error.strerror}", _WAY_OUT) from None
    if kind_of(data) == "image":
        raise UsageError(f"{path} is an image profile, not a host", f"put it before {_OPTION}")
    try:
        return decode(data, HostProfile, str(path))
    except DocumentError as error:
        raise DocumentError(error.message, error.hint or _WAY_OUT) from None


def _probe(knowledge: Knowledge) -> HostProfile:
    from imgcheck.host.probe import probe_host

    return probe_host(knowledge=knowledge)
