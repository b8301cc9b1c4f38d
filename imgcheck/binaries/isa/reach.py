"""Call graphs as arrays, and what is reached in them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from imgcheck.binaries.isa.layout import Functions, Layout, numbers

_LONGEST_PATH = 12


@dataclass(frozen=True)
class Edges:
    """Function indices, sorted by source: `source` jumps or calls into `target` at address `site`."""

    source: np.ndarray
    target: np.ndarray
    site: np.ndarray
    count: int
    """Functions that there are."""

    @cached_property
    def first(self) -> np.ndarray:
        """For each function, and one behind the last, the number of its first edge."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.source, minlength=self.count))])

    @cached_property
    def backwards(self) -> "Edges":
        """The same from the target to the source."""
        order = np.argsort(self.target, kind="stable")
        return Edges(self.target[order], self.source[order], self.site[order], self.count)

    def among(self, function: int) -> slice:
        """The numbers of a function's edges."""
        return slice(int(self.first[function]), int(self.first[function + 1]))


def reach(edges: Edges, roots: np.ndarray, over: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Functions reached from `roots`, and for each the function it came from (-1 for roots).

    `over` says which edges count, if not all.
    """
    seen, parent = np.zeros(edges.count, bool), np.full(edges.count, -1, np.int32)
    frontier = numbers(roots, edges.count)
    seen[frontier] = True
    while len(frontier):
        start = edges.first[frontier]
        size = edges.first[frontier + 1] - start
        at = np.repeat(start - (np.cumsum(size) - size), size)
        at += np.arange(len(at))
        if over is not None:
            at = at[over[at]]
        at = at[~seen[edges.target[at]]]
        target = edges.target[at]
        parent[target] = edges.source[at]
        seen[target] = True
        frontier = numbers(target, edges.count)
    return seen, parent


def path_to(layout: Layout, functions: Functions, parent: np.ndarray, function: int) -> tuple[str, ...]:
    """Names of the functions from a root down to `function`, by what `reach` says of their parents."""
    return tuple(layout.name(int(functions.start[step])) for step in steps_to(parent, function)[-_LONGEST_PATH:])


def steps_to(parent: np.ndarray, function: int) -> list[int]:
    """Indices of the functions from a root down to `function`."""
    steps = [function]
    while parent[steps[-1]] >= 0:
        steps.append(int(parent[steps[-1]]))
    return steps[::-1]
