"""Screens, confirms and judges the code of one x86 file."""

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.encodings import Encodings, encodings
from imgcheck.binaries.isa.x86.findings import Findings
from imgcheck.binaries.isa.x86.graph import Graph
from imgcheck.binaries.isa.x86.plain import may_be_plain, plain
from imgcheck.binaries.isa.x86.screen import Candidates, screen
from imgcheck.binaries.isa.x86.selection import select
from imgcheck.binaries.isa.x86.verdict import judge
from imgcheck.documents.facts import Isa


def analyse(elf: Elf, bits: int) -> Isa | None:
    """The Isa of an x86 file in 32-bit or 64-bit mode; None where it holds no code."""
    layout = Layout(elf)
    if not layout.areas:
        return None
    table = encodings(bits)
    if may_be_plain(layout, bits):
        candidates = screen(layout, table)
        return plain(layout, candidates, table) or judge(_findings(layout, bits, table, candidates))
    return judge(_findings(layout, bits, table))


def _findings(layout: Layout, bits: int, table: Encodings, candidates: Candidates | None = None) -> Findings:
    """Those of a file, of which the `candidates` may be known.

    Those of a large file take half as much memory as its code: sought when the branches are done with, and not kept.
    """
    graph = Graph(layout, bits)
    if candidates is None:
        candidates = screen(layout, table)
    return Findings(graph, table, select(graph, table, candidates))
