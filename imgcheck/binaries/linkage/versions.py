"""Symbol versions that a file needs (DT_VERNEED) and gives (DT_VERDEF): linked lists of the gABI's GNU extension."""

import struct
from collections.abc import Iterator

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.linkage.symbols import DynamicStrings
from imgcheck.documents.facts import Verneed

DT_VERDEF, DT_VERNEED = 0x6FFFFFFC, 0x6FFFFFFE
VER_FLG_WEAK = 2

# Lists may overlap in a hostile file, so that their product is what must be bounded.
_LIMIT = 1 << 16


class _Budget:
    def __init__(self) -> None:
        self.left = _LIMIT

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


def read_verneed(elf: Elf, strings: DynamicStrings) -> tuple[Verneed, ...]:
    """Elf_Verneed (version, cnt, file, aux, next) with their Elf_Vernaux (hash, flags, other, name, next)."""
    budget, found = _Budget(), []
    for at, _, _, file, aux, _ in _list(elf, _address(elf, DT_VERNEED), "HHIII", budget):
        versions, weak = [], []
        for _, _, flags, _, name, _ in _list(elf, at + aux, "IHHII", budget):
            versions.append(strings.at(name))
            if flags & VER_FLG_WEAK:
                weak.append(versions[-1])
        found.append(Verneed(strings.at(file), tuple(versions), tuple(weak)))
    return tuple(found)


def read_verdef(elf: Elf, strings: DynamicStrings) -> tuple[str, ...]:
    """Names of Elf_Verdef (version, flags, ndx, cnt, hash, aux, next).

    The base entry, which carries the file's own name, is among them: ld.so takes it for a version like any other.
    """
    budget, found = _Budget(), []
    for at, _, _, _, _, _, aux, _ in _list(elf, _address(elf, DT_VERDEF), "HHHHIII", budget):
        name = elf.slice(at + aux, 4)
        if len(name) == 4:
            found.append(strings.at(struct.unpack(elf.order + "I", name)[0]))
    return tuple(dict.fromkeys(found))


def _address(elf: Elf, tag: int) -> int | None:
    value = elf.dynamic_value(tag)
    return None if value is None else elf.offset_of(value)


def _list(elf: Elf, at: int | None, layout: str, budget: _Budget) -> Iterator[tuple[int, ...]]:
    """Offset and fields of each record of a list whose last field is the distance to the next one, 0 at the end."""
    if at is None:
        return
    record = struct.Struct(elf.order + layout)
    while budget.take():
        raw = elf.slice(at, record.size)
        if len(raw) < record.size:
            return
        fields = record.unpack(raw)
        yield (at, *fields)
        if not fields[-1]:
            return
        at += fields[-1]
