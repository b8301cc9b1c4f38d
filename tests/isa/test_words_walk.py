"""What AArch64 and Power instructions do to known numbers, against objdump; and that no code stops the walk."""

import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.conditions import implied
from imgcheck.binaries.isa.engine import analyse_isa
from imgcheck.binaries.isa.names import analysis
from imgcheck.binaries.isa.words.aarch64_walk import AArch64Walk, _bitmask
from imgcheck.binaries.isa.words.ppc64le_walk import Ppc64leWalk, _mask32, _mask64
from imgcheck.binaries.isa.words.walk import Given, Surroundings, Told, Walk
from tests.isa.test_words import ARM, POWER
from tests.tools import compile_c, need, run

NOWHERE = Surroundings(
    called=lambda address, first: None,
    asked=lambda number, first: Told(),
    variable=lambda address, distance, start: None,
    initial=lambda address, size: None,
    pointer=lambda address: None,
    holds=lambda address: False,
    is_data=lambda address: False,
    is_code=lambda address: False,
    table=0,
    words=lambda word: (False, None),
)
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


def test_masks_of_rotations() -> None:
    assert _mask32(8, 8) == 1 << 23
    assert _mask32(24, 31) == 0xFF
    assert _mask32(31, 0) == 0x80000001
    assert _mask64(44, 63) == (1 << 20) - 1
    assert _mask64(0, 3) == 0xF << 60


@pytest.mark.parametrize("machine", WALKS)
@settings(max_examples=60, deadline=None)
@given(words=st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=60))
def test_no_code_stops_the_walk(machine: str, words: list[int]) -> None:
    walk: type[Walk] = WALKS[machine]
    flow = walk(0x1000, words, NOWHERE, Given(), frozenset()).run()
    assert all(0x1000 <= first < end <= 0x1000 + 4 * len(words) for first, end, _ in flow.guarded)


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
