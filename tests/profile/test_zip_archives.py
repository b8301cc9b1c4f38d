"""Libraries in archives of Java and of Python: recorded as if they lay there, and what a hostile archive costs."""

import io
import random
import struct
import time
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgcheck.documents.image import ImageProfile, LayerInfo
from imgcheck.layers.stream import TarLayer
from imgcheck.profile.store import Store
from tests.profile import single
from tests.tools import compile_c

JAR = "app/app.jar"
NAME = "org/fast/linux-x86_64/libfast.so"
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
LARGE = 3 << 20
"""More than what small files are held by."""


@pytest.fixture(scope="module")
def library() -> bytes:
    return compile_c(
        "int f(int x) { return x + 1; }", "-shared", "-fPIC", "-march=haswell", out="libfast.so"
    ).read_bytes()


def jar(*members: tuple[str, bytes], method: int = DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", method) as made:
        for name, data in members:
            made.writestr(name, data)
    return written.getvalue()


def profile_of(data: bytes, name: str = JAR, store: Store | None = None) -> ImageProfile:
    return single.profile_of(data, name, store)


def found(data: bytes, name: str = JAR) -> list[str]:
    return single.found(data, name)


def refusal(data: bytes) -> str:
    return single.refusal(data, JAR)


@pytest.mark.parametrize("method", [STORED, DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_library_in_an_archive_has_the_facts_of_its_bytes(library: bytes, method: int) -> None:
    packed, plain = profile_of(jar((NAME, library), method=method)), profile_of(library, "libfast.so")
    assert [record.path for record in packed.files] == [f"/app/app.jar!/{NAME}"]
    assert packed.facts(packed.files[0]) == plain.facts(plain.files[0])


@pytest.mark.parametrize("name", ["a.jar", "a.war", "a.ear", "a.pyz", "a.pex"])
def test_all_kinds_of_archives_are_looked_into(library: bytes, name: str) -> None:
    assert found(jar(("lib.so.1.2", library)), name) == [f"/{name}!/lib.so.1.2"]


def application(data: bytes) -> bytes:
    return b"#!/usr/bin/env python3\n" + data


def test_a_zipped_application_is_a_script_with_libraries(library: bytes) -> None:
    profile = profile_of(application(jar(("__main__.py", b"import fast"), ("site/fast.so", library))), "bin/app")
    assert [record.path for record in profile.files] == ["/bin/app!/site/fast.so"]
    assert [(script.path, script.interpreter) for script in profile.tree.scripts] == [
        ("/bin/app", ("/usr/bin/env", "python3"))
    ]


@pytest.mark.parametrize("data", [b"#!/bin/sh\necho PK\x03\x04\n", b"#!/bin/sh\nPK\x03\x04", b"#!/bin/sh"])
def test_a_script_with_the_signs_of_an_archive_is_a_script(data: bytes) -> None:
    profile = profile_of(data, "bin/app")
    assert (profile.files, [script.path for script in profile.tree.scripts]) == ((), ["/bin/app"])


def test_other_zip_files_are_left_alone(library: bytes) -> None:
    assert found(jar((NAME, library)), "data.zip") == []


def test_libraries_in_archives_of_an_archive(library: bytes) -> None:
    inner = jar((NAME, library))
    whole = jar(("BOOT-INF/lib/x.jar", inner), ("Main.class", b"\xca\xfe\xba\xbe"), method=STORED)
    assert found(whole) == [f"/app/app.jar!/BOOT-INF/lib/x.jar!/{NAME}"]


def test_archives_in_one_another_end(library: bytes) -> None:
    data = jar((NAME, library))
    for _ in range(20):
        data = jar(("x.jar", data))
    assert found(data) == []


def test_large_libraries_and_archives(library: bytes) -> None:
    noise = random.Random(1).randbytes(LARGE)
    data = jar((NAME, library + noise), ("x.jar", jar(("libx.so", library), ("noise", noise), method=STORED)))
    assert found(data) == [f"/app/app.jar!/{NAME}", "/app/app.jar!/x.jar!/libx.so"]


def test_a_program_before_the_archive_changes_nothing(library: bytes) -> None:
    """As Java's executable archives have a script; the file itself is one, and no archive by its beginning."""
    assert found(b"PK\x03\x04" + bytes(50) + jar((NAME, library))) == [f"/app/app.jar!/{NAME}"]


def test_what_is_no_library_is_none(library: bytes) -> None:
    assert found(jar(("libtext.so", b"INPUT(libx.so)"), ("notes", library), ("lib.so/x", library))) == []


@pytest.mark.parametrize("name", ["../../usr/lib/libc.so.6", "/usr/lib/libc.so.6", "a/./b.so", "a//b.so", ".."])
def test_no_name_leads_out_of_the_archive(library: bytes, name: str) -> None:
    assert found(jar((name, library), (NAME, library))) == [f"/app/app.jar!/{NAME}"]


def test_of_two_of_one_name_there_is_one_record(library: bytes) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = jar((NAME, library), (NAME, library + b"x"))
    assert found(data) == [f"/app/app.jar!/{NAME}"]


@pytest.mark.parametrize("name", [JAR, "bin/app"])
def test_kept_layers_tell_the_same(library: bytes, name: str, tmp_path: Path) -> None:
    data, store = jar((NAME, library)), Store(tmp_path, "key")
    first = profile_of(data if name == JAR else application(data), name, store)
    assert [record.path for record in first.files] == [f"/{name}!/{NAME}"]
    unread = TarLayer(LayerInfo(diff_id=first.layers[0].diff_id), lambda: pytest.fail("read again"))
    assert single.of_layer(unread, store) == first


def test_a_damaged_library_is_passed_over_and_the_others_are_not(library: bytes) -> None:
    data = bytearray(jar((NAME, library), ("libnext.so", library), method=STORED))
    data[data.index(b"\x7fELF") + 1000] ^= 1
    assert found(bytes(data)) == ["/app/app.jar!/libnext.so"]


def test_an_encrypted_library_is_passed_over(library: bytes) -> None:
    data = bytearray(jar((NAME, library), ("libnext.so", library)))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert found(bytes(data)) == ["/app/app.jar!/libnext.so"]


def test_what_unpacks_to_far_more_than_code_does_is_refused() -> None:
    bomb = b"\x7fELF" + bytes(64 << 20)
    began = time.process_time()
    assert "more than 64 times its size" in refusal(jar(("libbomb.so", bomb)))
    assert "more than 64 times its size" in single.refusal(application(jar(("libbomb.so", bomb))), "bin/app")
    assert time.process_time() - began < 5


def test_one_member_under_thousands_of_names_is_refused(library: bytes) -> None:
    whole = jar((NAME, library))
    at = whole.index(b"PK\x01\x02")
    entry, end = whole[at : whole.index(b"PK\x05\x06")], whole[whole.index(b"PK\x05\x06") :]
    numbered = b"".join(entry.replace(b"libfast.so", b"lib%04d.so" % n) for n in range(5000))
    data = whole[:at] + numbered + end[:8] + struct.pack("<HHI", 5000, 5000, len(numbered)) + end[16:]
    began = time.process_time()
    profile_of(data)
    assert time.process_time() - began < 20


def test_a_central_directory_of_absurd_size_is_refused(library: bytes) -> None:
    data = bytearray(jar((NAME, library)))
    struct.pack_into("<I", data, data.index(b"PK\x05\x06") + 12, 1 << 31)
    assert "central directory" in refusal(bytes(data))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_archives_raise_nothing(data: st.DataObject) -> None:
    whole = bytearray(jar((NAME, b"\x7fELF" + zlib.compress(bytes(900))), ("x.jar", jar(("lib.so", b"\x7fELF" * 40)))))
    for _ in range(data.draw(st.integers(1, 12))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    profile_of(bytes(whole[: data.draw(st.integers(8, len(whole)))]))
