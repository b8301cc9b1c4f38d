"""What is known of a value's bits and numbers stays true of each number that it may be, whatever is done to it."""

from operator import add, and_, or_, xor

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from imgcheck.binaries.isa.conditions import ALWAYS, NEVER, Condition, having, opposite
from imgcheck.binaries.isa.values import (
    BORROW,
    CLEAR,
    EQUAL,
    SIGN,
    Comparison,
    Options,
    Value,
    Word,
    added,
    combined,
    constant,
    extended,
    inverted,
    joined,
    low,
    lowest,
    narrowed,
    outcome,
    replaced,
    shifted,
    summed,
)
from imgcheck.binaries.isa.x86.facts import RAX, RCX, facts
from imgcheck.binaries.isa.x86.operations import result

BITS = 12
FEATURES = ("avx", "avx2", "sse4_1", "fma")
NUMBERS = st.integers(0, (1 << BITS) - 1)
CPUS = st.frozensets(st.sampled_from(FEATURES))
CONDITIONS = st.one_of(
    st.just(ALWAYS), st.sampled_from([c for f in FEATURES for c in (having(f), opposite(having(f)))])
)


def holds(condition: Condition, cpu: frozenset[str]) -> bool:
    return any(all((literal.lstrip("!") in cpu) != literal.startswith("!") for literal in term) for term in condition)


def true_of(value: Value, number: int, cpu: frozenset[str]) -> bool:
    """Whether the value may be that number on that CPU."""
    if isinstance(value, Options):
        return any(n == number and holds(condition, cpu) for n, condition in value.numbers)
    if isinstance(value, Word):
        told = {at for at, _, _ in value.bits}
        zeros = ~value.unknown & ~sum(1 << at for at in told)
        bits = (held if number >> at & 1 else clear for at, held, clear in value.bits)
        return not number & zeros & (1 << 64) - 1 and all(holds(condition, cpu) for condition in bits)
    return value is None


@st.composite
def values(draw: st.DrawFn, number: int, cpu: frozenset[str]) -> Value:
    """Something true of the number on the CPU."""
    fitting = CONDITIONS.filter(lambda condition: holds(condition, cpu))
    if draw(st.booleans()):
        others = draw(st.dictionaries(NUMBERS, CONDITIONS, max_size=3))
        return Options(tuple(sorted({**others, number: draw(fitting)}.items(), key=lambda pair: pair[0])))
    bits, unknown = [], 0
    for at in range(BITS):
        known = draw(st.sampled_from(["told", "unknown", "zero"]))
        if known == "told":
            here, other = draw(fitting), draw(CONDITIONS)
            bits.append((at, here, other) if number >> at & 1 else (at, other, here))
        elif known == "unknown" or number >> at & 1:
            unknown |= 1 << at
    return Word(tuple(bits), unknown)


@st.composite
def known_numbers(draw: st.DrawFn) -> tuple[frozenset[str], list[tuple[int, Value]]]:
    cpu = draw(CPUS)
    numbers = [draw(NUMBERS), draw(NUMBERS)]
    return cpu, [(number, draw(st.one_of(st.none(), values(number, cpu)))) for number in numbers]


@given(known_numbers(), st.sampled_from([and_, or_, xor]), st.sampled_from([8, BITS, 64]))
def test_bitwise_operations(drawn, work, bits: int) -> None:
    cpu, ((one, known), (other, of_other)) = drawn
    assert true_of(combined(work, known, of_other, bits), work(one, other) & (1 << bits) - 1, cpu)


@given(known_numbers(), st.integers(-BITS, BITS), st.sampled_from([8, 16]))
def test_shifts_sums_and_parts(drawn, distance: int, bits: int) -> None:
    cpu, ((one, known), (other, of_other)) = drawn
    moved = one << distance if distance >= 0 else one >> -distance
    assert true_of(shifted(known, distance, 64), moved & (1 << 64) - 1, cpu)
    assert true_of(added(known, distance, 64), one + distance & (1 << 64) - 1, cpu)
    assert true_of(inverted(known, 64), ~one & (1 << 64) - 1, cpu)
    assert true_of(low(known, bits), one & (1 << bits) - 1, cpu)
    part = (1 << bits) - 1
    assert true_of(replaced(known, of_other, 0, bits), one & ~part | other & part, cpu)


@given(known_numbers(), st.sampled_from([BITS, 64]))
def test_sums(drawn, bits: int) -> None:
    cpu, ((one, known), (other, of_other)) = drawn
    assert true_of(summed(known, of_other, bits), one + other & (1 << bits) - 1, cpu)


@given(known_numbers())
def test_sums_and_signs_of_numbers(drawn) -> None:
    cpu, ((one, known), (other, of_other)) = drawn
    if not (isinstance(known, Options) and isinstance(of_other, Options)):
        return
    assert true_of(combined(add, known, of_other, BITS), one + other & (1 << BITS) - 1, cpu)
    sign = 1 << BITS - 1
    assert true_of(extended(known, BITS, 64), (one ^ sign) - sign & (1 << 64) - 1, cpu)


@given(known_numbers())
@example((frozenset(), [(4, Word(((0, ALWAYS, ALWAYS), (1, ALWAYS, ALWAYS)), 0xFFC)), (0, None)]))
def test_the_lowest_bit(drawn) -> None:
    cpu, ((one, known), _) = drawn
    assume(one)
    assert true_of(lowest(known), (one & -one).bit_length() - 1, cpu)


@given(known_numbers(), CONDITIONS, CONDITIONS)
def test_paths_that_meet(drawn, path: Condition, other_path: Condition) -> None:
    cpu, ((one, known), (_, of_other)) = drawn
    assume(holds(path, cpu))
    assert true_of(joined(known, path, of_other, other_path), one, cpu)


@given(known_numbers(), st.sampled_from([8, BITS]), st.sampled_from([EQUAL, SIGN]))
def test_what_flags_tell(drawn, bits: int, test: int) -> None:
    cpu, ((one, known), _) = drawn
    found = outcome(Comparison(known, 0, bits, CLEAR), test)
    met = not one & (1 << bits) - 1 if test == EQUAL else one >> bits - 1 & 1
    assert found is None or holds(found[0 if met else 1], cpu)


def test_one_bit_that_is_always_set_tells_a_word_from_nought() -> None:
    """A mark that flags are known, beside bits of which nothing is."""
    marked = Word(((63, ALWAYS, NEVER),), unknown=(1 << 63) - 1)
    assert outcome(Comparison(marked, 0, 64, CLEAR), EQUAL) == (NEVER, ALWAYS)
    assert outcome(Comparison(marked, 1 << 63, 64, CLEAR), EQUAL) is None


@given(known_numbers(), st.booleans(), st.sampled_from([8, BITS]), st.sampled_from([EQUAL, SIGN]))
def test_what_a_branch_leaves_of_a_value(drawn, itself: bool, bits: int, test: int) -> None:
    cpu, ((one, known), (other, _)) = drawn
    number = (one if itself else other) & (1 << bits) - 1
    met = one & (1 << bits) - 1 == number if test == EQUAL else one - number >> bits - 1 & 1
    assert true_of(narrowed(Comparison(known, number, bits, BORROW), test, bool(met)), one, cpu)


def signed(number: int, bits: int) -> int:
    return (number & (1 << bits) - 1 ^ 1 << bits - 1) - (1 << bits - 1)


INSTRUCTIONS = {
    "mov eax, ecx": ("89c8", 32, lambda a, c: c),
    "movzx eax, cl": ("0fb6c1", 32, lambda a, c: c & 0xFF),
    "movsx eax, cl": ("0fbec1", 32, lambda a, c: signed(c, 8)),
    "movsx rax, cl": ("480fbec1", 64, lambda a, c: signed(c, 8)),
    "cdqe": ("4898", 64, lambda a, c: signed(a, 32)),
    "sar al, 2": ("c0f802", 8, lambda a, c: signed(a, 8) >> 2),
    "sar eax, 2": ("c1f802", 32, lambda a, c: signed(a, 32) >> 2),
    "sar eax, 31": ("c1f81f", 32, lambda a, c: signed(a, 32) >> 31),
    "sar rax, 3": ("48c1f803", 64, lambda a, c: signed(a, 64) >> 3),
    "shr al, 2": ("c0e802", 8, lambda a, c: (a & 0xFF) >> 2),
    "shr eax, 2": ("c1e802", 32, lambda a, c: a >> 2),
    "shl al, 3": ("c0e003", 8, lambda a, c: a << 3),
    "shl rax, 3": ("48c1e003", 64, lambda a, c: a << 3),
    "and eax, ecx": ("21c8", 32, lambda a, c: a & c),
    "or al, cl": ("08c8", 8, lambda a, c: a | c),
    "xor eax, ecx": ("31c8", 32, lambda a, c: a ^ c),
    "not eax": ("f7d0", 32, lambda a, c: ~a),
    "add eax, ecx": ("01c8", 32, lambda a, c: a + c),
    "sub eax, 5": ("83e805", 32, lambda a, c: a - 5),
    "inc eax": ("ffc0", 32, lambda a, c: a + 1),
    "bts eax, 4": ("0fbae804", 32, lambda a, c: a | 0x10),
    "btr eax, 4": ("0fbaf004", 32, lambda a, c: a & ~0x10),
}
"""Instruction -> its bytes, how many bits it makes, and what of EAX and ECX."""


@settings(max_examples=1000, deadline=None)
@given(known_numbers(), st.sampled_from(sorted(INSTRUCTIONS)))
def test_instructions(drawn, instruction: str) -> None:
    cpu, ((a, known_a), (c, known_c)) = drawn
    code, bits, makes = INSTRUCTIONS[instruction]
    (fact,) = facts(bytes.fromhex(code), 0x1000, 64).facts
    operation = fact.operation
    given_values = {RAX: known_a, RCX: known_c}
    second = given_values.get(operation.source) if operation.number is None else constant(operation.number)
    made = low(result(operation, given_values[RAX], second, None), bits)
    assert true_of(made, makes(a, c) & (1 << bits) - 1, cpu)
