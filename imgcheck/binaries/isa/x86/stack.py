"""32-bit code: places on its stack by their distance from the stack pointer at the beginning, and what it hands over.

Its stack pointer moves with every word that is pushed for a callee, so that one place has many names. Callers push
the words of the parameters, the first one last, and the callee finds them behind its return address (System V ABI,
Intel386 supplement, "Function Calling Sequence"). In 64-bit code neither matters.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from imgcheck.binaries.isa.x86.facts import (
    CALL,
    CALLS,
    COMPUTE,
    JUMP,
    LEA,
    PUSHED_ARGUMENTS,
    RBP,
    RSP,
    Code,
    Fact,
    Memory,
)

WORD = 4
"""Bytes of what is pushed."""


def parameter_places() -> Iterator[tuple[int, tuple[int, int]]]:
    """What stands for each word that a function gets, and where it finds that."""
    return word_places(WORD)


def word_places(first: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """What stands for each word that is handed over, and its place, where the first lies so far from the beginning."""
    return ((register, (RSP, first + WORD * number)) for number, register in enumerate(PUSHED_ARGUMENTS))


def settled(code: Code) -> Code:
    """32-bit `code` with distances from where the stack pointer stood when it began."""
    depths, frame = _depths(code)
    facts = [_settled(fact, depth, frame, code.stack) for fact, depth in zip(code.facts, depths, strict=True)]
    handed = {}
    for ip, fact, depth in zip(code.ips, code.facts, depths, strict=True):
        if fact.kind in CALLS:
            handed[ip] = -depth
        elif fact.kind >= JUMP and not code.inside(code.targets.get(ip, -1)):
            handed[ip] = WORD
    return replace(code, facts=facts, handed=handed)


def _depths(code: Code) -> tuple[list[int], int]:
    """How far the stack pointer has moved down before each instruction, and where the frame pointer is set."""
    depth = frame = usual = 0
    found = []
    waiting: dict[int, int] = {}
    goes_on = True
    for number, (ip, fact) in enumerate(zip(code.ips, code.facts, strict=True)):
        if ip in waiting or not goes_on:
            depth = waiting.get(ip, usual)
        found.append(depth)
        goes_on = fact.kind < JUMP
        if fact.kind >= CALL:
            usual = usual or depth
            waiting.setdefault(code.targets.get(ip, -1), depth)
        if fact.kind in CALLS:
            depth -= WORD if _pops(code, number) else 0
        elif fact.moves and fact.source == RSP and not fact.written:
            frame = depth
        elif fact.kind in (COMPUTE, LEA):
            distance = _from_frame(fact)
            depth = depth + fact.lowers if distance is None else frame - distance
    return found, frame


def _from_frame(fact: Fact) -> int | None:
    """How far from the frame pointer LEA sets the stack pointer, as at the end; None where an instruction does not."""
    if fact.kind != LEA or fact.written:
        return None
    (memory,) = fact.loads
    return memory.displacement if memory.base == RBP and not memory.index else None


def _pops(code: Code, number: int) -> bool:
    """Whether a callee takes a word off the stack, as where it gets the address of its result.

    The caller then makes room for the next such word, and not for more words that it is about to push.
    """
    behind, next_one = (code.facts[number + k : number + k + 1] for k in (1, 2))
    makes_room = bool(behind) and behind[0].kind == COMPUTE and behind[0].lowers == WORD and not behind[0].stores
    return makes_room and not (next_one and next_one[0].lowers > 0)


def _settled(fact: Fact, depth: int, frame: int, stack: int) -> Fact:
    if fact.moves and fact.source == RSP and fact.written:
        own = Memory(False, RSP, 0, 0, -depth, 1)
        return replace(fact, kind=LEA, loads=(own,), moves=False, source=0, operation=None, plain=False)
    if not any(memory.base & stack for memory in (*fact.loads, *fact.stores)):
        return fact
    loads, stores = (
        tuple(_placed(m, depth if m.base == RSP else frame) if m.base & stack else m for m in part)
        for part in (fact.loads, fact.stores)
    )
    read = fact.read
    if fact.kind != LEA:
        named = {(m.base, m.displacement) for m in loads if not m.index}
        read |= sum(register for register, place in parameter_places() if place in named)
    return replace(fact, loads=loads, stores=stores, read=read)


def _placed(memory: Memory, depth: int) -> Memory:
    return replace(memory, base=RSP, displacement=memory.displacement - depth)
