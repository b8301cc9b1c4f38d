"""Dominators of a directed graph: which nodes lie on every way from its first node to another one.

Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm".
"""

from collections.abc import Iterable, Mapping, Sequence
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
    order = _reverse_postorder(first, behind)
    place = {number: at for at, number in enumerate(order)}
    before: list[list[int]] = [[] for _ in order]
    for at, number in enumerate(order):
        for successor in behind[number]:
            before[place[successor]].append(at)
    return Tree(order, place, before, _dominators(before))


def postdominators(forward: Tree, leaves: Iterable[int], exit: int) -> Tree:
    """Which nodes lie on every way out: the dominators of the graph with its edges reversed, from `exit` on.

    `leaves` are the nodes at whose ends a way out begins.
    """
    reached = forward.order
    behind = {number: [reached[at] for at in before] for number, before in zip(reached, forward.before, strict=True)}
    behind[exit] = list(leaves)
    return tree(exit, behind)


def met(number: int, forward: Tree, back: Tree) -> int:
    """The immediate dominator of a node, where each way on from it leads to the node; else -1.

    Whatever has been told between the two, here it is as it was there.
    """
    if number not in forward.place or number not in back.place:
        return -1
    above = forward.order[forward.above[forward.place[number]]]
    return above if above in back.place and back.dominates(back.place[number], back.place[above]) else -1


def _reverse_postorder(first: int, behind: Mapping[int, Sequence[int]]) -> list[int]:
    order, seen = [], {first}
    stack = [(first, iter(behind[first]))]
    while stack:
        number, successors = stack[-1]
        for successor in successors:
            if successor not in seen:
                seen.add(successor)
                stack.append((successor, iter(behind[successor])))
                break
        else:
            order.append(number)
            stack.pop()
    return order[::-1]


def _dominators(before: list[list[int]]) -> list[int]:
    above = [0] + [-1] * (len(before) - 1)
    changed = True
    while changed:
        changed = False
        for at in range(1, len(before)):
            found = -1
            for one in before[at]:
                if above[one] >= 0:
                    found = one if found < 0 else _shared(one, found, above)
            if found != above[at]:
                above[at], changed = found, True
    return above


def _shared(one: int, other: int, above: list[int]) -> int:
    """The lowest node that dominates both."""
    while one != other:
        if one > other:
            one = above[one]
        else:
            other = above[other]
    return one
