"""Which parts of a function run only behind a test of the CPU, and under what condition.

Code is behind one direction of a test where every way from the function's entry to it leads over that edge: this holds
for nested tests, early returns and tests inside loops, where the test's own dominance of the code says nothing. An
edge is on every way to a block where the block dominates whatever else leads to it, so that the tree of immediate
dominators (dominators.py) tells it for all tests at once.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from imgcheck.binaries.isa.conditions import ALWAYS, UNTOLD, Condition, Labels, blurred, both
from imgcheck.binaries.isa.dominators import Tree
from imgcheck.binaries.isa.guarded import Guarded
from imgcheck.binaries.isa.x86.control import Block, ControlFlow
from imgcheck.binaries.isa.x86.facts import Code

_FEW_TESTS = 8
_MAX_TESTS, _MAX_BLOCKS = 256, 4000


def guarded(graph: ControlFlow, tests: dict[int, Labels], alike: list[list[int]]) -> list[Guarded]:
    """What runs under a condition, sorted; ranges do not overlap.

    `tests` are the branches that test the CPU, by address, indirect jumps among them. Those that are `alike` go the
    same way each time, so they are taken as one.
    """
    blocks = graph.blocks
    if len(blocks) > _MAX_BLOCKS or len(tests) > _MAX_TESTS:
        return [(blocks[0].first, blocks[-1].end, UNTOLD)]
    # In a function with few tests those that are not understood are told apart: its uses may be behind both ways.
    kept = blurred if len(tests) > _FEW_TESTS else _as_it_is
    found = _conditions(graph, tests, kept)
    for left_out, condition in _together(graph, tests, alike) if alike else ():
        if condition != ALWAYS:
            reached = _reachable(blocks, left_out)
            for number in found.keys() - reached:
                found[number] = kept(both(found[number], kept(condition)))
    return [
        piece
        for number, block in enumerate(blocks)
        for piece in _pieces(block, found.get(number, ALWAYS), tests, kept)
        if piece[2] != ALWAYS
    ]


def _as_it_is(condition: Condition) -> Condition:
    return condition


def _pieces(
    block: Block, condition: Condition, tests: dict[int, Labels], kept: Callable[[Condition], Condition]
) -> Iterator[Guarded]:
    """The block, and the branch that ends it: a jump out of the function happens behind the test that it is."""
    if block.control in tests:
        yield block.first, block.control, condition
        yield block.control, block.end, kept(both(condition, tests[block.control][0]))
    else:
        yield block.first, block.end, condition


def _conditions(
    graph: ControlFlow, tests: dict[int, Labels], kept: Callable[[Condition], Condition]
) -> dict[int, Condition]:
    """For each block that can be reached what its way there tells, test by test."""
    blocks, tree = graph.blocks, graph.dominators
    found = {0: ALWAYS}
    for at, number in enumerate(tree.order[1:], 1):
        above = tree.order[tree.above[at]]
        last, condition = blocks[above], found[above]
        if last.control in tests and condition != UNTOLD:
            by_one_edge = _by_one_edge(at, tree) and graph.left(number) != above
            told = _told(graph.code, last, blocks[number], tests[last.control], by_one_edge)
            condition = kept(both(condition, kept(told)))
        found[number] = condition
    return found


def _told(code: Code, last: Block, block: Block, labels: Labels, by_one_edge: bool) -> Condition:
    """What the test at the end of `last`, the immediate dominator, tells on the way to `block`."""
    if last.control not in code.targets:
        return labels[0]  # a jump table indexed by what the CPU told guards all that only it leads to
    if not by_one_edge:
        return ALWAYS
    return labels[0] if block.first == code.targets[last.control] else labels[1]


def _by_one_edge(at: int, tree: Tree) -> bool:
    """Whether every way to a block comes over one edge from its immediate dominator: all others come back to it."""
    others = [one for one in tree.before[at] if one != tree.above[at]]
    return len(tree.before[at]) - len(others) == 1 and all(tree.dominates(at, one) for one in others)


def _together(
    graph: ControlFlow, tests: dict[int, Labels], alike: list[list[int]]
) -> Iterator[tuple[dict[int, int], Condition]]:
    """For each group of tests and each outcome the successor that each of its blocks then never goes to."""
    code, blocks = graph.code, graph.blocks
    number = {block.first: i for i, block in enumerate(blocks)}
    ends = {block.control: i for i, block in enumerate(blocks)}
    facts = dict(zip(code.ips, code.facts, strict=True))
    for group in alike:
        for outcome in (0, 1):
            falls = {ip: facts[ip].condition & 1 == outcome for ip in group}
            left_out = {ip: blocks[ends[ip]].end if falls[ip] else code.targets.get(ip, -1) for ip in group}
            condition = tests[group[0]][1 if falls[group[0]] else 0]
            yield {ends[ip]: number.get(to, -1) for ip, to in left_out.items()}, condition


def _reachable(blocks: list[Block], left_out: dict[int, int]) -> set[int]:
    """The blocks reached from the first when none goes to the one `left_out` for it."""
    seen, stack = {0}, [0]
    while stack:
        here = stack.pop()
        for target in blocks[here].successors:
            if target not in seen and left_out.get(here) != target:
                seen.add(target)
                stack.append(target)
    return seen


def merged(one: list[Guarded], other: list[Guarded]) -> list[Guarded]:
    """What two looks at one function tell together."""
    if not one or one == other:
        return other or one
    edges = sorted({edge for first, end, _ in (*one, *other) for edge in (first, end)})
    found = []
    at = [0, 0]
    for first, end in pairwise(edges):
        condition = ALWAYS
        for k, pieces in enumerate((one, other)):
            while at[k] < len(pieces) and pieces[at[k]][1] <= first:
                at[k] += 1
            if at[k] < len(pieces) and pieces[at[k]][0] <= first:
                condition = both(condition, pieces[at[k]][2])
        if condition != ALWAYS:
            found.append((first, end, condition))
    return found
