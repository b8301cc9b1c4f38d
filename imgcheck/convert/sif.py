"""Writes SIF files (imgcheck.sif_format) of one squashfs and the documents about it.

Identifiers and times are fixed, so that the same image gives the same bytes.
"""

import os
from dataclasses import dataclass

from imgcheck.errors import ConvertError
from imgcheck.sif_format import (
    CODES,
    DESCRIPTOR,
    HEADER,
    IS_JSON,
    IS_PARTITION,
    JSON,
    MAGIC,
    PARTITION,
    PRIMARY_SYSTEM,
    SQUASHFS,
    UNKNOWN,
    VERSION,
)

_LAUNCH = b"#!/usr/bin/env run-singularity\n"
_SLOTS = 48
_DESCRIPTORS_AT = 4096
_DATA_AT = _DESCRIPTORS_AT + _SLOTS * DESCRIPTOR.size
_GROUP = 0xF0000000 | 1
_ALIGNMENT = 4096


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
        self._code = CODES.get(architecture, UNKNOWN)
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
            parts.append(Part(IS_JSON, name, offset, len(data), JSON.pack(1, 1)))
            offset += len(data)
        extra = PARTITION.pack(SQUASHFS, PRIMARY_SYSTEM, self._code + b"\0")
        parts.append(Part(IS_PARTITION, "rootfs.squashfs", self.squashfs_offset, end - self.squashfs_offset, extra))
        os.pwrite(fd, self._header(len(parts), end), 0)
        os.pwrite(fd, _descriptors(parts), _DESCRIPTORS_AT)

    def _header(self, used: int, end: int) -> bytes:
        numbers = (0, 0, _SLOTS - used, _SLOTS, _DESCRIPTORS_AT, _SLOTS * DESCRIPTOR.size, _DATA_AT, end - _DATA_AT)
        return HEADER.pack(_LAUNCH, MAGIC, VERSION + b"\0", self._code + b"\0", bytes(16), *numbers)


def _descriptors(parts: list[Part]) -> bytes:
    table = b""
    before = _DATA_AT
    for number, part in enumerate(parts, 1):
        padded = part.offset + part.size - before
        before = part.offset + part.size
        place = (part.offset, part.size, padded)
        name = part.name.encode()
        table += DESCRIPTOR.pack(part.kind, True, number, _GROUP, 0, *place, 0, 0, 0, 0, name, part.extra)
    return table.ljust(_SLOTS * DESCRIPTOR.size, b"\0")
