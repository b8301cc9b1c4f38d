"""Members of an `ar` archive of object files, as static libraries are."""

from collections.abc import Iterator

MAGIC = b"!<arch>\n"
_HEADER = 60


def members(data: memoryview) -> Iterator[memoryview]:
    """The bytes of each member in order; the walk ends at the first header that does not parse.

    A member's header is 60 bytes of text (ar.h): name 16, date 12, uid 6, gid 6, mode 8, size 10, two bytes of end
    mark. Members begin at even offsets. Symbol tables and name tables are members too and are no ELF files.
    """
    at = len(MAGIC)
    while at + _HEADER <= len(data):
        header = bytes(data[at : at + _HEADER])
        size = header[48:58].strip()
        if header[58:] != b"`\n" or not size.isdigit():
            return
        begin = at + _HEADER
        yield data[begin : begin + int(size)]
        at = begin + int(size) + 1 & ~1
