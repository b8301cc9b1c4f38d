"""One file's code -> the instruction sets it needs, and whether it needs them without asking the CPU first."""

import msgspec

from imgcheck.binaries.elf import ET_CORE, Elf
from imgcheck.binaries.isa.refusals import refusal
from imgcheck.documents.facts import Isa


def analyse_isa(elf: Elf) -> Isa | None:
    """The instruction sets of `elf`'s code; None where it has no code, or code of a machine without an engine.

    Never raises on hostile content, takes time linear in the size of the code, and copies none of it but chunks.
    """
    if elf.type == ET_CORE or elf.order != "<":
        return None
    if elf.machine in ("x86_64", "i386"):
        from imgcheck.binaries.isa.x86.engine import analyse

        found = analyse(elf, 64 if elf.machine == "x86_64" else 32)
        return msgspec.structs.replace(found, refusal=refusal(elf)) if found else None
    if elf.machine in ("aarch64", "ppc64le"):
        from imgcheck.binaries.isa.words.engine import analyse as analyse_words

        return analyse_words(elf)
    return None
