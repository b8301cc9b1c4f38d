"""The order in which code is followed: each block behind all that lead to it, but for loops.

Compilers lay out blocks by how likely they run, so that code at the end of a function often jumps back to what is no
loop. Blocks are followed in reverse postorder, where only the edges that close a loop lead back. What belongs to a loop
(its natural loop) is found backwards from such an edge.
"""

from typing import NamedTuple

from imgcheck.binaries.isa.x86.blocks import Block, basic_blocks, reverse_postorder
from imgcheck.binaries.isa.x86.facts import Code


class Order(NamedTuple):
    """Instructions by number."""

    numbers: list[int]
    place: dict[int, int]
    """By the address where an instruction comes in `numbers`."""
    loops: dict[int, list[range]]
    """Address of the first instruction of a loop -> those that belong to it, by number."""


def order(code: Code) -> Order:
    """How the instructions of a function are followed; those that nothing leads to come last."""
    if all(target > ip or target < code.ips[0] for ip, target in code.targets.items()):
        return _order(code, list(range(len(code.ips))), {})
    found = basic_blocks(code)
    reached = reverse_postorder(found)
    left = sorted(set(range(len(found))) - set(reached))
    at = {ip: number for number, ip in enumerate(code.ips)}
    bounds = [at[block.first] for block in found] + [len(code.ips)]
    spans = [range(bounds[i], bounds[i + 1]) for i in range(len(found))]
    numbers = [number for block in [*reached, *left] for number in spans[block]]
    loops = {found[head].first: [spans[i] for i in sorted(body)] for head, body in _loops(found, reached).items()}
    return _order(code, numbers, loops)


def _order(code: Code, numbers: list[int], loops: dict[int, list[range]]) -> Order:
    return Order(numbers, {code.ips[number]: place for place, number in enumerate(numbers)}, loops)


def _loops(found: list[Block], reached: list[int]) -> dict[int, set[int]]:
    """The first block of each loop with all blocks of the loop."""
    place = {block: at for at, block in enumerate(reached)}
    before: dict[int, list[int]] = {block: [] for block in reached}
    for block in reached:
        for successor in found[block].successors:
            before[successor].append(block)
    loops: dict[int, set[int]] = {}
    for block in reached:
        for head in found[block].successors:
            if place[head] <= place[block]:
                body = loops.setdefault(head, {head})
                waiting = [block]
                while waiting:
                    one = waiting.pop()
                    if one not in body:
                        body.add(one)
                        waiting += before[one]
    return loops
