"""The screen finds every instruction that the decoder knows, and takes for one only what begins where code begins."""

import time

import iced_x86 as iced
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imgcheck.binaries.isa.functions import Boundaries
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.isa.x86.decode import confirm
from imgcheck.binaries.isa.x86.encodings import BASELINE, PACKED, encodings, needs
from imgcheck.binaries.isa.x86.screen import Candidates, screened
from tests.isa.elves import BASE, elf_around

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
    found = confirm(layout, Boundaries(layout).functions(), table, screened(layout, table))
    return [table.sets[number] for part in found for number in part.set.tolist()]


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


INSTRUCTIONS = [
    "0f58c1", "0f28c1", "660f28c1", "660fefc0", "660f58c1", "f20f58c1", "f30f58c1", "f30f6f00", "0f10c1",  # SSE, SSE2
    "660f3800c1", "0f3800c1", "660f3a0fc108", "660f3840c1", "f3480fb8c1", "f20f38f0c1", "0fc7f0",  # beyond them
    "c5f858c1", "c5fc58c1", "c4e27d18c0", "62f17c4858c1", "0fa2", "90", "c3", "89c8",
    "b800000066", "b8000000f3", "b8000000f2", "b80000660f", "66b80066", "b80f58c100", "c7050f58c100c5f85866",
]  # fmt: skip
"""Some end in what may look like a prefix of the next one, and some hold what looks like another one."""
CODE = st.lists(st.sampled_from(INSTRUCTIONS), max_size=60).map("".join).map(bytes.fromhex)


@settings(max_examples=600, deadline=None)
@given(CODE, st.integers(1, 40))
def test_of_the_baseline_a_function_keeps_the_first_and_of_all_else_each(code: bytes, piece: int) -> None:
    table, layout = encodings(64), Layout(elf_around(code + b"\x90" * 16))
    candidates = Candidates.joined(screened(layout, table))
    pieces = [candidates.take(range(i, min(i + piece, len(candidates)))) for i in range(0, len(candidates), piece)]
    found = [
        (address, table.sets[number])
        for part in confirm(layout, Boundaries(layout).functions(), table, pieces)
        for address, number in zip(part.address.tolist(), part.set.tolist(), strict=True)
    ]
    wanted, seen = [], set()
    for instruction in iced.Decoder(64, code, ip=BASE):
        needed = needs(instruction)
        if needed and (needed not in seen or not needed <= {*BASELINE, PACKED}):
            wanted.append((instruction.ip, needed))
        seen.add(needed)
    assert found == wanted


def test_a_function_of_any_length_is_read_once() -> None:
    table = encodings(64)

    def seconds(size: int) -> float:
        layout = Layout(elf_around(bytes.fromhex("0f58c189c8c5f858c1660f3800c1") * (size // 14) + b"\xc3" * 16))
        functions, pieces = Boundaries(layout).functions(), list(screened(layout, table))
        began = time.process_time()
        assert sum(len(part.set) for part in confirm(layout, functions, table, pieces)) > size // 14
        return time.process_time() - began

    seconds(1 << 20)
    assert seconds(48 << 20) < 30 * max(seconds(4 << 20), 0.01)
