"""What the linkage engine reads in files that gcc made, in cut and twisted ones, and in real wheels."""

import mmap
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgcheck.binaries.elf import Elf
from imgcheck.binaries.isa.layout import Layout
from imgcheck.binaries.linkage.read import read_linkage
from imgcheck.documents.facts import Linkage
from imgcheck.errors import ElfError
from tests.tools import need


def build(path: Path, code: str, *flags: str, compiler: str = "gcc") -> Path:
    need(compiler)
    command = [compiler, "-x", "c", "-", "-o", str(path), *flags]
    subprocess.run(command, input=code, text=True, check=True, capture_output=True)
    return path


def read(path: Path) -> Linkage:
    return read_linkage(Elf(path.read_bytes()))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with everything: versions, paths, filters, undefined driver functions, a Python entry."""
    place = tmp_path_factory.mktemp("library")
    script = place / "map"
    script.write_text("X_1 { global: one; }; X_2 { global: two; PyInit_me; } X_1;\n")
    code = """
        extern int cuInit(unsigned), cuFileRead(void), cublasCreate_v2(void), cuMine(void);
        extern char *getenv(const char *);
        extern int __attribute__((weak)) cuMemAlloc_v2(void);
        void one(void) { cuInit(0); cuFileRead(); cublasCreate_v2(); cuMine(); getenv("x"); }
        void weak(void) { if (cuMemAlloc_v2) cuMemAlloc_v2(); }
        void two(void) {} void PyInit_me(void) {}
    """
    flags = ["-shared", "-fPIC", "-Wl,-soname,libme.so.1", f"-Wl,--version-script={script}", "-Wl,-z,now"]
    paths = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN/a:/opt/b", "-Wl,-F,libfilter.so", "-Wl,-f,libaux.so"]
    return build(place / "libme.so", code, *flags, *paths)


def test_names_paths_and_versions(library: Path) -> None:
    linkage = read(library)
    assert (linkage.elf_class, linkage.machine, linkage.type) == (64, "x86_64", "shared")
    assert linkage.soname == "libme.so.1"
    assert linkage.needed == ("libc.so.6",)
    assert (linkage.rpath, linkage.runpath) == ((), ("$ORIGIN/a", "/opt/b"))
    assert (linkage.filters, linkage.auxiliary) == (("libfilter.so",), ("libaux.so",))
    assert linkage.verdef == ("libme.so.1", "X_1", "X_2")
    assert [(need.library, need.versions) for need in linkage.verneed] == [("libc.so.6", ("GLIBC_2.2.5",))]
    assert "now" in linkage.flags


def test_a_python_module_is_known_by_its_entry(library: Path, tmp_path: Path) -> None:
    assert read(library).python_module
    assert not read(build(tmp_path / "x.so", "void init_x(void){}", "-shared", "-fPIC")).python_module


def test_driver_functions_are_those_of_the_driver_alone(library: Path) -> None:
    # Neither cuFile of GPUDirect Storage, nor cuBLAS, nor a weak one, nor a name outside the driver's families.
    assert read(library).driver_functions == ("cuInit",)


def test_a_file_that_names_libcuda_needs_every_cu_function_from_it(tmp_path: Path) -> None:
    stub = build(tmp_path / "libcuda.so.1", "void cuMine(void){}", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    code = "void cuMine(void); void f(void){cuMine();}"
    user = build(tmp_path / "user.so", code, "-shared", "-fPIC", "-x", "none", str(stub))
    assert read(user).driver_functions == ("cuMine",)


def test_rpath_counts_where_there_is_no_runpath(tmp_path: Path) -> None:
    old = build(tmp_path / "old.so", "", "-shared", "-fPIC", "-Wl,--disable-new-dtags,-rpath,/opt/a")
    assert (read(old).rpath, read(old).runpath) == (("/opt/a",), ())


@pytest.mark.parametrize(
    ("flags", "kind", "expected"),
    [
        (["-pie"], "executable", {"pie"}),
        (["-no-pie"], "executable", set()),
        (["-static"], "executable", {"static"}),
        (["-static-pie", "-fPIE"], "executable", {"static", "pie"}),
        (["-shared", "-fPIC", "-Wl,-z,nodefaultlib"], "shared", {"nodeflib"}),
    ],
)
def test_kinds_of_files(tmp_path: Path, flags: list[str], kind: str, expected: set[str]) -> None:
    linkage = read(build(tmp_path / "x", "int main(void){return 0;}", *flags))
    assert linkage.type == kind
    assert set(linkage.flags) & {"pie", "static", "nodeflib"} == expected


@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_symbols_are_found_by_either_hash_table_without_section_headers(tmp_path: Path, style: str) -> None:
    code = "".join(f"void PyInit_m{i}(void){{}}" for i in range(50)) + "void cuInit(void); void f(void){cuInit();}"
    path = build(tmp_path / "x.so", code, "-shared", "-fPIC", f"-Wl,--hash-style={style}")
    data = bytearray(path.read_bytes())
    data[40:48] = bytes(8)  # e_shoff
    data[60:62] = bytes(2)  # e_shnum
    elf = Elf(data)
    assert not elf.sections
    linkage = read_linkage(elf)
    assert linkage.python_module
    assert linkage.driver_functions == ("cuInit",)
    assert ("gnu_hash_only" in linkage.flags) == (style == "gnu")


def test_abi_note_and_isa_level(tmp_path: Path) -> None:
    program = build(tmp_path / "x", "int main(void){return 0;}", "-Wl,-z,x86-64-v3")
    assert read(program).isa_level == "x86-64-v3"
    assert read(program).abi.startswith("linux ")


@pytest.mark.parametrize(
    ("compiler", "machine", "interpreter"),
    [
        ("aarch64-linux-gnu-gcc", "aarch64", "/lib/ld-linux-aarch64.so.1"),
        ("powerpc64le-linux-gnu-gcc", "ppc64le", "/lib64/ld64.so.2"),
    ],
)
def test_other_machines(tmp_path: Path, compiler: str, machine: str, interpreter: str) -> None:
    linkage = read(build(tmp_path / "x", "int main(void){return 0;}", compiler=compiler))
    assert (linkage.machine, linkage.interpreter) == (machine, interpreter)
    assert linkage.needed == ("libc.so.6",)


def test_the_loader_of_this_machine_tells_its_default_directories() -> None:
    linkage = read(Path("/lib64/ld-linux-x86-64.so.2").resolve())
    assert "/usr/lib" in linkage.loader_directories
    assert all(directory.startswith("/") for directory in linkage.loader_directories)


def test_every_cut_of_a_file_is_read_or_refused(library: Path) -> None:
    data = library.read_bytes()
    for size in range(0, len(data), 37):
        with suppress(ElfError):
            read_linkage(Elf(data[:size]))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=8)), max_size=12))
def test_twisted_bytes_never_raise_anything_else(library: Path, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(library.read_bytes())
    for at, value in changes:
        at %= len(data) - len(value)
        data[at : at + len(value)] = value
    with suppress(ElfError):
        read_linkage(Elf(data))


def test_a_version_list_that_never_ends_is_cut(library: Path) -> None:
    """20,000 records, each with all that follow as its list: their product is what must end."""
    data = bytearray(library.read_bytes())
    body = struct.pack("<HHIII", 1, 0xFFFF, 1, 16, 16) * 20000
    address = 0x10000000
    phoff, phnum = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    headers = [phoff + 56 * i for i in range(phnum)]
    last_load = [at for at in headers if struct.unpack_from("<I", data, at)[0] == 1][-1]
    struct.pack_into("<QQQQ", data, last_load + 8, len(data), address, address, len(body))
    dynamic = next(struct.unpack_from("<Q", data, at + 8)[0] for at in headers if data[at] == 2)
    verneed = data.index(struct.pack("<Q", 0x6FFFFFFE), dynamic)
    struct.pack_into("<Q", data, verneed + 8, address)
    start = time.process_time()
    linkage = read_linkage(Elf(bytes(data) + body))
    assert time.process_time() - start < 5
    assert linkage.verneed


def test_markers_tell_mpi_implementations_apart(tmp_path: Path) -> None:
    open_mpi = build(tmp_path / "o.so", "int ompi_mpi_comm_world; void MPI_Init(void){}", "-shared", "-fPIC")
    mpich = build(tmp_path / "m.so", "void MPIR_Err(void){} void MPI_Init(void){}", "-shared", "-fPIC")
    user = build(tmp_path / "u.so", "void MPI_Init(void); void f(void){MPI_Init();}", "-shared", "-fPIC")
    assert [read(path).markers for path in (open_mpi, mpich, user)] == [("open-mpi",), ("mpich",), ("mpi-user",)]


@pytest.mark.slow
def test_a_large_symbol_table_takes_no_second(tmp_path: Path) -> None:
    code = (
        "\n".join(f".globl f{i}\n.type f{i},@function\nf{i}: ret" for i in range(300_000))
        + "\n.globl PyInit_z\nPyInit_z: ret"
    )
    need("gcc")
    path = tmp_path / "big.so"
    command = ["gcc", "-shared", "-nostdlib", "-x", "assembler", "-", "-o", str(path)]
    subprocess.run(command, input=code + "\n", text=True, check=True)
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    start = time.process_time()
    assert read_linkage(Elf(memoryview(data))).python_module
    assert time.process_time() - start < 1


@pytest.mark.parametrize("sections", [True, False])
def test_what_a_library_without_exports_wants_is_seen(tmp_path: Path, sections: bool) -> None:
    """GNU ld gives it a DT_GNU_HASH without a chain, whose end could tell how many symbols there are."""
    code = "extern int cuInit(unsigned); __attribute__((constructor)) static void f(void) { cuInit(0); }"
    path = build(tmp_path / "lib.so", code, "-shared", "-fPIC", "-nostdlib", "-Wl,--hash-style=gnu")
    data = bytearray(path.read_bytes())
    if not sections:
        struct.pack_into("<Q", data, 40, 0)
        struct.pack_into("<HHH", data, 58, 0, 0, 0)
    assert read_linkage(Elf(bytes(data))).driver_functions == ("cuInit",)
    assert [name for name in Layout(Elf(bytes(data))).pointers.symbol if name > 0]


def test_many_notes_that_overlap_are_read_in_no_time() -> None:
    """Each of a hundred areas begins at another of the same notes."""
    note = struct.pack("<III4s", 4, 16, 5, b"GNU\0") + bytes(16)
    notes = note * 20_000
    count = 400
    head = 64 + 56 * count
    segments = b"".join(
        struct.pack("<IIQQQQQQ", 4, 4, head + 32 * n, 0, 0, len(notes) - 32 * n, 0, 4) for n in range(count)
    )
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, count, 64, 0, 0)
    started = time.process_time()
    assert read_linkage(Elf(ident + header + segments + notes)).machine == "x86_64"
    assert time.process_time() - started < 5


def test_names_that_overlap_take_no_memory(tmp_path: Path) -> None:
    """A hostile file asks for the same long name at each of its positions."""
    library = build(tmp_path / "l.so", "", "-shared", "-fPIC", "-Wl,-soname," + "n" * 100_000)
    data = bytearray(library.read_bytes())
    elf = Elf(bytes(data))
    dynamic = next(section for section in elf.sections if section.name == ".dynamic")
    entries = [*elf.dynamic, *((1, 1 + n) for n in range(60_000))]
    moved = len(data)
    data += b"".join(struct.pack("<QQ", *entry) for entry in entries)
    for number in range(int.from_bytes(data[56:58], "little")):
        at = 64 + 56 * number
        if data[at : at + 4] == struct.pack("<I", 2):  # PT_DYNAMIC
            data[at + 8 : at + 16] = struct.pack("<Q", moved)
            data[at + 32 : at + 40] = struct.pack("<Q", 16 * len(entries))
    assert dynamic.size
    assert sum(map(len, read_linkage(Elf(bytes(data))).needed)) < 1 << 24
