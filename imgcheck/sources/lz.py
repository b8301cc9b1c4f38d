"""Decompresses blocks of LZO1X and LZ4, the two methods of squashfs that no library at hand reads.

LZO as in the Linux documentation (staging/lzo.rst), LZ4 as in its block format description. In plain Python, which is
enough for tables: enroot stores contents as they are and has LZO for the rest.
"""

_END = 16384
"""The LZO distance that ends a stream."""


def lzo(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes. ValueError or IndexError where `data` is no LZO1X stream."""
    out = bytearray()
    at, state = 0, 0
    if data[0] > 17:
        # A first byte of this kind stands for literals alone.
        count = data[0] - 17
        out += _literals(data, 1, count)
        at, state = 1 + count, min(count, 4)
    while True:
        code = data[at]
        at += 1
        if code < 16 and state == 0:
            count, at = _length(data, at, code, 15)
            out += _literals(data, at, count + 3)
            at, state = at + count + 3, 4
            if len(out) > limit:
                return bytes(out)
            continue
        length, distance, state, at = _lzo_match(data, at, code, state)
        if distance == _END and code & 0xF0 == 16:
            return bytes(out)
        _copy(out, distance, length, limit)
        out += _literals(data, at, state)
        at += state
        if len(out) > limit:
            return bytes(out)


def _lzo_match(data: bytes, at: int, code: int, state: int) -> tuple[int, int, int, int]:
    """Length, distance, literals that follow, and position behind the instruction `code`."""
    if code >= 64:
        length = 5 + (code >> 5 & 3) if code >= 128 else 3 + (code >> 5 & 1)
        return length, (data[at] << 3) + (code >> 2 & 7) + 1, code & 3, at + 1
    if code >= 16:
        bits = 31 if code >= 32 else 7
        length, at = _length(data, at, code & bits, bits)
        word = data[at] | data[at + 1] << 8
        distance = (word >> 2) + 1 if code >= 32 else _END + ((code & 8) << 11) + (word >> 2)
        return length + 2, distance, word & 3, at + 2
    distance = (data[at] << 2) + (code >> 2)
    length, least = (3, 2049) if state == 4 else (2, 1)
    return length, distance + least, code & 3, at + 1


def _length(data: bytes, at: int, short: int, base: int) -> tuple[int, int]:
    """A length that zero bytes continue, 255 each."""
    if short:
        return short, at
    while not data[at]:
        base += 255
        at += 1
    return base + data[at], at + 1


def lz4(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes. ValueError or IndexError where `data` is no LZ4 block."""
    out = bytearray()
    at = 0
    while True:
        token = data[at]
        count, at = _lz4_length(data, at + 1, token >> 4)
        out += _literals(data, at, count)
        at += count
        if at == len(data) or len(out) > limit:
            return bytes(out)
        distance = data[at] | data[at + 1] << 8
        length, at = _lz4_length(data, at + 2, token & 15)
        _copy(out, distance, length + 4, limit)


def _lz4_length(data: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while data[at] == 255:
            length += 255
            at += 1
        length += data[at]
        at += 1
    return length, at


def _literals(data: bytes, at: int, count: int) -> bytes:
    if at + count > len(data):
        raise ValueError("literals behind the end of the block")
    return data[at : at + count]


def _copy(out: bytearray, distance: int, length: int, limit: int) -> None:
    """Append `length` bytes that stand `distance` before the end; they may overlap what is appended."""
    start = len(out) - distance
    if start < 0 or not distance:
        raise ValueError("a match before the beginning of the block")
    length = min(length, limit + 1 - len(out))
    piece = out[start : start + length]
    out += (piece * (length // distance + 1))[:length] if distance < length else piece
