"""Reads a cubin: its target, the toolkit that made it, and whether it holds any code.

A cubin is an ELF file of machine 190. Its header changed with CUDA 12.8 for sm_100 and with CUDA 13 for all targets;
the three forms are told apart by the ABI version byte (docs/gpu.md).
"""

import re

from imgcheck.binaries.elf import Elf

MACHINE = 190
HEADER = 64
"""Bytes of a cubin that `header_toolkit` reads."""

_ABI7, _ABI8 = 7, 8
_EXACT_ABI7, _EXACT_ABI8 = 0x800, 0x8
_EXACT_ATTRIBUTE = b"\x02\x09\x01"
_TOOLS = re.compile(rb"Cuda compilation tools, release (\d+\.\d+)")
_FIRST_TOOLKIT, _LAST_TOOLKIT = 50, 200


def target(elf: Elf) -> str:
    """Target of a cubin, "70" or "90a"; empty where its ABI version is not known.

    That it was compiled for a family (`f`) stands in the fatbin entry alone, never in the cubin.
    """
    flags = elf.e_flags
    if elf.abi_version == _ABI8:
        exact = flags & _EXACT_ABI8 or _compat_attribute(elf)
        return f"{flags >> 8 & 0xFF}{'a' if exact else ''}"
    if elf.abi_version <= _ABI7:
        return f"{flags & 0xFF}{'a' if flags & _EXACT_ABI7 else ''}"
    return ""


def _compat_attribute(elf: Elf) -> bool:
    section = elf.section(".nv.compat")
    return section is not None and _EXACT_ATTRIBUTE in bytes(elf.section_data(section)[:4096])


def header_toolkit(header: bytes) -> str:
    """Toolkit in the ELF header's e_version, as ABI 7 cubins have it: 0x5a is "9.0"; empty for other cubins."""
    if len(header) < 24 or header[:4] != b"\x7fELF" or header[8] > _ABI7:
        return ""
    number = int.from_bytes(header[20:24], "little")
    return f"{number // 10}.{number % 10}" if _FIRST_TOOLKIT <= number <= _LAST_TOOLKIT else ""


def toolkit(elf: Elf) -> str:
    """Toolkit of a whole cubin: from its header, else from its tkinfo note."""
    found = header_toolkit(bytes(elf.data[:HEADER]))
    if found:
        return found
    section = elf.section(".note.nv.tkinfo")
    match = _TOOLS.search(bytes(elf.section_data(section)[:4096])) if section else None
    return match[1].decode() if match else ""


def has_code(elf: Elf) -> bool:
    """Whether any kernel or device function lies in it; the linker's stub containers have none."""
    return any(section.name.startswith(".text") and section.size for section in elf.sections)
