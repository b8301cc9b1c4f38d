"""What the tree of dominators tells of tests is what leaving out each of their directions tells."""

from hypothesis import given
from hypothesis import strategies as st

from imgcheck.binaries.isa.conditions import ALWAYS, Condition, having, opposite
from imgcheck.binaries.isa.guarded import Guarded
from imgcheck.binaries.isa.x86.control import ControlFlow
from imgcheck.binaries.isa.x86.dominance import guarded
from imgcheck.binaries.isa.x86.facts import BRANCH, Code, facts
from imgcheck.binaries.isa.x86.facts import RETURN as RETURNS

NOP, RETURN = b"\x90", b"\xc3"
SIZE = 8
"""Of each block: a NOP, a branch of six bytes or a jump of five, and padding."""
PLACES = st.integers(0, 11)
LEADS = st.tuples(st.sampled_from(["jumps", "tests"]), PLACES)
BLOCK = st.one_of(st.just(("falls", 0)), st.just(("returns", 0)), LEADS)


def assembled(blocks: list[tuple[str, int]]) -> Code:
    """Code of which block I begins at address SIZE * I."""
    code = b""
    for at, (does, to) in enumerate(blocks):
        distance = SIZE * (to % len(blocks)) - SIZE * at
        code += {
            "falls": NOP * SIZE,
            "returns": NOP + RETURN + NOP * (SIZE - 2),
            "jumps": NOP + b"\xe9" + (distance - 6).to_bytes(4, "little", signed=True) + NOP * 2,
            "tests": NOP + b"\x0f\x84" + (distance - 7).to_bytes(4, "little", signed=True) + NOP,
        }[does]
    return facts(code + RETURN, 0, 64)


def at(told: list[Guarded], address: int) -> Condition:
    return next((condition for first, end, condition in told if first <= address < end), ALWAYS)


def reached(code: Code, never: tuple[int, int], first: int = 0) -> set[int]:
    """Addresses of the instructions reached from `first` on, without the step `never` (from, to)."""
    seen, waiting = set(), [first]
    follows = dict(zip(code.ips, [*code.ips[1:], -1], strict=True))
    kinds = dict(zip(code.ips, code.facts, strict=True))
    while waiting:
        ip = waiting.pop()
        if ip in seen or ip not in kinds:
            continue
        seen.add(ip)
        steps = [code.targets[ip]] if ip in code.targets else []
        if kinds[ip].kind <= BRANCH:
            steps.append(follows[ip])
        waiting += [to for to in steps if (ip, to) != never]
    return seen


def ends_a_loop(code: Code, test: int, onward: int, back: int) -> bool:
    """Whether all that a test's direction `back` leads to is the test itself, and then the other direction, the end."""
    returning = {ip for ip, fact in zip(code.ips, code.facts, strict=True) if fact.kind == RETURNS}
    both = all(returning & reached(code, (-1, -1), first) for first in (onward, back))
    return both and not returning & reached(code, (test, onward), back)


@given(st.lists(BLOCK, min_size=1, max_size=12), st.integers(0, 11))
def test_code_is_behind_the_direction_of_a_test_without_which_nothing_leads_to_it(
    blocks: list[tuple[str, int]], chosen: int
) -> None:
    code = assembled(blocks)
    branches = [ip for ip, fact in zip(code.ips, code.facts, strict=True) if fact.kind == BRANCH]
    if not branches:
        return
    test = branches[chosen % len(branches)]
    target, behind = code.targets[test], code.ips[code.ips.index(test) + 1]
    has = having("avx2")
    told = guarded(ControlFlow(code), {test: (has, opposite(has))}, [])
    everything = reached(code, (-1, -1))
    for ip in everything - {test}:  # the branch itself counts as behind where it jumps out of the function to
        found = at(told, ip)
        wanted = ALWAYS
        if target != behind:
            for onward, other, condition in ((target, behind, has), (behind, target, opposite(has))):
                if ip not in reached(code, (test, onward)) and not ends_a_loop(code, test, onward, other):
                    wanted = condition
        assert (ip, found) == (ip, wanted)


def test_tests_in_a_row_are_told_together() -> None:
    """Block 0 tests to 3, block 1 tests to 3, block 2 runs behind the failure of both, block 3 behind nothing."""
    code = assembled([("tests", 3), ("tests", 3), ("returns", 0), ("returns", 0)])
    one, two = having("avx"), having("fma")
    told = guarded(ControlFlow(code), {1: (one, opposite(one)), SIZE + 1: (two, opposite(two))}, [])
    assert at(told, 2 * SIZE) == frozenset({frozenset({"!avx", "!fma"})})
    assert at(told, 3 * SIZE) == ALWAYS


@given(st.lists(BLOCK, min_size=1, max_size=12))
def test_ways_meet_where_each_way_on_from_what_dominates_leads(blocks: list[tuple[str, int]]) -> None:
    graph = ControlFlow(assembled(blocks))
    behind = {number: graph.blocks[number].successors for number in graph.dominators.order}
    ends = {number for number, successors in behind.items() if not successors}

    def reached_without(first: int, left_out: int) -> set[int]:
        seen, waiting = set(), [first]
        while waiting:
            one = waiting.pop()
            if one not in seen and one != left_out:
                seen.add(one)
                waiting += behind[one]
        return seen

    for number in graph.dominators.order[1:]:
        dominators = [one for one in behind if one != number and number not in reached_without(0, one)]
        above = max(dominators, key=lambda one: graph.dominators.place[one])
        leads_on = ends & reached_without(above, -1) and not ends & reached_without(above, number)
        assert graph.met(number) == (above if leads_on else -1)


@given(st.lists(BLOCK, min_size=1, max_size=12))
def test_a_loop_holds_what_comes_back_to_its_first_block(blocks: list[tuple[str, int]]) -> None:
    graph = ControlFlow(assembled(blocks))
    for number in graph.order:
        back = [one for one in graph.before[number] if graph.place[one] >= graph.place[number]]
        assert (number in graph.loops) == bool(back)
