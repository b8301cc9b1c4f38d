"""What Power instructions do to what is known of general registers, memory and the condition register.

Encodings: Power ISA 3.1, book I. Registers and calls: 64-Bit ELF V2 ABI Specification for Power, 2.2. Instructions that
are not followed leave nothing known of the register that they would write to.
"""

from collections.abc import Callable
from operator import and_, or_, xor

from imgcheck.binaries.isa.conditions import ALWAYS, Labels
from imgcheck.binaries.isa.values import (
    BELOW,
    BELOW_OR_EQUAL,
    BORROW,
    EQUAL,
    LESS,
    LESS_OR_EQUAL,
    Comparison,
    Frame,
    Options,
    Value,
    Word,
    chosen,
    combined,
    constant,
    extended,
    inverted,
    low,
    lowered,
    mapped,
    outcome,
    shifted,
    truth,
)
from imgcheck.binaries.isa.words.blocks import GOES_ON, JUMPS, JUMPS_ANYWHERE, LEAVES, TESTS, Ending
from imgcheck.binaries.isa.words.code import signed
from imgcheck.binaries.isa.words.memory import moved
from imgcheck.binaries.isa.words.ppc64le import PREFIX, distance_of_prefixed
from imgcheck.binaries.isa.words.state import NOTHING, STACK, Flags, Known, Test, Tested
from imgcheck.binaries.isa.words.walk import Walk, compared

_SP, _TOC, _THREAD = 1, 2, 13
_CTR = 32
"""The count register, by which functions are called indirectly."""
_ELSEWHERE = 1 << 62
"""Where a conditional return goes."""
_THREAD_WORDS = {-28776: 26, -28772: 16}
"""Where the C library keeps words of the auxiliary vector, from the thread pointer on, and their types (GCC's
ppc-auxv.h, TCB_HWCAP_BASE_OFFSET); others that tell of the CPU follow.
"""
_HWCAPS = range(-28776, -28744)
_LOADS = {32: 4, 33: 4, 34: 1, 35: 1, 40: 2, 41: 2, 42: 2, 43: 2}
_STORES = {36: 4, 37: 4, 38: 1, 39: 1, 44: 2, 45: 2}
"""Primary opcodes, and bytes; odd ones leave the address in the base register."""
_SIGNED_LOADS = {42, 43}
_PADDI, _PLQ = (2, 14), (0, 56)
_PREFIXED_LOADS = {(2, 32): 4, (2, 34): 1, (2, 40): 2, (2, 42): 2, (0, 41): 4, (0, 57): 8}
_PREFIXED_STORES = {(2, 36): 4, (2, 38): 1, (2, 44): 2, (0, 61): 8}
"""Type of the prefix and primary opcode behind it, and bytes; others load and store vectors and floating point."""
_PREFIXED_SIGNED = {(2, 42), (0, 41)}
_INDEXED_LOADS = {20: 4, 21: 8, 23: 4, 84: 8, 87: 1, 279: 2, 341: 4, 343: 2}
_INDEXED_LOADS |= {53: 8, 55: 4, 119: 1, 311: 2, 373: 4, 375: 2}
"""Extended opcodes, and bytes; those with bit 5 leave the address in the base register."""
_SIGNED_INDEXED_LOADS = {341, 343, 373, 375}
_INDEXED_STORES = {149, 150, 151, 214, 215, 407}
_BITWISE = {28: and_, 444: or_, 316: xor, 60: and_, 412: or_}
_COMPLEMENTED = {60, 412}
"""ANDC and ORC."""
_IMMEDIATE = {24: or_, 25: or_, 26: xor, 27: xor, 28: and_, 29: and_}
_TO_SECOND = {24, 27, 51, 59, 115, 122, 124, 154, 155, 156, 186, 187, 188, 219, 220, 252, 282, 284, 307, 314, 378}
_TO_SECOND |= {476, 506, 508, 536, 538, 539, 570, 571, 792, 794, 824, 826, 827, 890, 891}
"""Shifts, counts, the other bitwise operations and moves from vector registers write to the second register named."""
_TO_NONE = {
    *(4, 54, 68, 86, 144, 181, 183, 246, 247, 278, 439, 598, 660, 662, 918, 982, 1014),  # traps, caches, CR, stores
    *(535, 567, 599, 631, 663, 695, 727, 759, 855, 887, 983),  # floating point
    *(6, 7, 38, 39, 71, 103, 135, 167, 199, 231, 359, 487),  # vectors
    *(12, 76, 140, 268, 269, 301, 332, 364, 396, 397, 429, 524, 588, 652, 716, 780, 781, 812, 813, 844, 876, 908, 909),
    *(940, 941, 972, 1004, 179, 211, 243, 403, 435),  # vectors and scalars
}
"""Extended opcodes of primary opcode 31 that write to no general register."""
_FLOATS = range(48, 56)
"""Primary opcodes of loads and stores of floating-point registers; odd ones leave the address in the base register."""
_FLOAT_COMPARISONS = {0, 32, 128, 130, 160, 642}
"""Extended opcodes of primary opcode 63: FCMPU, FCMPO, FTDIV, DCMPOQ, FTSQRT and DCMPUQ."""
_VECTOR_COMPARISONS = {35, 43}
"""Of primary opcode 60: XSCMPUDP and XSCMPODP."""
_EXTENDED = {954: 8, 922: 16, 986: 32}
_COUNTS = {26: 32, 58: 64}
"""Extended opcodes of CNTLZW and CNTLZD, and the bits whose leading zeros they count."""
_PVR = 287
"""The register with the processor's version."""
_ALL = (1 << 64) - 1
_NO_REGISTERS = -1, -1
_CARRY, _SUBFE = 8, 136
"""Behind the fields of the condition register; and what makes 1 of the carry after ADDIC with -1, and 0 without."""
_NEVER_GOES_ON = 0x7FE00008
"""TRAP."""


class Ppc64leWalk(Walk):
    """One pass over a function of ppc64le."""

    first = 3
    clobbered = (0, *range(3, 13), _CTR)
    kept_flags = (2, 3, 4)

    def prepare(self) -> None:
        self._second = {at + 1 for at, word in enumerate(self.words) if word >> 26 == PREFIX}
        """Numbers of words that are the second ones of prefixed instructions."""
        self._lowered = _NO_REGISTERS
        """The result and the source of the last ADDIC with -1."""
        self.state.values[_SP] = Frame((STACK, 0))
        self.state.values[_TOC] = constant(self.surroundings.table)

    # Order

    @staticmethod
    def ending(word: int, address: int) -> Ending:
        opcode = word >> 26
        always = word >> 21 & 0x14 == 0x14
        if opcode == 18:
            return Ending() if word & 1 else Ending(JUMPS, address + (signed(word, 26) & ~3))
        if opcode == 16:
            return Ending() if word & 1 else Ending(TESTS, address + (signed(word, 16) & ~3))
        if opcode == 19 and word >> 1 & 0x3FF == 16:
            return Ending(LEAVES) if always else Ending(TESTS, _ELSEWHERE)
        if opcode == 19 and word >> 1 & 0x3FF == 528 and not word & 1:
            return Ending(JUMPS_ANYWHERE)
        return Ending(LEAVES if word in (0, _NEVER_GOES_ON) else GOES_ON)

    def test(self, word: int) -> Test | None:
        options, bit = word >> 21 & 31, word >> 16 & 31
        flags = self.state.flags.get(bit >> 2)
        if options & 16 or not flags:
            return None
        labels = flags.labels(bit & 3)
        equal = bool(options & 8) if bit & 3 == 2 else None
        labels = labels if options & 8 or not labels else labels[::-1]
        return Test(flags.told, labels, flags.origin, flags.type, equal, self.held_pair(flags))

    def jumped_to(self, word: int) -> Value:
        return self.state.values.get(_CTR)

    # Single instructions

    def step(self, word: int) -> None:
        opcode = word >> 26
        if self._second and (number := (self.site - self.start) // 4) in self._second:
            self._prefixed(self.words[number - 1], word)
        elif opcode == 18 and (word & 1 or self.site + (signed(word, 26) & ~3) not in self.blocks):
            self._branch(self.site + (signed(word, 26) & ~3))
        elif opcode == 19:
            self._of_condition(word)
        elif opcode in (14, 15):
            number = signed(word, 16) << (16 if opcode == 15 else 0)
            told, value = self.known(word >> 16 & 31) if word >> 16 & 31 else (False, constant(0))
            self._write(word >> 21 & 31, (told, self.sum(value, constant(number & (1 << 64) - 1), 64)))
        elif opcode in _IMMEDIATE:
            number = (word & 0xFFFF) << (16 if opcode & 1 else 0)
            self._logical(word, opcode > 27, _IMMEDIATE[opcode], (False, constant(number)))
        elif opcode in (20, 21, 23, 30):
            self._rotate(word, opcode)
        elif opcode in (10, 11):
            number = signed(word, 16) if opcode == 11 else word & 0xFFFF
            self._compare(word, (False, constant(number & _ALL)), signed=opcode == 11)
        elif opcode == 31:
            self._extended(word)
        elif opcode in _LOADS or opcode in _STORES or opcode in (58, 62):
            self._memory(word, opcode)
        elif _compares_floats(word):
            self.state.flags.pop(word >> 23 & 7, None)
        elif opcode == 4 and word >> 10 & 1:  # comparisons of vectors set the sixth field
            self.state.flags.pop(6, None)
        elif opcode in _FLOATS and opcode & 1:
            self.put(word >> 16 & 31, NOTHING)
        elif opcode in (7, 8, 12, 13):
            told, value = self.known(word >> 16 & 31)
            self._write(word >> 21 & 31, (told, None))
            self.state.flags.pop(_CARRY, None)
            if opcode == 12 and signed(word, 16) == -1:  # the carry tells then whether it was not zero
                self._set_flags(_CARRY, told, Comparison(value, 0, 64, BORROW), outcome, False, -1)
                self._lowered = word >> 21 & 31, word >> 16 & 31
            elif opcode == 13:
                self._record(told, None, -1)

    def _branch(self, target: int) -> None:
        if not self.surroundings.keeps_registers(target):
            self.call(target)

    def _write(self, register: int, known: Known) -> None:
        if register not in (_TOC, _THREAD):  # what is there is there all the time
            self.put(register, known)

    def _of_condition(self, word: int) -> None:
        """Branches by a register, and what is done to bits of the condition register."""
        operation = word >> 1 & 0x3FF
        if operation == 528:
            if word & 1 or not self.blocks.jumps_inside:
                self.call(-1, self.state.values.get(_CTR))
        elif operation != 16:
            field, sources = word >> 23 & 7, (word >> 18 & 7, word >> 13 & 7)
            told = any(flags.told for at in sources if (flags := self.state.flags.get(at)))
            self.state.flags[field] = Flags(told, lambda bit: None, site=self.site)

    def _logical(self, word: int, records: bool, work: Callable[[int, int], int], other: Known) -> None:
        source, target = word >> 21 & 31, word >> 16 & 31
        told, value = self.known(source)
        told |= other[0]
        one, two = (None if isinstance(each, Frame) else each for each in (value, other[1]))
        made = value if work is or_ and two == constant(0) else combined(work, one, two, 64)
        origin = self.state.origins.get(source, -1)
        self._write(target, (told, made))
        if records:
            self._record(told, made, origin)

    def _record(self, told: bool, made: Value, origin: int) -> None:
        """The first field of the condition register tells how a result stands to zero."""
        self._set_flags(0, told, Comparison(made, 0, 64, BORROW), outcome, True, origin)

    def _set_flags(
        self, at: int, told: bool, comparison: Comparison | None, tested: Tested, signed: bool, origin: int
    ) -> None:
        tests = (LESS, LESS_OR_EQUAL, EQUAL) if signed else (BELOW, BELOW_OR_EQUAL, EQUAL)

        def labels(bit: int) -> Labels | None:
            if comparison is None or bit == 3 or not isinstance(comparison.value, Options | Word):
                return None
            found = tested(comparison, tests[bit])
            return found[::-1] if found and bit == 1 else found

        self.state.flags[at] = Flags(told, labels, origin, site=self.site)

    def _compare(self, word: int, other: Known, signed: bool) -> None:
        field, bits = word >> 23 & 7, 64 if word >> 21 & 1 else 32
        told, value = self.known(word >> 16 & 31)
        told |= other[0]
        origin = self.state.origins.get(word >> 16 & 31, -1)
        self._set_flags(field, told, *compared(value, other[1], bits), signed, origin)
        number = other[1].constant if isinstance(other[1], Options) else None
        self.note_comparison(field, word >> 16 & 31, (told, value), number, bits)

    def _rotate(self, word: int, opcode: int) -> None:
        """Rotations that keep a part of the result, or put it into the target: RLWIMI and RLDIMI."""
        source, target = word >> 21 & 31, word >> 16 & 31
        told, value = self.known(source)
        distance, bits, mask = _rotation(word, opcode)
        value = None if isinstance(value, Frame) else low(value, bits)
        made = _rotated(value, distance, bits, mask) if mask else None
        if opcode == 20 or (opcode == 30 and word >> 2 & 7 == 3):
            before_told, before = self.known(target)
            around = combined(and_, before, constant(~mask & _ALL), 64)
            told, made = told or before_told, combined(or_, around, made, 64) if mask else None
        origin = self.state.origins.get(source, -1)
        self._write(target, (told, made))
        if word & 1:
            self._record(told, made, origin)

    def _extended(self, word: int) -> None:
        operation, records = word >> 1 & 0x3FF, bool(word & 1)
        first, second, third = word >> 21 & 31, word >> 16 & 31, word >> 11 & 31
        if operation in (0, 32):
            self._compare(word, self.known(third), signed=operation == 0)
        elif operation in _BITWISE:
            told, value = self.known(third)
            value = inverted(value, 64) if operation in _COMPLEMENTED and not isinstance(value, Frame) else value
            if operation == 444 and first == third:
                self._copy(second, third)
                if records:
                    self._record(*self.known(second), self.state.origins.get(second, -1))
            else:
                self._logical(word, records, _BITWISE[operation], (told, value))
        elif operation & 31 == 15:
            self._select(word)
        elif operation in _EXTENDED:
            told, value = self.known(first)
            origin = self.state.origins.get(first, -1)
            made = extended(value, _EXTENDED[operation], 64)
            self._write(second, (told, made))
            if records:
                self._record(told, made, origin)
        elif operation in _COUNTS:
            told, value = self.known(first)
            made = _leading_zeros(value, _COUNTS[operation])
            self._write(second, (told, made))
            if records:
                self._record(told, made, -1)
        elif operation == 104:
            told, value = self.known(second)
            self._write(first, (told, lowered(constant(0), value, 64)))
        elif operation in (266, 40):
            self._sum(word, operation == 40, records)
        elif operation == _SUBFE and (carry := self.state.flags.pop(_CARRY, None)) and carry.told:
            self._write(first, (True, self._of_carry(carry.labels(2), second, third)))
        elif operation in (467, 339):
            self._special(word, operation == 467)
        elif operation in _INDEXED_LOADS:
            self._load_indexed(first, second, third, operation)
        elif operation in _INDEXED_STORES:
            self.store_to_element([self.known(second)[1], self.known(third)[1]], self.known(first))
        elif operation not in _TO_NONE:
            told = any(self.known(register)[0] for register in (first, second, third))
            self._write(second if operation in _TO_SECOND else first, (told, None))
            if records:
                self._record(told, None, -1)

    def _of_carry(self, zero: Labels | None, one: int, other: int) -> Value:
        """What SUBFE makes of the carry behind ADDIC with -1: of one register 0 or -1, of result and source 1 or 0."""
        if zero is None or (one != other and (one, other) != self._lowered):
            return None
        found = truth(*zero[::-1])
        return mapped(found, lambda set_: set_ - 1 & (1 << 64) - 1) if one == other else found

    def _copy(self, target: int, source: int) -> None:
        known, origin = self.known(source), self.state.origins.get(source)
        self._write(target, known)
        if origin is not None:
            self.state.origins[target] = origin

    def _sum(self, word: int, subtracts: bool, records: bool) -> None:
        target = word >> 21 & 31
        (a, first), (b, second) = self.known(word >> 16 & 31), self.known(word >> 11 & 31)
        if subtracts:
            made = lowered(second, first, 64)
        else:
            made = self.sum(first, second, 64)
            a |= made is None and (self.is_object(first) or self.is_object(second))
        self._write(target, (a or b, made))
        if records:
            self._record(a or b, made, -1)

    def _special(self, word: int, writes: bool) -> None:
        register, special = word >> 21 & 31, word >> 16 & 31 | word >> 6 & 0x3E0
        if not writes:
            self._write(register, (special == _PVR, None))
        elif special == 9:
            self.put(_CTR, self.known(register))

    def _select(self, word: int) -> None:
        """ISEL: one register where a bit of the condition register is set, else another."""
        bit = word >> 6 & 31
        flags = self.state.flags.get(bit >> 2)
        first = self.known(word >> 16 & 31) if word >> 16 & 31 else (False, constant(0))
        second = self.known(word >> 11 & 31)
        told = bool(flags and flags.told)
        labels = self._understood(flags.labels(bit & 3), self.site) if flags and told else (ALWAYS, ALWAYS)
        made = None
        if first[1] is not None and second[1] is not None:
            made = chosen(first[1], second[1], labels)
        known = told or first[0] or second[0], made
        if flags and bit & 3 == 2:
            known = self.as_selected(flags, first, known)
        self._write(word >> 21 & 31, known)

    # Memory

    def _prefixed(self, prefix: int, word: int) -> None:
        """An instruction of two words: PADDI (PLI, PLA), loads and stores; of others the target is forgotten."""
        kind, opcode, register, base = prefix >> 24 & 3, word >> 26, word >> 21 & 31, word >> 16 & 31
        distance = distance_of_prefixed(prefix, word)
        where: Value
        if prefix >> 20 & 1:
            told, where = False, constant(self.site - 4 + distance & (1 << 64) - 1)
        else:
            told, value = self.known(base) if base else (False, constant(0))
            where = self.sum(value, constant(distance & (1 << 64) - 1), 64)
        if (kind, opcode) == _PADDI:
            self._write(register, (told, where))
        elif (kind, opcode) in _PREFIXED_STORES:
            self.store(where, self.known(register), _PREFIXED_STORES[kind, opcode])
        elif (kind, opcode) in _PREFIXED_LOADS:
            size = _PREFIXED_LOADS[kind, opcode]
            self._load(register, base, where, size, repeats_sign=(kind, opcode) in _PREFIXED_SIGNED)
        elif (kind, opcode) == _PLQ:
            self.put(register, NOTHING)
            self.put(register + 1, NOTHING)

    def _memory(self, word: int, opcode: int) -> None:
        register, base = word >> 21 & 31, word >> 16 & 31
        doubles = opcode in (58, 62)
        distance = signed(word, 16) & ~3 if doubles else signed(word, 16)
        if base == _THREAD:
            told = distance in _HWCAPS and opcode in (32, 58)
            type_ = _THREAD_WORDS.get(distance) if told else None
            value = self.surroundings.words(type_)[1] if type_ is not None else None
            if opcode not in _STORES and opcode != 62:
                self._write(register, (told, low(value, 32) if value else None))
            return
        where = moved(self.known(base)[1], distance) if base else constant(distance)
        updates = word & 3 == 1 if doubles else bool(opcode & 1)
        if opcode in _STORES or opcode == 62:
            self.store(where, self.known(register), 8 if doubles else _STORES[opcode])
        else:
            size = (4 if word & 3 == 2 else 8) if doubles else _LOADS[opcode]
            self._load(register, base, where, size, repeats_sign=size == 4 if doubles else opcode in _SIGNED_LOADS)
        if updates:
            self.put(base, (self.known(base)[0], where))

    def _load(self, register: int, base: int, where: Value, size: int, repeats_sign: bool) -> None:
        by_pointer = where is None and self.known(base)[0]
        told, value = (True, None) if by_pointer else self.load(where, size)
        self._write(register, (told, extended(value, 8 * size, 64) if repeats_sign else value))
        self.note_origin(register, where)

    def _load_indexed(self, register: int, base: int, index: int, operation: int) -> None:
        parts = self.known(base) if base else (False, constant(0)), self.known(index)
        (_, one), (_, other) = parts
        where = self.element(one, other) if isinstance(other, Word) else self.element(other, one)
        size = _INDEXED_LOADS[operation]
        told, value = self.load(where, size)
        if not self.is_one(where):
            told |= any(is_told or self.is_object(part) for is_told, part in parts)
        if operation in _SIGNED_INDEXED_LOADS:
            value = extended(value, 8 * size, 64)
        self._write(register, (told, value))
        if operation & 32:
            self._write(base, (parts[0][0] or parts[1][0], where))


def _compares_floats(word: int) -> bool:
    """Whether an instruction compares floating-point numbers into a field of the condition register."""
    if word >> 26 == 60:
        return word >> 3 & 0xFF in _VECTOR_COMPARISONS
    return word >> 26 == 63 and word >> 1 & 0x3FF in _FLOAT_COMPARISONS


def _mask32(first: int, last: int) -> int:
    """Bits of a word from one place to another, counted from the highest; where they wrap around, those outside."""
    if first <= last:
        return (1 << 32 - first) - 1 & ~((1 << 31 - last) - 1)
    return 0xFFFFFFFF & ~_mask32(last + 1, first - 1) if last + 1 <= first - 1 else 0xFFFFFFFF


def _mask64(first: int, last: int) -> int:
    return (1 << 64 - first) - 1 & ~((1 << 63 - last) - 1)


def _leading_zeros(value: Value, bits: int) -> Value:
    """How many there are. Compilers test for zero so: only then the count has the bit that `bits` is."""
    if isinstance(value, Options):
        return mapped(value, lambda number: bits - (number & (1 << bits) - 1).bit_length())
    zero = outcome(Comparison(value, 0, bits, BORROW), EQUAL) if isinstance(value, Word) else None
    highest = shifted(truth(*zero), bits.bit_length() - 1, 64) if zero else Word((), bits)
    return combined(or_, highest, Word((), bits - 1), 64)


def _rotation(word: int, opcode: int) -> tuple[int, int, int]:
    """How far an instruction rotates how many bits, and the mask of those that it keeps; 0 where it is not followed."""
    distance, mask = word >> 11 & 31, 0
    if opcode in (20, 21):
        first, last = word >> 6 & 31, word >> 1 & 31
        if first <= last or opcode == 21:
            mask = _mask32(first, last)
        return distance, 32, mask
    if opcode == 30 and not word >> 4 & 1:
        distance |= word >> 1 << 5 & 32
        edge = word >> 6 & 31 | word & 32
        first, last = ((edge, 63), (0, edge), (edge, 63 - distance), (edge, 63 - distance))[word >> 2 & 3]
        if first <= last:
            mask = _mask64(first, last)
    return distance, 64, mask


def _rotated(value: Value, distance: int, bits: int, mask: int) -> Value:
    """A value rotated to the left, as far as a mask lets it through."""
    up = shifted(value, distance, bits)
    down = shifted(value, distance - bits, bits) if distance else None
    if not distance or mask & (1 << distance) - 1 == 0:
        turned = up
    elif mask >> distance == 0:
        turned = down
    else:
        turned = combined(or_, up, down, bits) if up is not None and down is not None else None
    return combined(and_, turned, constant(mask), bits)
