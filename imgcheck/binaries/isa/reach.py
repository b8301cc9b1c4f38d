"""Call graphs as arrays, and what is reached in them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from imgcheck.binaries.isa.functions import Functions
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.kernels.arrays import Network, marked, sorted_by

_LONGEST_PATH = 12


@dataclass(frozen=True)
class Edges:
    """Function indices, sorted by source: `source` jumps or calls into `target` at address `site`.

    What belongs to them is looked up by `take`: numpy's indexing by numbers of 32 bits takes twice as long.
    """

    source: np.ndarray
    target: np.ndarray
    site: np.ndarray
    count: int
    """Functions that there are."""

    @cached_property
    def network(self) -> Network:
        """What `reach` follows."""
        return Network(self.source, self.target, self.count)

    @cached_property
    def backwards(self) -> "Edges":
        """The same from the target to the source."""
        order = sorted_by(self.target, self.count)
        return Edges(self.target.take(order), self.source.take(order), self.site.take(order), self.count)

    def into(self, marks: np.ndarray) -> np.ndarray:
        """The numbers of the edges that lead to marked functions."""
        return marked(self.target, marks)

    def among(self, function: int) -> slice:
        """The numbers of a function's edges."""
        first = self.network.first
        return slice(int(first[function]), int(first[function + 1]))


def reach(
    edges: Edges,
    roots: np.ndarray,
    over: np.ndarray | None = None,
    closed: np.ndarray | None = None,
    known: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Functions reached from `roots`, and for each the function it came from (-1 for roots).

    `over` says which edges count, if not all, and `closed` which functions lead nowhere. What is `known` to be reached
    counts, and is not followed again.
    """
    return edges.network.reach(roots[roots >= 0], over, closed, known)


def path_to(layout: Layout, functions: Functions, parent: np.ndarray, function: int) -> tuple[str, ...]:
    """Names of the functions from a root down to `function`, by what `reach` says of their parents."""
    return tuple(layout.name(int(functions.start[step])) for step in steps_to(parent, function)[-_LONGEST_PATH:])


def nearest(parent: np.ndarray, functions: np.ndarray) -> int:
    """The first of the `functions`, of which there is one, to which the fewest steps lead."""
    ways = functions
    while (ways >= 0).all():
        ways = parent.take(ways)
    return int(functions[ways < 0][0])


def steps_to(parent: np.ndarray, function: int) -> list[int]:
    """Indices of the functions from a root down to `function`."""
    steps = [function]
    while parent[steps[-1]] >= 0:
        steps.append(int(parent[steps[-1]]))
    return steps[::-1]
