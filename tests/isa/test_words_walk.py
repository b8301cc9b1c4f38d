"""What AArch64 and Power instructions do to known numbers, against objdump; and that no code stops the walk."""

import random
import struct
from pathlib import Path

import capstone
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.conditions import ALWAYS, NEVER, either, having, implied, opposite
from imgcheck.binaries.isa.engine import analyse_isa
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.values import (
    CLEAR,
    EQUAL,
    Comparison,
    Options,
    Value,
    Word,
    alike,
    constant,
    outcome,
    shifted,
    truth,
)
from imgcheck.binaries.isa.words.aarch64_walk import AArch64Walk, _bitmask
from imgcheck.binaries.isa.words.blocks import GOES_ON
from imgcheck.binaries.isa.words.code import Convention
from imgcheck.binaries.isa.words.ppc64le_walk import Ppc64leWalk, _mask32, _mask64
from imgcheck.binaries.isa.words.state import NOTHING, PARAMETER, Flags, Known
from imgcheck.binaries.isa.words.surroundings import Given, Surroundings, Told
from imgcheck.binaries.isa.words.walk import Walk
from tests.isa.test_words import ARM, POWER
from tests.tools import compile_c, need, run

NOWHERE = Surroundings(
    called=lambda address, first: None,
    asked=lambda number, first: Told(),
    variable=lambda address, distance, start: None,
    initial=lambda address, size: None,
    pointer=lambda address: None,
    holds=lambda address: False,
    fixed=lambda address, size: None,
    is_data=lambda address: False,
    is_code=lambda address: False,
    table=0,
    convention=Convention(),
    words=lambda word: (False, None),
    is_sign=None,
    keeps_registers=lambda address: False,
    changed=lambda address: None,
    compares=lambda address: False,
)
DOT = having("asimddp")
NO_DOT = opposite(DOT)
WALKS = {"aarch64": AArch64Walk, "ppc64le": Ppc64leWalk}


def test_masks_of_logical_instructions_are_those_of_objdump(tmp_path: Path) -> None:
    chance = random.Random(1)
    words = [0x12000020 | chance.getrandbits(13) << 10 | chance.getrandbits(1) << 31 for _ in range(400)]
    file = tmp_path / "words"
    file.write_bytes(struct.pack(f"<{len(words)}I", *words))
    lines = run(need("aarch64-linux-gnu-objdump"), "-D", "-b", "binary", "-m", "aarch64", file).stdout.splitlines()
    shown = [line.split("\t")[2:] for line in lines if line.startswith(" ")]
    checked = 0
    for word, parts in zip(words, shown, strict=True):
        if parts[0].strip() == "and":
            assert int(parts[1].rpartition("#")[2], 16) == _bitmask(word, 64 if word >> 31 else 32)
            checked += 1
    assert checked > 50


NOT_FOLLOWED = {
    *("cmp", "cmn", "tst"),  # capstone takes what they compare for written
    *("paciasp", "autiasp", "pacibsp", "autibsp"),  # what they make of the return address does not matter
    *("ldxp", "ldaxp"),
}
UNNAMED = (
    *("ldadd", "ldclr", "ldeor", "ldset", "ldsmax", "ldsmin", "ldumax", "ldumin", "swp", "cas"),
    *("cntb", "cntd", "cnth", "cntw", "rdvl", "addvl", "addpl", "incb", "incd", "inch", "incw"),
)
"""Of these capstone does not name the register that they write to, of atomics the one that gets the old value."""


def test_instructions_write_to_the_registers_that_capstone_names() -> None:
    library = Path("/usr/aarch64-linux-gnu/lib/libc.so.6")
    assert library.exists() or need("aarch64-linux-gnu-gcc")
    words = _words_of(library)
    decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    decoder.detail = True
    checked = 0
    for word in random.Random(2).sample(words, 6000):
        instruction = next(decoder.disasm(struct.pack("<I", word), 0x1000), None)
        calls = word & 0xFC000000 == 0x94000000 or word & 0xFE000000 == 0xD6000000
        if not instruction or calls or instruction.mnemonic in NOT_FOLLOWED or instruction.mnemonic.startswith(UNNAMED):
            continue
        if AArch64Walk.ending(word, 0x1000).kind != GOES_ON:
            continue
        names = {instruction.reg_name(register) for register in instruction.regs_access()[1]}
        expected = {number for number in range(31) if {f"x{number}", f"w{number}", _OTHER.get(number)} & names}
        assert _written(word) == expected, (hex(word), instruction.mnemonic, instruction.op_str)
        checked += 1
    assert checked > 3000


WRITE_FLAGS = {
    "aarch64": (
        0,
        {"fcmp": 0x1E612000, "fccmp": 0x1E610400, "adcs": 0xBA000000, "msr": 0xD51B4200, "ptest": 0x2550C000},
    ),
    "ppc64le": (6, {"fcmpu": 0xFF011000, "xscmpudp": 0xF3000118, "vcmpequb.": 0x10000406}),
}


@pytest.mark.parametrize(
    ("machine", "field", "word"),
    [(machine, field, word) for machine, (field, words) in WRITE_FLAGS.items() for word in words.values()],
)
def test_nothing_is_known_of_flags_that_something_else_sets(machine: str, field: int, word: int) -> None:
    walk = WALKS[machine](0x1000, [word], NOWHERE, Given(), frozenset())
    walk.state.flags[field] = Flags(True, lambda condition: None)
    walk.step(word)
    assert not walk.state.flags


_OTHER = {29: "fp", 30: "lr"}


def _words_of(path: Path) -> list[int]:
    areas = Layout(Elf(path.read_bytes())).areas
    text = next(area for area in areas if area.name == ".text")
    return sorted(set(text.data[: len(text.data) & ~3].view("<u4").tolist()))


def _written(word: int) -> set[int]:
    """The general registers of which something else is known after an instruction."""
    walk = AArch64Walk(0x1000, [word], NOWHERE, Given(), frozenset())
    marks = {number: Word((), number + 1) for number in range(31)}
    walk.state.values |= marks
    walk.step(word)
    return {number for number, mark in marks.items() if walk.state.values.get(number) is not mark}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param((0x06000001, 0x38800002), 0x10002, id="pli r4,65538"),
        pytest.param((0x0603FFFF, 0x3880FFFE), (1 << 64) - 2, id="pli r4,-2"),
        pytest.param((0x06100000, 0x38800010), 0x1010, id="pla r4,16"),
        pytest.param((0x04100001, 0xE4800000), None, id="pld r4,65536"),
        pytest.param((0x04000001, 0xE4A30000), 7, id="pld r5,65536(r3)"),
        pytest.param((0x06000000, 0x90830008), 7, id="pstw r4,8(r3)"),
    ],
)
def test_prefixed_instructions_write_to_their_target_alone(words: tuple[int, int], expected: int | None) -> None:
    walk = Ppc64leWalk(0x1000, list(words), NOWHERE, Given(), frozenset())
    walk.state.values[4] = constant(7)
    for walk.site, word in zip((0x1000, 0x1004), words, strict=True):
        walk.step(word)
    found = walk.state.values.get(4)
    assert (found and found.constant) == expected


@pytest.mark.parametrize(
    ("between", "copied"),
    [(0xD503201F, True), (0x4EA21C40, False), (0x4C407020, False)],
    ids=["nop", "mov v0.16b, v2.16b", "ld1 {v0.16b}, [x1]"],
)
def test_a_vector_register_copies_what_it_was_loaded_with_alone(between: int, copied: bool) -> None:
    words = [0x3DC00020, between, 0x3D800040]  # ldr q0, [x1]; str q0, [x2]
    walk = AArch64Walk(0x1000, words, NOWHERE, Given(objects={1: {8: (True, Word((), 5))}}), frozenset())
    for word in words:
        walk.step(word)
    assert walk.known((PARAMETER + 2, 8)) == ((True, Word((), 5)) if copied else (False, None))


@pytest.mark.parametrize("operation", [122, 252, 378, 506, 538, 570, 187, 476, 539, 890])
def test_counts_shifts_and_permutations_write_to_the_second_register_named(operation: int) -> None:
    word = 31 << 26 | 3 << 21 | 4 << 16 | operation << 1  # popcntd r4, r3 and its like
    walk = Ppc64leWalk(0x1000, [word], NOWHERE, Given({0: (True, None), 1: (False, constant(7))}), frozenset())
    walk.step(word)
    assert (walk.known(3), walk.known(4)) == ((True, None), (True, None))


def test_masks_of_rotations() -> None:
    assert _mask32(8, 8) == 1 << 23
    assert _mask32(24, 31) == 0xFF
    assert _mask32(31, 0) == 0x80000001
    assert _mask64(44, 63) == (1 << 20) - 1
    assert _mask64(0, 3) == 0xF << 60


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(Word(((23, DOT, NO_DOT),), 0), truth(NO_DOT, DOT), id="a bit"),
        pytest.param(truth(DOT, NO_DOT), truth(NO_DOT, DOT), id="a number"),
        pytest.param(None, truth(ALWAYS, ALWAYS), id="anything"),
    ],
)
@pytest.mark.parametrize("words", [(0x7C630034, 0x5463D97E), (0x7C630074, 0x7863D182)], ids=["cntlzw", "cntlzd"])
def test_a_count_of_leading_zeros_tells_whether_there_is_anything_else(
    words: tuple[int, int], value: Value, expected: Value
) -> None:
    """Shifted by all but its highest bit: so compilers write `!x` and `x == y`."""
    walk = Ppc64leWalk(0x1000, list(words), NOWHERE, Given({0: (value is not None, value)}), frozenset())
    for word in words:
        walk.step(word)
    found = walk.state.values[3]
    assert alike(found, expected)


_FIRST, _SECOND = 0x0123456789ABCDEF, 0xFEDCBA9876543210


@pytest.mark.parametrize(
    ("machine", "word", "expected"),
    [
        pytest.param("aarch64", 0x93C03020, 0x2100123456789ABC, id="extr x0, x1, x0, 12"),
        pytest.param("aarch64", 0x13811020, 0x07654321, id="ror w0, w1, 4"),
        pytest.param("aarch64", 0xB3780C20, 0x0123456789ABC0EF, id="bfi x0, x1, 8, 4"),
        pytest.param("aarch64", 0xB3482C20, 0x0123456789ABCDE2, id="bfxil x0, x1, 8, 4"),
        pytest.param("aarch64", 0x33040C20, 0x09ABCDEF, id="bfi w0, w1, 28, 4"),
        pytest.param("aarch64", 0xB37C1FE0, 0x0123456789ABC00F, id="bfc x0, 4, 8"),
        pytest.param("ppc64le", 0x5083442E, 0x0123456789AB10EF, id="rlwimi r3, r4, 8, 16, 23"),
        pytest.param("ppc64le", 0x50830706, None, id="rlwimi r3, r4, 0, 28, 3"),
        pytest.param("ppc64le", 0x7883000E, 0x7654321089ABCDEF, id="rldimi r3, r4, 32, 0"),
        pytest.param("ppc64le", 0x7883262C, 0x0123456789ABCD0F, id="rldimi r3, r4, 4, 56"),
    ],
)
def test_what_is_put_into_a_register_beside_what_is_there(machine: str, word: int, expected: int | None) -> None:
    handed = Given({0: (False, constant(_FIRST)), 1: (True, constant(_SECOND))})
    walk = WALKS[machine](0x1000, [word], NOWHERE, handed, frozenset())
    walk.step(word)
    told, value = walk.known(walk.first)
    assert (told, value and value.constant) == (word != 0xB37C1FE0, expected)


@pytest.mark.parametrize("bits", ["cmp x1, x0", "cmpld r4, r3"])
def test_a_number_is_compared_with_what_the_cpu_told(bits: str) -> None:
    """As well as the other way around: a level of 2 is above, at or below a number in the first of two registers."""
    machine, word = ("aarch64", 0xEB00003F) if "x" in bits else ("ppc64le", 0x7C241840)
    for number, (below, equal, above) in {
        1: (DOT, NEVER, NO_DOT),
        2: (NEVER, DOT, NO_DOT),
        0: (DOT, NO_DOT, NEVER),
    }.items():
        level = True, Options(((0, NO_DOT), (2, DOT)))
        walk = WALKS[machine](0x1000, [word], NOWHERE, Given({0: level, 1: (False, constant(number))}), frozenset())
        walk.step(word)
        labels = walk.state.flags[0].labels
        lower, same, higher = (3, 0, 8) if machine == "aarch64" else (0, 2, 1)
        assert [labels(lower), labels(same), labels(higher)] == [
            (below, either(equal, above)),
            (equal, either(below, above)),
            (above, either(below, equal)),
        ]


def test_an_ordered_load_is_no_exchange() -> None:
    word = 0xF8BFC020  # ldapr x0, [x1]
    known = True, Word(((4, DOT, NO_DOT),), 0)
    walk = AArch64Walk(0x1000, [word], NOWHERE, Given(objects={1: {0: known}}), frozenset())
    walk.step(word)
    assert (walk.known(0), walk.known((PARAMETER + 1, 0))) == (known, known)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("aarch64", (0x39000041, 0x39000443, 0x79400040)),  # strb w1, [x2]; strb w3, [x2, 1]; ldrh w0, [x2]
        ("ppc64le", (0x98850000, 0x98C50001, 0xA0650000)),  # stb r4, 0(r5); stb r6, 1(r5); lhz r3, 0(r5)
    ],
)
@pytest.mark.parametrize("first", [(True, truth(NO_DOT, DOT)), (False, constant(0)), NOTHING])
def test_what_was_stored_in_parts_is_loaded_as_a_whole(machine: str, words: tuple[int, ...], first: Known) -> None:
    second = True, truth(DOT, NO_DOT)
    walk = WALKS[machine](0x1000, list(words), NOWHERE, Given({1: first, 3: second}), frozenset())
    for word in words:
        walk.step(word)
    told, value = walk.known(walk.first)
    assert told
    assert alike(shifted(value, -8, 64), second[1])
    assert outcome(Comparison(value, 0, 8, CLEAR), EQUAL) == (
        first[1] and outcome(Comparison(first[1], 0, 8, CLEAR), EQUAL)
    )


@pytest.mark.parametrize("machine", WALKS)
@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=60))
def test_no_code_stops_the_walk(machine: str, words: list[int]) -> None:
    walk: type[Walk] = WALKS[machine]
    flow = walk(0x1000, words, NOWHERE, Given(), frozenset()).run()
    assert all(0x1000 <= first < end <= 0x1000 + 4 * len(words) for first, end, _ in flow.guarded)


@pytest.mark.parametrize("machine", WALKS)
@pytest.mark.parametrize(
    "known", [(True, Word(((5, DOT, NO_DOT),), 0xFF)), (True, truth(DOT, NO_DOT)), (False, constant(7))]
)
def test_no_word_stops_the_walk_whatever_is_known(machine: str, known: Known) -> None:
    """Whatever the upper bits say, with all, none and some of the others; reserved encodings are among these."""
    chance = random.Random(3)
    lower = [[0, (1 << 21) - 1, chance.getrandbits(21), chance.getrandbits(21) | 0xFC00] for _ in range(1 << 11)]
    handed = Given(dict.fromkeys(range(8), known), {1: {0: known, 8: known}})
    walk = WALKS[machine](0x1000, [0x60000000] * 2, NOWHERE, handed, frozenset())
    first = walk.state.copy()
    for number, rest in enumerate(lower):
        for word in (number << 21 | each for each in rest):
            walk.state = first.copy()
            walk.step(word)
            walk.test(word)


@pytest.mark.parametrize(
    ("word", "written"),
    [
        pytest.param(0x1200FC00, 0, id="and w0, w0, ones of no size"),
        pytest.param(0x12407C01, 1, id="and w1, w0, 0xffffffff with N"),
        pytest.param(0x133F0001, 1, id="sbfm w1, w0, 63, 0"),
        pytest.param(0x53007C01 | 1 << 22, 1, id="ubfm w1, w0, 0, 31 with N"),
    ],
)
def test_what_a_reserved_word_would_write_to_is_not_known(word: int, written: int) -> None:
    known = True, Word(((4, DOT, NO_DOT),), 0)
    walk = AArch64Walk(0x1000, [word], NOWHERE, Given({0: known, 1: known}), frozenset())
    walk.step(word)
    assert walk.known(written) == (False, None)


@pytest.mark.parametrize("compiler", [ARM, POWER])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_damaged_code_is_judged(compiler: str, data: st.DataObject) -> None:
    source = "#include <sys/auxv.h>\nint f(void) { return getauxval(16) & 256 ? getauxval(26) & 8 : 3; }\n"
    code = bytearray(compile_c(source, "-O2", "-shared", "-fPIC", out="lib.so", compiler=compiler).read_bytes())
    for _ in range(40):
        code[data.draw(st.integers(0x40, len(code) - 1))] = data.draw(st.integers(0, 255))
    analyse_isa(Elf(bytes(code)))


@pytest.mark.parametrize("machine", WALKS)
def test_what_is_implied_is_a_feature_that_some_bit_tells(machine: str) -> None:
    rules = analysis()[machine]
    told = {name for place in rules["bits"].values() for name in place.values()}
    for feature, others in rules["implies"].items():
        assert {feature, *others} <= told
        assert set(others) <= implied(feature)
