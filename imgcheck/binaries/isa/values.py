"""What is known of a value that rests on what the CPU told, and what comparing it tells in return.

Each possibility carries a condition that is necessary for it: where a value has that bit, or is that number, the
condition holds. The reverse need not: other branches may decide too. None stands for a value of which nothing is known.
"""

from collections.abc import Callable, Iterator
from itertools import product
from operator import add, and_, or_, xor

import msgspec

from imgcheck.binaries.isa.conditions import ALWAYS, NEVER, Condition, both, either, not_understood, opposite

_MOST = 16
"""Numbers that a value may be; of more, nothing is known."""
_COUNTED_BITS = 3
"""Undecided bits of a word up to which its numbers are listed."""
BELOW, EQUAL, BELOW_OR_EQUAL, SIGN, LESS, LESS_OR_EQUAL = 1, 2, 3, 4, 6, 7
"""Conditions of jumps by their number in the instruction, without the lowest bit, which reverses them.

Comparisons tell nothing of the others, 0 (overflow) and 5 (parity).
"""


class Options(msgspec.Struct, frozen=True, gc=False):
    """One of some numbers."""

    numbers: tuple[tuple[int, Condition], ...]

    @property
    def constant(self) -> int | None:
        """The number where it can be but one."""
        return self.numbers[0][0] if len(self.numbers) == 1 else None


class Word(msgspec.Struct, frozen=True, gc=False):
    """Bits that each tell something; those neither listed nor `unknown` are zero."""

    bits: tuple[tuple[int, Condition, Condition], ...]
    """Place, and what holds where the bit is set and where it is clear; sorted."""
    unknown: int


class Frame(msgspec.Struct, frozen=True, gc=False):
    """The address of a place on the stack."""

    place: tuple[int, int]
    """Bit of the base register, and displacement."""


class Settled(msgspec.Struct, frozen=True, gc=False):
    """What an earlier run of the code has left in a variable, which does not hold any more what it held at first."""


SETTLED = Settled()
Value = Options | Word | Frame | Settled | None
Bit = tuple[Condition, Condition]
"""What holds where a bit is set, and where it is clear."""


def constant(number: int) -> Options:
    return Options(((number, ALWAYS),))


def truth(holds: Condition, fails: Condition) -> Options:
    """1 where a condition holds, else 0."""
    return Options(tuple((n, c) for n, c in ((0, fails), (1, holds)) if c))


def word(told: dict[int, Condition]) -> Word:
    """A word of 32 bits of which some tell of features and nothing is known of the others."""
    bits = tuple((at, condition, opposite(condition)) for at, condition in sorted(told.items()))
    return Word(bits, 0xFFFFFFFF & ~sum(1 << at for at, _, _ in bits))


def joined(one: Value, one_path: Condition, other: Value, other_path: Condition) -> Value:
    """What is known where two paths meet, on each of which the value is known under the condition of that path."""
    if one == other or other is SETTLED:
        return one
    if one is SETTLED:  # an earlier run has done what the other path does now
        return other
    if isinstance(one, Options) != isinstance(other, Options):
        one, other = numbered(one) or one, numbered(other) or other
    if isinstance(one, Options) and isinstance(other, Options):
        pairs = [(n, both(c, one_path)) for n, c in one.numbers] + [(n, both(c, other_path)) for n, c in other.numbers]
        found = _options(pairs)
        if found is not None:
            return found
    first, second = _as_word(one), _as_word(other)
    if first is None or second is None:
        return None

    def merged(a: Bit, b: Bit) -> Bit:
        if a == b:  # whichever way one came
            return a
        held = either(both(a[0], one_path), both(b[0], other_path))
        return held, either(both(a[1], one_path), both(b[1], other_path))

    return _known(_bitwise(first, second, merged, (1 << 64) - 1), 64)


def completed(one: Value, other: Value) -> Value:
    """What is known of a place that gets both values, one after the other, where bit-fields may lie.

    These are written by reading what is there: of which bits nothing is known, those are what the other store left.
    """
    if not isinstance(one, Word) or not isinstance(other, Word):
        return joined(one, ALWAYS, other, ALWAYS)

    def merged(a: Bit, b: Bit) -> Bit:
        if _UNKNOWN in (a, b):
            return b if a == _UNKNOWN else a
        return either(a[0], b[0]), either(a[1], b[1])

    return _known(_bitwise(one, other, merged, (1 << 64) - 1), 64)


def under(value: Value, path: Condition) -> Value:
    """The value where it is known to be on a path with that condition."""
    if path == ALWAYS or value is None or isinstance(value, Frame | Settled):
        return value
    if isinstance(value, Options):
        return _options([(number, both(condition, path)) for number, condition in value.numbers])
    return Word(tuple((at, both(held, path), both(clear, path)) for at, held, clear in value.bits), value.unknown)


def _options(pairs: list[tuple[int, Condition]]) -> Options | None:
    if len(pairs) == 1:  # most are constants
        return Options((pairs[0],)) if pairs[0][1] else None
    found: dict[int, Condition] = {}
    for number, condition in pairs:
        if condition:
            found[number] = either(found.get(number, NEVER), condition)
    return Options(tuple(sorted(found.items()))) if 0 < len(found) <= _MOST else None


def _as_word(value: Value) -> Word | None:
    if not isinstance(value, Options):
        return value if isinstance(value, Word) else None
    everything = 0
    for number, _ in value.numbers:
        everything |= number
    bits = []
    for at in range(everything.bit_length()):
        if everything >> at & 1:
            held, clear = NEVER, NEVER
            for number, condition in value.numbers:
                if number >> at & 1:
                    held = either(held, condition)
                else:
                    clear = either(clear, condition)
            bits.append((at, held, clear))
    return Word(tuple(bits), 0)


_ZERO, _UNKNOWN = (NEVER, ALWAYS), (ALWAYS, ALWAYS)
_NOTHING = Word((), -1)
"""Of no bit is anything known."""


def _bitwise(one: Word, other: Word, work: Callable[[Bit, Bit], Bit], mask: int) -> Word:
    """`work` done to what is known of each bit of two words."""
    ones = {at: (held, clear) for at, held, clear in one.bits}
    others = {at: (held, clear) for at, held, clear in other.bits}
    told = ones.keys() | others.keys()
    # Where neither tells anything a bit is unknown or zero, and there are only four cases.
    zeros, unknown = (~one.unknown, ~other.unknown), (one.unknown, other.unknown)
    left = 0
    for a, x in ((_ZERO, zeros[0]), (_UNKNOWN, unknown[0])):
        for b, y in ((_ZERO, zeros[1]), (_UNKNOWN, unknown[1])):
            left |= x & y if work(a, b)[0] else 0
    left &= mask & ~sum(1 << at for at in told)
    found = []
    for at in sorted(told):
        if mask >> at & 1:
            a = ones.get(at) or (_UNKNOWN if one.unknown >> at & 1 else _ZERO)
            b = others.get(at) or (_UNKNOWN if other.unknown >> at & 1 else _ZERO)
            held, clear = work(a, b)
            if held == clear == ALWAYS:
                left |= 1 << at
            elif held:
                found.append((at, held, clear))
    return Word(tuple(found), left)


def combined(work: Callable[[int, int], int], one: Value, other: Value, bits: int) -> Value:
    """The result of AND, OR or XOR (`work` does it to integers) of two values with `bits` bits."""
    mask = (1 << bits) - 1
    if isinstance(one, Options) and isinstance(other, Options) and (found := _of_each(work, one, other, mask)):
        return found
    for value, number in ((one, other), (other, one)):
        if isinstance(number, Options) and number.constant is not None:
            return _known(_masked(work, value if isinstance(value, Word) else _NOTHING, number.constant, mask), bits)
    return _known(_bitwise(_as_word(one) or _NOTHING, _as_word(other) or _NOTHING, _table(work), mask), bits)


def _of_each(work: Callable[[int, int], int], one: Options, other: Options, mask: int) -> Options | None:
    """What `work` makes of each two numbers, where that is not too much to tell."""
    return _options([(work(a, b) & mask, both(c, d)) for (a, c), (b, d) in product(one.numbers, other.numbers)])


def _masked(work: Callable[[int, int], int], word: Word, number: int, mask: int) -> Word:
    """AND, OR or XOR of a word and a number: each bit of the number leaves that of the word, turns or settles it."""
    known = {at: (held, clear) for at, held, clear in word.bits if mask >> at & 1}
    made = [(work(0, bit) & 1, work(1, bit) & 1) for bit in (0, 1)]
    """Of a bit that is clear and of one that is set, by the bit of the number."""
    number &= mask
    unknown = word.unknown & mask & (-1 if work(1, 0) else number)  # AND: where the number has none there is none
    unknown &= ~number if work(0, 1) and work(1, 1) else -1  # OR: where the number has one there is one
    new = number & ~unknown if work(0, 1) else 0  # AND: where there was none there is none
    ones = (at for at in range(new.bit_length()) if new >> at & 1)
    found = []
    for at in sorted({*known, *ones}):
        of_clear, of_set = made[number >> at & 1]
        held, clear = known.get(at, _ZERO)
        if of_clear == of_set:
            held, clear = (ALWAYS, NEVER) if of_clear else _ZERO
        elif of_clear:
            held, clear = clear, held
        if held:
            found.append((at, held, clear))
    return Word(tuple(found), unknown)


def _known(value: Word, bits: int) -> Word | None:
    return value if value.bits or value.unknown != (1 << bits) - 1 else None


def _table(work: Callable[[int, int], int]) -> Callable[[Bit, Bit], Bit]:
    """The conditions of a bit of the result of `work` from those of its two operands."""

    def conditions(a: Bit, b: Bit) -> Bit:
        found = [NEVER, NEVER]
        for x, y in product((0, 1), (0, 1)):
            place = 0 if work(x, y) & 1 else 1
            found[place] = either(found[place], both(a[1 - x], b[1 - y]))
        return found[0], found[1]

    return conditions


def lowest(value: Value) -> Value:
    """The place of the lowest bit that is set, where that is sure to be one of those that tell something."""
    if isinstance(value, Options):
        return _options([((n & -n).bit_length() - 1, c) for n, c in value.numbers if n])
    if not isinstance(value, Word):
        return None
    found, before = [], ALWAYS
    for at, held, clear in value.bits:
        if value.unknown & (1 << at) - 1:
            return None
        found.append((at, both(held, before)))
        before = both(before, clear)
    return None if before and value.unknown else _options(found)


def shifted(value: Value, distance: int, bits: int) -> Value:
    """The value shifted to the left by `distance` bits, to the right where that is negative."""
    mask = (1 << bits) - 1
    move = (lambda n: n << distance & mask) if distance >= 0 else (lambda n: (n & mask) >> -distance)
    if isinstance(value, Options):
        return _options([(move(n), c) for n, c in value.numbers])
    if isinstance(value, Word):
        kept = [bit for bit in value.bits if bit[0] < bits and 0 <= bit[0] + distance < bits]
        moved = tuple((at + distance, held, clear) for at, held, clear in kept)
        return _known(Word(moved, move(value.unknown)), bits)
    return None


def added(value: Value, number: int, bits: int) -> Value:
    """The sum of the value and a constant."""
    if isinstance(value, Frame):
        base, at = value.place
        half = 1 << bits - 1
        return Frame((base, at + ((number + half) % (2 * half) - half)))
    known = value if isinstance(value, Options) else numbered(value)
    return mapped(known, lambda n: n + number & (1 << bits) - 1) if known else None


def lowered(value: Value, other: Value, bits: int) -> Value:
    """The difference of two values, of which one can be but one number."""
    if isinstance(other, Options) and other.constant is not None:
        return added(value, -other.constant, bits)
    minuend = value.constant if isinstance(value, Options) else None
    if minuend is not None and (numbers := numbered(other)):
        return mapped(numbers, lambda number: minuend - number & (1 << bits) - 1)
    return None


def summed(one: Value, other: Value, bits: int) -> Value:
    """The sum of two values: where no bit can be set in both, each bit of either, and else of few numbers."""
    for value, number in ((one, other), (other, one)):
        if isinstance(number, Options) and number.constant is not None and not isinstance(value, Word):
            return added(value, number.constant, bits)
    if isinstance(one, Options) and isinstance(other, Options):
        return _of_each(add, one, other, (1 << bits) - 1)
    first, second = _as_word(one), _as_word(other)
    if first is None or second is None or _possible(first) & _possible(second):
        few, others = numbered(one), numbered(other)
        return _of_each(add, few, others, (1 << bits) - 1) if few and others else None
    return combined(or_, first, second, bits)


def _possible(value: Word) -> int:
    """The bits that may be set."""
    return value.unknown | sum(1 << at for at, _, _ in value.bits)


def mapped(value: Options, work: Callable[[int], int]) -> Options | None:
    """What `work` makes of each of the numbers."""
    return _options([(work(number), condition) for number, condition in value.numbers])


def extended(value: Value, source: int, bits: int) -> Value:
    """The lowest `source` bits of a value as a number with a sign, in `bits` bits."""
    sign, mask = 1 << source - 1, (1 << bits) - 1
    if isinstance(value, Options):
        return mapped(value, lambda n: ((n & 2 * sign - 1) ^ sign) - sign & mask)
    found = low(value, source)
    if not isinstance(value, Word) or not isinstance(found, Word):
        return None
    copies = mask & ~(2 * sign - 1)
    signs = (told for told in found.bits if 1 << told[0] == sign)
    repeated = [(at, held, clear) for _, held, clear in signs for at in range(source, bits)]
    return Word(found.bits + tuple(repeated), found.unknown | (copies if found.unknown & sign else 0))


def alike(one: Value, other: Value) -> bool:
    """Whether the same is known of two values, be it by their numbers or by their bits."""
    if one == other or type(one) is type(other):
        return one == other
    bits = _as_word(one)
    return bits is not None and bits == _as_word(other)


def has_alternatives(value: Value) -> bool:
    """Whether one thing or another, as far as features go, is behind one of the numbers that it may be."""
    return isinstance(value, Options) and any(len(condition) > 1 for _, condition in value.numbers)


def in_part(value: Value, address: int) -> Value:
    """A value of which what is known is no more than a part: something at `address` decides, too."""
    if not isinstance(value, Options):
        return value
    decided = not_understood(address)
    return Options(tuple((n, c if c == ALWAYS else both(c, decided)) for n, c in value.numbers))


def low(value: Value, bits: int) -> Value:
    """The lowest bits of a value."""
    mask = (1 << bits) - 1
    if isinstance(value, Options) and all(number <= mask for number, _ in value.numbers):
        return value
    return combined(and_, value, constant(mask), 64) if isinstance(value, Options | Word) else value


def replaced(value: Value, part: Value, at: int, bits: int) -> Value:
    """The value of 64 bits with `part` in place of the bits from `at` on."""
    around = constant(~(((1 << bits) - 1) << at) & (1 << 64) - 1)
    return combined(or_, combined(and_, value, around, 64), shifted(low(part, bits), at, 64), 64)


def halves(value: Value) -> tuple[Value, Value]:
    """The lower and the upper 32 bits of a value of 64."""
    return low(value, 32), shifted(value, -32, 64)


def whole(lower: Value, upper: Value) -> Value:
    """The value of 64 bits that has these halves."""
    lower, upper = (half if isinstance(half, Options | Word) else Word((), 0xFFFFFFFF) for half in (lower, upper))
    return combined(or_, lower, shifted(upper, 32, 64), 64)


def inverted(value: Value, bits: int) -> Value:
    """The value with each bit changed."""
    return combined(xor, value, constant((1 << bits) - 1), bits)


def chosen(value: Value, other: Value, test: tuple[Condition, Condition]) -> Value:
    """The one value where a test holds, the other where it fails."""
    return joined(value, test[0], other, test[1])


BORROW, CLEAR = "borrow", "clear"


class Comparison(msgspec.Struct, frozen=True, gc=False):
    """What the flags tell: how a value stands to a number; a result that set them stands so to zero."""

    value: Value
    number: int
    bits: int
    carry: Value | str
    """The carry flag: BORROW where the value is below the number, CLEAR, or a value of one bit."""


def outcome(told: Comparison | None, test: int) -> tuple[Condition, Condition] | None:
    """What holds where the condition `test` of a jump is met, and where not; None where that is not known."""
    if told is None:
        return None
    if test == BELOW and not isinstance(told.carry, str):
        return _reversed(outcome(Comparison(told.carry, 0, 1, CLEAR), EQUAL))
    if told.value is None:
        return None
    is_sign = (test == SIGN and told.carry == CLEAR) or (test == LESS and told.number == 0 and told.carry == BORROW)
    if is_sign and isinstance(told.value, Word):
        sign = shifted(low(told.value, told.bits), 1 - told.bits, told.bits)
        return _reversed(outcome(Comparison(sign, 0, 1, CLEAR), EQUAL))
    if test == EQUAL and isinstance(told.value, Word):
        return _equal(told.value, told.number & ((1 << told.bits) - 1), told.bits)
    return _counted(told, test)


def _reversed(found: tuple[Condition, Condition] | None) -> tuple[Condition, Condition] | None:
    return found[::-1] if found else None


def _equal(value: Word, number: int, bits: int) -> tuple[Condition, Condition] | None:
    # One bit that no CPU has so is enough, whatever the others are: a mark that there is something at all.
    if any((held if number >> at & 1 else clear) == NEVER for at, held, clear in value.bits if at < bits):
        return NEVER, ALWAYS
    if value.unknown & ((1 << bits) - 1) or number & ~sum(1 << at for at, _, _ in value.bits):
        return None
    same, differs = ALWAYS, NEVER
    for at, held, clear in value.bits:
        if at < bits:
            as_wanted, otherwise = (held, clear) if number >> at & 1 else (clear, held)
            same, differs = both(same, as_wanted), either(differs, otherwise)
    return same, differs


def _counted(told: Comparison, test: int) -> tuple[Condition, Condition] | None:
    numbers = _numbers(told.value, told.bits)
    if numbers is None:
        return None
    meets = _meeting(told, test)
    if meets is None:
        return None
    holds, fails = NEVER, NEVER
    for number, condition in numbers:
        if meets(number):
            holds = either(holds, condition)
        else:
            fails = either(fails, condition)
    unknown = isinstance(told.value, Word) and holds == fails == ALWAYS
    return None if unknown else (holds, fails)


def narrowed(told: Comparison, test: int, holds: bool) -> Value:
    """What is left of the value that is compared where the condition `test` of a jump is met, or is not."""
    if isinstance(told.value, Word):
        is_number = test == EQUAL and holds and not _possible(told.value) >> told.bits
        return constant(told.number & (1 << told.bits) - 1) if is_number else told.value
    meets = _meeting(told, test)
    if meets is None or not isinstance(told.value, Options):
        return told.value
    mask = (1 << told.bits) - 1
    left = tuple(each for each in told.value.numbers if meets(each[0] & mask) == holds)
    return Options(left) if left else told.value


def numbered(value: Value) -> Options | None:
    """The numbers that a value may be, where they are few."""
    numbers = _numbers(value, 64)
    return _options(numbers) if numbers is not None else None


def _numbers(value: Value, bits: int) -> list[tuple[int, Condition]] | None:
    if value is None:
        return None
    mask = (1 << bits) - 1
    if isinstance(value, Options):
        return [(n & mask, c) for n, c in value.numbers]
    if not isinstance(value, Word) or (value.unknown & mask).bit_count() > _COUNTED_BITS:
        return None
    told = [bit for bit in value.bits if bit[0] < bits]
    if not told and value.unknown & mask:
        return None
    inside = told + [(at, ALWAYS, ALWAYS) for at in range(bits) if value.unknown >> at & 1]
    return list(_listed(inside)) if len(inside) <= _COUNTED_BITS else None


def _listed(bits: list[tuple[int, Condition, Condition]]) -> Iterator[tuple[int, Condition]]:
    for choice in product((0, 1), repeat=len(bits)):
        number, condition = 0, ALWAYS
        for is_set, (at, held, clear) in zip(choice, bits, strict=True):
            number |= is_set << at
            condition = both(condition, held if is_set else clear)
        yield number, condition


def _meeting(told: Comparison, test: int) -> Callable[[int], bool] | None:
    """The condition `test` of a jump as a test of the value; None where the flags do not tell."""
    half = 1 << (told.bits - 1)
    number = told.number & (2 * half - 1)
    if test == EQUAL:
        return number.__eq__
    if told.carry not in (BORROW, CLEAR):  # then the carry and overflow flags tell something else
        return None
    if test == SIGN:
        return lambda n: bool((n - number) & half)
    if test == BELOW:
        return number.__gt__
    if test == BELOW_OR_EQUAL:
        return number.__ge__
    signed = (number ^ half) - half
    if test == LESS:
        return lambda n: (n ^ half) - half < signed
    return (lambda n: (n ^ half) - half <= signed) if test == LESS_OR_EQUAL else None


def tells(value: Value) -> bool:
    """Whether something about the CPU follows from what the value is."""
    if isinstance(value, Options):
        return any(condition != ALWAYS for _, condition in value.numbers)
    return isinstance(value, Word) and any((held, clear) != (ALWAYS, NEVER) for _, held, clear in value.bits)


def literals(value: Value) -> set[str]:
    """What the CPU has or lacks by some of what the value may be (see conditions)."""
    conditions: list[Condition] = []
    if isinstance(value, Options):
        conditions = [condition for _, condition in value.numbers]
    elif isinstance(value, Word):
        conditions = [condition for _, *both_ways in value.bits for condition in both_ways]
    return {literal for condition in conditions for term in condition for literal in term}
