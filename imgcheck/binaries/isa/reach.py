"""Call graphs as arrays, and what is reached in them."""

from dataclasses import dataclass

import numpy as np

from imgcheck.binaries.isa.layout import Functions, Layout, distinct

_LONGEST_PATH = 12


@dataclass(frozen=True, slots=True)
class Edges:
    """Function indices, sorted by source: `source` jumps or calls into `target` at address `site`."""

    source: np.ndarray
    target: np.ndarray
    site: np.ndarray

    def take(self, chosen: np.ndarray) -> "Edges":
        return Edges(self.source[chosen], self.target[chosen], self.site[chosen])


def reach(edges: Edges, count: int, roots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Functions reached from `roots` over `edges`, and for each the function it came from (-1 for roots)."""
    seen, parent = np.zeros(count, bool), np.full(count, -1, np.int64)
    first = np.concatenate([[0], np.cumsum(np.bincount(edges.source, minlength=count))])
    frontier = distinct(roots[roots >= 0])
    seen[frontier] = True
    while len(frontier):
        size = first[frontier + 1] - first[frontier]
        at = np.repeat(first[frontier] - (np.cumsum(size) - size), size) + np.arange(size.sum())
        target, source = edges.target[at], np.repeat(frontier, size)
        new = ~seen[target]
        target, source = target[new], source[new]
        parent[target] = source
        seen[target] = True
        frontier = distinct(target)
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
