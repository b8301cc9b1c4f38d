"""Which parts of a function run only behind a test of the CPU, and under what condition.

Code is behind a test where leaving out one direction of the test makes it unreachable from the function's entry: this
holds for nested tests, early returns and tests inside loops, where plain dominance fails.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from imgcheck.binaries.isa.x86.conditions import ALWAYS, UNTOLD, Condition, blurred, both
from imgcheck.binaries.isa.x86.facts import BRANCH, COMPUTE, INDIRECT_JUMP, JUMP, RETURN, Code

ENDS = (JUMP, INDIRECT_JUMP, RETURN)
_CONTROL = (BRANCH, *ENDS)
_FEW_TESTS = 8
_MAX_TESTS, _MAX_BLOCKS = 48, 4000

Labels = tuple[Condition, Condition]
"""What holds where a test jumps, and where it goes on."""
Guarded = tuple[int, int, Condition]
"""A range of addresses, and what is necessary for it to run."""


@dataclass(slots=True)
class _Block:
    """A basic block: its range, the address of the branch that ends it (-1 if none does), and where it goes."""

    first: int
    end: int
    control: int
    successors: list[int]


def guarded(code: Code, tests: dict[int, Labels], alike: list[list[int]]) -> list[Guarded]:
    """What runs under a condition, sorted; ranges do not overlap.

    `tests` are the branches that test the CPU, by address, indirect jumps among them. Those that are `alike` go the
    same way each time, so they are taken as one.
    """
    blocks = _blocks(code)
    if len(blocks) > _MAX_BLOCKS or len(tests) > _MAX_TESTS:
        return [(blocks[0].first, blocks[-1].end, UNTOLD)]
    # In a function with few tests those that are not understood are told apart: its uses may be behind both ways.
    kept = blurred if len(tests) > _FEW_TESTS else _as_it_is
    found = dict.fromkeys(range(len(blocks)), ALWAYS)
    successors = [block.successors for block in blocks]
    everything = _reachable(successors, {})
    for left_out, condition in (*_single(code, blocks, tests), *_together(code, blocks, tests, alike)):
        if condition != ALWAYS:
            for number in everything - _reachable(successors, left_out):
                if found[number] != UNTOLD:
                    found[number] = kept(both(found[number], kept(condition)))
    return [
        piece
        for number, block in enumerate(blocks)
        for piece in _pieces(block, found[number], tests, kept)
        if piece[2] != ALWAYS
    ]


def _as_it_is(condition: Condition) -> Condition:
    return condition


def _pieces(
    block: _Block, condition: Condition, tests: dict[int, Labels], kept: Callable[[Condition], Condition]
) -> Iterator[Guarded]:
    """The block, and the branch that ends it: a jump out of the function happens behind the test that it is."""
    if block.control in tests:
        yield block.first, block.control, condition
        yield block.control, block.end, kept(both(condition, tests[block.control][0]))
    else:
        yield block.first, block.end, condition


def _single(code: Code, blocks: list[_Block], tests: dict[int, Labels]) -> Iterator[tuple[dict[int, int], Condition]]:
    """For each direction of each test the successor that its block then never goes to, and what it tells."""
    number = {block.first: i for i, block in enumerate(blocks)}
    for at, block in enumerate(blocks):
        if block.control not in tests:
            continue
        jumps, goes_on = tests[block.control]
        if block.control not in code.targets:
            # A jump table indexed by what the CPU told guards all that only it leads to.
            for left_out in (*block.successors, _ANY):
                yield {at: left_out}, jumps
            continue
        ways = {number.get(code.targets[block.control], _NOWHERE): jumps, number.get(block.end, _NOWHERE): goes_on}
        if len(ways) == 2:
            for left_out, condition in ways.items():
                yield {at: left_out}, condition


def _together(
    code: Code, blocks: list[_Block], tests: dict[int, Labels], alike: list[list[int]]
) -> Iterator[tuple[dict[int, int], Condition]]:
    """For each group of tests and each outcome the successor that each of its blocks then never goes to."""
    number = {block.first: i for i, block in enumerate(blocks)}
    ends = {block.control: i for i, block in enumerate(blocks)}
    facts = dict(zip(code.ips, code.facts, strict=True))
    for group in alike:
        for outcome in (0, 1):
            falls = {ip: facts[ip].condition & 1 == outcome for ip in group}
            left_out = {ip: blocks[ends[ip]].end if falls[ip] else code.targets.get(ip, -1) for ip in group}
            condition = tests[group[0]][1 if falls[group[0]] else 0]
            yield {ends[ip]: number.get(to, _NOWHERE) for ip, to in left_out.items()}, condition


_ANY, _NOWHERE = -2, -3


def _reachable(successors: list[list[int]], left_out: dict[int, int]) -> set[int]:
    """The blocks reached from the first when none goes to the one `left_out` for it (nowhere at all for _ANY)."""
    seen, stack = {0}, [0]
    while stack:
        here = stack.pop()
        targets = successors[here]
        if here in left_out:
            targets = [target for target in targets if left_out[here] not in (target, _ANY)]
        for target in targets:
            if target not in seen:
                seen.add(target)
                stack.append(target)
    return seen


def _blocks(code: Code) -> list[_Block]:
    """Basic blocks by address, their successors as places in the list."""
    controls = {ip + fact.size: (ip, fact.kind) for ip, fact in zip(code.ips, code.facts, strict=True)
                if fact.kind in _CONTROL}  # fmt: skip
    named = {code.ips[0], *controls, *(code.targets[ip] for ip, _ in controls.values() if ip in code.targets)}
    leaders = sorted(named & set(code.ips))
    number = {first: i for i, first in enumerate(leaders)}
    behind = code.ips[-1] + code.facts[-1].size
    blocks = []
    for first, end in pairwise([*leaders, behind]):
        control, kind = controls.get(end, (-1, COMPUTE))
        goes = [code.targets.get(control, -1), end if kind not in ENDS else -1]
        blocks.append(_Block(first, end, control, [number[to] for to in goes if to in number]))
    _attach_orphans(blocks, [b for b in blocks if controls.get(b.end, (-1, COMPUTE))[1] == INDIRECT_JUMP])
    return blocks


def _attach_orphans(blocks: list[_Block], indirect: list[_Block]) -> None:
    """Blocks that nothing names are the targets of the function's jump tables."""
    named = {target for block in blocks for target in block.successors} | {0}
    orphans = [i for i in range(len(blocks)) if i not in named]
    for block in indirect:
        block.successors.extend(orphans)


def merged(one: list[Guarded], other: list[Guarded]) -> list[Guarded]:
    """What two looks at one function tell together."""
    if not one or one == other:
        return other or one
    edges = sorted({edge for first, end, _ in (*one, *other) for edge in (first, end)})
    found = []
    for first, end in pairwise(edges):
        condition = ALWAYS
        for start, stop, told in (*one, *other):
            if start <= first and end <= stop:
                condition = both(condition, told)
        if condition != ALWAYS:
            found.append((first, end, condition))
    return found
