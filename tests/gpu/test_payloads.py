"""What of a file is held in memory: the same answers without the packed GPU code that nobody reads."""

import random
import struct
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgcheck.binaries.gpu.engine import read_gpu
from imgcheck.binaries.gpu.payloads import WHOLE, Payloads
from tests.gpu_files import container, entry

PTX, CUBIN = 1, 2
LARGE = 4 * WHOLE


def held(data: bytes, cuts: Sequence[int] | None = None) -> tuple[bytes, int]:
    """The file as it is held, with zeros for what is not, and the bytes kept.

    It comes in pieces that end at `cuts`, or in small ones.
    """
    memory, at, kept = bytearray(len(data)), 0, 0
    payloads = Payloads(len(data), lambda size, offset: bytes(memory[offset : offset + size]))
    cuts = range(0, len(data), 1000) if cuts is None else cuts
    bounds = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for first, last in pairwise(bounds):
        for part, wanted in payloads.parts(memoryview(data)[first:last]):
            if wanted:
                memory[at : at + len(part)] = part
                kept += len(part)
            at += len(part)
    assert at == len(data)
    return bytes(memory), kept


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def test_large_payloads_are_left_out_and_all_else_is_kept() -> None:
    front, back = noise(1000), noise(5000, 2)
    small, large = noise(WHOLE, 3), noise(LARGE, 4)
    fatbin = container(entry(CUBIN, 70, large), entry(CUBIN, 80, small), entry(PTX, 80, large))
    data = front + fatbin + back
    memory, kept = held(data)
    assert memory.startswith(front) and memory.endswith(back) and small in memory
    assert kept < len(front) + WHOLE + len(back) + 3 * 8192
    assert read_gpu(memoryview(memory[1000:]), None) == read_gpu(memoryview(data[1000:]), None)


def test_containers_are_followed_over_the_zeros_between_them() -> None:
    data = b"".join(container(entry(CUBIN, 70, noise(LARGE + i))) + bytes(8 * i) for i in range(5))
    assert held(data)[1] < 5 * 8192


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param((0, "<I", 0), id="no magic"),
        pytest.param((4, "<H", 2), id="unknown version"),
        pytest.param((6, "<H", 4), id="header shorter than itself"),
        pytest.param((8, "<Q", 1 << 40), id="container longer than the file"),
        pytest.param((16, "<H", 3), id="unknown kind"),
        pytest.param((20, "<I", 8), id="entry's header shorter than itself"),
        pytest.param((20, "<I", 1 << 20), id="entry's header of a megabyte"),
        pytest.param((24, "<Q", 2 * LARGE), id="payload longer than its container"),
    ],
)
def test_what_is_no_sound_container_is_kept_whole(harm: tuple[int, str, int]) -> None:
    data = bytearray(container(entry(CUBIN, 70, noise(LARGE))))
    assert held(bytes(data))[1] < len(data)
    at, form, value = harm
    struct.pack_into(form, data, at, value)
    assert held(bytes(data)) == (bytes(data), len(data))


def test_a_magic_that_is_not_aligned_is_none() -> None:
    data = b"1234" + container(entry(CUBIN, 70, noise(LARGE)))
    assert held(data)[1] == len(data)


def test_empty_containers_by_the_million_are_followed_no_further_than_the_walk_goes() -> None:
    empty = container() * ((1 << 20) + 8)
    data = empty + container(entry(CUBIN, 70, noise(LARGE)))
    assert held(data)[1] == len(data)


parts = st.lists(
    st.one_of(
        st.builds(noise, st.integers(0, 300), st.integers(0, 9)),
        st.builds(
            lambda sizes: container(*(entry(CUBIN, 70 + i, noise(size, i)) for i, size in enumerate(sizes))),
            st.lists(st.sampled_from([0, 5, 3000, WHOLE, WHOLE + 1, LARGE]), max_size=3),
        ),
        st.just(b"\x50\xed\x55\xba"),
    ),
    max_size=5,
)


@settings(deadline=None)
@given(parts, st.lists(st.integers(0, 1 << 20), max_size=8))
def test_however_it_comes_the_answer_is_the_same(pieces: list[bytes], cuts: list[int]) -> None:
    data = container(entry(PTX, 60)) + b"".join(piece + bytes(-len(piece) % 8) for piece in pieces)
    memory, _ = held(data, cuts)
    assert memory == held(data)[0]
    assert read_gpu(memoryview(memory), None) == read_gpu(memoryview(data), None)
    assert all(a in (0, b) for a, b in zip(memory, data, strict=True))
