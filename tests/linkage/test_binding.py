"""The dynamic symbols that a file gives, and those that it asks for at load and at the first call."""

import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.linkage.binding import hashes_of, read_symbols
from imgcheck.documents.facts import Symbols
from imgcheck.errors import ElfError
from tests.linkage.test_against_pyelftools import FILES
from tests.linkage.test_read import build

ASKING = """
    extern int counter, weak_counter __attribute__((weak)), unused;
    void called(void), weakly(void) __attribute__((weak)), addressed(void), elsewhere(void);
    int own = 1;
    static int hidden_here = 2;
    void (*table[])(void) = {addressed};
    int give(void) { called(); if (weakly) weakly(); return counter + (&weak_counter != 0) + hidden_here; }
    void __attribute__((visibility("hidden"))) kept(void) { elsewhere(); }
"""


R_X86_64_COPY = 5


def read(path: Path) -> Symbols:
    symbols = read_symbols(Elf(path.read_bytes()))
    assert symbols is not None
    return symbols


def hashed(name: bytes) -> int:
    value = 0
    for at in range(0, len(name) + 1, 8):
        word = int.from_bytes(name[at : at + 8], "little")
        value = (value ^ word) * 0x9E3779B97F4A7C15 % (1 << 64)
        value ^= value >> 32
    return value % (1 << 32)


def given_by(symbols: Symbols) -> set[int]:
    return {value for (value,) in struct.iter_unpack("<I", symbols.defined)}


def names(joined: bytes) -> list[str]:
    return [name.decode() for name in joined.split(b"\0") if name]


@given(st.lists(st.binary(max_size=300).map(lambda name: name.replace(b"\0", b"")), max_size=30))
def test_names_are_hashed(these: list[bytes]) -> None:
    assert hashes_of(these).tolist() == [hashed(name) for name in these]


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
@pytest.mark.parametrize("prefix", ["", "i686-linux-gnu-", "aarch64-linux-gnu-", "powerpc64le-linux-gnu-"])
def test_what_a_library_gives_and_asks_for(tmp_path: Path, prefix: str, style: str) -> None:
    flags = ["-shared", "-fPIC", f"-Wl,--hash-style={style}", "-Wl,-z,lazy"]
    symbols = read(build(tmp_path / "x.so", ASKING, *flags, compiler=f"{prefix}gcc"))
    assert {hashed(name) for name in (b"own", b"table", b"give")} <= given_by(symbols)
    others = (b"hidden_here", b"kept", b"counter", b"called", b"weakly")
    assert given_by(symbols).isdisjoint(map(hashed, others))
    assert set(names(symbols.at_load)) >= {"counter", "addressed"}
    assert {*names(symbols.at_call)} & {"called", "elsewhere"} == {"called", "elsewhere"}
    assert {"weakly", "weak_counter", "unused", "own"}.isdisjoint(names(symbols.at_load) + names(symbols.at_call))


def test_a_function_whose_address_is_taken_is_sought_at_load_alone(tmp_path: Path) -> None:
    code = "void both(void); void (*kept)(void) = both; void f(void) { both(); }"
    symbols = read(build(tmp_path / "x.so", code, "-shared", "-fPIC", "-Wl,-z,lazy"))
    assert names(symbols.at_load) == ["both"]
    assert names(symbols.at_call) == []


def test_names_come_in_the_order_in_which_the_loader_asks_for_them(tmp_path: Path) -> None:
    code = "extern int b, a, c; int *kept[] = {&c, &a, &b};"
    symbols = read(build(tmp_path / "x.so", code, "-shared", "-fPIC"))
    assert names(symbols.at_load) == ["c", "a", "b"]


def test_what_a_program_copies_from_a_library_is_not_its_own(tmp_path: Path) -> None:
    library = build(tmp_path / "libx.so", "int copied = 1;", "-shared", "-fPIC")
    code = "extern int copied; int main(void) { return copied; }"
    symbols = read(build(tmp_path / "x", code, "-no-pie", "-fno-pie", "-x", "none", str(library)))
    assert "copied" in names(symbols.at_load)
    assert hashed(b"copied") not in given_by(symbols)


def test_a_static_program_gives_and_asks_for_nothing(tmp_path: Path) -> None:
    symbols = read(build(tmp_path / "x", "int main(void){return 0;}", "-static"))
    assert symbols == Symbols()


def test_a_program_gives_what_it_exports(tmp_path: Path) -> None:
    code = "void for_plugins(void) {} int main(void) {return 0;}"
    assert hashed(b"for_plugins") in given_by(read(build(tmp_path / "x", code, "-rdynamic")))
    assert hashed(b"for_plugins") not in given_by(read(build(tmp_path / "y", code)))


@pytest.mark.parametrize("path", [path for path in FILES if path.stat().st_size < 4 << 20], ids=lambda path: path.name)
def test_it_agrees_with_pyelftools(path: Path) -> None:
    symbols = read(path)
    with path.open("rb") as file:
        theirs = ELFFile(file)
        table = theirs.get_section_by_name(".dynsym")
        entries = list(table.iter_symbols()) if table else []
        places = [theirs.get_section_by_name(f".rel{kind}") for kind in ("a.dyn", "a.plt", ".dyn", ".plt")]
        relocations = [relocation for place in places if place for relocation in place.iter_relocations()]
        numbers = {relocation["r_info_sym"] for relocation in relocations}
        copied = {each["r_info_sym"] for each in relocations if each["r_info_type"] == R_X86_64_COPY}
    own = [each["st_shndx"] != "SHN_UNDEF" and number not in copied for number, each in enumerate(entries)]
    given = [each for each, is_own in zip(entries, own, strict=True) if is_own and each["st_value"]]
    asked = [each for number, each in enumerate(entries) if not own[number] and number in numbers]
    assert given_by(symbols) >= {hashed(e.name.encode()) for e in given if e["st_info"]["bind"] != "STB_LOCAL"}
    wanted = {each.name for each in asked if each["st_info"]["bind"] == "STB_GLOBAL"}
    assert set(names(symbols.at_load) + names(symbols.at_call)) == wanted


def test_every_cut_of_a_file_is_read_or_refused(tmp_path: Path) -> None:
    data = build(tmp_path / "x.so", ASKING, "-shared", "-fPIC").read_bytes()
    for end in range(0, len(data), 61):
        with suppress(ElfError):
            read_symbols(Elf(data[:end]))


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return build(tmp_path_factory.mktemp("x") / "x.so", ASKING, "-shared", "-fPIC").read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 1 << 14), st.binary(min_size=1, max_size=8)), max_size=12))
def test_twisted_bytes_never_raise_anything_else(asking: bytes, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(asking)
    for at, bytes_ in changes:
        data[at : at + len(bytes_)] = bytes_
    with suppress(ElfError):
        read_symbols(Elf(data[: len(asking)]))


def test_a_name_that_never_ends_is_not_read_for_every_symbol(tmp_path: Path) -> None:
    """A hundred thousand symbols, whose names all begin in one string of megabytes."""
    count = 100_000
    declared = "".join(f"extern int v{number};" for number in range(count))
    used = "int *kept[] = {" + ",".join(f"&v{number}" for number in range(count)) + "};"
    path = build(tmp_path / "x.so", declared + used, "-shared", "-fPIC")
    data = bytearray(path.read_bytes())
    elf = Elf(data)
    section = elf.section(".dynstr")
    assert section is not None
    data[section.offset : section.offset + section.size] = b"A" * section.size
    begin = time.monotonic()
    assert read_symbols(Elf(data)) is None
    assert time.monotonic() - begin < 5
    assert len(names(read(path).at_load)) == count
