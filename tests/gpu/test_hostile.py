"""Files made to break the parsers: damaged anywhere, absurd counts, and data that unpacks to gigabytes."""

import contextlib
import struct
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgcheck.binaries.analyse import analyse
from imgcheck.binaries.elf import Elf
from imgcheck.binaries.gpu import fatbin, hip
from imgcheck.binaries.gpu.engine import read_gpu
from imgcheck.documents.facts import GpuCode
from imgcheck.errors import ElfError
from tests.gpu_files import container, entry
from tests.isa.elves import with_headers
from tests.tools import compile_c

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_TRIPLE = b"hipv4-amdgcn-amd-amdhsa--gfx90a"


def bundle(count: int = 1, length: int = len(_TRIPLE)) -> bytes:
    return _BUNDLE + struct.pack("<QQQQ", count, 0, 0, length) + _TRIPLE


def _array(name: str, section: str, data: bytes) -> str:
    values = ",".join(map(str, data))
    return f'__attribute__((section("{section}"), used, aligned(8))) const unsigned char {name}[] = {{{values}}};\n'


def everything() -> bytes:
    """A library that holds something for every parser."""
    source = (
        _array("fatbin", ".nv_fatbin", container(entry(2, 70), entry(1, 70), entry(0x100, 0, header=216)))
        + _array("relocatable", "__nv_relfatbin", container(entry(0x40, 80)))
        + _array("amd", ".hip_fatbin", bundle())
        + _array("compat", ".nv.compat", b"\x02\x09\x01")
        + _array("tools", ".note.nv.tkinfo", b"Cuda compilation tools, release 13.0, V13.0.88")
        + _array("note", ".note.cuda.fwd_compatibility", b'{"CUDA version": "12.9", "driver": [535]}')
        + 'const char *torch = "sm_50 sm_90", *nccl = "NCCL version 2.21.5+cuda12.4";\n'
    )
    flags = ("-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libtorch_python.so")
    return compile_c(source, *flags, out="libtorch_python.so").read_bytes()


def read(data: bytes) -> GpuCode | None:
    try:
        return read_gpu(memoryview(data), Elf(data))
    except ElfError:
        return None


def test_the_undamaged_file_holds_something_for_every_parser() -> None:
    found = read(everything())
    assert found is not None
    assert found.modules[0].sass == ("70",)
    assert (found.amd, found.libraries, found.built_for) == (("gfx90a",), ("NCCL 2.21.5+cuda12.4",), ("5.0", "9.0"))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=16)), min_size=1, max_size=8))
def test_damage_anywhere_in_a_library(damage: list[tuple[int, bytes]]) -> None:
    data = bytearray(everything())
    size = len(data)
    for at, noise in damage:
        data[at % size : at % size + len(noise)] = noise
    read(bytes(data[:size]))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 255), st.binary(min_size=4, max_size=4), st.integers(0, 1 << 20), st.binary(max_size=16))
def test_damage_anywhere_in_a_cubin(abi: int, flags: bytes, at: int, noise: bytes) -> None:
    data = bytearray(everything())
    size = len(data)
    at %= size
    data[at : at + len(noise)] = noise
    data[8:9], data[18:20], data[48:52] = bytes([abi]), struct.pack("<H", 190), flags
    found = read(bytes(data[:size]))
    assert found is None or found.modules[0].count == 1


@pytest.mark.parametrize("damaged", [bundle(count=1 << 63), bundle(length=1 << 63), bundle(count=0), _BUNDLE])
def test_absurd_hip_bundles(damaged: bytes) -> None:
    started = time.process_time()
    assert hip.bundle_targets(memoryview(damaged)) <= {"gfx90a"}
    assert time.process_time() - started < 1


@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_a_hip_bundle_that_unpacks_to_a_quarter_of_a_gigabyte(method: str) -> None:
    import zlib

    import zstandard

    plain = bundle() + bytes(1 << 28)
    squeezed = zlib.compress(plain, 1) if method == "zlib" else zstandard.compress(plain)
    packed = b"CCOB" + struct.pack("<HHQQQ", 3, method == "zstd", 0, 0, 0) + squeezed
    del plain
    started = time.process_time()
    assert hip.bundle_targets(memoryview(packed)) == {"gfx90a"}
    assert time.process_time() - started < 1


@pytest.mark.parametrize("filler", [b"/" * 4000, b"//\n" * 1300, b"\n" * 4000, b" " * 4000])
def test_ptx_whose_head_never_ends_is_read_in_no_time(filler: bytes) -> None:
    started = time.process_time()
    read_gpu(memoryview(b".version 1.0\n" + filler + b"x .target sm_\n"), None)
    assert time.process_time() - started < 2


def timed(read: Callable[[], object]) -> float:
    started = time.process_time()
    with contextlib.suppress(ElfError):
        read()
    return time.process_time() - started


def test_a_hundred_thousand_bundles_that_are_none() -> None:
    area = memoryview(struct.pack("<4sHH", b"CCOB", 1, 0) * 300_000)
    assert timed(lambda: hip.bundle_targets(area)) < 5


def test_containers_that_are_none_are_looked_at_once() -> None:
    area = memoryview(struct.pack("<IHHQ8x", 0xBA55ED50, 2, 16, 8) * 200_000)
    assert timed(lambda: list(fatbin.containers(area, pure=True))) < 5


def test_a_thousand_headers_of_one_section_are_read_once() -> None:
    names = b"\0.hip_fatbin\0.shstrtab\0"
    bundles = bundle() * 4000
    sections = [section(1, 64, len(bundles))] * 1000
    data = around_sections(bundles, names, [*sections, section(13, 64 + len(bundles), len(names), kind=3)])
    assert timed(lambda: read(data)) < 5
    assert read(data).amd == ("gfx90a",)


def test_names_of_sections_that_never_end() -> None:
    """As many headers as names in one table without an end: each name is cut, so that they take little memory."""
    names = b"n" * 1_000_000
    data = around_sections(b"", names, [section(k, 0, 0) for k in range(600)] + [section(0, 64, len(names), kind=3)])
    assert sum(len(each.name) for each in Elf(data).sections) < 1_000_000


def section(name: int, offset: int, size: int, kind: int = 1) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 1, 0)


def around_sections(data: bytes, names: bytes, headers: list[bytes]) -> bytes:
    """A library with `data` behind its header, then the names of sections, and their headers."""
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    at, count = 64 + len(data) + len(names), len(headers)
    header = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at, 0, 64, 56, 0, 64, count, count - 1)
    return ident + header + data + names + b"".join(headers)


def test_very_many_wrappers_and_areas_are_looked_up_and_not_compared() -> None:
    count = 8000
    place = 24 * count
    linked = b"".join(struct.pack("<IIQQ", 0x466243B1, 2, 0x100000 + place + 8 * i, 0) for i in range(count))
    headers = [(".nvFatBinSegment", 1, 2, 0, 0, place, 0), ("__nv_relfatbin", 1, 2, 0, place, 16, 0)]
    headers += [(".nv_fatbin", 1, 2, 0, place + 16 * i, 8, 0) for i in range(count)]
    library = with_headers(linked + bytes(16 * count), headers, loaded=0x100000)
    assert timed(lambda: read_gpu(memoryview(library), Elf(library))) < 2


def test_very_many_headers_of_the_same_constants_are_read_once() -> None:
    data = b"x" * (2 << 20)
    library = with_headers(data, [(".rodata", 1, 2, 0, 0, len(data), 0)] * 4000)
    assert timed(lambda: analyse(memoryview(library))) < 4
