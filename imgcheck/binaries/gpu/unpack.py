"""Unpacks just the beginning, or a small whole, of a packed fatbin entry."""

from imgcheck.binaries.gpu.fatbin import LZ4_FLAG, ZSTD_FLAG, Entry


def image(area: memoryview, entry: Entry, limit: int) -> bytes:
    """Up to `limit` leading bytes of an entry's image; fewer, or none, where it is packed in a way not known."""
    payload = area[entry.offset : entry.offset + entry.size]
    wanted = min(limit, entry.unpacked)
    if not entry.packed:
        return bytes(payload[:wanted])
    if entry.flags & LZ4_FLAG:
        return lz4_prefix(payload, wanted)
    if entry.flags & ZSTD_FLAG:
        return _zstd_prefix(payload, wanted)
    return b""


def lz4_prefix(block: memoryview, wanted: int) -> bytes:
    """The first `wanted` bytes of an LZ4 block; what was decoded up to a defect of the block.

    Block format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
    """
    out = bytearray()
    at, end = 0, len(block)
    while at < end and len(out) < wanted:
        token = block[at]
        literals, at = _length(block, token >> 4, at + 1)
        out += block[at : at + min(literals, wanted - len(out))]
        at += literals
        if at + 2 > end or len(out) >= wanted:
            break
        distance = block[at] | block[at + 1] << 8
        matched, at = _length(block, token & 15, at + 2)
        if not distance or distance > len(out):
            break
        _repeat(out, distance, min(matched + 4, wanted - len(out)))
    return bytes(out)


def _length(block: memoryview, length: int, at: int) -> tuple[int, int]:
    if length < 15:
        return length, at
    while at < len(block):
        extra = block[at]
        at += 1
        length += extra
        if extra != 255:
            break
    return length, at


def _repeat(out: bytearray, distance: int, count: int) -> None:
    piece = bytes(out[-distance:])
    out += (piece * (count // distance + 1))[:count]


def _zstd_prefix(payload: memoryview, wanted: int) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(payload) as reader:
            return reader.read(wanted)
    except zstandard.ZstdError:
        return b""
