"""What is necessary for code to be reached: over calls, each of which happens under a condition of its own."""

import numpy as np

from imgcheck.binaries.isa.conditions import ALWAYS, NEVER, Condition, both, either
from imgcheck.binaries.isa.ordered import distinct
from imgcheck.binaries.isa.reach import Edges, reach

Start = tuple[Condition, np.ndarray]
"""Functions that are reached under a condition."""
_MOST = 64
"""Sets of functions looked at, each behind other tests."""


def arriving(
    calls: Edges,
    conditions: list[Condition],
    number: np.ndarray,
    over: np.ndarray,
    uses: tuple[np.ndarray, np.ndarray],
    starts: list[Start],
) -> Condition | None:
    """What is necessary to arrive at one of `uses` from one of `starts`, over those calls that `over` marks.

    `number` says which of the conditions each call has, 0 that it has none; `uses` are the functions of the uses, and
    the numbers of the conditions that they have there. None where it is too much to tell.
    """
    free, tested = over & (number == 0), np.flatnonzero(over & (number > 0))
    use, use_number = uses
    found, waiting = NEVER, list(starts)
    been: dict[Condition, np.ndarray] = {}
    for _ in range(_MOST):
        if not waiting or found == ALWAYS:
            return found
        condition, roots = waiting.pop(0)
        seen, _ = reach(calls, roots, free)
        before = been.get(condition)
        been[condition] = seen if before is None else seen | before
        seen = seen if before is None else seen & ~before
        for k in distinct(use_number[seen[use]]).tolist():
            found = either(found, both(condition, conditions[k]))
        onward = tested[seen[calls.source[tested]]]
        for k in distinct(number[onward]).tolist():
            further, targets = both(condition, conditions[k]), calls.target[onward[number[onward] == k]]
            if further and (further not in been or not been[further][targets].all()):
                waiting.append((further, targets))
    return None
