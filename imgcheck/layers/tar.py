"""Reads tar archives as a stream: ustar, pax, GNU and sparse members, strict about what does not add up.

Layouts are those of POSIX.1-2017 `pax` (ustar and extended headers) and of the GNU tar manual (long names, base-256
numbers, the old and the three pax forms of sparse members). Where implementations differ the reader sides with
Go's archive/tar, which unpacks layers in Docker, Podman, containerd and Apptainer.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, overload

from isal.isal_zlib import adler32

from imgcheck.errors import LayerError
from imgcheck.layers.entry import Entry, Kind, PlainFiles, Select
from imgcheck.layers.model import Content

BLOCK = 512
_ZERO = bytes(BLOCK)
# name, (mode, uid, gid), size, mtime, chksum, typeflag
_HEADER = struct.Struct("100s24s12s12s8sc")
# The same, first byte of the prefix, first byte behind the header
_LONGER_HEADER = struct.Struct("100s24s12s12s8sc188xB166xB")
_EXTENSION_LIMIT = 1 << 20
"""Bytes of one pax header or long name, as in Go: nobody writes more, and it is held in memory."""
_SPARSE_LIMIT = 1 << 18
"""Segments of one sparse member."""
_ADLER_BASE = 65521
_OCTAL_DIGITS = frozenset(b"01234567")

_KINDS: dict[bytes, Kind] = {
    b"0": "file", b"\0": "file", b"7": "file", b"S": "file", b"1": "hardlink", b"2": "symlink",
    b"3": "character", b"4": "block", b"5": "directory", b"6": "fifo",
}  # fmt: skip
_EXTENSIONS = frozenset(b"xXgLK")
_TEXTS = ("path", "linkpath", "uname", "gname", "GNU.sparse.name")
"""Records of pax headers whose values end at a NUL elsewhere; others may be any bytes."""

Records = dict[str, str]
Segments = list[tuple[int, int]]


@overload
def read_tar(
    chunks: Iterator[bytes | memoryview], name: str, select: None = None
) -> Iterator[tuple[Entry, Content | None]]: ...
@overload
def read_tar(
    chunks: Iterator[bytes | memoryview], name: str, select: Select | None
) -> Iterator[tuple[Entry | PlainFiles, Content | None]]: ...
def read_tar(
    chunks: Iterator[bytes | memoryview], name: str, select: Select | None = None
) -> Iterator[tuple[Entry | PlainFiles, Content | None]]:
    """The members of the archive whose bytes `chunks` yields; Content for regular files alone.

    The archive ends at two zero blocks or, as writers differ, at the end of the data where a header could begin.
    `chunks` is not drained behind the end; each chunk is used until the next is asked for. With `select`, regular
    files that it does not want may come as PlainFiles, and no entry has extended attributes. Raises LayerError, with
    `name` in front, where a header's checksum is wrong, a number is negative or absurd, a member's kind is unknown or
    the data end inside a member.
    """
    return _Reader(_Stream(chunks, name), with_xattrs=select is None).members(select)


class _Stream:
    """Consecutive chunks as one run of bytes, with `data[at:]` in hand."""

    __slots__ = ("at", "chunks", "data", "name")

    def __init__(self, chunks: Iterator[bytes | memoryview], name: str) -> None:
        self.chunks = chunks
        self.name = name
        self.data = memoryview(b"")
        self.at = 0

    def fail(self, message: str) -> NoReturn:
        raise LayerError(f"{self.name}: {message}", hint="fetch or build the layer again")

    def fill(self) -> bool:
        """Take the next chunk once the one in hand is used up; False at the end."""
        self.data = memoryview(next(self.chunks, b""))
        self.at = 0
        return bool(self.data)

    def block(self) -> bytes:
        """The next 512 bytes; empty at the end of the data."""
        at = self.at
        block = bytes(self.data[at : at + BLOCK])
        if len(block) == BLOCK:
            self.at = at + BLOCK
            return block
        if not block and not self.fill():
            return b""
        return self.take(BLOCK, "a header") if not block else self._joined(block)

    def _joined(self, head: bytes) -> bytes:
        self.at += len(head)
        return head + self.take(BLOCK - len(head), "a header")

    def take(self, size: int, what: str) -> bytes:
        """Exactly `size` bytes; memory grows with what is really there, since sizes lie."""
        parts: list[bytes] = []
        while size:
            if self.at >= len(self.data) and not self.fill():
                self.truncated(what)
            part = bytes(self.data[self.at : self.at + size])
            self.at += len(part)
            size -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readinto(self, buffer: memoryview, what: str) -> None:
        done, size = 0, len(buffer)
        while done < size:
            if self.at >= len(self.data) and not self.fill():
                self.truncated(what)
            count = min(size - done, len(self.data) - self.at)
            buffer[done : done + count] = self.data[self.at : self.at + count]
            self.at += count
            done += count

    def skip(self, size: int, what: str) -> None:
        self.at += size
        while self.at > len(self.data):
            over = self.at - len(self.data)
            if not self.fill():
                self.truncated(what)
            self.at = over

    def pad(self, size: int) -> None:
        """Pass over padding; like Go, take an archive whose last member lacks its own."""
        self.at += size
        while self.at > len(self.data):
            over = self.at - len(self.data)
            if not self.fill():
                return
            self.at = over

    def truncated(self, what: str) -> NoReturn:
        raise LayerError(f"{self.name}: truncated: the data end inside {what}", hint="fetch the layer again")


class Body:
    """Content of the member at hand; one object serves all members of an archive."""

    __slots__ = ("left", "path", "stream")

    def __init__(self, stream: _Stream) -> None:
        self.stream = stream
        self.left = 0
        self.path = ""

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), self.left)
        self.stream.readinto(memoryview(buffer)[:count], self.path)
        self.left -= count
        return count

    def piece(self) -> memoryview:
        """What is in hand of the bytes that are left, not copied and good until more is asked for; empty at the end."""
        stream = self.stream
        if self.left and stream.at >= len(stream.data) and not stream.fill():
            stream.truncated(self.path)
        piece = stream.data[stream.at : stream.at + self.left]
        stream.at += len(piece)
        self.left -= len(piece)
        return piece

    def read(self, size: int = -1) -> bytes:
        count = self.left if size < 0 else min(size, self.left)
        stream = self.stream
        at = stream.at
        data = bytes(stream.data[at : at + count])
        if len(data) == count:
            stream.at = at + count
        else:
            data = stream.take(count, self.path)
        self.left -= count
        return data


class SparseBody:
    """Content of a sparse member: its segments with zeros between them."""

    def __init__(self, body: Content, segments: Segments, size: int) -> None:
        self.segments = segments
        """(offset, bytes) of what is stored, in the order in which it is."""
        self._body = body
        self._left = iter([*segments, (size, 0)])
        self._next = next(self._left)
        self._at = 0
        self._size = size

    def readinto(self, buffer: memoryview) -> int:
        buffer = memoryview(buffer)
        wanted = min(len(buffer), self._size - self._at)
        done = 0
        while done < wanted:
            offset, length = self._next
            if self._at < offset:
                count = min(offset - self._at, wanted - done)
                _zero(buffer[done : done + count])
            elif self._at < offset + length:
                count = min(offset + length - self._at, wanted - done)
                self._body.readinto(buffer[done : done + count])
            else:
                self._next = next(self._left)
                continue
            done += count
            self._at += count
        return done

    def read(self, size: int = -1) -> bytes:
        left = self._size - self._at
        buffer = bytearray(left if size < 0 else min(size, left))
        self.readinto(memoryview(buffer))
        return bytes(buffer)


def _zero(buffer: memoryview) -> None:
    zeros = memoryview(bytes(min(len(buffer), 1 << 20)))
    for start in range(0, len(buffer), 1 << 20):
        part = buffer[start : start + (1 << 20)]
        part[:] = zeros[: len(part)]


class _Reader:
    def __init__(self, stream: _Stream, with_xattrs: bool) -> None:
        self.stream = stream
        self.with_xattrs = with_xattrs
        self.body = Body(stream)
        self.numbers: dict[bytes, int] = {}
        self.owners: dict[bytes, tuple[int, int, int]] = {}
        self.sums: dict[bytes, int] = {}

    def members(self, select: Select | None) -> Iterator[tuple[Entry | PlainFiles, Content | None]]:
        """Runs once per member of archives with 300,000 of them: plain members call nothing but the cheapest.

        Whoever writes a layer repeats modes, owners, times and lengths, so that nearly every number is found in a
        dictionary by its very bytes.
        """
        stream, body, numbers, owners, sums = self.stream, self.body, self.numbers, self.owners, self.sums
        unpack_from = _HEADER.unpack_from
        while True:
            if select and (paths := self._pass_plain(select)):
                yield PlainFiles(paths), None
            at = stream.at
            block = bytes(stream.data[at : at + BLOCK])
            if len(block) == BLOCK:
                stream.at = at + BLOCK
            else:
                block = stream.block()
            if not block or (block == _ZERO and self._ends()):
                return
            name, owner, size, mtime, checksum, flag = unpack_from(block)
            if adler32(block) & 0xFFFF != sums.get(checksum):
                self._check(block, checksum)
            if flag == b"0" and size in numbers:
                try:
                    path = self._path(block) if block[345] else name.partition(b"\0")[0].decode()
                except UnicodeDecodeError:
                    path = self._path(block)
                if "/." in path or "//" in path or path[:1] in "/." or path[-1:] == "/":
                    path = clean(path)
                mode, uid, gid = owners.get(owner) or self._owner(owner)
                length = numbers[size]
                time = numbers.get(mtime)
                if time is None:
                    time = self._number(mtime, "mtime")
                entry = Entry(path, "file", mode, length, "", uid, gid, time)
                content: Content = body
            else:
                described = self._member(block)
                if described is None:
                    return
                entry, length, segments = described
                if entry.kind != "file":
                    yield entry, None
                    continue
                content = body if segments is None else self._sparse_body(entry, segments, length)
            body.left = length
            body.path = entry.path
            yield entry, content
            padding = -length & 511
            at = stream.at + body.left + padding
            if at <= len(stream.data):
                stream.at = at
            else:
                stream.skip(body.left, entry.path)
                stream.pad(padding)

    def _pass_plain(self, select: Select) -> list[str]:
        """Paths of the files from here on that `select` does not want, as far as the chunk in hand shows it at once.

        Takes what is ordinary in every respect, long names included, and leaves the rest to `members`: other kinds,
        a path to be cleaned, a member at the end of the chunk.
        """
        stream, numbers, owners, sums = self.stream, self.numbers, self.owners, self.sums
        data, unpack_from = stream.data, _LONGER_HEADER.unpack_from
        interesting, wants = select.first_bytes, select.wants
        at = after = stream.at
        last = len(data) - _LONGER_HEADER.size
        long, paths, length = b"", [], 0
        while at <= last:
            name, owner, size, mtime, checksum, flag, prefix, first = unpack_from(data, at)
            if adler32(data[at : at + BLOCK]) & 0xFFFF != sums.get(checksum):
                if not any(data[at : at + BLOCK]):
                    break
                self._check(bytes(data[at : at + BLOCK]), checksum)
            if flag != b"0" and flag != b"L":
                break
            known = numbers.get(size)
            length = self._number(size, "size") if known is None else known
            if length < 0:
                break
            if flag == b"L":
                if long or not 1 < length <= BLOCK:
                    break
                long = bytes(data[at + BLOCK : at + BLOCK + length])
                at += 2 * BLOCK
                continue
            if prefix:
                break
            if owner not in owners:
                self._owner(owner)
            if mtime not in numbers:
                self._number(mtime, "mtime")
            try:
                path = (long or name).partition(b"\0")[0].decode()
            except UnicodeDecodeError:
                break
            if "/." in path or "//" in path or path[:1] in "/." or path[-1:] == "/":
                break
            if (length and first in interesting) or wants(path):
                break
            paths.append(path)
            long = b""
            at += BLOCK + (length + 511 & ~511)
            after = at
        stream.at = after
        if after > len(data):
            stream.at = after - (length + 511 & ~511)
            stream.skip(length, paths[-1])
            stream.pad(-length & 511)
        return paths

    def _member(self, block: bytes) -> tuple[Entry, int, Segments | None] | None:
        """The member that `block` begins, extended headers read: its entry, stored length and sparse map.

        None where the archive ends behind a global header.
        """
        records: Records = {}
        if block[156] in _EXTENSIONS:
            block, records = self._extensions(block)
            if not block:
                return None
        flag = block[156:157]
        kind = _KINDS.get(flag)
        if kind is None:
            self.stream.fail(f"a member of the unknown type {flag!r}")
        length = self._size(block)
        mode, uid, gid = self._owner(block[100:124])
        entry = Entry(self._path(block), kind, mode, length, "", uid, gid, self._number(block[136:148], "mtime"))
        segments: Segments | None = None
        if records:
            segments, length = self._apply(entry, records, length)
        if flag == b"S":
            segments, entry.size = self._old_sparse(block)
        if flag == b"\0" and entry.path.endswith("/"):
            entry.kind = "directory"
        entry.path = clean(entry.path)
        if entry.kind != "file":
            # Other kinds have no data whatever their size says (POSIX leaves it to the writer).
            self._link(entry, records, block[157:257])
            entry.size = length = 0
            segments = None
        if entry.kind in ("character", "block"):
            major, minor = self._number(block[329:337], "device"), self._number(block[337:345], "device")
            entry.device = (major, minor)
        return entry, length, segments

    def _path(self, block: bytes) -> str:
        path = block[:100].partition(b"\0")[0]
        if block[345] and block[257:263] == b"ustar\0":
            # star's variant keeps times behind a prefix of 131 bytes and ends the header with "tar".
            prefix = block[345 : 476 if block[508:512] == b"tar\0" else 500]
            path = prefix.partition(b"\0")[0] + b"/" + path
        return path.decode("utf-8", "surrogateescape")

    def _owner(self, field: bytes) -> tuple[int, int, int]:
        """Mode, uid and gid."""
        mode = self._number(field[:8], "mode") & 0o7777
        owner = mode, self._number(field[8:16], "uid"), self._number(field[16:], "gid")
        _bound(self.owners)[field] = owner
        return owner

    def _size(self, block: bytes) -> int:
        length = self._number(block[124:136], "size")
        if length < 0:
            self.stream.fail(f"a member of negative size ({length})")
        return length

    def _ends(self) -> bool:
        """After one zero block: True at the end of the archive. One zero block amid members is damage."""
        block = self.stream.block()
        if block and block != _ZERO:
            self.stream.fail("damaged: a zero block stands between members")
        return True

    def _check(self, block: bytes, checksum: bytes) -> None:
        """Verify the checksum, and remember what Adler-32 makes of any header that has it.

        Adler-32's low half is 1 + the sum of the bytes modulo 65521, and the fastest such sum within reach; the
        checksum field itself counts as eight spaces.
        """
        digits = checksum.partition(b"\0")[0].strip(b" ")
        stored = int(digits, 8) if digits and _OCTAL_DIGITS.issuperset(digits) else -1
        expected = (stored + sum(checksum) - 256 + 1) % _ADLER_BASE
        if stored >= 0 and adler32(block) & 0xFFFF == expected:
            _bound(self.sums)[checksum] = expected
            return
        # Some old writers summed signed bytes.
        signed = sum(byte - 256 if byte > 127 else byte for byte in block[:148] + b" " * 8 + block[156:])
        if signed != stored:
            self.stream.fail("no tar archive, or damaged: the checksum of a member's header is wrong")

    def _number(self, field: bytes, what: str) -> int:
        """An octal field, or GNU's base-256 form (first bit set, two's complement below it)."""
        if field[0] & 0x80:
            value = int.from_bytes(field, "big") & ((1 << (8 * len(field) - 1)) - 1)
            if field[0] & 0x40:
                value -= 1 << (8 * len(field) - 1)
            if not -(1 << 63) <= value < 1 << 63:
                self.stream.fail(f"a member's {what} does not fit 64 bits")
        else:
            digits = field.partition(b"\0")[0].strip(b" ") or field.strip(b" \0")
            if not _OCTAL_DIGITS.issuperset(digits):
                self.stream.fail(f"a member's {what} is no number: {field!r}")
            value = int(digits, 8) if digits else 0
        # No negative number is remembered: sizes are taken from here unseen.
        if value >= 0:
            _bound(self.numbers)[field] = value
        return value

    def _extensions(self, block: bytes) -> tuple[bytes, Records]:
        """Read pax headers and long names from `block` on: the header of the member they describe, their records.

        As in Go a long name goes before a pax path, and a global header is a member of its own, which takes away what
        stood before it; whoever unpacks layers ignores its records. The header is empty where the archive ends behind
        a global one.
        """
        local: Records = {}
        longs: Records = {}
        while block[156] in _EXTENSIONS:
            flag, length = block[156:157], self._size(block)
            if length > _EXTENSION_LIMIT:
                self.stream.fail(f"an extended header of {length} bytes; at most {_EXTENSION_LIMIT} are read")
            data = self.stream.take(length, "an extended header")
            self.stream.skip(-length & 511, "an extended header")
            if flag in b"LK":
                if text := data.partition(b"\0")[0].decode("utf-8", "surrogateescape"):
                    longs["path" if flag == b"L" else "linkpath"] = text
            elif flag == b"g":
                self._pax(data)
                local, longs = {}, {}
            else:
                local = self._pax(data)
            block = self.stream.block()
            if not block or block == _ZERO:
                if flag != b"g":
                    self.stream.truncated("a member, behind its extended header")
                return b"", {}
            self._check(block, block[148:156])
        return block, {**local, **longs}

    def _pax(self, data: bytes) -> Records:
        r"""Records `LENGTH KEY=VALUE\n` of a pax extended header."""
        records: Records = {}
        sparse: list[str] = []
        at = 0
        while at < len(data):
            space = data.find(b" ", at, at + 20)
            digits = data[at:space] if space > 0 else b""
            end = at + int(digits) if digits.isdigit() else 0
            if not space + 1 < end <= len(data) or data[end - 1] != 10:
                self.stream.fail("damaged: a record of a pax header has a wrong length")
            key, equals, value = data[space + 1 : end - 1].decode("utf-8", "surrogateescape").partition("=")
            if not equals or not key or "\0" in (value if key in _TEXTS else key):
                self.stream.fail("damaged: a record of a pax header is no KEY=VALUE")
            if key in ("GNU.sparse.offset", "GNU.sparse.numbytes"):
                if (key == "GNU.sparse.offset") != (len(sparse) % 2 == 0):
                    self.stream.fail("damaged: the sparse map of a pax header is out of order")
                sparse.append(value)
            else:
                records[key] = value
            at = end
        if sparse:
            records["GNU.sparse.map"] = ",".join(sparse)
        return records

    def _apply(self, entry: Entry, records: Mapping[str, str], length: int) -> tuple[Segments | None, int]:
        """Let `records` override the header; the sparse map where there is one, and the stored length."""
        entry.path = records.get("path") or entry.path
        if records.get("size"):
            length = entry.size = self._decimal(records["size"], "size")
        if records.get("uid"):
            entry.uid = self._decimal(records["uid"], "uid", negative=True)
        if records.get("gid"):
            entry.gid = self._decimal(records["gid"], "gid", negative=True)
        if records.get("mtime"):
            entry.mtime = self._time(records["mtime"])
        if self.with_xattrs:
            for key, value in records.items():
                if key.startswith("SCHILY.xattr."):
                    entry.xattrs[key[13:]] = value.encode("utf-8", "surrogateescape")
        if "GNU.sparse.map" not in records and records.get("GNU.sparse.major") != "1":
            return None, length
        entry.path = records.get("GNU.sparse.name") or entry.path
        return self._pax_sparse(entry, records, length)

    def _pax_sparse(self, entry: Entry, records: Mapping[str, str], length: int) -> tuple[Segments, int]:
        real = records.get("GNU.sparse.realsize") or records.get("GNU.sparse.size") or ""
        entry.size = self._decimal(real, "sparse size")
        if records.get("GNU.sparse.major") == "1":
            return self._sparse_map_in_body(length)
        numbers = [self._decimal(part, "sparse map") for part in records["GNU.sparse.map"].split(",") if part]
        return self._pairs(numbers), length

    def _pairs(self, numbers: list[int]) -> Segments:
        if len(numbers) % 2 or len(numbers) > 2 * _SPARSE_LIMIT:
            self.stream.fail("damaged: the map of a sparse member is odd or too long")
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def _sparse_map_in_body(self, length: int) -> tuple[Segments, int]:
        """GNU pax 1.0: the map stands before the data, a decimal number a line, padded to a block."""
        numbers: list[int] = []
        lines: list[bytes] = []
        rest = b""
        while not lines or len(numbers) < 1 + 2 * numbers[0]:
            if length < BLOCK or len(numbers) > 2 * _SPARSE_LIMIT:
                self.stream.fail("damaged: the map of a sparse member is cut off or too long")
            length -= BLOCK
            *lines, rest = (rest + self.stream.take(BLOCK, "a sparse map")).split(b"\n")
            if len(rest) > BLOCK:
                self.stream.fail("damaged: the map of a sparse member is no list of numbers")
            for line in lines:
                if numbers and len(numbers) == 1 + 2 * numbers[0]:
                    break
                numbers.append(self._decimal(line.decode("latin-1"), "sparse map"))
        return self._pairs(numbers[1:]), length

    def _old_sparse(self, block: bytes) -> tuple[Segments, int]:
        """GNU type S: four pairs and the real size in the header, 21 pairs in each continuation block."""
        numbers = self._sparse_numbers(block[386:482])
        size = self._number(block[483:495], "sparse size")
        extended = block[482]
        while extended:
            if len(numbers) > 2 * _SPARSE_LIMIT:
                self.stream.fail("the map of a sparse member is too long")
            more = self.stream.take(BLOCK, "a sparse map")
            numbers += self._sparse_numbers(more[:504])
            extended = more[504]
        return self._pairs(numbers), size

    def _sparse_numbers(self, area: bytes) -> list[int]:
        fields = (area[at : at + 12] for at in range(0, len(area), 12) if area[at - at % 24] != 0)
        return [self._number(field, "sparse map") for field in fields]

    def _sparse_body(self, entry: Entry, segments: Segments, length: int) -> SparseBody:
        """Checks the map: ascending, inside the file, and as much data as is stored."""
        end = 0
        for offset, size in segments:
            if offset < end or size < 0 or offset + size > entry.size:
                self.stream.fail(f"damaged: the map of the sparse member {entry.path!r} contradicts itself")
            end = offset + size
        if sum(size for _, size in segments) != length:
            self.stream.fail(f"damaged: the map of the sparse member {entry.path!r} does not match its data")
        return SparseBody(self.body, segments, entry.size)

    def _link(self, entry: Entry, records: Mapping[str, str], link: bytes) -> None:
        if entry.kind not in ("symlink", "hardlink"):
            return
        target = records.get("linkpath") or link.partition(b"\0")[0].decode("utf-8", "surrogateescape")
        entry.link = clean(target) if entry.kind == "hardlink" else target

    def _decimal(self, text: str, what: str, negative: bool = False) -> int:
        digits = text[1:] if negative and text[:1] == "-" else text
        if not (digits.isascii() and digits.isdecimal()) or len(digits) > 19:
            self.stream.fail(f"a member's {what} is no number: {text[:40]!r}")
        return int(text)

    def _time(self, text: str) -> float:
        whole, _, fraction = text.partition(".")
        if fraction and not (fraction.isascii() and fraction.isdecimal()):
            self.stream.fail(f"a member's mtime is no number: {text[:40]!r}")
        self._decimal(whole, "mtime", negative=True)
        return float(text[:60])


def _bound(memory: dict[bytes, Any]) -> dict[bytes, Any]:
    if len(memory) > 1 << 16:
        memory.clear()
    return memory


def clean(path: str) -> str:
    """`path` relative to the root, with empty components, `.` and `..` resolved; never above the root."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part and part != ".":
            parts.append(part)
    return "/".join(parts)
