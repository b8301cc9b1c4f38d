"""Which functions refer to a variable: by its address, through a pointer to it, or as a member of a structure."""

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from imgcheck.binaries.isa.ordered import distinct, numbers, within
from imgcheck.binaries.isa.x86.bodies import Bodies
from imgcheck.binaries.isa.x86.facts import CALLS, LEA
from imgcheck.binaries.isa.x86.graph import LONGEST_IMMEDIATE
from imgcheck.binaries.isa.x86.handed import STRUCT
from imgcheck.binaries.isa.x86.variables import Variables
from imgcheck.binaries.kernels.arrays import Sorted

if TYPE_CHECKING:
    from imgcheck.binaries.isa.x86.findings import Findings

ACCESSOR = 256
"""Bytes of a function that is small enough to do no more than hand on what it reads."""
MOST_READERS = 3000
"""A variable that more functions read is no CPU flag but, say, a size derived from one; so is the result of a function
that is called from more places."""


class Readers:
    """By the references of one file's code."""

    def __init__(self, found: "Findings", bodies: Bodies, variables: Variables) -> None:
        self._found, self._bodies, self._variables = found, bodies, variables
        self._graph, self._functions, self._pointers = found.graph, found.functions, found.layout.pointers

    @cached_property
    def informed(self) -> set[int]:
        """Functions that refer to a variable where something is seen to be stored, or to a structure with one."""
        variables, pointers = np.array(self._variables.written, np.int64), self._pointers
        site, target, _ = self._found.references
        near = leads_to(target, variables, STRUCT)
        near |= within(target, pointers.slot[leads_to(pointers.target, variables, STRUCT)])
        return set(self._holding(site[near]).tolist())

    def readers(self, held: set[int]) -> set[int]:
        """Functions that refer to one of the variables `held`, directly or through a pointer to it.

        Those that use or choose something may refer to a structure that has it as a member, where it is understood.
        """
        variables = np.array(sorted(held), np.int64)
        if not len(variables):
            return set()
        site, target, _ = self._found.references
        # The scan does not know the immediate behind the operand, of up to as many bytes as a variable has.
        near = within(target & ~3, distinct(np.append(variables - LONGEST_IMMEDIATE, variables)))
        pointers = self._pointers
        near |= within(target, pointers.slot[within(pointers.target & ~3, variables)])
        readers = set(self._holding(site[near]).tolist())
        readers |= self._readers_of_members(variables) | self._pointing_into(variables)
        return readers if len(readers) <= MOST_READERS else set()

    def _holding(self, sites: np.ndarray) -> np.ndarray:
        return numbers(self._functions.holding(sites), len(self._functions))

    def _readers_of_members(self, variables: np.ndarray) -> set[int]:
        """Functions that use or choose something and take the address of a structure, one of whose members they read.

        Only of members that are understood: any address comes before some variable.
        """
        bodies = self._bodies
        structures = self._distances(self._variables.telling(variables.tolist()), self._found.deciding)

        def reads(function: int, among: set[int]) -> bool:
            return bodies.affords(function) and any(at in among for at, _ in bodies.loads_elsewhere(function))

        return {function for function, among in structures.items() if reads(function, among)}

    def _pointing_into(self, variables: np.ndarray) -> set[int]:
        """Small functions that tell where such a structure lies, or work out where an element of an array in it does.

        What they return leads to what the CPU told, as glibc's __x86_get_cpuid_feature_leaf does.
        """
        small = self._functions.end - self._functions.start <= ACCESSOR
        structures = self._distances(set(variables.tolist()), small)

        def points(function: int, among: set[int]) -> bool:
            return self._does_nothing_else(function) or self._points_to_element(function, among)

        return {f for f, among in structures.items() if self._bodies.affords(f) and points(f, among)}

    def _does_nothing_else(self, function: int) -> bool:
        """Whether a function that takes an address neither calls anything nor stores anywhere but on the stack."""
        code = self._bodies.code(function)
        return not any(
            fact.kind in CALLS or any(not memory.base & code.stack for memory in fact.stores) for fact in code.facts
        )

    def _points_to_element(self, function: int, distances: set[int]) -> bool:
        """Whether a function takes the address of an element of an array that lies so far from some base."""
        made = (fact.loads[0] for fact in self._bodies.code(function).facts if fact.kind == LEA)
        return any(memory.base and memory.index and memory.displacement in distances for memory in made)

    def _distances(self, variables: set[int], among: np.ndarray) -> dict[int, set[int]]:
        """How far the `variables` lie from addresses that functions take, by those of the functions that are marked."""
        site, target, taken = self._found.references
        before = np.flatnonzero(taken & leads_to(target, np.array(sorted(variables), np.int64), STRUCT))
        holder = self._functions.holding(site[before])
        structures: dict[int, set[int]] = defaultdict(set)
        for function, address in zip(holder.tolist(), target[before].tolist(), strict=True):
            if function >= 0 and among[function]:
                structures[function].update(d for d in range(STRUCT) if (address + d) & ~3 in variables)
        return structures


def leads_to(addresses: np.ndarray, variables: np.ndarray, span: int) -> np.ndarray:
    """Whether one of the sorted variables lies within so many bytes from each address on."""
    return Sorted(variables).at(addresses, span) >= 0
