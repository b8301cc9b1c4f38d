"""Dominators of a directed graph: which nodes lie on every way from its first node to another one.

Lengauer and Tarjan, "A Fast Algorithm for Finding Dominators in a Flowgraph", with simple linking: whatever the graph
is, time grows with its edges but for a logarithm.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tree:
    """The tree of immediate dominators; all numbers but those in `order` are places in it."""

    order: list[int]
    """The nodes that can be reached, each before those that it leads to but for loops (reverse postorder)."""
    place: dict[int, int]
    """Where each node stands in `order`."""
    before: list[list[int]]
    """The nodes that lead to each."""
    above: list[int]
    """The immediate dominator of each; of the first itself."""

    def dominates(self, one: int, other: int) -> bool:
        """Whether every way from the first node to `other` leads over `one`."""
        while other > one:
            other = self.above[other]
        return one == other


def tree(first: int, behind: Mapping[int, Sequence[int]]) -> Tree:
    """The dominators of what `first` reaches, where `behind` tells which nodes each one leads to."""
    found, parent, order = _search(first, behind)
    place = {number: at for at, number in enumerate(order)}
    before: list[list[int]] = [[] for _ in order]
    for at, number in enumerate(order):
        for successor in behind[number]:
            before[place[successor]].append(at)
    places = [place[number] for number in found]
    when = {at: time for time, at in enumerate(places)}
    immediate = _dominators(parent, [[when[one] for one in before[at]] for at in places])
    above = [0] * len(order)
    for time, at in enumerate(places):
        above[at] = places[immediate[time]]
    return Tree(order, place, before, above)


def postdominators(forward: Tree, leaves: Iterable[int], exit: int, without: Set[int] = frozenset()) -> Tree:
    """Which nodes lie on every way out: the dominators of the graph with its edges reversed, from `exit` on.

    `leaves` are the nodes at whose ends a way out begins; no way leads over those in `without`.
    """
    reached = forward.order
    edges = zip(reached, forward.before, strict=True)
    behind = {number: [one for at in before if (one := reached[at]) not in without] for number, before in edges}
    behind[exit] = [number for number in leaves if number not in without]
    return tree(exit, behind)


def met(number: int, forward: Tree, back: Tree) -> int:
    """The immediate dominator of a node, where each way on from it leads to the node; else -1.

    Whatever has been told between the two, here it is as it was there.
    """
    if number not in forward.place or number not in back.place:
        return -1
    above = forward.order[forward.above[forward.place[number]]]
    return above if above in back.place and back.dominates(back.place[number], back.place[above]) else -1


def _search(first: int, behind: Mapping[int, Sequence[int]]) -> tuple[list[int], list[int], list[int]]:
    """The nodes in the order in which a depth-first search finds them, for each of these the number of that which it
    was found from, and the nodes in reverse postorder.
    """
    found, parent, left = [first], [0], []
    seen = {first}
    stack = [(first, 0, iter(behind[first]))]
    while stack:
        number, time, successors = stack[-1]
        for successor in successors:
            if successor not in seen:
                seen.add(successor)
                stack.append((successor, len(found), iter(behind[successor])))
                found.append(successor)
                parent.append(time)
                break
        else:
            left.append(number)
            stack.pop()
    return found, parent, left[::-1]


def _dominators(parent: list[int], before: list[list[int]]) -> list[int]:
    """The immediate dominator of each node; all are numbered in the order in which the search has found them."""
    count = len(parent)
    semi, forest, above = list(range(count)), _Forest(count), [0] * count
    waiting: list[list[int]] = [[] for _ in range(count)]
    for number in range(count - 1, 0, -1):
        for one in before[number]:
            semi[number] = min(semi[number], semi[forest.lowest(one, semi)])
        waiting[semi[number]].append(number)
        root = parent[number]
        forest.link(number, root)
        for one in waiting[root]:
            lowest = forest.lowest(one, semi)
            above[one] = lowest if semi[lowest] < semi[one] else root
        waiting[root] = []
    for number in range(1, count):
        if above[number] != semi[number]:
            above[number] = above[above[number]]
    return above


class _Forest:
    """Trees that grow together, in which the way up from a node becomes shorter each time it is gone."""

    def __init__(self, count: int) -> None:
        self._up = [-1] * count
        self._best = list(range(count))

    def link(self, number: int, root: int) -> None:
        """A root comes below another one."""
        self._up[number] = root

    def lowest(self, number: int, semi: list[int]) -> int:
        """That with the lowest semidominator on the way up from a node, but for the root there; of a root itself."""
        up, best = self._up, self._best
        way = []
        while up[number] >= 0 and up[up[number]] >= 0:
            way.append(number)
            number = up[number]
        for one in reversed(way):
            if semi[best[number]] < semi[best[one]]:
                best[one] = best[number]
            up[one] = up[number]
            number = one
        return best[number]
