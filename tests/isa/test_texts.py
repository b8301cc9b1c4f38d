"""Comparing names of levels tells which CPUs have chosen them; what is no text, or of no known length, tells none."""

import pytest

from imgcheck.binaries.isa.conditions import having, opposite
from imgcheck.binaries.isa.values import Options, Value, constant
from imgcheck.binaries.isa.x86.texts import compared_texts

NAMES = {0x1000: b"avx512\0", 0x1010: b"avx2\0", 0x1020: b"SSE2\0", 0x1030: b"sse2\0", 0x1040: b"x" * 80}
WIDE, NARROW = having("avx2"), opposite(having("avx2"))
LEVEL = Options(((0x1010, WIDE), (0x1020, NARROW)))


def initial(address: int, size: int) -> Value:
    """What lies in a file that has nothing but the names."""
    for start, text in NAMES.items():
        if start <= address < start + len(text) and size == 1:
            return constant(text[address - start])
    return None


@pytest.mark.parametrize(
    ("function", "other", "length", "same"),
    [
        ("strcmp", 0x1010, None, WIDE),
        ("strcmp", 0x1030, None, NARROW),
        ("strcmp", 0x1000, None, None),
        ("strncmp", 0x1000, 3, WIDE),
        ("strncasecmp", 0x1030, 1 << 63, NARROW),
    ],
)
def test_a_name_tells_who_has_chosen_it(function: str, other: int, length: int | None, same: object) -> None:
    found = compared_texts(function, (LEVEL, constant(other), None if length is None else constant(length)), initial)
    assert isinstance(found, Options)
    assert dict(found.numbers).get(0) == same


@pytest.mark.parametrize(
    ("function", "one", "length"),
    [
        ("strncmp", LEVEL, None),
        ("strstr", LEVEL, None),
        ("strcmp", None, None),
        ("strcmp", Options(((0x1010, WIDE), (0, NARROW))), None),
        ("strcmp", Options(((0x1010, WIDE), (0x1040, NARROW))), None),
        ("strcmp", constant((1 << 64) - 1), None),
    ],
    ids=["no length", "another function", "nothing known", "no text", "too long", "absurd"],
)
def test_what_is_not_known_tells_nothing(function: str, one: Value, length: Value) -> None:
    assert compared_texts(function, (one, constant(0x1010), length), initial) is None
