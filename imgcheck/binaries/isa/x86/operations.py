"""What single x86 instructions make of values: results and flags (Intel SDM volume 2)."""

from collections.abc import Callable
from operator import and_, or_, xor

import iced_x86 as iced

from imgcheck.binaries.isa.conditions import ALWAYS, Condition, ways_not_understood
from imgcheck.binaries.isa.values import (
    BELOW,
    BORROW,
    CLEAR,
    Comparison,
    Options,
    Value,
    Word,
    added,
    chosen,
    combined,
    constant,
    extended,
    inverted,
    low,
    lowest,
    outcome,
    shifted,
    summed,
    tells,
    truth,
)
from imgcheck.binaries.isa.x86.facts import VECTOR_COPIES, Operation
from imgcheck.binaries.isa.x86.state import MERGED

_M = iced.Mnemonic
_SIGNED = {_M.MOVSX, _M.MOVSXD, _M.CDQE}
COPIES = {_M.MOV, _M.MOVZX} | _SIGNED | VECTOR_COPIES
_BITWISE: dict[int, Callable[[int, int], int]] = {_M.AND: and_, _M.OR: or_, _M.XOR: xor}
_LOGICAL = {*_BITWISE, _M.ANDN}
_SHIFTS = {_M.SHL, _M.SHR, _M.SAR}
SELECTING = {*_SHIFTS, _M.BT}
"""Their second operand says which bit of the first is asked for."""
_MASKS = {_M.AND, _M.TEST}
_COUNTS = {_M.BSF, _M.TZCNT}
_STEPS: dict[int, int] = {_M.INC: 1, _M.DEC: -1}
_SETS_BIT: dict[int, Callable[[int, int], int]] = {_M.BTS: or_, _M.BTR: lambda a, b: a & ~b}


def same(operation: Operation) -> bool:
    """Both operands are one register, or the same part of it."""
    alike = operation.target == operation.source and operation.high == operation.high_source
    return operation.target != 0 and alike and operation.number is None


def result(operation: Operation, first: Value, second: Value, third: Value) -> Value:
    """The value of the first operand afterwards; its values, and those of the others, before."""
    name, bits, number = operation.mnemonic, operation.bits, operation.number
    if name in COPIES:
        if name in _SIGNED:
            return extended(second, operation.source_bits, bits)
        return combined(and_, second, constant((1 << operation.source_bits) - 1), 64) if name == _M.MOVZX else second
    if name in _BITWISE:
        if same(operation):
            return constant(0) if name == _M.XOR else first
        return combined(_BITWISE[name], first, second, bits)
    if name == _M.ANDN:
        return combined(and_, inverted(second, bits), third, bits)
    if name == _M.NOT:
        return inverted(first, bits)
    if name in _SHIFTS and isinstance(second, Options) and second.constant is not None:
        distance = second.constant & (63 if bits == 64 else 31)
        if name == _M.SAR:
            return low(shifted(extended(first, bits, 2 * bits), -distance, 2 * bits), bits)
        return shifted(first, distance if name == _M.SHL else -distance, bits)
    if name in _SETS_BIT and number is not None:
        return combined(_SETS_BIT[name], first, constant(1 << number % bits), bits)
    if name == _M.ADD:
        return shifted(first, 1, bits) if same(operation) else summed(first, second, bits)
    if name == _M.SUB and isinstance(second, Options) and second.constant is not None:
        return added(first, -second.constant, bits)
    if name in _COUNTS:
        return lowest(second)
    if name in _STEPS:
        return added(first, _STEPS[name], bits)
    return None


def of_flags(operation: Operation, told: Comparison | None, condition: int, set_at: int, ip: int,
             first: Value, second: Value) -> Value:  # fmt: skip
    """The value that SETcc, CMOVcc, ADC or SBB makes of the flags.

    `set_at` is where the flags were set, as State.flags has it.
    """
    found = outcome(told, BELOW if operation.carries else condition >> 1)
    if found is None:
        understood = not set_at or (_is_told_in_part(told) and tells(first) and tells(second))
        found = (ALWAYS, ALWAYS) if understood else ways_not_understood(ip, set_at == MERGED)
    if operation.carries:
        return _with_carry(operation, first, second, found)
    if condition & 1:
        found = found[::-1]
    if operation.source or operation.source_bits:  # CMOVcc has a second operand, SETcc none
        return chosen(second, first, found)
    return truth(*found)


def _with_carry(operation: Operation, first: Value, second: Value, carry: tuple[Condition, Condition]) -> Value:
    """The sum or difference of both operands and the carry flag; SBB of a register with itself is 0 or -1."""
    sign, bits = operation.carries, operation.bits
    if sign < 0 and same(operation):
        first = second = constant(0)
    if not isinstance(second, Options) or second.constant is None:
        return None
    without = added(first, sign * second.constant, bits)
    return chosen(added(without, sign, bits), without, carry)


def _is_told_in_part(told: Comparison | None) -> bool:
    """Whether the flags rest on bits of features and on something else, as who made the CPU.

    What chooses between two words of features by that, as a workaround for certain CPUs does, leaves what they tell.
    """
    return told is not None and isinstance(told.value, Word) and told.value.unknown != 0 and tells(told.value)


def is_masked_openly(operation: Operation, first: Value, second: Value) -> bool:
    """Whether one operand, of which nothing is known, says which bits of the other one are asked for."""
    if operation.mnemonic not in _MASKS or same(operation):
        return False
    return (tells(first) and _is_open(second)) or (tells(second) and _is_open(first))


def _is_open(value: Value) -> bool:
    return value is None or (isinstance(value, Word) and not value.bits)


def flags_of(operation: Operation, first: Value, second: Value, made: Value) -> Comparison | None:
    """What the flags tell afterwards; `made` is the result."""
    name, bits, number = operation.mnemonic, operation.bits, operation.number
    if name == _M.CMP:
        known = second.constant if isinstance(second, Options) else None
        return Comparison(first, known, bits, BORROW) if known is not None else None
    if name == _M.TEST:
        value = first if same(operation) else combined(and_, first, second, bits)
        return Comparison(value, 0, bits, CLEAR)
    if name in (_M.BT, _M.BTS, _M.BTR) and isinstance(second, Options) and second.constant is not None:
        return Comparison(None, 0, bits, _bit(first, second.constant % bits, bits))
    if name in _LOGICAL:
        return Comparison(made, 0, bits, CLEAR)
    if name == _M.SUB and isinstance(second, Options) and second.constant is not None:
        return Comparison(first, second.constant, bits, BORROW)
    if name in _SHIFTS and number:
        return Comparison(made, 0, bits, _bit(first, number - 1 if name != _M.SHL else bits - number, bits))
    return Comparison(made, 0, bits, None) if operation.carries or name in (_M.ADD, _M.INC, _M.DEC) else None


def _bit(value: Value, place: int, bits: int) -> Value:
    return combined(and_, shifted(value, -place, bits), constant(1), bits)
