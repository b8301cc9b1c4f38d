"""Layers with anything a tar archive can hold, kind by kind, names and links unchecked."""

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reg:
    content: bytes = b""
    mode: int = 0o644
    mtime: int = 1_500_000_000
    xattrs: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Dir:
    mode: int = 0o755
    mtime: int = 1_500_000_000
    xattrs: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Sym:
    target: str


@dataclass(frozen=True)
class Device:
    """`kind` is char, block or fifo."""

    kind: str
    mode: int = 0o666


Member = Reg | Dir | Sym | Device | tuple[str, str]
"""A tuple ("hardlink", target) is a hardlink."""
_DEVICES = {"char": tarfile.CHRTYPE, "block": tarfile.BLKTYPE, "fifo": tarfile.FIFOTYPE}


def build(members: Mapping[str, Member] | Iterable[tuple[str, Member]]) -> bytes:
    """An uncompressed layer; a sequence of pairs may hold a name twice."""
    pairs = members.items() if isinstance(members, Mapping) else members
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as archive:
        for name, member in pairs:
            info = tarfile.TarInfo(name)
            content = _describe(info, member)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _describe(info: tarfile.TarInfo, member: Member) -> bytes:
    content = b""
    info.mtime = 1_500_000_000
    match member:
        case Reg(content, mode, mtime, xattrs):
            info.size, info.mode, info.mtime = len(content), mode, mtime
            info.pax_headers = _xattrs(xattrs)
        case Dir(mode, mtime, xattrs):
            info.type, info.mode, info.mtime, info.pax_headers = tarfile.DIRTYPE, mode, mtime, _xattrs(xattrs)
        case Sym(target):
            info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
        case Device(kind, mode):
            info.type, info.mode, info.devmajor, info.devminor = _DEVICES[kind], mode, 1, 3
        case (_, target):
            info.type, info.linkname = tarfile.LNKTYPE, target
    return content


def _xattrs(xattrs: dict[str, bytes]) -> dict[str, str]:
    return {f"SCHILY.xattr.{name}": value.decode("utf-8", "surrogateescape") for name, value in xattrs.items()}
