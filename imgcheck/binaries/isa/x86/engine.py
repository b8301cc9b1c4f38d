"""Screens, confirms and judges the code of one x86 file."""

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.encodings import encodings
from imgcheck.binaries.isa.x86.findings import Findings
from imgcheck.binaries.isa.x86.plain import plain
from imgcheck.binaries.isa.x86.screen import screen
from imgcheck.binaries.isa.x86.verdict import judge
from imgcheck.documents.facts import Isa


def analyse(elf: Elf, bits: int) -> Isa | None:
    """The Isa of an x86 file in 32-bit or 64-bit mode; None where it holds no code."""
    layout = Layout(elf)
    if not layout.areas:
        return None
    table = encodings(bits)
    candidates = screen(layout.spans, bits, table)
    answer = plain(layout, candidates, table) if bits == 64 else None
    return answer or judge(Findings(layout, bits, table, candidates))
