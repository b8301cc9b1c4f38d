"""Tells of most files, at a third of the price, that they need nothing above the baseline: no call graph is wanted.

The functions that unwind entries bound are enough to decode every place where an instruction of interest may begin.
Where none does, and nothing asks the CPU either, there is nothing to judge. Other files are looked at whole.
"""

import numpy as np

from imgcheck.binaries.isa import queries
from imgcheck.binaries.isa.functions import unwound
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.ordered import numbers
from imgcheck.binaries.isa.x86.decode import confirm
from imgcheck.binaries.isa.x86.encodings import BASELINE, PACKED, Encodings
from imgcheck.binaries.isa.x86.screen import Candidates
from imgcheck.documents.facts import Isa

_LARGEST = 6 << 20
"""Bytes of code: larger files are few, and hardly one of them uses nothing."""
_LIKELIEST = 8
"""Functions looked at first, those with most candidates: instructions stand together, chance hits do not."""


def plain(layout: Layout, candidates: Candidates, table: Encodings) -> Isa | None:
    """The Isa of a file that uses the baseline alone; None where more is used or cannot be told."""
    functions = unwound(layout)
    above = ~table.holding(*BASELINE).take(candidates.set)
    held = functions.holding(candidates.address)
    if (held[above] < 0).any():
        return None
    count = np.bincount(held[held >= 0], minlength=len(functions) + 1)  # the last stands for what no function holds
    likely = np.zeros(len(count), bool)
    likely[np.argsort(-count, kind="stable")[:_LIKELIEST]] = True
    vector_functions = 0
    for chosen in (likely & (count > 0), ~likely & (count > 0)):
        inside = np.flatnonzero(chosen[held])
        for confirmed in confirm(layout, functions, table, [candidates.take(inside)]):
            if not table.holding(*BASELINE).take(confirmed.set).all():
                return None
            packed = confirmed.function[table.holding(PACKED).take(confirmed.set)]
            vector_functions += len(numbers(packed, len(functions)))
    return Isa(
        uses=(),
        baseline="x86-64",
        code_bytes=layout.code_bytes,
        vector_functions=vector_functions,
        functions=len(functions),
        asks_cpu=(),
    )


def may_be_plain(layout: Layout, bits: int) -> bool:
    """Whether it is worth a try."""
    return bits == 64 and layout.code_bytes <= _LARGEST and len(layout.unwind[0]) > 0 and not _asks(layout)


def _asks(layout: Layout) -> bool:
    return bool(
        queries.named_imports(layout) or queries.data(layout) or len(queries.resolvers(layout, queries.IRELATIVE[64]))
    )
