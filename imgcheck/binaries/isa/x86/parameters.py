"""Which registers pass between functions: what a function takes for parameters, and a caller for the result.

Much is left in these registers that is meant for nobody: only what is read before it is written to counts.
"""

from typing import NamedTuple

from imgcheck.binaries.isa.x86.facts import (
    BRANCH,
    CALL,
    CLOBBERED,
    COMPUTE,
    INDIRECT_CALL,
    JUMP,
    LEA,
    PARAMETERS,
    RAX,
    Code,
)


class Parameters(NamedTuple):
    """Registers as bits."""

    read: int
    passed: dict[int, int]
    """Next address of a direct call, or of a jump out of the function -> registers that still hold what the caller
    left in them."""


ANY = Parameters(PARAMETERS, {})
"""What is taken for the parameters of a function that is not read."""


def parameters(code: Code) -> Parameters:
    """The parameters of a function, seen in one pass by address."""
    read, passed = 0, {}
    fresh, goes_on = PARAMETERS, True
    waiting: dict[int, int] = {}
    for ip, fact in zip(code.ips, code.facts, strict=True):
        arriving = waiting.pop(ip, None)
        if not goes_on:  # what later code alone leads to may be entered with all of them
            fresh = PARAMETERS if arriving is None else arriving
        elif arriving:
            fresh |= arriving
        kind = fact.kind
        if fact.brings is None:
            read |= fact.read & fresh
        if kind in (CALL, BRANCH, JUMP):
            target = code.targets.get(ip, 0)
            if kind == CALL or not code.inside(target):
                passed[ip + fact.size] = fresh
            elif target > ip:
                waiting[target] = waiting.get(target, 0) | fresh
        fresh &= ~(CLOBBERED if kind in (CALL, INDIRECT_CALL) else fact.written)
        goes_on = kind < JUMP
    return Parameters(read, passed)


def takes_result(code: Code) -> bool:
    """Whether the code behind a call, which `code` begins with, may do something with its result."""
    call, *behind = code.facts
    if call.kind != CALL:
        return True  # a jump: what the callee returns is the function's own result
    for fact in behind:
        if fact.brings is None and fact.read & RAX:
            return True
        if fact.kind in (CALL, INDIRECT_CALL) or fact.written & RAX:
            return False
        if fact.kind not in (COMPUTE, LEA, BRANCH):
            return True
    return True
