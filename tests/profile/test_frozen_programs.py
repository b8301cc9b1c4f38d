"""Programs that PyInstaller made: what they unpack is recorded as if it lay there, and what damaged ones cost."""

import random
import struct
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgcheck.documents.image import ImageProfile, LayerInfo
from imgcheck.layers.stream import TarLayer
from imgcheck.profile.store import Store
from tests.profile import single
from tests.profile.frozen import OLD, frozen
from tests.tools import compile_c

PROGRAM = "usr/bin/tool"
NAME = "numpy/core/_fast.cpython-311-x86_64-linux-gnu.so"
MAGIC = b"MEI\014\013\012\013\016"
MODULE = ("PYZ.pyz", b"PYZ", "z")


@pytest.fixture(scope="module")
def library() -> bytes:
    return compile_c(
        "int f(int x) { return x + 1; }", "-shared", "-fPIC", "-march=haswell", out="libfast.so"
    ).read_bytes()


def profile_of(data: bytes, name: str = PROGRAM, store: Store | None = None) -> ImageProfile:
    return single.profile_of(data, name, store)


def found(data: bytes, name: str = PROGRAM) -> list[str]:
    return single.found(data, name)


def refusal(data: bytes) -> str:
    return single.refusal(data, PROGRAM)


@pytest.mark.parametrize("size", [0, 3 << 20])
def test_a_library_that_is_unpacked_has_the_facts_of_its_bytes(library: bytes, size: int) -> None:
    filling = ("data.bin", random.Random(1).randbytes(size), "x")
    packed, plain = profile_of(frozen((NAME, library, "b"), filling)), profile_of(library, "libfast.so")
    assert [record.path for record in packed.files] == [f"/{PROGRAM}", f"/{PROGRAM}!/{NAME}"]
    assert packed.facts(packed.files[1]) == plain.facts(plain.files[0])
    assert packed.tree.frozen == {f"/{PROGRAM}": f"/{PROGRAM}!"}


def test_data_named_as_libraries_and_links_to_them_are_libraries_too(library: bytes) -> None:
    data = frozen(
        ("a.libs/liba.so.1", library, "x"), ("notes", library, "x"), ("liba.so", b"a.libs/liba.so.1", "n"),
        ("b/libb.so", b"../a.libs/liba.so.1", "n"), ("b/libc.so", b"../../../lib/libc.so", "n"),
    )  # fmt: skip
    assert sorted(found(data)[1:]) == [f"/{PROGRAM}!/{name}" for name in ("a.libs/liba.so.1", "b/libb.so", "liba.so")]


@pytest.mark.parametrize(("options", "home"), [(("pyi-contents-directory lib",), "/opt/app/lib"), (OLD, "/opt/app")])
def test_what_is_not_unpacked_lies_beside_the_program(options: tuple[str, ...], home: str) -> None:
    assert profile_of(frozen(MODULE, options=options), "opt/app/app").tree.frozen == {"/opt/app/app": home}


def test_other_programs_and_files_are_left_alone(library: bytes) -> None:
    assert profile_of(library + bytes(900)).tree.frozen == {}
    assert found(b"text" + frozen((NAME, library, "b")), "data.bin") == []


def test_a_signature_behind_the_archive_changes_nothing(library: bytes) -> None:
    assert len(found(frozen((NAME, library, "b")) + bytes(9000))) == 2


@pytest.mark.parametrize("name", ["../lib.so", "a/../../lib.so", "/etc/lib.so", "./lib.so", "a//lib.so"])
def test_no_name_leads_out_of_the_program(library: bytes, name: str) -> None:
    inside = "x" * len(name.encode())
    data = frozen((inside, library, "b")).replace(inside.encode() + b"\0", name.encode() + b"\0")
    assert found(data) == [f"/{PROGRAM}"]


def test_kept_layers_tell_the_same(library: bytes, tmp_path: Path) -> None:
    for number, data in enumerate((frozen((NAME, library, "b")), frozen(MODULE), library)):
        store = Store(tmp_path / str(number), "key")
        first = profile_of(data, store=store)
        unread = TarLayer(LayerInfo(diff_id=first.layers[0].diff_id), lambda: pytest.fail("read again"))
        assert single.of_layer(unread, store) == first


def test_a_damaged_library_is_passed_over_and_the_others_are_not(library: bytes) -> None:
    data = bytearray(frozen((NAME, library, "b"), ("libnext.so", library, "b")))
    data[data.index(b"\x78\xda") + 200] ^= 0xFF
    assert found(bytes(data)) == [f"/{PROGRAM}", f"/{PROGRAM}!/libnext.so"]


def test_what_unpacks_to_far_more_than_code_does_is_refused() -> None:
    began = time.process_time()
    assert "more than 64 times its size" in refusal(frozen(("libbomb.so", b"\x7fELF" + bytes(64 << 20), "b")))
    assert time.process_time() - began < 5


def test_one_member_under_thousands_of_names_is_refused() -> None:
    data = frozen(("lib0000.so", random.Random(1).randbytes(1 << 20), "b"), options=OLD)
    at = data.rindex(MAGIC)
    length, table, size = struct.unpack_from(">III", data, at + 8)
    begin = at + 88 - length
    one = data[begin + table : begin + table + size]
    many = b"".join(one.replace(b"lib0000.so", b"lib%04d.so" % n) for n in range(9000))
    cookie = struct.pack(">8sIIII64s", MAGIC, table + len(many) + 88, table, len(many), 311, b"libpython3.11.so.1.0")
    began = time.process_time()
    assert "more than 64 times its size" in refusal(data[: begin + table] + many + cookie)
    assert time.process_time() - began < 5


def test_a_table_of_absurd_size_is_refused(library: bytes) -> None:
    data = bytearray(frozen((NAME, library, "b"), ("filling", random.Random(1).randbytes(40 << 20), "x")))
    at = data.rindex(MAGIC)
    length = struct.unpack_from(">I", data, at + 8)[0]
    struct.pack_into(">II", data, at + 12, 0, length)
    assert "table of contents" in refusal(bytes(data))


@cache
def _small() -> bytes:
    return frozen(("lib.so", b"\x7fELF" + bytes(900), "b"), ("l.so", b"lib.so", "n"), MODULE)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_programs_raise_nothing(data: st.DataObject) -> None:
    whole = bytearray(_small())
    begin = len(whole) - struct.unpack_from(">I", whole, whole.rindex(MAGIC) + 8)[0]
    for _ in range(data.draw(st.integers(1, 12))):
        whole[data.draw(st.integers(begin, len(whole) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    profile_of(bytes(whole[: data.draw(st.integers(begin, len(whole)))]))
