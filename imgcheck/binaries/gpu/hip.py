"""Targets of AMD code: the offload bundles of `.hip_fatbin`, plain and compressed.

A plain bundle is `__CLANG_OFFLOAD_BUNDLE__`, u64 count, then for each entry u64 offset, u64 size, u64 length and the
triple. A compressed one is `CCOB`, u16 version, u16 method (0 zlib, 1 zstd), sizes and a hash, then the packed plain
bundle (https://clang.llvm.org/docs/ClangOffloadBundler.html).
"""

import re
import struct
import zlib

from imgcheck.binaries.elf import Elf
from imgcheck.errors import ElfError

_PLAIN = b"__CLANG_OFFLOAD_BUNDLE__"
_PACKED = b"CCOB"
_HEADER_SIZES = {1: 20, 2: 24, 3: 32}
_TRIPLE = re.compile(rb"hip(?:v4)?-amdgcn-amd-amdhsa--?([a-z0-9][A-Za-z0-9:+\-]*)")
_HEAD = 1 << 16
_CHUNK = 1 << 22
_MOST = 1 << 16
"""Bundles; libraries with one for each source file have some thousand."""


def targets(elf: Elf) -> tuple[str, ...]:
    """Targets such as "gfx90a:sramecc+:xnack-" of every bundle in the file; only their headers are unpacked."""
    found: set[str] = set()
    for area in elf.areas(".hip_fatbin"):
        found |= bundle_targets(area)
    return tuple(sorted(found))


def bundle_targets(area: memoryview) -> set[str]:
    """Targets of the bundles in `area`, which follow each other at multiples of 4096 or of 8."""
    found: set[str] = set()
    bundles = 0
    pattern = re.compile(re.escape(_PLAIN) + b"|" + _PACKED)
    for at in range(0, len(area), _CHUNK):
        chunk = bytes(area[at : at + _CHUNK + 32])
        for match in pattern.finditer(chunk):
            begin = at + match.start()
            if begin % 8 == 0 and match.start() < _CHUNK:
                found |= _plain(_head(area[begin:], match[0]))
                bundles += 1
                if bundles >= _MOST:
                    raise ElfError("absurd offload bundles: more than any file has")
    return found


def _head(bundle: memoryview, magic: bytes) -> bytes:
    if magic == _PLAIN:
        return bytes(bundle[:_HEAD])
    if len(bundle) < 8:
        return b""
    version, method = struct.unpack_from("<HH", bundle, 4)
    payload = bundle[_HEADER_SIZES.get(version, 0) :]
    if version not in _HEADER_SIZES:
        return b""
    try:
        if method == 0:
            return zlib.decompressobj().decompress(bytes(payload[:_HEAD]), _HEAD)
        return _zstd(payload)
    except zlib.error:
        return b""


def _zstd(payload: memoryview) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(payload) as reader:
            return reader.read(_HEAD)
    except zstandard.ZstdError:
        return b""


def _plain(head: bytes) -> set[str]:
    if head[:24] != _PLAIN or len(head) < 32:
        return set()
    found, at = set(), 32
    for _ in range(min(int.from_bytes(head[24:32], "little"), 1024)):
        length = int.from_bytes(head[at + 16 : at + 24], "little")
        match = _TRIPLE.fullmatch(head[at + 24 : at + 24 + length])
        if match:
            found.add(match[1].decode())
        at += 24 + length
        if at >= len(head):
            break
    return found
