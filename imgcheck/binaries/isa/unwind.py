"""The functions that `.eh_frame_hdr`, or `.eh_frame` itself, bounds for those who unwind stacks.

The header's table is sorted and leads to an entry (FDE) for each function, with where it begins and how long it is (LSB
core, "Exception Frames"). Static programs have the entries alone.
"""

from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.elf import ADDRESS_LIMIT, PT_GNU_EH_FRAME

if TYPE_CHECKING:
    from imgcheck.binaries.isa.layout import Layout

_ENTRIES_LIMIT = 1 << 20


def unwind_entries(layout: "Layout") -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the functions in `.eh_frame_hdr`, sorted; of `.eh_frame` where that is absent.

    Nothing where it is of another form than all linkers write.
    """
    empty = np.empty(0, np.int64)
    header = next(((s.offset, s.vaddr, s.filesz) for s in layout.elf.segments if s.type == PT_GNU_EH_FRAME), None)
    if header is None:
        section = layout.elf.section(".eh_frame_hdr")
        header = (section.offset, section.addr, section.size) if section else None
    if header is None or header[1] >= ADDRESS_LIMIT:
        return _walk(layout)
    offset, address, size = header
    head = bytes(layout.elf.slice(offset, 12))
    # version 1, any eh_frame_ptr of 4 bytes, count as udata4, table as datarel|sdata4: what every linker writes
    if len(head) < 12 or head[0] != 1 or head[2] != 0x03 or head[3] != 0x3B:
        return empty, empty
    count = min(int.from_bytes(head[8:12], "little"), max(size - 12, 0) // 8)
    table = layout.elf.records(offset + 12, np.dtype([("f", "<i4"), ("d", "<i4")]), count)
    start = table["f"].astype(np.int64) + address
    end = start + _ranges(layout, table["d"].astype(np.int64) + address, start)
    order = np.argsort(start, kind="stable")
    inside = layout.in_code(start[order])
    return start[order][inside], end[order][inside]


def _walk(layout: "Layout") -> tuple[np.ndarray, np.ndarray]:
    """The same from `.eh_frame` itself, entry by entry: static programs carry no table of it."""
    section = layout.elf.section(".eh_frame")
    if section is None or layout.elf.order != "<" or section.addr >= ADDRESS_LIMIT:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    data = bytes(layout.elf.section_data(section))
    at = 0
    entries: list[int] = []
    encoded: dict[int, bool] = {}
    while at + 16 <= len(data) and len(entries) < _ENTRIES_LIMIT:
        size = int.from_bytes(data[at : at + 4], "little")
        if size in (0, 0xFFFFFFFF):
            at += 4
            continue
        back = int.from_bytes(data[at + 4 : at + 8], "little")
        if back == 0:
            encoded[at] = _relative_pointers(data[at + 8 : at + 40])
        elif encoded.get(at + 4 - back):
            entries.append(at)
        at += 4 + size
    offsets = np.array(entries, np.int64)
    words = np.frombuffer(data[: len(data) & ~3], "<i4")
    start = words[(offsets >> 2) + 2] + offsets + 8 + section.addr
    end = start + words[(offsets >> 2) + 3]
    order = np.argsort(start, kind="stable")
    inside = order[(layout.in_code(start) & (end > start))[order]]
    return start[inside], end[inside]


def _ranges(layout: "Layout", entries: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """pc_range of each FDE written as pcrel|sdata4; up to the next start where the entry is of another form."""
    base = layout.elf.offset_of(int(entries[0])) if len(entries) else None
    if base is None:
        return _up_to_next(starts)
    at = entries - entries[0] + base
    good = (at >= 0) & (at + 16 <= len(layout.elf.array))
    at[~good] = 0
    first, size = (layout.words(at + shift) for shift in (8, 12))
    good &= (first + entries + 8 == starts) & (size > 0)
    return size if good.all() else np.where(good, size, _up_to_next(starts))


def _up_to_next(starts: np.ndarray) -> np.ndarray:
    return np.diff(starts, append=starts[-1:] + 1) if len(starts) else starts


def _relative_pointers(entry: bytes) -> bool:
    """Whether a CIE (from its version on) gives its FDEs addresses as pcrel|sdata4, the form of every compiler."""
    augmentation, _, rest = entry[1:].partition(b"\0")
    if not augmentation.startswith(b"z") or b"R" not in augmentation:
        return False
    # Two alignment factors, the return register and the length of the augmentation data are one byte each in practice.
    position = 4
    for letter in augmentation[1 : augmentation.index(b"R")].decode("latin-1"):
        position += {"L": 1, "P": 5}.get(letter, 0)
    return len(rest) > position and rest[position] == 0x1B
