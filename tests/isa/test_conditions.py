"""Conditions and values are held against truth tables: what they say is necessary has to hold on every CPU."""

from collections.abc import Set
from functools import reduce
from itertools import product

import archspec.cpu
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from imgcheck.binaries.isa.conditions import (
    ALWAYS,
    NEVER,
    UNTOLD,
    Condition,
    both,
    either,
    having,
    implied,
    not_understood,
    opposite,
    shielded,
    unshielded,
)
from imgcheck.binaries.isa.values import (
    BELOW,
    BORROW,
    CLEAR,
    EQUAL,
    LESS,
    Comparison,
    added,
    combined,
    constant,
    joined,
    outcome,
    shifted,
    truth,
    word,
)
from imgcheck.binaries.isa.x86.encodings import names

FEATURES = ("avx", "bmi2", "aes", "?1000")
MORE = ("popcnt", "fma", "sse4_1", "?2000", "?3000")
CPUS = [frozenset(f for f, has in zip(FEATURES, bits, strict=True) if has) for bits in product((0, 1), repeat=4)]


def holds(condition: Condition, cpu: frozenset[str]) -> bool:
    return any(all((lit.lstrip("!") in cpu) != lit.startswith("!") for lit in term) for term in condition)


def single(feature: str) -> Condition:
    return not_understood(0x1000) if feature[0] == "?" else having(feature)


formulas = st.recursive(
    st.sampled_from([ALWAYS, NEVER, *map(single, FEATURES)]),
    lambda inner: st.one_of(
        st.tuples(st.just(both), inner, inner).map(lambda t: t[0](t[1], t[2])),
        st.tuples(st.just(either), inner, inner).map(lambda t: t[0](t[1], t[2])),
        inner.map(opposite),
    ),
    max_leaves=8,
)


@given(formulas, formulas)
def test_formulas_hold_where_their_parts_do(one: Condition, other: Condition) -> None:
    for cpu in CPUS:
        assert holds(both(one, other), cpu) == (holds(one, cpu) and holds(other, cpu))
        assert holds(either(one, other), cpu) == (holds(one, cpu) or holds(other, cpu))
        assert holds(opposite(one), cpu) != holds(one, cpu)


def test_what_is_too_much_to_follow_counts_as_not_understood() -> None:
    found = NEVER
    while (more := either(found, both(having(f"a{len(found)}"), having(f"b{len(found)}")))) != UNTOLD:
        assert len(more) > len(found)
        found = more
    assert shielded(more, "avx512f")


def test_what_is_too_much_keeps_what_each_way_has_met() -> None:
    """As in programs that name models one by one: which of them there are is lost, and not that a test was met."""
    first, second, *others = (not_understood(0x2000 + i) for i in range(6))
    none = reduce(both, map(opposite, others))
    before = reduce(either, (both(one, opposite(having("avx"))) for one in others), none)
    way = both(before, either(first, either(second, having("sse4_1"))))
    assert way == either(first, either(second, having("sse4_1")))
    assert shielded(way, "sse4_1")
    assert not shielded(either(way, having("sse3")), "sse4_1")


literals = st.sampled_from([sign + feature for feature in (*FEATURES, *MORE) for sign in ("", "!")])
terms = st.lists(st.frozensets(literals, max_size=4), max_size=24)


@example([{"avx"}, {"!avx", "bmi2", "!bmi2", "aes"}, {"!avx", "popcnt"}, {"!avx", "!?1000", "!bmi2"}, {"fma"},
          {"bmi2", "?1000"}, {"?1000", "aes"}, {"!avx"}], {"avx"})  # fmt: skip
@given(terms, st.sets(st.sampled_from([*FEATURES, *MORE])))
def test_what_is_weakened_holds_where_the_whole_does(alternatives: list[Set[str]], cpu: set[str]) -> None:
    """Where it became too much on the way it may hold on any CPU."""
    found = NEVER
    for term in alternatives:
        found = either(found, frozenset({frozenset(term)}))
    alternatives = [frozenset(term) for term in alternatives]
    assert found >= UNTOLD or not holds(frozenset(alternatives), frozenset(cpu)) or holds(found, frozenset(cpu))


def test_a_test_shields_what_every_cpu_that_passes_it_has() -> None:
    assert shielded(having("avx2"), "fma")
    assert not shielded(having("avx2"), "avx512f")
    assert not shielded(opposite(having("avx2")), "sse3")
    assert not shielded(ALWAYS, "avx")
    assert not shielded(either(having("avx2"), having("sse4_2")), "avx")
    assert shielded(not_understood(0x10), "avx512f")


def test_the_kinds_of_cpus_that_lack_a_shield_are_told() -> None:
    condition = either(having("avx2"), both(having("avx"), not_understood(0x10)))
    assert unshielded(condition, "avx512f") == (frozenset({"avx2"}),)
    assert unshielded(opposite(having("avx512f")), "avx2") == (frozenset({"!avx512f"}),)


MAKERS = {"GenuineIntel", "AuthenticAMD"}
MICROARCHITECTURES = {n: u.features for n, u in archspec.cpu.TARGETS.items() if u.vendor in MAKERS}
LEFT_OUT = {("sandybridge", "xsave"), ("ivybridge", "xsave"), ("k10", "sse3"), ("k10", "popcnt"),
            *((f"zen{n}", "rdrand") for n in ("", 2, 3, 4, 5, 6))}  # fmt: skip
"""What archspec does not list though the makers' manuals do."""


@pytest.mark.parametrize("feature", sorted(set(names().values())))
def test_implied_features_are_those_of_every_microarchitecture(feature: str) -> None:
    """Of those that archspec lists for Intel and AMD; features it never lists are not compared."""
    listed = frozenset().union(*MICROARCHITECTURES.values())
    for other in implied(feature) & listed - {"sse"}:
        lacking = {name for name, has in MICROARCHITECTURES.items() if feature in has and other not in has}
        assert not {name for name in lacking if (name, other) not in LEFT_OUT}, other


# Values


def value_of(number: int, condition: Condition):
    return joined(constant(number), condition, constant(0), opposite(condition))


@given(st.integers(0, 255), st.integers(0, 255), st.sampled_from([EQUAL, BELOW, LESS]))
def test_comparing_tells_which_cpus_come_through(number: int, against: int, test: int) -> None:
    value = value_of(number, having("avx"))
    taken, fails = outcome(Comparison(value, against, 8, BORROW), test)
    for cpu in CPUS:
        real = number if "avx" in cpu else 0
        signed = [(n ^ 128) - 128 for n in (real, against)]
        met = {EQUAL: real == against, BELOW: real < against, LESS: signed[0] < signed[1]}[test]
        assert holds(taken if met else fails, cpu)
        assert not holds(fails if met else taken, cpu)


@given(st.sampled_from(["and", "or", "xor"]), st.integers(0, 0xFFFF))
def test_bits_of_a_word_are_followed_through_masks_and_shifts(name: str, mask: int) -> None:
    work = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}[name]
    ecx = word({5: having("avx"), 9: having("aes")})
    found = shifted(combined(work, ecx, constant(mask), 32), -5, 32)
    bit = combined(int.__and__, found, constant(1), 32)
    told = outcome(Comparison(bit, 0, 32, CLEAR), EQUAL)
    for cpu in CPUS:
        is_zero = not work(("avx" in cpu) << 5, mask) >> 5 & 1
        assert holds(told[0] if is_zero else told[1], cpu)
        assert not holds(told[1] if is_zero else told[0], cpu)


def test_a_word_tells_nothing_by_bits_that_nobody_knows() -> None:
    ecx = word({5: having("avx")})
    assert outcome(Comparison(combined(int.__and__, ecx, constant(0x60), 32), 0, 32, CLEAR), EQUAL) is None
    assert outcome(Comparison(combined(int.__and__, ecx, constant(0x20), 32), 0, 32, CLEAR), EQUAL) is not None


def test_sums_and_truths_are_numbers() -> None:
    level = added(truth(having("avx"), opposite(having("avx"))), 3, 32)
    assert outcome(Comparison(level, 4, 32, BORROW), EQUAL) == (having("avx"), opposite(having("avx")))
