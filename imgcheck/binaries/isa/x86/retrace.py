"""Paths looked at closely, step by step: what each call hands down, and what may lie in objects on the heap."""

from dataclasses import dataclass
from functools import cache, cached_property

from imgcheck.binaries.elf import ET_EXEC
from imgcheck.binaries.isa.conditions import understood_wholly
from imgcheck.binaries.isa.guarded import Guarded
from imgcheck.binaries.isa.values import Value, replaced, shifted, tells
from imgcheck.binaries.isa.x86.bodies import LONGEST
from imgcheck.binaries.isa.x86.handed import (
    NOTHING_GIVEN,
    Flow,
    Given,
    Member,
    Members,
    add_member,
    no_member,
)
from imgcheck.binaries.isa.x86.operands import POINTER
from imgcheck.binaries.isa.x86.spread import Spread

_SMALLEST_FIELD = 64
"""Smaller displacements occur in every structure: a member there may be any structure's."""
_LARGEST_FIELD = 1 << 32
"""From here on they are those of the thread's block, to which a register adds the variable's place."""
Passes = dict[int, Given]
"""What a function hands to those that it calls (Flow.passes)."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What a function of a path does with what it is handed."""

    tests: list[list[Guarded]]
    passes: Passes
    guesses: Passes
    """What it hands on besides where members near the beginning of objects hold what was stored to such."""


class Retrace:
    """What was looked at of one file's paths, after the rounds of `spread`."""

    def __init__(self, spread: Spread) -> None:
        self._spread, self._bodies, self._guards = spread, spread.bodies, spread.guards
        self._looked_at: dict[tuple, _Step] = {}
        """By function and what it is handed."""

    def retrace(self, steps: list[int], suspecting: bool) -> bool:
        """Follows a path from its root with what each call hands down; whether tests show that stood unseen before.

        Knowledge that lies in objects on the heap is looked for here alone: to follow it everywhere would take every
        structure with a member at the same place for one that holds it. Members near the beginning of one count where
        a test of them is understood, and the others where any is suspected.
        """
        handed = guessed = NOTHING_GIVEN
        new = False
        for function, after in zip(steps, [*steps[1:], -1], strict=True):
            if self._bodies.size(function) > LONGEST:
                handed = guessed = NOTHING_GIVEN
                continue
            step = self._look(function, handed, guessed, suspecting)
            for guarded in step.tests:
                new |= self._guards.narrow(function, guarded)
            handed = self._handed(function, after, NOTHING_GIVEN, step.passes)
            guessed = self._handed(function, after, handed, step.guesses)
        return new

    def _handed(self, function: int, after: int, known: Given, passes: Passes) -> Given:
        """What one function hands to the next, besides what is `known` of that."""
        for site, target in self._bodies.sites(function).items():
            if target == after and site in passes:
                known = self._spread.together(after, known, passes[site])
        return known

    def _look(self, function: int, handed: Given, guessed: Given, suspecting: bool) -> _Step:
        """A step of a path, kept, as paths share their steps; `guessed` is handed to it where members are near."""
        key = function, handed.key, guessed.key, suspecting
        if key not in self._looked_at:
            self._looked_at[key] = self._follow(function, handed, guessed, suspecting)
        return self._looked_at[key]

    def _follow(self, function: int, handed: Given, guessed: Given, suspecting: bool) -> _Step:
        far, near = self._suspects[suspecting]
        is_new = handed.key != NOTHING_GIVEN.key or self._may_be_unseen(function) or self._may_tell(function, far)
        flow = self._spread.follow(function, handed, far) if is_new else self._guards.flows.get(function, Flow())
        tests = [flow.guarded] if is_new else []
        if guessed.key == handed.key and not self._may_tell(function, near):
            return _Step(tests, flow.passes, {})
        closer = self._spread.follow(function, guessed, near)
        if suspecting:
            return _Step([*tests, closer.guarded], closer.passes, {})
        understood = [piece for piece in closer.guarded if understood_wholly(piece[2])]
        return _Step([*tests, understood], flow.passes, _understood(closer.passes))

    def _may_be_unseen(self, function: int) -> bool:
        """Whether the rounds had no bytes left for a function, or no reason to follow it though it may know something.

        Where a program names variables by their addresses alone, nobody knows which functions do.
        """
        named = self._spread.found.layout.elf.type == ET_EXEC
        return named or function in self._guards.put_off or function in self._spread.readers.informed

    def _may_tell(self, function: int, member: Member) -> bool:
        """Whether a function reads what may be one of those members, or calls one that hands it out."""
        if self._spread.reads(function, member):
            return True
        return any(self._spread.tells_of(called, member) for called in {*self._bodies.sites(function).values()})

    @cached_property
    def _suspects(self) -> tuple[tuple[Member, Member], ...]:
        """Members of objects that the rounds have seen filled with knowledge: those far from the beginning, and all.

        First where what is known of them has to be understood, then where any is suspected.
        """
        members: Members = {}
        for flow in self._guards.flows.values():
            for place, value in flow.members.items():
                add_member(members, place, value)
        told: Members = {place: value for place, value in members.items() if value is not None}
        return tuple(_far_and_all(seen) for seen in (told, members))


def _far_and_all(members: Members) -> tuple[Member, Member]:
    """Those far from the beginning of an object, and all of them where others are among them."""
    far = {place: value for place, value in members.items() if _SMALLEST_FIELD <= place[0] < _LARGEST_FIELD}
    return _member_of(far), _member_of({} if far == members else members)


def _understood(passes: Passes) -> Passes:
    """What is understood of what is handed on."""
    known = {
        site: {place: value for place, value in given.objects.items() if tells(value)} for site, given in passes.items()
    }
    return {site: Given(sum(given.values), {}, given.values, known[site]) for site, given in passes.items()}


def _member_of(members: Members) -> Member:
    """What is known of the bytes of a structure by its members.

    Compilers test one byte of a word, and load several members at once that are small.
    """
    if not members:
        return no_member

    @cache
    def member(displacement: int, size: int) -> tuple[bool, Value]:
        around = [(at, length) for at, length in members if at <= displacement < at + length]
        at, length = max(around, default=(0, 0))
        value = shifted(members[at, length], -8 * (displacement - at), 8 * length) if around else None
        for at, length in sorted(members) if size <= POINTER else ():
            if displacement < at and at + length <= displacement + size:
                value = replaced(value, members[at, length], 8 * (at - displacement), 8 * length)
        return bool(around) or tells(value), value

    return member
