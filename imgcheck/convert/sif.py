"""Writes SIF, the single-file format of Apptainer and Singularity: a header, descriptors, and a squashfs.

Layout, little-endian and packed, of SIF format version 01: a header of 128 bytes at 0; 48 descriptors of 585 bytes
from 4096 on; data from 32176 on. Identifiers and times are fixed, so that the same image gives the same bytes.
"""

import os
import struct
from dataclasses import dataclass

from imgcheck.errors import ConvertError

_HEADER = struct.Struct("<32s10s3s3s16s8q")
_DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")
_LAUNCH = b"#!/usr/bin/env run-singularity\n"
_SLOTS = 48
_DESCRIPTORS_AT = 4096
_DATA_AT = _DESCRIPTORS_AT + _SLOTS * _DESCRIPTOR.size
_GROUP = 0xF0000000 | 1
_PARTITION, _JSON = 0x4004, 0x4006
_SQUASHFS, _PRIMARY_SYSTEM = 1, 2
_ALIGNMENT = 4096
_ARCHITECTURES = {
    "386": b"01", "amd64": b"02", "arm": b"03", "arm64": b"04", "ppc64": b"05", "ppc64le": b"06", "mips": b"07",
    "mipsle": b"08", "mips64": b"09", "mips64le": b"10", "s390x": b"11", "riscv64": b"12", "loong64": b"13",
}  # fmt: skip
_UNKNOWN = b"00"


@dataclass(frozen=True)
class Part:
    """A data object of the file, before its descriptor is made."""

    kind: int
    name: str
    offset: int
    size: int
    extra: bytes = b""


class SifPlan:
    """Where everything goes: the JSON objects first, the squashfs behind them, so that it can be streamed in place."""

    def __init__(self, architecture: str, documents: dict[str, bytes]) -> None:
        self._code = _ARCHITECTURES.get(architecture, _UNKNOWN)
        self._documents = documents
        end = _DATA_AT + sum(map(len, documents.values()))
        self.squashfs_offset = -(-end // _ALIGNMENT) * _ALIGNMENT

    def write(self, fd: int) -> None:
        """Write header, descriptors and documents round the squashfs that already lies at `squashfs_offset`."""
        end = os.fstat(fd).st_size
        if end <= self.squashfs_offset:
            raise ConvertError("the squashfs of the SIF was not written")
        parts = []
        offset = _DATA_AT
        for name, data in self._documents.items():
            os.pwrite(fd, data, offset)
            parts.append(Part(_JSON, name, offset, len(data), struct.pack("<ii", 1, 1)))
            offset += len(data)
        extra = struct.pack("<ii3s", _SQUASHFS, _PRIMARY_SYSTEM, self._code + b"\0")
        parts.append(Part(_PARTITION, "rootfs.squashfs", self.squashfs_offset, end - self.squashfs_offset, extra))
        os.pwrite(fd, self._header(len(parts), end), 0)
        os.pwrite(fd, _descriptors(parts), _DESCRIPTORS_AT)

    def _header(self, used: int, end: int) -> bytes:
        numbers = (0, 0, _SLOTS - used, _SLOTS, _DESCRIPTORS_AT, _SLOTS * _DESCRIPTOR.size, _DATA_AT, end - _DATA_AT)
        return _HEADER.pack(_LAUNCH, b"SIF_MAGIC\0", b"01\0", self._code + b"\0", bytes(16), *numbers)


def _descriptors(parts: list[Part]) -> bytes:
    table = b""
    before = _DATA_AT
    for number, part in enumerate(parts, 1):
        padded = part.offset + part.size - before
        before = part.offset + part.size
        place = (part.offset, part.size, padded)
        name = part.name.encode()
        table += _DESCRIPTOR.pack(part.kind, True, number, _GROUP, 0, *place, 0, 0, 0, 0, name, part.extra)
    return table.ljust(_SLOTS * _DESCRIPTOR.size, b"\0")
