"""Screens, confirms and judges the code of one x86 file."""

from collections.abc import Iterable

import numpy as np

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.encodings import Encodings, encodings
from imgcheck.binaries.isa.x86.findings import Findings
from imgcheck.binaries.isa.x86.graph import Graph
from imgcheck.binaries.isa.x86.instructions import instructions_in
from imgcheck.binaries.isa.x86.plain import may_be_plain, plain
from imgcheck.binaries.isa.x86.screen import Candidates, screened
from imgcheck.binaries.isa.x86.verdict import judge
from imgcheck.binaries.kernels.arrays import holding
from imgcheck.documents.facts import Isa


def analyse(elf: Elf, bits: int) -> Isa | None:
    """The Isa of an x86 file in 32-bit or 64-bit mode; None where it holds no code."""
    layout = Layout(elf)
    if not layout.areas:
        return None
    table = encodings(bits)
    if not may_be_plain(layout, bits):
        return judge(_findings(layout, bits, table, screened(layout, table)))
    candidates = Candidates.joined(screened(layout, table))
    return plain(layout, candidates, table) or judge(_findings(layout, bits, table, [candidates]))


def _findings(layout: Layout, bits: int, table: Encodings, candidates: Iterable[Candidates]) -> Findings:
    graph = Graph(layout, bits)
    outside = (_outside(graph.tables, piece) for piece in candidates)
    return Findings(graph, table, instructions_in(layout, graph.functions, table, outside))


def _outside(tables: tuple[np.ndarray, np.ndarray], candidates: Candidates) -> Candidates:
    """Those that stand in none of the tables among the code."""
    return candidates.take(np.flatnonzero(holding(*tables, candidates.address) < 0)) if len(tables[0]) else candidates
