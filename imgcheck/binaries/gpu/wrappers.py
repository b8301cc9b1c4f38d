"""The records by which a program registers its fatbins, and which of these are made of relocatable code.

`.nvFatBinSegment` is an array of `__fatBinC_Wrapper_t` (CUDA's fatbinary_section.h): `<II` magic and version, then two
pointers. The first leads to a container. Of version 2 (FATBINC_LINK_VERSION) that is what nvcc's device linker made,
and the second leads to the relocatable code it was made of, which the driver links again where the container has
nothing for the GPU.
"""

import numpy as np

from imgcheck.binaries.elf import DT_RELA, Elf, Section

_MAGIC, _LINKED = 0x466243B1, 2
_WRAPPER = np.dtype([("magic", "<u4"), ("version", "<u4"), ("container", "<u8"), ("more", "<u8")])
_CONTAINER = 8
"""Offset of the first pointer."""
_SECTION = ".nvFatBinSegment"


def linked(elf: Elf) -> frozenset[int] | None:
    """Where in the file the containers lie that the device linker made; None where no such record is read."""
    section = elf.section(_SECTION)
    if section is None or elf.bits != 64 or elf.order != "<":
        return None
    wrappers = elf.records(section.offset, _WRAPPER, section.size // _WRAPPER.itemsize)
    numbers = np.flatnonzero((wrappers["magic"] == _MAGIC) & (wrappers["version"] == _LINKED))
    if not len(numbers):
        return None
    relocated = _relocated(elf, section)
    slots = section.addr + numbers * _WRAPPER.itemsize + _CONTAINER
    stored = wrappers["container"][numbers].tolist()
    # Without a record of its own, as with DT_RELR, the word holds the address itself.
    targets = (relocated.get(slot, word) for slot, word in zip(slots.tolist(), stored, strict=True))
    found = frozenset(offset for target in targets if (offset := elf.offset_of(target)) is not None)
    return found or None


def _relocated(elf: Elf, section: Section) -> dict[int, int]:
    """What the dynamic loader puts into the words of a section, by their addresses, as far as DT_RELA tells."""
    table = elf.relocation_tables.get(DT_RELA)
    if table is None:
        return {}
    entries = elf.relocation_entries(table)
    at = entries["offset"]
    inside = np.flatnonzero((at >= section.addr) & (at < section.addr + section.size))
    return dict(zip(at[inside].tolist(), entries["addend"][inside].tolist(), strict=True))
