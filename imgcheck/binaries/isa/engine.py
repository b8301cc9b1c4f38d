"""One file's code -> the instruction sets it needs, and whether it needs them without asking the CPU first."""

import msgspec

from imgcheck.binaries.elf import ET_CORE, Elf
from imgcheck.binaries.isa.packers import packer
from imgcheck.binaries.isa.refusals import refusal
from imgcheck.documents.facts import Isa
from imgcheck.errors import ElfError


def analyse_isa(elf: Elf) -> Isa | None:
    """The instruction sets of `elf`'s code; None where it has no code, or code of a machine without an engine.

    Takes time linear in the size of the code, whatever that is, and copies none of it but chunks.

    Raises ElfError for code that is packed.
    """
    if elf.type == ET_CORE or elf.order != "<":
        return None
    packed_by = packer(elf)
    if packed_by:
        raise ElfError(f"packed by {packed_by}: what runs is unpacked at run time, and its code cannot be seen")
    if elf.machine in ("x86_64", "i386"):
        from imgcheck.binaries.isa.x86.engine import analyse

        found = analyse(elf, 64 if elf.machine == "x86_64" else 32)
        return msgspec.structs.replace(found, refusal=refusal(elf) or found.refusal) if found else None
    if elf.machine in ("aarch64", "ppc64le"):
        from imgcheck.binaries.isa.words.engine import analyse as analyse_words

        return analyse_words(elf)
    return None
