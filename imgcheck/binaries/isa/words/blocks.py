"""The basic blocks of a function of a machine whose code is made of words, and which of them lead to which."""

from dataclasses import dataclass
from itertools import pairwise

from imgcheck.binaries.isa.dominators import Tree, met, postdominators, tree

GOES_ON, TESTS, JUMPS, LEAVES, JUMPS_ANYWHERE = range(5)
"""What the end of a block does; leaving may be by a jump to another function."""
_EXIT = -1


@dataclass(frozen=True, slots=True)
class Ending:
    """What a word does to the order of things, and the address where it may go on besides the next."""

    kind: int = GOES_ON
    target: int = -1


class Blocks:
    """The basic blocks of a function, from the endings of its words."""

    def __init__(self, start: int, endings: list[Ending]) -> None:
        self.start, self.end = start, start + 4 * len(endings)
        inside = {e.target for e in endings if start <= e.target < self.end}
        behind = {start + 4 * (i + 1) for i, e in enumerate(endings) if e.kind != GOES_ON}
        edges = sorted({start, *inside, *(at for at in behind if at < self.end), self.end})
        self.ranges = list(pairwise(edges))
        number = {first: i for i, (first, _) in enumerate(self.ranges)}
        self.after: dict[int, list[int]] = {}
        anywhere = []
        for i, (_, end) in enumerate(self.ranges):
            ending = endings[(end - start) // 4 - 1]
            onward = [number[end]] if ending.kind in (GOES_ON, TESTS) and end in number else []
            if ending.kind in (TESTS, JUMPS) and ending.target in number:
                onward.append(number[ending.target])
            if ending.kind == JUMPS_ANYWHERE:
                anywhere.append(i)
            self.after[i] = list(dict.fromkeys(onward))
        entered = {0}.union(*self.after.values())
        cases = [i for i in self.after if i not in entered] if anywhere else []
        if cases:  # a table of jumps leads to what nothing else leads to: all of them over one empty block
            hub = len(self.ranges)
            self.ranges.append((self.end, self.end))
            self.after |= {i: [hub] for i in anywhere} | {hub: cases}
        self.jumps_inside = bool(cases)
        """Whether jumps by a register stay in the function."""
        self.tree: Tree = tree(0, self.after)
        self._back = self._postdominators(endings)

    def _postdominators(self, endings: list[Ending]) -> Tree:
        ends = {i: endings[(self.ranges[i][1] - self.start) // 4 - 1] for i in self.tree.order}
        leaves = (i for i, end in ends.items() if not self.after[i] or (end.target >= 0 and end.target not in self))
        return postdominators(self.tree, leaves, _EXIT)

    @property
    def unreached(self) -> list[int]:
        """Addresses of the blocks to which no way leads from the first: of other functions, or exception handlers."""
        return [first for i, (first, end) in enumerate(self.ranges) if i not in self.tree.place and first < end]

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end

    def met(self, number: int) -> int:
        """As dominators.met."""
        return met(number, self.tree, self._back)
