"""The screen finds every instruction that the decoder knows, and takes for one only what begins where code begins."""

import iced_x86 as iced
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imgcheck.binaries.isa.functions import Boundaries
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.decode import confirm
from imgcheck.binaries.isa.x86.encodings import encodings, needs
from imgcheck.binaries.isa.x86.screen import Candidates, screened
from tests.isa.elves import elf_around

LEADS = [
    b"\xc5", b"\xc4", b"\x62", b"\x8f", b"\x0f", b"\x0f\x38", b"\x0f\x3a", b"\x66\x0f", b"\xf3\x0f", b"\xf2\x0f",
    b"\x66\x0f\x38", b"\x66\x0f\x3a", b"\xf3\x48\x0f", b"\xf2\x0f\x38", b"\x66\xf2\x0f\x38", b"\xf2\x66\x0f\x38",
    b"\x66\x4c\x0f\x38", b"\x48\x0f\xc7", b"\xf0\x48\x0f\xc7", b"\x0f\xc7", b"\x0f\x01", b"\x0f\xae", b"\xf3\x0f\xae",
    b"\xf3\x66\x0f\x38", b"\x67\xc5", b"\x67\x62",
]  # fmt: skip
SECONDS = st.sampled_from([b"\xe2\x7d", b"\xf1\x7c\x48", b"\xf2\x7d\x28", b"\xf3\x7d\x08", b"\xf1\xfd\x58",
                           b"\xf5\x7c\x48",
                           b"\xf6\x7d\x48", b"\xe9\x78", b"\xe8\x78", b"\xfb", b"\xf9", b"\xfd", b""])  # fmt: skip

BEFORE = st.sampled_from([b"", b"\x90", b"\xb8\x00\x00\x00\x66", b"\xb8\x00\x00\x00\xf3", b"\xb8\x00\x00\x00\xf2",
                          b"\xb8\x00\x00\xf2\x66", b"\x48\xc7\xc0\x00\x00\x00\x48"])  # fmt: skip
"""What an operand ends in may look like a prefix."""


def confirmed(code: bytes, bits: int = 64) -> list[frozenset[str]]:
    """What screening and confirming make of `code`, decoded from its first byte."""
    table = encodings(bits)
    layout = Layout(elf_around(code, machine=62 if bits == 64 else 3))
    found = confirm(
        layout, Candidates.joined(screened(layout, table)), Boundaries(layout).functions(), np.array([0]), bits, table
    )
    return [table.sets[number] for number in found.set.tolist()]


def expected(code: bytes, bits: int = 64) -> list[frozenset[str]]:
    """The same from the decoder alone, instruction by instruction."""
    return [needs(i) for i in iced.Decoder(bits, code) if not i.is_invalid and needs(i)]


@pytest.mark.parametrize("bits", [64, 32])
@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(LEADS), SECONDS, st.binary(min_size=8, max_size=12), BEFORE)
@example(b"\xc4", b"\xe2\x7d", b"\x18\xc0" + bytes(6), b"")  # VBROADCASTSS of a register, AVX2, and of memory, AVX
@example(b"\xc4", b"\xe2\x7d", b"\x18\x00" + bytes(6), b"")
@example(b"\x62", b"\xf1\xfd\x48", b"\x73\xd0\x05" + bytes(6), b"")  # VPSRLQ, AVX-512F, beside VPSRLDQ, AVX-512BW
@example(b"\x62", b"\xf1\xfd\x48", b"\x73\xd8\x05" + bytes(6), b"")
@example(b"\x67\x62", b"\xf1\xfd\x58", b"\x73\x10" + bytes(6), b"")
def test_screening_agrees_with_the_decoder(bits: int, lead: bytes, second: bytes, rest: bytes, before: bytes) -> None:
    first = next(iter(iced.Decoder(bits, lead + second + rest)))
    if first.is_invalid:
        return
    code = before + (lead + second + rest)[: first.len] + b"\x90" * 16
    assert confirmed(code, bits) == expected(code, bits)
