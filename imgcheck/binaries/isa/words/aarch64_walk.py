"""What AArch64 instructions do to what is known of general registers, memory and flags.

Encodings: Arm Architecture Reference Manual, C4.1 ("A64 instruction set encoding"). Instructions that are not followed
leave nothing known of the register that they would write to.
"""

from collections.abc import Callable
from operator import and_, or_, xor

from imgcheck.binaries.isa.conditions import ALWAYS, Labels, both, either
from imgcheck.binaries.isa.values import (
    BELOW,
    BELOW_OR_EQUAL,
    CLEAR,
    EQUAL,
    LESS,
    LESS_OR_EQUAL,
    SIGN,
    Comparison,
    Frame,
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
    lowered,
    outcome,
    shifted,
)
from imgcheck.binaries.isa.words.aarch64 import TO_GENERAL
from imgcheck.binaries.isa.words.blocks import GOES_ON, JUMPS, JUMPS_ANYWHERE, LEAVES, TESTS, Ending
from imgcheck.binaries.isa.words.code import signed
from imgcheck.binaries.isa.words.memory import inserted, moved
from imgcheck.binaries.isa.words.state import NOTHING, STACK, Flags, Known, Test, Tested
from imgcheck.binaries.isa.words.walk import PARAMETERS, Walk, compared

_ZERO = _SP = 31
_VECTORS = 64
"""Where the numbers of vector registers begin, as far as they copy something."""
_TESTS = EQUAL, BELOW, SIGN, None, BELOW_OR_EQUAL, LESS, LESS_OR_EQUAL
"""For each pair of AArch64's conditions (C1.2.4) the test of values that it is."""
_REVERSED = False, True, False, False, True, True, True
"""Whether the first of the pair is met where that test is not: CS, HI, GE and GT."""
_BITWISE = and_, or_, xor, and_
_TO_FLAGS = (0xFF20FC07, 0x1E202000), (0xFF200C00, 0x1E200400)
"""FCMP and FCCMP; of SVE's instructions many write to the flags."""
_ORDERED = 0x3F200C00, 0x19000000
"""LDAPUR, STLUR and their like."""
_LDAPR = 0x3FFFFC00, 0x38BFC000
"""Among the atomic operations, which leave something in memory."""
_COMPARES_AND_SWAPS = (0x3FA07C00, 0x08A07C00), (0xBFA07C00, 0x08207C00)
"""CAS and CASP."""


class AArch64Walk(Walk):
    """One pass over a function of AArch64."""

    first = 0
    parameters = PARAMETERS + 1
    clobbered = tuple(range(19))

    def prepare(self) -> None:
        self.state.values[_SP] = Frame((STACK, 0))

    # Order

    @staticmethod
    def ending(word: int, address: int) -> Ending:
        if word & 0xFF000010 == 0x54000000 or word & 0x7E000000 == 0x34000000:
            return Ending(TESTS, address + 4 * signed(word >> 5, 19))
        if word & 0x7E000000 == 0x36000000:
            return Ending(TESTS, address + 4 * signed(word >> 5, 14))
        if word & 0xFC000000 == 0x14000000:
            return Ending(JUMPS, address + 4 * signed(word, 26))
        if word & 0xFE000000 == 0xD6000000:
            operation = word >> 21 & 3
            return Ending((JUMPS_ANYWHERE, GOES_ON, LEAVES, LEAVES)[operation])
        return Ending(LEAVES if word & 0xFFE0001F == 0xD4200000 or word < 1 << 16 else GOES_ON)

    def test(self, word: int) -> Test | None:
        if word & 0xFF000010 == 0x54000000:
            flags = self.state.flags.get(0)
            if not flags:
                return None
            equal = not word & 1 if word & 15 < 2 else None
            return Test(flags.told, flags.labels(word & 15), flags.origin, flags.type, equal, self.held_pair(flags))
        register, pair = word & 31, None
        told, value = self._read(register)
        if word & 0x7E000000 == 0x36000000:
            place = word >> 31 << 5 | word >> 19 & 31
            value, bits = combined(and_, shifted(value, -place, 64), constant(1), 64), 1
        else:
            bits, pair = 64 if word >> 31 else 32, (register, 0) if register != _ZERO else None
        zero = outcome(Comparison(value, 0, bits, CLEAR), EQUAL) if isinstance(value, Options | Word) else None
        if zero and word >> 24 & 1:
            zero = zero[::-1]
        return Test(told, zero, self.state.origins.get(register, -1), equal=not word >> 24 & 1, pair=pair)

    def jumped_to(self, word: int) -> Value:
        return self.state.values.get(word >> 5 & 31)

    # Single instructions

    def step(self, word: int) -> None:
        group = word >> 25 & 15
        if group in (8, 9):
            self._immediate(word)
        elif group in (5, 13):
            self._registers(word)
        elif group & 5 == 4:
            self._memory(word)
        elif group in (10, 11):
            self._branch(word)
        else:
            self._vectors(word, group)

    def _vectors(self, word: int, group: int) -> None:
        self.state.copied.pop(_VECTORS + (word & 31), None)
        if any(word & mask == value for mask, value in TO_GENERAL):
            self.put(word & 31, NOTHING)
        elif group == 2 or any(word & mask == value for mask, value in _TO_FLAGS):
            self.state.flags.clear()

    def _read(self, register: int) -> Known:
        return (False, constant(0)) if register == _ZERO else self.known(register)

    def _write(self, register: int, known: Known, bits: int = 64) -> None:
        if register == _ZERO:
            return
        told, value = known
        if bits == 32 and not isinstance(value, Frame):
            value = low(value, 32)
        self.put(register, (told, value))

    def _branch(self, word: int) -> None:
        if word & 0xFC000000 == 0x94000000:
            self.call(self.site + 4 * signed(word, 26))
        elif word & 0xFEE00000 == 0xD6200000 or (word & 0xFEE00000 == 0xD6000000 and not self.blocks.jumps_inside):
            self.call(-1, self.state.values.get(word >> 5 & 31))
        elif word & 0xFC000000 == 0x14000000:
            target = self.site + 4 * signed(word, 26)
            if target not in self.blocks:
                self.call(target)
        elif word & 0xFFF00000 == 0xD5300000:
            asks = word & 0xFFFF0000 == 0xD5380000
            self._write(word & 31, (asks, None))
        elif word & 0xFFE0001F == 0xD4000001:  # SVC
            self._write(0, NOTHING)
        elif word & 0xFFFFFFE0 == 0xD51B4200:  # MSR to the flags
            self.state.flags.clear()

    def _immediate(self, word: int) -> None:
        kind, register, source = word >> 23 & 7, word & 31, word >> 5 & 31
        bits = 64 if word >> 31 else 32
        if kind in (0, 1):
            distance = signed(word >> 5 & 0x7FFFF, 19) << 2 | word >> 29 & 3
            self._write(
                register,
                (False, constant((self.site & ~0xFFF) + (distance << 12) if word >> 31 else self.site + distance)),
            )
        elif kind == 2:
            number = (word >> 10 & 0xFFF) << (12 if word >> 22 & 1 else 0)
            self._add(word, (False, constant(number)), number, bits)
        elif kind == 4 and (mask := _bitmask(word, bits)):
            self._logical(word, self._read(source), constant(mask), bits)
        elif kind == 5:
            self._move_wide(word, bits)
        elif kind == 6:
            self._bitfield(word, bits)
        elif kind == 7:
            self._extract(word, bits)
        else:
            self._write(register, NOTHING)

    def _add(self, word: int, other: Known, number: int | None, bits: int) -> None:
        """ADD or SUB; an immediate one reads and writes the stack pointer where others have the zero register."""
        register, source = word & 31, word >> 5 & 31
        subtracts, sets_flags = word >> 30 & 1, word >> 29 & 1
        told, value = self.known(source) if number is not None else self._read(source)
        if subtracts:
            made = lowered(value, other[1], bits)
        else:
            made = self.sum(value, other[1], bits)
        told |= other[0]
        if made is None and not subtracts:  # the address of an element, nobody knows which
            told |= self.is_object(value) or self.is_object(other[1])
        if sets_flags:
            if subtracts:
                self._set_flags(told, *compared(value, other[1], bits), source)
            else:
                self._set_flags(told, Comparison(made, 0, bits, None), outcome, source)
            against = other[1].constant if subtracts and isinstance(other[1], Options) else None
            self.note_comparison(0, source, (told, value), against, bits)
            self._write(register, (told, made), bits)
        elif number is not None:
            self.put(register, (told, made if isinstance(made, Frame) or bits == 64 else low(made, 32)))
        else:
            self._write(register, (told, made), bits)

    def _logical(self, word: int, known: Known, other: Value, bits: int, told: bool = False) -> None:
        operation, register, source = word >> 29 & 3, word & 31, word >> 5 & 31
        told |= known[0]
        value = known[1] if not isinstance(known[1], Frame) else None
        other = other if not isinstance(other, Frame) else None
        made = combined(_BITWISE[operation], value, other, bits)
        if operation == 3:
            self._set_flags(told, Comparison(made, 0, bits, CLEAR), outcome, source)
        self._write(register, (told, made), bits)

    def _move_wide(self, word: int, bits: int) -> None:
        register, at = word & 31, 16 * (word >> 21 & 3)
        number = (word >> 5 & 0xFFFF) << at
        operation = word >> 29 & 3
        if operation == 3:
            told, value = self._read(register)
            around = combined(and_, value, constant(~(0xFFFF << at) & (1 << 64) - 1), 64) if value is not None else None
            made = combined(or_, around, constant(number), bits) if around is not None else None
            self._write(register, (told, made), bits)
        else:
            self._write(register, (False, constant((~number if operation == 0 else number) & (1 << bits) - 1)), bits)

    def _bitfield(self, word: int, bits: int) -> None:
        register, source = word & 31, word >> 5 & 31
        rotate, last, operation = word >> 16 & 63, word >> 10 & 63, word >> 29 & 3
        told, value = self._read(source)
        if word >> 22 & 1 != word >> 31 or max(rotate, last) >= bits:  # reserved
            self._write(register, NOTHING)
            return
        if operation == 1:  # BFM keeps the rest of its target
            before_told, before = self._read(register)
            if last >= rotate:
                made = inserted(before, shifted(value, -rotate, bits), 0, last - rotate + 1)
            else:
                made = inserted(before, value, bits - rotate, last + 1)
            self._write(register, (told or before_told, made), bits)
            return
        value = None if isinstance(value, Frame) else low(value, last + 1)
        if last >= rotate:
            made = shifted(value, -rotate, bits)
        else:
            made = shifted(value, bits - rotate, bits)
        if operation == 0:  # SBFM repeats the sign
            made = extended(made, last - rotate + 1 if last >= rotate else bits - rotate + last + 1, bits)
        self._write(register, (told, made), bits)

    def _extract(self, word: int, bits: int) -> None:
        """EXTR, and ROR by a number, which is the same with one register twice."""
        register, distance = word & 31, word >> 10 & 63
        (above_told, above), (told, value) = self._read(word >> 5 & 31), self._read(word >> 16 & 31)
        if word >> 22 & 1 != word >> 31 or distance >= bits:  # reserved
            self._write(register, NOTHING)
        elif distance:
            made = combined(or_, shifted(value, -distance, bits), shifted(above, bits - distance, bits), bits)
            self._write(register, (told or above_told, made), bits)
        else:
            self._write(register, (told, value), bits)

    def _registers(self, word: int) -> None:
        register, source, other = word & 31, word >> 5 & 31, word >> 16 & 31
        bits = 64 if word >> 31 else 32
        if word & 0x1F000000 == 0x0A000000:
            self._logical_registers(word, bits)
        elif word & 0x1F000000 == 0x0B000000:
            told, value = self._read(other)
            if word >> 21 & 1:
                value = _extended(value, word >> 13 & 7, word >> 10 & 7, bits)
            elif word >> 10 & 63:
                distance, kind = word >> 10 & 63, word >> 22 & 3
                value = shifted(low(value, bits), (distance, -distance)[kind], bits) if kind < 2 else None
            self._add(word, (told, value), None, bits)
        elif word & 0x1FE00000 == 0x1A800000:
            self._select(word, bits)
        elif word & 0x1FE00000 == 0x1A400000:
            self._compare_on_condition(word, bits)
        else:
            if word & 0x3FE00000 == 0x3A000000:  # ADCS, SBCS, RMIF and SETF
                self.state.flags.clear()
            told = self._read(source)[0] or self._read(other)[0]
            made: Value = None
            if word & 0x5FE0F800 == 0x1AC02000 and word >> 10 & 3 < 2:  # LSLV, LSRV
                far = self._read(other)[1]
                value = self._read(source)[1]
                if isinstance(far, Options) and far.constant is not None and not isinstance(value, Frame):
                    by = far.constant % bits
                    made = shifted(low(value, bits), -by if word >> 10 & 1 else by, bits)
            self._write(register, (told, made), bits)

    def _logical_registers(self, word: int, bits: int) -> None:
        register, source, other = word & 31, word >> 5 & 31, word >> 16 & 31
        distance, kind, operation = word >> 10 & 63, word >> 22 & 3, word >> 29 & 3
        second_told, second = self._read(other)
        if operation == 1 and source == _ZERO and not distance and not word >> 21 & 1:
            self._write(register, (second_told, second), bits)  # MOV
            return
        second = None if isinstance(second, Frame) else low(second, bits)
        if distance:
            second = shifted(second, (distance, -distance, 0, 0)[kind], bits) if kind < 2 else None
        if word >> 21 & 1:
            second = inverted(second, bits)
        first = self._read(source)
        if source == other and operation == 3 and not distance:  # TST of a register with itself
            second = None if isinstance(first[1], Frame) else first[1]
            self._set_flags(first[0], Comparison(second, 0, bits, CLEAR), outcome, source)
            self._write(register, (first[0], second), bits)
            return
        self._logical(word, first, second, bits, second_told)

    # Flags

    def _set_flags(self, told: bool, comparison: Comparison | None, tested: Tested, source: int) -> None:
        def labels(condition: int) -> Labels | None:
            return _labels(comparison, tested, condition)

        self.state.flags[0] = Flags(told, labels, self.state.origins.get(source, -1), site=self.site)

    def _compare_on_condition(self, word: int, bits: int) -> None:
        """CCMP and CCMN: a comparison where a condition holds, else flags that the instruction names."""
        told, value = self._read(word >> 5 & 31)
        other_told, other = (False, constant(word >> 16 & 31)) if word >> 11 & 1 else self._read(word >> 16 & 31)
        told |= other_told
        comparison, tested = compared(value, other, bits) if word >> 30 & 1 else (None, outcome)
        before, first, named = self.state.flags.get(0), word >> 12 & 15, word & 15
        first_told = bool(before and before.told)
        prior = before.labels(first) if before and before.told else (ALWAYS, ALWAYS)
        compares = told

        def labels(condition: int) -> Labels | None:
            then = _labels(comparison, tested, condition) if compares else (ALWAYS, ALWAYS)
            if prior is None or then is None:
                return None
            holds, fails = both(prior[0], then[0]), both(prior[0], then[1])
            if _met(named, condition):
                return either(holds, prior[1]), fails
            return holds, either(fails, prior[1])

        self.state.flags[0] = Flags(told or first_told, labels, site=self.site)

    def _select(self, word: int, bits: int) -> None:
        """CSEL, CSINC, CSINV and CSNEG."""
        first, second = self._read(word >> 5 & 31), self._read(word >> 16 & 31)
        flags = self.state.flags.get(0)
        told = bool(flags and flags.told)
        labels = self._understood(flags.labels(word >> 12 & 15), self.site) if flags and told else (ALWAYS, ALWAYS)
        other = second[1]
        if word >> 10 & 1:
            other = added(other, 1, bits) if not word >> 30 & 1 else None
        elif word >> 30 & 1:
            other = inverted(other, bits) if not isinstance(other, Frame) else None
        made = None
        if first[1] is not None and other is not None:
            made = chosen(first[1], other, labels)
        known = told or first[0] or second[0], made
        if flags and word >> 12 & 15 < 2 and not word >> 30 & 1 and not word >> 10 & 1:
            known = self.as_selected(flags, second if word >> 12 & 1 else first, known)
        self._write(word & 31, known, bits)

    # Memory

    def _memory(self, word: int) -> None:
        vector = word >> 26 & 1
        if word & 0x3A000000 == 0x28000000:
            self._pair(word, bool(vector))
        elif word & 0x3B000000 == 0x18000000:
            where = constant(self.site + 4 * signed(word >> 5, 19))
            if vector:
                self.state.copied.pop(_VECTORS + (word & 31), None)
            else:
                self._write(word & 31, self.load(where, 8 if word >> 30 & 1 else 4))
        elif word & 0x3A000000 == 0x38000000:
            self._single(word, bool(vector))
        elif not vector and word & 0x3F000000 == 0x08000000:
            self._exclusive(word)
        elif word & _ORDERED[0] == _ORDERED[1]:
            self._at(word, moved(self.known(word >> 5 & 31)[1], signed(word >> 12, 9)), False)
        elif word & 0x3E000000 == 0x0C000000:  # LD1 and its like
            self.state.copied.clear()
            if word >> 23 & 1:  # they move their base
                self.put(word >> 5 & 31, NOTHING)

    def _exclusive(self, word: int) -> None:
        """Loads and stores with an order (LDAR, STLR), exclusive ones, and CAS."""
        size, register, other = 1 << (word >> 30), word & 31, word >> 16 & 31
        where = self.known(word >> 5 & 31)[1]
        if any(word & mask == value for mask, value in _COMPARES_AND_SWAPS):
            self._exchange(where, other, register, size)
        elif word >> 22 & 1:
            self._load(register, where, size)
            if word >> 21 & 1:  # LDXP
                self._write(word >> 10 & 31, NOTHING)
        elif word >> 23 & 1:
            self.store(where, self._read(register), size)
        else:
            self.store(where, (self._read(register)[0], None), size)
            self._write(other, NOTHING)

    def _exchange(self, where: Value, old: int, new: int, size: int) -> None:
        """Operations that leave in memory what they make of it and of a register, and what was there in another."""
        told, _ = self.load(where, size) if self.is_one(where) else NOTHING
        self._write(old, (told, None))
        self.store(where, (told or self._read(new)[0], None), size)

    def _single(self, word: int, vector: bool) -> None:
        size, operation = 1 << (word >> 30), word >> 22 & 3
        base, register, other = word >> 5 & 31, word & 31, word >> 16 & 31
        where = self.known(base)[1]
        if word >> 24 & 1:
            where = moved(where, (word >> 10 & 0xFFF) * (size << (4 if vector and operation > 1 else 0)))
        elif word >> 21 & 1:
            if word & _LDAPR[0] == _LDAPR[1]:
                self._load(register, where, size)
                return
            if word >> 10 & 3 == 0 and not vector:
                self._exchange(where, register, other, size)
                return
            if word >> 10 & 3 != 2:  # LDRAA
                self.put(base, NOTHING)
                self._write(register, NOTHING)
                return
            index = _extended(self._read(other)[1], word >> 13 & 7, word >> 30 if word >> 12 & 1 else 0, 64)
            where = self.element(where, index)
        else:
            distance, mode = signed(word >> 12, 9), word >> 10 & 3
            beyond = moved(where, distance)
            if mode in (1, 3):
                self.put(base, (self.known(base)[0], beyond))
            where = where if mode == 1 else beyond
        if vector:
            self._move_vector(register, where, 16 if operation > 1 else size, is_load=bool(operation & 1))
            return
        if operation == 0 and not self.is_one(where) and word & 0x01200C00 == 0x00200800:
            self.store_to_element([self.known(base)[1], self._read(other)[1]], self._read(register))
        elif not (size == 8 and operation == 2):  # PRFM
            self._at(word, where, not self.is_one(where) and self._is_told_element(word, base))

    def _at(self, word: int, where: Value, is_told: bool) -> None:
        """A store of one register at an address, or a load, which brings what the CPU told if `is_told`."""
        size, operation = 1 << (word >> 30), word >> 22 & 3
        if operation == 0:
            self._store(word & 31, where, size)
            return
        told, value = self.load(where, size)
        if operation > 1:
            value = extended(value, 8 * size, 64 if operation == 2 else 32)
        self._loaded(word & 31, where, size, (told or is_told, value))

    def _is_told_element(self, word: int, base: int) -> bool:
        """Whether a load brings what the CPU told, or what that is the index or the address of."""
        told, address = self.known(base)
        if word & 0x01200C00 != 0x00200800:
            return told
        index_told, index = self._read(word >> 16 & 31)
        return told or index_told or self.is_object(address) or self.is_object(index)

    def _load(self, register: int, where: Value, size: int) -> None:
        self._loaded(register, where, size, self.load(where, size))

    def _loaded(self, register: int, where: Value, size: int, known: Known) -> None:
        self._write(register, known)
        self.note_origin(register, where)
        parts = self.parts(where, size) if size == 8 else []
        if any(width < size for _, width, _ in parts):
            self.state.copied[register] = parts

    def _pair(self, word: int, vector: bool) -> None:
        size = 8 if word >> 31 else 4
        scale = 4 << (word >> 30) if vector else size
        base, mode = word >> 5 & 31, word >> 23 & 3
        where = self.known(base)[1]
        beyond = moved(where, signed(word >> 15, 7) * scale)
        if mode in (1, 3):
            self.put(base, (self.known(base)[0], beyond))
        where = where if mode == 1 else beyond
        for number, register in enumerate((word & 31, word >> 10 & 31)):
            place = moved(where, number * (scale if vector else size))
            if vector:
                self._move_vector(register, place, scale, is_load=bool(word >> 22 & 1))
            elif word >> 22 & 1:
                self._load(register, place, size)
            else:
                self._store(register, place, size)

    def _store(self, register: int, where: Value, size: int) -> None:
        if register in self.state.copied and size == 8:
            self.copy_out(register, where, size)
        else:
            self.store(where, self._read(register), size)

    def _move_vector(self, number: int, where: Value, size: int, is_load: bool) -> None:
        register = _VECTORS + number
        if is_load:
            self.state.copied[register] = self.parts(where, size)
        else:
            self.copy_out(register, where, size)


def _labels(comparison: Comparison | None, tested: Tested, condition: int) -> Labels | None:
    """What holds where one of AArch64's conditions is met, and where not."""
    if condition >= 14:
        return None
    test = _TESTS[condition >> 1]
    if comparison is None or test is None or isinstance(comparison.value, Frame):
        return None
    found = tested(comparison, test)
    return found[::-1] if found and _REVERSED[condition >> 1] != bool(condition & 1) else found


def _met(flags: int, condition: int) -> bool:
    """Whether a condition is met by the flags N, Z, C and V, from the highest bit on."""
    n, z, c, v = (bool(flags >> at & 1) for at in (3, 2, 1, 0))
    tests: tuple[Callable[[], bool], ...] = (
        lambda: z, lambda: c, lambda: n, lambda: v, lambda: c and not z, lambda: n == v, lambda: n == v and not z,
        lambda: True,
    )  # fmt: skip
    return tests[condition >> 1]() != bool(condition & 1 and condition < 14)


def _extended(value: Value, option: int, distance: int, bits: int) -> Value:
    """The last operand of instructions with an extended register (ExtendReg, J1.1.3)."""
    source = 8 << (option & 3)
    if isinstance(value, Frame):
        return value if source == 64 and not distance else None
    return shifted(extended(value, source, bits) if option & 4 else low(value, source), distance, bits)


def _bitmask(word: int, bits: int) -> int | None:
    """The number of a logical instruction (DecodeBitMasks, J1.1.3); None where the encoding is reserved."""
    n, rotate, ones = word >> 22 & 1, word >> 16 & 63, word >> 10 & 63
    size = 1 << (n << 6 | ~ones & 63).bit_length() >> 1
    count, by = (ones & size - 1) + 1, rotate & size - 1
    if not 2 <= size <= bits or count == size:
        return None
    element = (1 << count) - 1
    element = (element >> by | element << size - by) & (1 << size) - 1
    number = 0
    for at in range(0, bits, size):
        number |= element << at
    return number & (1 << bits) - 1
