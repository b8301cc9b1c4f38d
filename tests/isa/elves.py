"""Small ELF files around raw code, and programs built by real compilers, for the tests of the engines."""

import struct

from imgcheck.binaries.elf import Elf

BASE = 0x401000


def around(code: bytes, machine: int = 62, entry: int = BASE, sections: bool = True) -> bytes:
    """A static executable whose only segment (and `.text` section) holds `code` at BASE."""
    names = b"\0.text\0.shstrtab\0"
    offset = 0x1000
    head = 64 + 56
    text = bytes(offset - head) + code
    table_at = offset + len(code) + len(names)
    table_at += -table_at % 8
    shoff, shnum = (table_at, 3) if sections else (0, 0)
    ehdr = struct.pack("<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0, 2, machine, 1, entry, 64, shoff, 0, 64, 56, 1,
                       64, shnum, 2 if sections else 0)  # fmt: skip
    phdr = struct.pack("<IIQQQQQQ", 1, 5, offset, BASE, BASE, len(code), len(code), 0x1000)
    section = struct.Struct("<IIQQQQIIQQ")
    table = section.pack(*[0] * 10)
    table += section.pack(1, 1, 6, BASE, offset, len(code), 0, 0, 16, 0)
    table += section.pack(7, 3, 0, 0, offset + len(code), len(names), 0, 0, 1, 0)
    body = ehdr + phdr + text + names
    return body + bytes(table_at - len(body)) + (table if sections else b"")


def elf_around(code: bytes, **options: int) -> Elf:
    return Elf(around(code, **options))


def with_headers(blob: bytes, headers: list[tuple[str, int, int, int, int, int, int]], loaded: int = 0) -> bytes:
    """An x86-64 library of `blob` with any section headers: name, type, flags, address, offset, size and link.

    `loaded`: the address at which a segment brings the blob.
    """
    names = b"\0" + b"\0".join(dict.fromkeys(name.encode() for name, *_ in headers)) + b"\0"
    rows = [("", 0, 0, 0, 0, 0, 0), *headers, ("", 3, 0, 0, len(blob), len(names), 0)]
    begin = 64 + 56
    place = begin + len(blob) + len(names)
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    head = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, 62, 1, 0, 64, place, 0, 64, 56, 1, 64, len(rows), len(rows) - 1)
    segment = struct.pack("<IIQQQQQQ", 1, 4, begin, loaded, loaded, len(blob), len(blob), 0x1000)
    section = struct.Struct("<IIQQQQIIQQ")
    texts = {name: names.find(f"\0{name}\0".encode()) + 1 for name, *_ in rows if name}
    table = [
        section.pack(texts.get(name, 0), kind, flags, address, begin + offset, size, link, 0, 1, 0)
        for name, kind, flags, address, offset, size, link in rows
    ]
    return head + segment + blob + names + b"".join(table)


def function(name: str, body: str, visibility: str = "hidden") -> str:
    """GNU assembler's text of one function, with unwind data."""
    return (
        f".globl {name}\n.{visibility} {name}\n.type {name}, @function\n.p2align 4\n"
        f"{name}: .cfi_startproc\n{body}\n.cfi_endproc\n.size {name}, . - {name}\n"
    )
