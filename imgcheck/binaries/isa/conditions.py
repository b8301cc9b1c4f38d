"""Under which answers of the CPU code runs: small boolean formulas over features, and what they imply.

A condition is in disjunctive normal form: a set of terms, each a set of literals that hold together. A literal is a
feature ("avx2") that the CPU has, or with "!" before it lacks. A test of the CPU whose meaning is not understood has
the literal "?ADDRESS"; it shields everything.
"""

from collections.abc import Set
from functools import cache, lru_cache

from imgcheck.binaries.isa.names import analysis

Term = frozenset[str]
Condition = frozenset[Term]
Labels = tuple[Condition, Condition]
"""What holds where a test is met, and where it is not."""

ALWAYS: Condition = frozenset({frozenset()})
NEVER: Condition = frozenset()
_UNTOLD: Term = frozenset({"?"})
UNTOLD: Condition = frozenset({_UNTOLD})
"""A test of the CPU whose meaning is not understood, and that is never the same as another one."""
_MOST_TERMS, _MOST_LITERALS = 6, 10
_KEPT = 1 << 14
"""Results remembered: the same few conditions meet again and again."""


@lru_cache(_KEPT)
def having(*features: str) -> Condition:
    """The CPU has all of `features`."""
    return frozenset({frozenset(features)})


@lru_cache(_KEPT)
def not_understood(address: int) -> Condition:
    """The branch at `address`, which tests what the CPU told in a way that is not understood, is taken."""
    return frozenset({frozenset({f"?{address:x}"})})


def ways_not_understood(address: int, merged: bool = False) -> Labels:
    """What the two directions of such a branch tell.

    `merged`: what it tests is not the same on all ways to it, so that the one direction is not the opposite of the
    other: where code for one CPU stands in both, that need not be what every run comes to.
    """
    taken = not_understood(address)
    return taken, taken if merged else opposite(taken)


def both(one: Condition, other: Condition) -> Condition:
    """One condition and the other hold."""
    # One of them mostly is this very object, and a comparison of sets takes longer.
    if one is ALWAYS:
        return other
    return one if other is ALWAYS else _both(one, other)


def either(one: Condition, other: Condition) -> Condition:
    """One condition or the other holds."""
    if one is ALWAYS or other is ALWAYS:
        return ALWAYS
    return _either(one, other) if one and other else one or other


@lru_cache(_KEPT)
def opposite(condition: Condition) -> Condition:
    """The condition does not hold."""
    found = ALWAYS
    for term in condition:
        found = both(found, frozenset(frozenset({negated(literal)}) for literal in term))
    return found


@lru_cache(_KEPT)
def _both(one: Condition, other: Condition) -> Condition:
    if one in (ALWAYS, other):
        return other
    return one if other == ALWAYS else _simplified({a | b for b in other for a in one if a.isdisjoint(_opposed(b))})


@lru_cache(_KEPT)
def _either(one: Condition, other: Condition) -> Condition:
    return one if one == other else _simplified(one | other)


@lru_cache(_KEPT)
def negated(literal: str) -> str:
    """The literal that holds where `literal` does not; UNTOLD's stands for either."""
    if literal == "?":
        return literal
    return literal[1:] if literal[0] == "!" else f"!{literal}"


@lru_cache(_KEPT)
def _opposed(literals: Term) -> Term:
    """The literals that hold where one of these does not."""
    return frozenset(map(negated, literals - _UNTOLD))


def _simplified(left: Set[Term]) -> Condition:
    if len(left) > 3 * _MOST_TERMS:
        left = _weakened(left)
        if len(left) > 3 * _MOST_TERMS:
            return UNTOLD
    while len(left) > 1 and (merged := _merged(left)) is not None:
        left = merged
    minimal = {shortened(term) if len(term) > _MOST_LITERALS else term for term in _minimal(left)}
    if len(minimal) > _MOST_TERMS:
        minimal = set(_minimal(_weakened(minimal)))
    too_much = len(minimal) > _MOST_TERMS or max(map(len, minimal), default=0) > _MOST_LITERALS
    if too_much:
        return UNTOLD
    return ALWAYS if minimal == ALWAYS else frozenset(minimal)


def _weakened(terms: Set[Term]) -> set[Term]:
    """The terms without what the CPU lacks, and where they say anything else without tests that were not met: all that
    is left is necessary, too, and shows the same features.
    """
    return {_met(term) or frozenset(literal for literal in term if not _of_feature(literal)) for term in terms}


def _met(term: Term) -> Term:
    """What holds of a term, without what does not."""
    return frozenset(literal for literal in term if literal[0] != "!")


def _minimal(terms: Set[Term]) -> list[Term]:
    """The terms without those that follow from another one."""
    shortest = min(map(len, terms), default=0)
    return [term for term in terms if len(term) == shortest or not any(other < term for other in terms)]


def shortened(term: Term) -> Term:
    """A long term without what it says of features that the CPU lacks, and without what follows from other features:
    no feature that it shields shows without it.
    """
    kept = {literal for literal in term if literal[0] != "!" or not _of_feature(literal)}
    for literal in sorted(kept):  # one by one: some have each other for a precondition
        if any(literal in implied(other) for other in kept - {literal}):
            kept.remove(literal)
    return frozenset(kept)


def _merged(terms: Set[Term]) -> Set[Term] | None:
    """The terms with two that differ by one literal alone, which holds in the one and not in the other, made one."""
    literals = frozenset().union(*terms) - _UNTOLD
    opposed = literals.intersection(map(negated, literals))
    for term in terms if opposed else ():
        for literal in term & opposed:
            rest, reverse = term - {literal}, negated(literal)
            if rest | {reverse} in terms:
                return (terms - {term, rest | {reverse}}) | {rest}
            if any(reverse in other and other - {reverse} < rest for other in terms):  # x or (not x and y) is x or y
                return (terms - {term}) | {rest}
    return None


def blurred(condition: Condition) -> Condition:
    """The condition with all that is not understood taken for one: enough to tell what it shields."""
    return frozenset(term if all(map(_of_feature, term)) else _UNTOLD for term in condition)


@lru_cache(_KEPT)
def as_far_as_told(condition: Condition) -> Condition:
    """What it tells, or where that was too much to keep what it tells of features."""
    if not any("?" in term for term in condition):
        return condition
    return frozenset(_minimal({frozenset(filter(_of_feature, term)) for term in condition}))


@lru_cache(_KEPT)
def understood(condition: Condition) -> bool:
    """Whether it tells of some feature."""
    return any(_of_feature(literal) for term in condition for literal in term)


@lru_cache(_KEPT)
def understood_wholly(condition: Condition) -> bool:
    """Whether it tells of features, and of nothing else."""
    return understood(condition) and all(_of_feature(literal) for term in condition for literal in term)


def _of_feature(literal: str) -> bool:
    """Whether it is about a feature, and no test whose meaning is not understood."""
    return "?" not in literal


@lru_cache(_KEPT)
def shielded(condition: Condition, feature: str) -> bool:
    """Whether code that runs under `condition` is safe to use `feature`, as far as can be told."""
    return all(_shields(term, feature) for term in condition)


def _shields(term: Term, feature: str) -> bool:
    return any(not _of_feature(literal) or feature in implied(literal) for literal in term)


@lru_cache(_KEPT)
def implied(literal: str) -> frozenset[str]:
    """The features that every CPU has for which `literal` holds."""
    return frozenset() if literal[0] in "!?" else frozenset({literal}) | frozenset(_implications().get(literal, ()))


def unshielded(condition: Condition, feature: str) -> tuple[Term, ...]:
    """The literals about features, for each term under which code is not safe to use `feature`."""
    known = {frozenset(filter(_of_feature, term)) for term in condition if not _shields(term, feature)}
    return tuple(sorted(_minimal(known), key=sorted))


@cache
def _implications() -> dict[str, frozenset[str]]:
    """Each feature -> all that CPUs with it have, over any number of steps."""
    direct: dict[str, set[str]] = {}
    for machine in ("x86", "aarch64", "ppc64le"):
        for feature, others in analysis()[machine]["implies"].items():
            direct.setdefault(feature, set()).update(others)
    found: dict[str, frozenset[str]] = {}
    for feature in direct:
        seen, waiting = set(), [feature]
        while waiting:
            for other in direct.get(waiting.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        found[feature] = frozenset(seen)
    return found


@cache
def bit_conditions(place: str, machine: str = "x86") -> dict[int, Condition]:
    """What each bit of a word tells, where that is known: the word by its name in rules/analysis/isa.toml."""
    told = analysis()[machine]["bits"].get(place, {})
    return {int(bit): having(*([what] if isinstance(what, str) else what)) for bit, what in told.items()}


@cache
def featureless() -> frozenset[int]:
    """Leaves of CPUID that describe the CPU and tell of no feature."""
    return frozenset(analysis()["x86"]["featureless_leaves"]["leaves"])
