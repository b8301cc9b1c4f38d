"""Paths looked at closely, step by step: what each call hands down, and what may lie in objects on the heap."""

from functools import cached_property

from imgcheck.binaries.elf import ET_EXEC
from imgcheck.binaries.isa.conditions import understood_wholly
from imgcheck.binaries.isa.guarded import Guarded
from imgcheck.binaries.isa.values import Value, shifted
from imgcheck.binaries.isa.x86.bodies import LONGEST
from imgcheck.binaries.isa.x86.handed import (
    NO_MEMBER,
    NOTHING_GIVEN,
    Flow,
    Given,
    Member,
    Members,
    add_member,
    no_member,
)
from imgcheck.binaries.isa.x86.spread import Spread

_SMALLEST_FIELD = 64
"""Smaller displacements occur in every structure: a member there may be any structure's."""
_LARGEST_FIELD = 1 << 32
"""From here on they are those of the thread's block, to which a register adds the variable's place."""


class Retrace:
    """What was looked at of one file's paths, after the rounds of `spread`."""

    def __init__(self, spread: Spread) -> None:
        self._spread, self._bodies, self._guards = spread, spread.bodies, spread.guards
        self._looked_at: dict[tuple, tuple[Flow, list[list[Guarded]]]] = {}
        """Steps of paths, by function and what it is handed."""

    def retrace(self, steps: list[int], suspecting: bool) -> bool:
        """Follows a path from its root with what each call hands down; whether tests show that stood unseen before.

        Knowledge that lies in objects on the heap is looked for here alone: to follow it everywhere would take every
        structure with a member at the same place for one that holds it. Members near the beginning of one count where
        a test of them is understood, and the others where any is suspected.
        """
        handed = NOTHING_GIVEN
        new = False
        for function, after in zip(steps, [*steps[1:], -1], strict=True):
            if self._bodies.size(function) > LONGEST:
                handed = NOTHING_GIVEN
                continue
            flow, tests = self._look(function, handed, suspecting)
            for guarded in tests:
                new |= self._guards.narrow(function, guarded)
            handed = NOTHING_GIVEN
            for site, target in self._bodies.sites(function).items():
                if target == after and site in flow.passes:
                    handed = self._spread.together(after, handed, flow.passes[site])
        return new

    def _look(self, function: int, handed: Given, suspecting: bool) -> tuple[Flow, list[list[Guarded]]]:
        """What a step of a path does with what it is handed, and the tests in it; kept, as paths share their steps."""
        key = function, handed.key, suspecting
        if key not in self._looked_at:
            self._looked_at[key] = self._follow(function, handed, suspecting)
        return self._looked_at[key]

    def _follow(self, function: int, handed: Given, suspecting: bool) -> tuple[Flow, list[list[Guarded]]]:
        far, near = self._suspects[suspecting]
        is_new = handed.key != NOTHING_GIVEN.key or self._may_be_unseen(function) or self._reads(function, far)
        flow = self._spread.follow(function, handed, far) if is_new else self._guards.flows.get(function, Flow())
        tests = [flow.guarded] if is_new else []
        if self._reads(function, near):
            closer = self._spread.follow(function, handed, near)
            tests.append([piece for piece in closer.guarded if suspecting or understood_wholly(piece[2])])
            flow = closer if suspecting else flow
        return flow, tests

    def _may_be_unseen(self, function: int) -> bool:
        """Whether the rounds had no bytes left for a function, or no reason to follow it though it may know something.

        Where a program names variables by their addresses alone, nobody knows which functions do.
        """
        named = self._spread.found.layout.elf.type == ET_EXEC
        return named or function in self._guards.put_off or function in self._spread.readers.informed

    def _reads(self, function: int, member: Member) -> bool:
        """Whether a function reads what may be one of those members."""
        return member is not no_member and any(member(at)[0] for at in self._bodies.loads_elsewhere(function))

    @cached_property
    def _suspects(self) -> tuple[tuple[Member, Member], ...]:
        """Members of objects that the rounds have seen filled with knowledge: those far from the beginning, and all.

        First where what is known of them has to be understood, then where any is suspected.
        """
        members: Members = {}
        for flow in self._guards.flows.values():
            for place, value in flow.members.items():
                add_member(members, place, value)
        far = {place: value for place, value in members.items() if _SMALLEST_FIELD <= place[0] < _LARGEST_FIELD}
        told: Members = {place: value for place, value in far.items() if value is not None}
        return tuple((_member_of(seen), _member_of({} if seen == members else members)) for seen in (told, far))


def _member_of(members: Members) -> Member:
    """What is known of a member, also of one that begins inside another: compilers test one byte of a word."""
    if not members:
        return no_member

    def member(displacement: int) -> tuple[bool, Value]:
        holders = [(at, size) for at, size in members if at <= displacement < at + size]
        if not holders:
            return NO_MEMBER
        at, size = max(holders)
        return True, shifted(members[at, size], -8 * (displacement - at), 8 * size)

    return member
