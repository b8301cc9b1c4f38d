"""The loops in C say what a plain definition of each says, and keep within the arrays that they get."""

import os
import subprocess
import sys
from bisect import bisect_left
from pathlib import Path

import iced_x86 as iced
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imgcheck.binaries.isa.x86.encodings import encodings
from imgcheck.binaries.kernels import arrays, x86
from tests.tools import CHECKOUT, cache_directory, need, run

ADDRESS, BYTE = st.integers(-3, 70), st.integers(0, 255)
ADDRESSES = st.lists(ADDRESS, max_size=30)
WIDTHS = st.sampled_from([np.int32, np.int64])
SORTED = st.lists(st.integers(0, 60), max_size=12, unique=True).map(sorted)
CODE = st.binary(min_size=1, max_size=80)
PREFIXES = st.lists(st.sampled_from([b"\x66", b"\xf2", b"\xf3", b"\x67", b"\x2e", b"\x48", b"\x4f"]), max_size=3)
OPCODES = st.sampled_from([b"", b"\x0f", b"\x0f\x38", b"\x0f\x3a", b"\xc5", b"\xc4\xe2", b"\x62\xf1", b"\x8f\xe8",
                           b"\xf6", b"\xf7", b"\xa1", b"\xb8", b"\xc8", b"\xc7", b"\xe8", b"\x0f\x20"])  # fmt: skip


# Lengths


@pytest.mark.parametrize("bits", [64, 32])
@settings(max_examples=3000, deadline=None)
@given(PREFIXES, OPCODES, st.binary(min_size=15, max_size=15))
@example([], b"\x0f\x78", bytes.fromhex("c00102") + bytes(12))  # what 66 and F2 make EXTRQ and INSERTQ of
@example([b"\xf2"], b"\x0f\x78", bytes.fromhex("c00102") + bytes(12))
@example([b"\x67"], b"\xa1", bytes(15))
@example([b"\x66"], b"\xe9", bytes(15))
@example([b"\x48"], b"\xb8", bytes(15))
def test_an_instruction_is_as_long_as_the_decoder_says(bits: int, prefixes: list[bytes], opcode: bytes, rest: bytes):
    code = (b"".join(prefixes) + opcode + rest)[:15]
    instruction = next(iter(iced.Decoder(bits, code)))
    if not instruction.is_invalid:
        assert x86.lengths(code, bits)[0] == len(instruction), code.hex()


@settings(max_examples=300)
@given(CODE, st.sampled_from([32, 64]))
def test_lengths_cover_any_bytes_exactly(code: bytes, bits: int):
    lengths = x86.lengths(code, bits)
    assert sum(lengths) == len(code)
    assert all(1 <= length <= 15 for length in lengths)


@pytest.mark.slow
def test_a_whole_library_is_read_as_the_decoder_reads_it():
    """Each function of a real program, whose bytes no test made up."""
    program = Path(need("git")).read_bytes()
    listing = run(need("objdump"), "-d", "--no-show-raw-insn", "-w", need("git")).stdout
    starts = [int(line.split(":")[0], 16) for line in listing.splitlines() if line.startswith(" ")]
    headers = run(need("readelf"), "-SW", need("git")).stdout
    address, offset, size = next(
        (int(n, 16) for n in line.split(".text")[1].split()[1:4]) for line in headers.splitlines() if " .text " in line
    )
    begin = 0
    ours = set()
    for length in x86.lengths(program[offset : offset + size], 64):
        ours.add(address + begin)
        begin += length
    inside = [start for start in starts if address <= start < address + size]
    assert len(inside) > 100_000
    assert len(ours.symmetric_difference(inside)) < len(inside) / 1000  # data between functions, and bytes behind it


@settings(max_examples=300)
@given(CODE, SORTED, st.sets(st.integers(0, 90), min_size=2, max_size=20).map(sorted), st.integers(0, 40))
def test_instructions_begin_where_reading_a_function_arrives(
    code: bytes, starts: list[int], wanted: list[int], size: int
):
    stops = [start + size for start in starts]
    begun, holders = set(), dict.fromkeys(wanted, -1)
    for number, (start, stop, following) in enumerate(zip(starts, stops, _following(starts), strict=True)):
        stop = min(stop, following, len(code))
        holders |= dict.fromkeys((position for position in wanted if start <= position < stop), number)
        at = start
        while at < stop:
            begun.add(at)
            at += x86.lengths(code[at:], 64)[0]
    reader = x86.Reader(np.array(starts) + 7, np.array(stops) + 7, 64)
    for part in (wanted[:1], wanted[1:]):
        found, function = reader.read(_bytes(code), 7, np.array(part) + 7)
        assert function.tolist() == [holders[position] for position in part]
        assert found.at(np.array(part)).tolist() == [position in begun for position in part]


@settings(max_examples=300)
@given(
    CODE,
    st.lists(st.tuples(ADDRESS, ADDRESS), max_size=8),
    st.lists(st.tuples(ADDRESS, BYTE, BYTE), min_size=1, max_size=20),
)
def test_only_code_is_told_to_hold_instructions(code: bytes, functions: list, asked: list):
    """Whatever is taken for a function, and wherever an instruction is thought to be."""
    starts, ends = (np.array([bound[i] for bound in functions], np.int64) for i in range(2))
    confirmer = x86.Confirmer(encodings(64).screen, np.arange(256) % 2 == 1, starts, ends)
    address, chosen, depth = (np.array([one[i] for one in asked], np.int64) for i in range(3))
    for at in (3, 0):
        columns = address, chosen.astype(np.uint8), chosen % 3 == 0, depth.astype(np.uint8)
        begin, _, _, function = confirmer.of(_bytes(code), at, columns)
        assert all(at <= one < at + len(code) for one in begin.tolist())
        assert all(
            starts[number] <= one < ends[number] for one, number in zip(begin.tolist(), function.tolist(), strict=True)
        )


# Scans


@settings(max_examples=300)
@given(CODE, st.sampled_from([0xFF, 0xFE, 0xC7]), st.integers(0, 255))
def test_bytes_are_found_under_a_mask(code: bytes, mask: int, value: int):
    expected = [i for i, byte in enumerate(code) if byte & mask == value]
    assert arrays.find_bytes(_bytes(code), mask, value).tolist() == expected


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from([b"avx", b"avx2", b" avx", b"vx2", b"sse", b"aaa", b"a\0a", b"\0\0\0"]), unique=True),
    st.lists(st.sampled_from([b"a", b"avx", b"2", b" ", b"sse", b"\0", b"vx"])).map(b"".join),
    st.integers(1, 3),
)
def test_texts_are_found_wherever_they_begin(texts: list[bytes], data: bytes, most: int):
    expected = [[i for i in range(len(data)) if data.startswith(text, i)][:most] for text in texts]
    found = arrays.Texts(texts).find(_bytes(data) if data else np.empty(0, np.uint8), most)
    assert [places.tolist() for places in found] == expected


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4))))
def test_the_first_of_a_kind_is_found_for_each_owner(pairs: list[tuple[int, int]]):
    pairs.sort(key=lambda pair: pair[0])
    owners, kinds = np.array(pairs, int).reshape(-1, 2).T
    assert arrays.first_of_kinds(owners, kinds, 5).tolist() == [i for i, p in enumerate(pairs) if p not in pairs[:i]]


@given(st.lists(st.integers(-1, 12)), st.lists(st.booleans(), max_size=9))
def test_marked_numbers_are_found(numbers: list[int], marks: list[bool]):
    expected = [i for i, number in enumerate(numbers) if 0 <= number < len(marks) and marks[number]]
    assert arrays.marked(np.array(numbers, np.int32), np.array(marks, bool)).tolist() == expected


def _distance(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little", signed=True)


PARTS = [b"\xe8", b"\xe9", b"\x0f\x84", b"\x0f\x05", b"\x05", b"\x0d", b"\x90", b"\0\0\0\0", b"\x10\0\0\0",
         b"\xf0\xff\xff\xff"]  # fmt: skip
SITES = st.lists(st.sampled_from(PARTS), max_size=20).map(b"".join)


@settings(max_examples=300)
@given(SITES)
def test_branches_lead_where_their_operand_says(code: bytes):
    data = code + bytes(x86.PADDING)
    expected = []
    for at, byte in enumerate(code):
        size = 5 if byte & 0xFE == 0xE8 else 6 if byte == 0x0F and data[at + 1] & 0xF0 == 0x80 else 0
        distance = _distance(data, at + size - 4)
        if size and (distance or byte != 0xE8) and 900 <= 1000 + at + size + distance < 1050:
            expected.append((1000 + at, 1000 + at + size + distance, byte))
    found = x86.branches(_bytes(data), 1000, (900, 1050))
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected


@settings(max_examples=300)
@given(SITES, st.sampled_from([32, 64]))
def test_operands_lead_where_their_displacement_says(code: bytes, bits: int):
    data, expected = code + bytes(x86.PADDING), []
    for at, byte in enumerate(code):
        distance = _distance(data, at + 1)
        target = 100 + at + 5 + distance if bits == 64 else distance & 0xFFFFFFFF
        if byte & 0xC7 == 5 and 0 <= target < 150:
            expected.append((100 + at, target))
    sites, targets = x86.operands(_bytes(data), 100, (0, 150), bits)
    assert list(zip(sites.tolist(), targets.tolist(), strict=True)) == expected


# Columns of addresses


@given(SORTED, ADDRESSES, WIDTHS, st.integers(1, 9))
def test_ranges_hold_addresses(starts: list[int], addresses: list[int], kind: type, size: int):
    ends = [min(start + size, following) for start, following in zip(starts, _following(starts), strict=True)]
    expected = [
        next((i for i, (start, end) in enumerate(zip(starts, ends, strict=True)) if start <= a < end), -1)
        for a in addresses
    ]
    assert arrays.holding(np.array(starts), np.array(ends), np.array(addresses, kind)).tolist() == expected


APART = st.one_of(st.integers(0, 90), st.integers(1 << 30, (1 << 30) + 90))
EXTREME = st.sampled_from([-(1 << 63), -(1 << 31), (1 << 31) - 1, (1 << 63) - 1])


@given(st.lists(APART, max_size=40, unique=True).map(sorted), st.lists(st.one_of(APART, EXTREME)), WIDTHS,
       st.integers(1, 20))  # fmt: skip
def test_the_next_number_is_found_where_it_is_close(ordered: list[int], values: list[int], kind: type, reach: int):
    expected = []
    values = [value for value in values if kind is np.int64 or abs(value) < 1 << 31]
    for value in values:
        at = bisect_left(ordered, value)
        expected.append(at if at < len(ordered) and ordered[at] - value < reach else -1)
    assert arrays.Sorted(np.array(ordered, np.int64)).at(np.array(values, kind), reach).tolist() == expected


@given(st.binary(min_size=40, max_size=40), ADDRESSES, WIDTHS, st.integers(-3, 3))
def test_bytes_are_read_inside_ranges_alone(data: bytes, addresses: list[int], kind: type, distance: int):
    ranges = [(10, 20, 5), (30, 55, 15)]
    held = {start + i: data[offset + i] for start, end, offset in ranges for i in range(end - start)}
    expected = [held.get(address + distance, 0) for address in addresses]
    found = arrays.Ranges(_bytes(data), ranges).bytes_at(np.array(addresses, kind), distance)
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("before", "plain", "padded"),
    [
        ("c3", True, True), ("cc", True, True), ("f4", True, True), ("0f0b", True, True), ("eb05", True, True),
        ("e811223344", True, True), ("e911223344", True, True), ("ff1511223344", True, True),
        ("ff2511223344", True, True), ("ff3511223344", False, False), ("c390", False, True), ("c36690", False, True),
        ("c30f1f8000000000", False, True), ("90", False, False), ("4889e5", False, False), ("", False, False),
    ],
)  # fmt: skip
def test_a_function_may_begin_behind_what_ends_one(before: str, plain: bool, padded: bool):
    code = bytes.fromhex(before) + b"\x55\x90"
    area = arrays.Ranges(_bytes(b"\xc3" + code), [(100, 100 + len(code), 1)])  # what stands before it does not count
    for kind in (np.int32, np.int64):
        addresses = np.array([100 + len(before) // 2, 90, 300], kind)
        assert x86.behind_end(area, addresses, padded=False).tolist() == [plain, False, False]
        assert x86.behind_end(area, addresses, padded=True).tolist() == [padded, False, False]


# Graphs

EDGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=30).map(sorted)


@given(EDGES, st.lists(st.integers(0, 9)), st.sets(st.integers(0, 9)))
@example([(0, node, True) for node in range(10)], [0] * 10, set())  # as many roots as nodes, and all of them one
def test_what_edges_lead_to_is_reached(edges: list[tuple[int, int, bool]], roots: list[int], closed: set[int]):
    source, target, counts = (np.array([edge[i] for edge in edges], kind) for i, kind in enumerate((int, int, bool)))
    marks = np.array([node in closed for node in range(10)])
    seen, parent = arrays.Network(source, target, 10).reach(np.array(roots, int), counts, marks)
    edges = [edge for edge in edges if edge[0] not in closed]
    expected, left = set(roots), list(roots)
    while left:
        one = left.pop()
        more = {t for s, t, counted in edges if s == one and counted} - expected
        expected |= more
        left += more
    assert set(np.flatnonzero(seen).tolist()) == expected
    for node, before in enumerate(parent.tolist()):
        assert (before < 0) == (node in roots or node not in expected)
        assert before < 0 or (before, node, True) in edges


@given(EDGES, st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_a_search_goes_on_where_another_ended(edges: list[tuple[int, int, bool]], first: list[int], more: list[int]):
    source, target, early = (np.array([edge[i] for edge in edges], kind) for i, kind in enumerate((int, int, bool)))
    network = arrays.Network(source, target, 10)
    known, _ = network.reach(np.array(first, int), early)
    left = source[~early]
    begin = np.append(left[known[left]], more)
    seen, _ = network.reach(begin.astype(int), known=known)
    assert seen.tolist() == network.reach(np.array([*first, *more], int))[0].tolist()


@given(st.lists(st.integers(0, 9)))
def test_numbers_are_sorted_and_equal_ones_stay_in_order(numbers: list[int]):
    assert arrays.sorted_by(np.array(numbers, int), 10).tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)


# What would lead out of an array


def test_what_lies_outside_is_refused():
    data = np.zeros(64, np.uint8)
    with pytest.raises(ValueError, match="outside of the data"):
        arrays.Ranges(data, [(0, 65, 0)])
    with pytest.raises(ValueError, match="outside of the data"):
        arrays.Ranges(data, [(0, 8, -1)])
    with pytest.raises(ValueError, match="no node"):
        arrays.Network(np.array([0]), np.array([5]), 5)
    with pytest.raises(ValueError, match="no node"):
        arrays.Network(np.array([-1]), np.array([0]), 5)
    with pytest.raises(ValueError, match="too large"):
        arrays.sorted_by(np.array([3]), 3)
    with pytest.raises(ValueError, match="too large"):
        arrays.first_of_kinds(np.array([0]), np.array([3]), 3)
    with pytest.raises(ValueError, match="three bytes"):
        arrays.Texts([b"no"])
    screen = encodings(64).screen
    with pytest.raises(ValueError, match="as many ends"):
        x86.Confirmer(screen, np.zeros(4, bool), np.array([1, 2]), np.array([2]))
    with pytest.raises(ValueError, match="different lengths"):
        columns = np.array([1]), np.zeros(1, np.uint8), np.zeros(2, bool), np.zeros(1, np.uint8)
        x86.Confirmer(screen, np.zeros(4, bool), np.array([0]), np.array([64])).of(data, 0, columns)
    with pytest.raises(TypeError, match="side by side"):
        arrays.find_bytes(data[::2], 0xFF, 0)


_SANITIZED = """
import os, sys
from pathlib import Path
vars(os).pop("RTLD_DEEPBIND", None)  # capstone's way to open its library, which the sanitizer refuses
import imgcheck.binaries.kernels as kernels
kernels.LIBRARY = Path(sys.argv[1])
"""
_TESTS = "import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-m', 'not slow', *sys.argv[2:]]))"
_BEYOND = """
import numpy as np
from imgcheck.binaries.kernels import arrays
data, found = np.zeros(64, np.uint8), np.zeros(99, np.int64)
arrays._find_bytes(data.ctypes.data, 65, 0xFF, 1, found.ctypes.data)
"""


@pytest.mark.slow
def test_the_loops_keep_within_their_arrays():
    """All of this file, and hostile files, with a build that stops at the first byte read or written beside one."""
    folder = cache_directory("sanitized")
    sources = sorted((CHECKOUT / "imgcheck/binaries/kernels").glob("*.c"))
    flags = "-std=c11", "-O1", "-g", "-shared", "-fPIC", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
    run(need("gcc"), *flags, *sources, "-o", folder / "kernels.so")
    runtime = run(need("gcc"), "-print-file-name=libasan.so").stdout.strip()
    environment = os.environ | {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}

    def sanitized(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _SANITIZED + code, folder / "kernels.so", *arguments]
        return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True)

    assert "heap-buffer-overflow" in sanitized(_BEYOND).stderr
    done = sanitized(_TESTS, *(f"tests/isa/test_{name}.py" for name in ("kernels", "screen", "hostile")))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def _following(starts: list[int]) -> list[int]:
    """Where the next one after each starts."""
    return [*starts[1:], 1 << 20][: len(starts)]


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)
