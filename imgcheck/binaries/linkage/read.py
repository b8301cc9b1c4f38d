"""One ELF file to its Linkage: what the dynamic loader and the kernel read in it.

Everything follows the program headers and PT_DYNAMIC as ld.so does; section headers are asked only where a file has
no segments. Tags and layouts are those of the System V gABI and of glibc's elf.h.
"""

import re
from collections.abc import Iterator
from typing import Literal

from imgcheck.binaries.elf import ET_CORE, ET_DYN, ET_EXEC, ET_REL, Elf
from imgcheck.binaries.linkage.markers import driver_functions, is_python_module, markers_of, text_markers
from imgcheck.binaries.linkage.mentions import mentions
from imgcheck.binaries.linkage.symbols import DynamicStrings, DynamicSymbols
from imgcheck.binaries.linkage.versions import read_verdef, read_verneed
from imgcheck.documents.facts import ElfType, Linkage

DT_NEEDED, DT_SONAME, DT_RPATH, DT_TEXTREL, DT_BIND_NOW, DT_RUNPATH, DT_FLAGS = 1, 14, 15, 22, 24, 29, 30
DT_HASH, DT_RELR = 4, 36
DT_GNU_HASH, DT_FLAGS_1 = 0x6FFFFEF5, 0x6FFFFFFB
DT_AUXILIARY, DT_FILTER = 0x7FFFFFFD, 0x7FFFFFFF
DF_TEXTREL, DF_BIND_NOW = 0x4, 0x8
DF_1_NOW, DF_1_NODEFLIB, DF_1_PIE = 0x1, 0x800, 0x08000000
NT_GNU_ABI_TAG, NT_GNU_PROPERTY_TYPE_0 = 1, 5
GNU_PROPERTY_X86_ISA_1_NEEDED = 0xC0008002
_TYPES: dict[int, ElfType] = {ET_DYN: "shared", ET_REL: "relocatable", ET_CORE: "core"}

# glibc keeps its default directories as neighbouring strings that end in a slash (elf/dl-load.c, system_dirs).
_LOADER_NAME = re.compile(r"ld(-linux[\w-]*|64)?\.so\.\d+")
_LOADER_DIRECTORIES = re.compile(rb"(?<=\0)(?:/(?:[\x21-\x2e\x30-\x7e]{1,255}/){1,16}\0){1,8}")
_LOADER_SIZE_LIMIT = 16 << 20
# `GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.` (csu/version.c), and ld.so alike (elf/rtld.c).
_RELEASE = re.compile(
    rb"\((?:[^\n\0()]{0,100} )?(?:GLIBC|GNU libc)[^\n\0()]{0,100}\) \w+ release version (\d{1,3}\.\d{1,6})"
)

# Highest bit first; a file that needs several levels needs the highest of them.
_ISA_LEVELS = ((8, "x86-64-v4"), (4, "x86-64-v3"), (2, "x86-64-v2"), (1, "x86-64"))
_LONGEST_PATHS = 1 << 20
"""Bytes of an RPATH: package managers that give each package its own directory write some thousand."""
_ABI_SYSTEMS = ("linux", "hurd", "solaris", "freebsd", "netbsd", "syllable", "nacl")


def read_linkage(elf: Elf) -> Linkage:
    """All fields of `Linkage` for one file.

    Never raises on hostile contents: tables that point outside the file read as empty, lists are cut at limits that
    no real file comes near.
    """
    strings = DynamicStrings(elf)
    symbols = DynamicSymbols(elf, strings)
    # An empty one leaves out RPATH, too (glibc, elf/dl-load.c).
    has_runpath = any(tag == DT_RUNPATH for tag, _ in elf.dynamic)
    needed = tuple(_names(elf, strings, DT_NEEDED))
    soname = next(_names(elf, strings, DT_SONAME), "")
    python_module = is_python_module(symbols)
    abi, isa_level = _noted(elf)
    return Linkage(
        elf_class=elf.bits,
        machine=elf.machine,
        type=_type(elf),
        interpreter=elf.interpreter,
        soname=soname,
        needed=needed,
        rpath=() if has_runpath else _paths(elf, strings, DT_RPATH),
        runpath=_paths(elf, strings, DT_RUNPATH),
        filters=tuple(_names(elf, strings, DT_FILTER)),
        auxiliary=tuple(_names(elf, strings, DT_AUXILIARY)),
        flags=_flags(elf),
        verneed=read_verneed(elf, strings),
        verdef=read_verdef(elf, strings),
        abi=abi,
        isa_level=isa_level,
        driver_functions=driver_functions(symbols, needed),
        python_module=python_module,
        loader_directories=_loader_directories(elf, soname),
        glibc_release=_glibc_release(elf, soname),
        markers=markers_of(symbols) + (text_markers(elf) if python_module else ()),
        mentions=mentions(elf),
    )


def _names(elf: Elf, strings: DynamicStrings, tag: int) -> Iterator[str]:
    return (strings.at(value) for key, value in elf.dynamic if key == tag)


def _paths(elf: Elf, strings: DynamicStrings, tag: int) -> tuple[str, ...]:
    at = next((value for key, value in elf.dynamic if key == tag), None)
    text = strings.at(at, _LONGEST_PATHS) if at is not None else ""
    return tuple(text.split(":")) if text else ()


def _loader_directories(elf: Elf, soname: str) -> tuple[str, ...]:
    if not _LOADER_NAME.fullmatch(soname) or len(elf.data) > _LOADER_SIZE_LIMIT:
        return ()
    found = max((match.group() for match in _LOADER_DIRECTORIES.finditer(elf.data)), key=len, default=b"")
    return tuple(part.decode().rstrip("/") for part in found.split(b"\0") if part)


def _glibc_release(elf: Elf, soname: str) -> str:
    if not (soname == "libc.so.6" or _LOADER_NAME.fullmatch(soname)) or len(elf.data) > _LOADER_SIZE_LIMIT:
        return ""
    found = _RELEASE.search(elf.data)
    return found[1].decode() if found else ""


def _type(elf: Elf) -> ElfType:
    if elf.type == ET_EXEC or (elf.type == ET_DYN and (elf.interpreter or _has(elf, DT_FLAGS_1, DF_1_PIE))):
        return "executable"
    return _TYPES.get(elf.type, "other")


def _has(elf: Elf, tag: int, bit: int) -> bool:
    return bool((elf.dynamic_value(tag) or 0) & bit)


def _flags(elf: Elf) -> tuple[str, ...]:
    tags = {tag for tag, _ in elf.dynamic}
    pie = elf.type == ET_DYN and _has(elf, DT_FLAGS_1, DF_1_PIE)
    now = DT_BIND_NOW in tags or _has(elf, DT_FLAGS, DF_BIND_NOW) or _has(elf, DT_FLAGS_1, DF_1_NOW)
    present = {
        "static": (elf.type == ET_EXEC or pie) and not elf.interpreter and DT_NEEDED not in tags,
        "pie": pie,
        "nodeflib": _has(elf, DT_FLAGS_1, DF_1_NODEFLIB),
        "now": now,
        "gnu_hash_only": DT_GNU_HASH in tags and DT_HASH not in tags,
        "relr": DT_RELR in tags,
        "textrel": DT_TEXTREL in tags or _has(elf, DT_FLAGS, DF_TEXTREL),
    }
    return tuple(name for name, holds in present.items() if holds)


def _order(elf: Elf) -> Literal["little", "big"]:
    return "little" if elf.order == "<" else "big"


def _noted(elf: Elf) -> tuple[str, str]:
    """The lowest kernel and the level of the instruction set that GNU's notes name."""
    abi, needed = "", 0
    for note in elf.notes():
        if note.owner != "GNU":
            continue
        if note.type == NT_GNU_ABI_TAG and len(note.description) >= 16:
            abi = abi or _abi(note.description, _order(elf))
        elif note.type == NT_GNU_PROPERTY_TYPE_0 and elf.machine in ("x86_64", "i386"):
            needed |= _property(note.description, GNU_PROPERTY_X86_ISA_1_NEEDED, 8 if elf.bits == 64 else 4)
    return abi, next((name for bit, name in _ISA_LEVELS if needed & bit), "")


def _abi(tag: bytes, order: Literal["little", "big"]) -> str:
    """The lowest kernel of NT_GNU_ABI_TAG: four words, the system and three version numbers."""
    system, *version = (int.from_bytes(tag[i : i + 4], order) for i in range(0, 16, 4))
    name = _ABI_SYSTEMS[system] if system < len(_ABI_SYSTEMS) else f"os-{system}"
    return f"{name} {'.'.join(map(str, version))}"


def _property(area: bytes, wanted: int, align: int) -> int:
    """The 32-bit value of property `wanted` in a .note.gnu.property description: type, size, data, padding."""
    at = 0
    while at + 8 <= len(area):
        kind, size = (int.from_bytes(area[at + i : at + i + 4], "little") for i in (0, 4))
        if kind == wanted and size >= 4:
            return int.from_bytes(area[at + 8 : at + 12], "little")
        at += 8 + (size + align - 1 & -align)
    return 0
