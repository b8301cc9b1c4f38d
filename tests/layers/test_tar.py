"""The tar reader against Python's tarfile and GNU tar, and what it refuses."""

import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgcheck.errors import LayerError
from imgcheck.layers.entry import Entry, PlainFiles, Select
from imgcheck.layers.tar import clean, read_tar
from tests.layers.layouts import archive, directory, file, member, symlink
from tests.tools import need

T = TypeVar("T")
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def chunked(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def members(data: bytes, chunk: int = 1 << 20) -> list[tuple[Entry, bytes | None]]:
    return [(entry, content.read() if content else None) for entry, content in read_tar(chunked(data, chunk), "layer")]


def refused(data: bytes) -> str:
    with pytest.raises(LayerError) as caught:
        members(data)
    return caught.value.message


def header(**changes: bytes) -> bytes:
    """A ustar header of an empty file `f`, fields replaced by raw bytes, the checksum right unless given."""
    fields = {
        "name": b"f", "mode": b"0000644", "uid": b"0", "gid": b"0", "size": b"0", "mtime": b"0",
        "chksum": b" " * 8, "type": b"0", "link": b"", "magic": b"ustar\x0000", "owner": b"", "group": b"",
        "major": b"", "minor": b"", "prefix": b"",
    } | changes  # fmt: skip
    widths = dict(zip(fields, (100, 8, 8, 8, 12, 12, 8, 1, 100, 8, 32, 32, 8, 8, 155), strict=True))
    block = b"".join(value.ljust(widths[name], b"\0") for name, value in fields.items()).ljust(512, b"\0")
    if "chksum" not in changes:
        block = block[:148] + b"%06o\0 " % sum(block) + block[156:]
    return block


def extended(records: bytes, kind: bytes = b"x") -> bytes:
    return header(type=kind, size=b"%o" % len(records)) + records.ljust(-(-len(records) // 512) * 512, b"\0")


def record(key: str, value: str) -> bytes:
    text = f" {key}={value}\n".encode()
    length = len(text) + 1
    while len(str(length)) + len(text) != length:
        length = len(str(length)) + len(text)
    return str(length).encode() + text


END = bytes(1024)

NAME_PARTS = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=120).filter(
    lambda part: part not in (".", "..") and part.isprintable()
)
NAMES = st.lists(NAME_PARTS, min_size=1, max_size=4).map("/".join)
FILES = st.builds(
    file,
    NAMES,
    st.binary(max_size=1500),
    mode=st.integers(0, 0o7777),
    uid=st.integers(0, 0o7777777),
    gid=st.integers(0, 0o7777777),
    mtime=st.integers(0, 2**33 - 1),
)
ANY = st.one_of(FILES, st.builds(directory, NAMES), st.builds(symlink, NAMES, NAMES))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(ANY, max_size=8), st.sampled_from(["gnu", "pax"]), st.sampled_from([100, 512, 700, 4096, 1 << 20]))
def test_reads_what_tarfile_reads(written: list, form: str, chunk: int) -> None:
    data = archive(written, FORMATS[form])
    oracle = tarfile.open(fileobj=io.BytesIO(data))  # noqa: SIM115
    expected = [
        (clean(m.name), m.mode, m.size, m.uid, m.gid, m.mtime, m.linkname,
         oracle.extractfile(m).read() if m.isreg() else None)
        for m in oracle
    ]  # fmt: skip
    found = [(e.path, e.mode, e.size, e.uid, e.gid, e.mtime, e.link, body) for e, body in members(data, chunk)]
    assert found == expected


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=2048), st.integers(0, 1535), st.binary(min_size=1, max_size=40))
def test_damage_is_read_or_refused_but_never_anything_else(noise: bytes, at: int, patch: bytes) -> None:
    data = bytearray(archive([file("a", noise), symlink("b" * 150, "c")], tarfile.PAX_FORMAT))
    data[at : at + len(patch)] = patch
    try:
        assert all(len(body or b"") == entry.size for entry, body in members(bytes(data)))
    except LayerError as error:
        assert error.message.startswith("layer: ")


def selected(data: bytes, select: Select, chunk: int) -> list[tuple[str, Entry | None, bytes | None]]:
    found = []
    for entry, content in read_tar(chunked(data, chunk), "layer", select):
        if isinstance(entry, PlainFiles):
            found += [(path, None, None) for path in entry.paths]
        else:
            found.append((entry.path, entry, content.read() if content else None))
    return found


def outcome(read: Callable[[], T]) -> T | str:
    try:
        return read()
    except LayerError as error:
        return error.message


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(ANY, max_size=6), st.sampled_from(["gnu", "pax", "ustar"]), st.sampled_from([100, 512, 4096, 1 << 20]),
    st.integers(0, 20000), st.binary(max_size=8),
)  # fmt: skip
def test_files_that_are_not_wanted_are_named_all_the_same(
    written: list, form: str, chunk: int, at: int, patch: bytes
) -> None:
    try:
        # Twice, since what was met before is passed more quickly.
        data = bytearray(archive(written * 2, FORMATS[form]))
    except ValueError:
        return  # the form cannot hold it
    data[at : at + len(patch)] = patch
    select = Select(frozenset(range(128)), lambda path: "e" in path)

    full, some = outcome(lambda: members(bytes(data), chunk)), outcome(lambda: selected(bytes(data), select, chunk))
    if isinstance(full, str) or isinstance(some, str):
        assert full == some
        return
    assert [path for path, _, _ in some] == [entry.path for entry, _ in full]
    for (path, entry, body), (expected, content) in zip(some, full, strict=True):
        assert (entry, body) == (expected, content) or (
            entry is None and expected.kind == "file" and not (content and (content[0] < 128 or "e" in path))
        )


def test_a_run_of_plain_files_comes_at_once() -> None:
    data = archive([file(f"d{'x' * 200}/{i}", b"\xff" * 700) for i in range(1000, 1050)], tarfile.GNU_FORMAT)
    found = [entry for entry, _ in read_tar(iter([data]), "layer", Select(frozenset(), lambda path: False))]
    assert len(found) < 10
    assert sum(len(entry.paths) for entry in found if isinstance(entry, PlainFiles)) > 40


def test_bodies_may_be_skipped_or_read_in_part() -> None:
    data = archive([file("a", os.urandom(5000)), file("b", b"0123456789" * 300), file("c", "c")])
    found = []
    for entry, content in read_tar(chunked(data, 1000), "layer"):
        found.append((entry.path, content.read(10) if entry.path == "b" else b""))
    assert found == [("a", b""), ("b", b"0123456789"), ("c", b"")]


def test_readinto_fills_what_the_caller_holds_and_ends_with_zero() -> None:
    data = archive([file("a", b"x" * 3000), file("b", "b")])
    entries = read_tar(chunked(data, 700), "layer")
    _, content = next(entries)
    buffer = bytearray(4096)
    assert content.readinto(memoryview(buffer)) == 3000
    assert content.readinto(memoryview(buffer)) == 0
    assert bytes(buffer[:3001]) == b"x" * 3000 + b"\0"
    assert next(entries)[0].path == "b"


SPARSE_FORMS = {"old-gnu": ["--format=gnu"], **{f"pax-{v}": ["--format=pax", f"--sparse-version={v}"]
                                               for v in ("0.0", "0.1", "1.0")}}  # fmt: skip


@pytest.mark.parametrize("form", SPARSE_FORMS)
def test_sparse_members_of_gnu_tar_read_as_the_file_they_were(form: str, tmp_path: Path) -> None:
    holes = tmp_path / "holes"
    with holes.open("wb") as out:
        for index in range(40):
            out.seek(index * 200_000 + 4096)
            out.write(os.urandom(5000))
        out.truncate(9_000_000)
    (tmp_path / "after").write_text("after")
    command = [need("tar"), "-C", str(tmp_path), "--sparse", *SPARSE_FORMS[form], "-c", "holes", "after"]
    data = subprocess.run(command, check=True, capture_output=True).stdout
    assert len(data) < 2_000_000, "the archive is not sparse: the test would prove nothing"
    (first, body), (second, _) = members(data, 10_000)
    assert (first.path, first.size, second.path) == ("holes", 9_000_000, "after")
    assert body == holes.read_bytes()


def test_hole_at_the_end_and_empty_map() -> None:
    records = record("GNU.sparse.size", "100000") + record("GNU.sparse.map", "0,3")
    (_, body), _ = members(extended(records) + header(size=b"3") + b"abc".ljust(512, b"\0") + header() + END)
    assert body == b"abc" + bytes(99997)
    (entry, body), _ = members(extended(record("GNU.sparse.size", "70") + record("GNU.sparse.map", "")) + header()
                               + header() + END)  # fmt: skip
    assert (entry.size, body) == (70, bytes(70))


def test_pax_attributes() -> None:
    info = {"SCHILY.xattr.security.capability": "\x01\0\0\udcc2", "mtime": "1500000000.25", "path": "long/" * 60 + "p"}
    ((entry, _),) = members(archive([member("p", pax_headers=info)]))
    assert entry.xattrs == {"security.capability": b"\x01\0\0\xc2"}
    assert (entry.mtime, entry.path) == (1500000000.25, "long/" * 60 + "p")


def test_attributes_are_left_out_where_files_are_selected() -> None:
    data = archive([member("p", pax_headers={"SCHILY.xattr.user.x": "y" * 1000}), file("q", "1")])
    found = list(read_tar(iter([data]), "layer", Select(frozenset(b"1"), lambda _path: True)))
    seen = [entry for entry, _content in found if isinstance(entry, Entry)]
    assert [(entry.path, entry.xattrs) for entry in seen] == [("p", {}), ("q", {})]


def test_global_pax_records_are_ignored_as_docker_and_containerd_do() -> None:
    records = extended(record("mtime", "7") + record("path", "other") + record("size", "512"), b"g")
    data = records + header() + extended(record("mtime", "9")) + header() + header() + END
    assert [(entry.path, entry.mtime) for entry, _ in members(data)] == [("f", 0.0), ("f", 9.0), ("f", 0.0)]


def test_global_header_parts_a_member_from_what_describes_it() -> None:
    data = extended(record("path", "other")) + extended(record("comment", "x"), b"g") + header() + END
    assert [entry.path for entry, _ in members(data)] == ["f"]


def _long(text: bytes, kind: bytes) -> bytes:
    return header(type=kind, size=b"%o" % (len(text) + 1)) + (text + b"\0").ljust(512, b"\0")


@pytest.mark.parametrize("first", ["long", "pax"])
def test_gnu_long_names_go_before_pax_paths_as_in_go(first: str) -> None:
    pax = extended(record("path", "pax") + record("linkpath", "pax-target"))
    parts = [_long(b"long", b"L") + _long(b"long-target", b"K"), pax]
    data = b"".join(parts if first == "long" else parts[::-1]) + header(type=b"2") + END
    ((entry, _),) = members(data)
    assert (entry.path, entry.link) == ("long", "long-target")
    ((entry, _),) = members(_long(b"", b"L") + pax + header(type=b"2") + END)
    assert (entry.path, entry.link) == ("pax", "pax-target")


def test_nul_in_a_record_that_is_no_text_is_no_damage() -> None:
    ((entry, _),) = members(extended(record("comment", "a\0b")) + header() + END)
    assert entry.path == "f"


def test_archive_of_a_global_header_alone_is_empty() -> None:
    assert members(extended(record("comment", "x"), b"g") + END) == []


def test_base_256_numbers() -> None:
    data = header(uid=b"\x80" + (1 << 33).to_bytes(7, "big"), mtime=b"\xff" * 12)
    ((entry, _),) = members(data + END)
    assert (entry.uid, entry.mtime) == (1 << 33, -1)


def test_ustar_prefix_and_the_one_of_star() -> None:
    long = b"p" * 140
    (first, _), (second, _) = members(header(prefix=b"dir/sub") + header(prefix=b"q" * 131 + b"1234567") + END)
    assert (first.path, second.path) == ("dir/sub/f", "q" * 131 + "1234567/f")
    block = bytearray(header(prefix=long[:131] + b"00000000000 00000000000 "[:24]))
    block[508:512] = b"tar\0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    ((star, _),) = members(bytes(block) + END)
    assert star.path == "p" * 131 + "/f"


def test_gnu_magic_has_no_prefix() -> None:
    ((entry, _),) = members(header(magic=b"ustar  \0", prefix=b"12345670123") + END)
    assert entry.path == "f"


def test_old_directory_is_known_by_its_slash() -> None:
    (first, _), (second, _) = members(header(type=b"\0", name=b"d/") + header(type=b"\0", name=b"f") + END)
    assert (first.kind, first.path, second.kind) == ("directory", "d", "file")


def test_long_name_decides_whether_an_old_member_is_a_directory() -> None:
    name = b"x" * 99 + b"/y\0"
    long = header(type=b"L", size=b"%o" % len(name)) + name.ljust(512, b"\0")
    ((entry, _),) = members(long + header(type=b"\0", name=name[:100]) + END)
    assert (entry.kind, entry.path) == ("file", "x" * 99 + "/y")


def test_links_and_directories_have_no_data_whatever_their_size_says() -> None:
    data = header(type=b"1", link=b"t", size=b"1000") + header(type=b"5", size=b"7") + header(name=b"z") + END
    assert [(e.kind, e.size) for e, _ in members(data)] == [("hardlink", 0), ("directory", 0), ("file", 0)]


def test_signed_checksums_of_old_writers_are_right() -> None:
    block = header(name=b"\xe9\xe9")
    signed = sum(b - 256 if b > 127 else b for b in block[:148] + b" " * 8 + block[156:])
    ((entry, _),) = members(block[:148] + b"%06o\0 " % signed + block[156:] + END)
    assert entry.path == "\udce9\udce9"


@pytest.mark.parametrize("end", [b"", bytes(512), bytes(1024), bytes(1024) + b"whatever follows the end"])
def test_end_of_archive_as_writers_differ(end: bytes) -> None:
    assert len(members(header() + end)) == 1


HOSTILE = {
    "negative size": (header(size=b"\xff" * 12) + END, "negative size"),
    "negative size, member known before": (header(mtime=b"\xff" * 12) + header(size=b"\xff" * 12) + END, "negative"),
    "size beyond 64 bits": (header(size=b"\x80" + b"\x7f" * 11) + END, "64 bits"),
    "size that python would take for a number": (header(size=b"1_0") + END, "no number"),
    "size with a sign": (header(size=b"-10") + END, "no number"),
    "huge pax header": (header(type=b"x", size=b"77777777777") + END, "extended header"),
    "huge long name": (header(type=b"L", size=b"77777777777") + END, "extended header"),
    "pax record of length zero": (extended(b"0 path=x\n") + header() + END, "wrong length"),
    "pax record longer than the header": (extended(b"99 path=x\n") + header() + END, "wrong length"),
    "pax record without end": (extended(b"9 path=xx") + header() + END, "wrong length"),
    "pax name with NUL": (extended(record("com\0ment", "a")) + header() + END, "KEY=VALUE"),
    "pax path with NUL": (extended(record("path", "a\0b")) + header() + END, "KEY=VALUE"),
    "pax size is no number": (extended(record("size", "-1")) + header() + END, "no number"),
    "pax size of Arabic digits": (extended(record("size", "٣")) + header() + END, "no number"),
    "pax size that lies": (extended(record("size", "9999999999999")) + header() + END, "truncated"),
    "extended header that describes nothing": (extended(record("path", "x")) + END, "truncated"),
    "unknown type": (header(type=b"Z") + END, "unknown type"),
    "wrong checksum": (header(chksum=b"000001\0 ") + END, "checksum"),
    "no archive": (b"<html>not found</html>".ljust(2048), "no tar archive"),
    "zero block amid members": (header() + bytes(512) + header() + END, "zero block"),
    "cut inside a header": (header()[:300], "inside a header"),
    "cut inside a member": (header(size=b"2000") + bytes(700), "inside f"),
    "sparse map backwards": (
        extended(record("GNU.sparse.size", "100") + record("GNU.sparse.map", "50,1,10,1"))
        + header(size=b"2") + bytes(512) + END, "contradicts"),
    "sparse map beyond the file": (
        extended(record("GNU.sparse.size", "10") + record("GNU.sparse.map", "8,4"))
        + header(size=b"4") + bytes(512) + END, "contradicts"),
    "sparse map that promises more data than stored": (
        extended(record("GNU.sparse.size", "9999") + record("GNU.sparse.map", "0,5000"))
        + header(size=b"4") + bytes(512) + END, "does not match"),
    "sparse map of one number": (
        extended(record("GNU.sparse.size", "9") + record("GNU.sparse.map", "1")) + header() + END, "odd"),
    "sparse map in the body without end": (
        extended(record("GNU.sparse.major", "1") + record("GNU.sparse.realsize", "9"))
        + header(size=b"2000") + b"9" * 1024 + END, "sparse m"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archive_is_refused(name: str) -> None:
    data, why = HOSTILE[name]
    assert why in refused(data)


@pytest.mark.parametrize("padding", [0, 1, 508, 509])
@pytest.mark.parametrize("step", [100, 512, 1 << 20])
def test_last_member_may_lack_its_padding(padding: int, step: int) -> None:
    data = header(size=b"3") + b"abc" + bytes(padding)
    chunks = (data[at : at + step] for at in range(0, len(data), step))
    assert [(entry.path, content.read()) for entry, content in read_tar(chunks, "layer")] == [("f", b"abc")]
    assert len(list(read_tar(iter([data]), "layer"))) == 1
    twice = header(size=b"3") + b"abc".ljust(512, b"\0") + data
    found = selected(twice, Select(frozenset(), lambda path: False), step)
    assert [path for path, _, _ in found] == ["f", "f"]
    with pytest.raises(LayerError, match="truncated: the data end inside f"):
        selected(twice[: -padding - 1], Select(frozenset(), lambda path: False), step)


def test_names_stay_below_the_root() -> None:
    assert clean("/../../etc/./passwd//") == "etc/passwd"
    assert clean("..") == clean("./") == clean("a/..") == ""
    assert clean("...") == "..."


def test_a_sparse_member_of_any_apparent_size_costs_nothing_until_read() -> None:
    records = record("GNU.sparse.size", str(1 << 60)) + record("GNU.sparse.map", f"{(1 << 60) - 1},1")
    data = extended(records) + header(size=b"1") + b"x".ljust(512, b"\0") + header(name=b"z") + END
    entries = read_tar(iter([data]), "layer")
    entry, content = next(entries)
    assert (entry.size, content.read(4)) == (1 << 60, bytes(4))
    assert next(entries)[0].path == "z"
