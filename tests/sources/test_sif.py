"""SIF files and squashfs images as sources: the same files as a mount would show, whatever their bytes claim."""

import contextlib
import os
import struct
import weakref
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgcheck.convert.run import convert
from imgcheck.documents.image import Platform
from imgcheck.errors import ConvertError, ImgcheckError, LayerError, SourceError
from imgcheck.profile.build import build_profile
from imgcheck.progress import SILENT
from imgcheck.sif_format import DESCRIPTOR, IS_PARTITION, OVERLAY, PARTITION
from imgcheck.sources.open import open_image
from imgcheck.sources.squashfs import Squashfs
from tests.images import Directory, File, ImageBuilder, Symlink
from tests.tools import need, run

_DESCRIPTORS, _DESCRIPTOR = 4096, 585


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A little of everything that a squashfs can hold."""
    root = tmp_path_factory.mktemp("tree")
    (root / "many").mkdir()
    for number in range(700):
        (root / f"many/file{number}").write_bytes(b"%d" % number * 50)
    (root / "large").write_bytes(os.urandom(300_000) + b"end")
    (root / "whole").write_bytes(b"x" * (1 << 17))
    (root / "empty").touch()
    with (root / "holes").open("wb") as file:
        file.seek(5 << 20)
        file.write(b"behind")
    (root / "link").symlink_to("/many/file1")
    (root / "other").hardlink_to(root / "large")
    os.mkfifo(root / "fifo")
    (root / os.fsdecode(b"caf\xe9")).write_bytes(b"latin")
    (root / ("n" * 255)).write_bytes(b"long")
    (root / "deep/er/and/deeper").mkdir(parents=True, mode=0o700)
    (root / "large").chmod(0o4755)
    os.setxattr(root / "whole", "user.note", b"v" * 300)
    os.setxattr(root / "many", "user.note", b"v" * 300)
    for path in root.rglob("*"):
        os.utime(path, (1_500_000_000, 1_500_000_000), follow_symlinks=False)
    return root


def _contents(reference: str) -> dict[str, tuple]:
    """Every entry by path; hardlinked files count as one file under each of their names."""
    found: dict[str, tuple] = {}
    with open_image(reference) as image:
        for entry, content in image.layers[0].entries():
            if entry.kind == "hardlink":
                found[entry.path] = found[entry.link]
                continue
            data = content.read() if content else entry.link
            own = (entry.kind, entry.mode, entry.uid, entry.gid, int(entry.mtime), entry.size, data)
            # dir: reads no attributes of directories
            found[entry.path] = (*own, entry.xattrs if entry.kind == "file" else None)
    return found


@pytest.mark.parametrize(
    "options",
    [
        ("-comp", "gzip"),
        ("-comp", "xz"),
        ("-comp", "zstd"),
        ("-comp", "lzma"),
        ("-comp", "lz4"),
        ("-comp", "lz4", "-Xhc"),
        ("-comp", "lzo"),
        ("-comp", "lzo", "-Xalgorithm", "lzo1x_1"),
        ("-comp", "lzo", "-noD"),
        ("-noI", "-noD", "-noF", "-noX"),
        ("-no-fragments",),
        ("-b", "4096"),
        ("-b", "1M", "-always-use-fragments"),
    ],
)
def test_a_squashfs_holds_the_files_it_was_made_of(options, tree, tmp_path):
    image = tmp_path / "tree.sqsh"
    run(need("mksquashfs"), tree, image, "-quiet", "-no-progress", *options)
    assert _contents(str(image)) == _contents(f"dir:{tree}")


def test_an_unknown_compression_is_named(small, tmp_path):
    with pytest.raises(LayerError, match="compressed by a method"):
        _read_all(small[:20] + b"\x09" + small[21:], tmp_path / "image")


_CONFIG = {
    "entrypoint": ("/bin/run me", "it's"),
    "command": ("$x", "`y`"),
    "environment": ("PATH=/bin", "NASTY=a\"b'c $d\n`e`"),
    "working_directory": "/work",
    "user": "7:8",
    "labels": {"a": "b"},
}


@pytest.fixture
def sif(tmp_path: Path) -> Path:
    """A SIF of our own."""
    image = ImageBuilder(architecture="arm64", **_CONFIG)
    image.layer({"bin": Directory(), "bin/run me": File(b"#!x", 0o755), "etc": Directory(), "etc/l": Symlink("/x")})
    layout = image.write(tmp_path / "layout", tag="test")
    with open_image(f"oci:{layout}:test") as opened:
        convert(opened, "sif", tmp_path / "app.sif")
    return tmp_path / "app.sif"


def test_a_sif_keeps_what_the_image_said(sif):
    with open_image(f"sif:{sif}") as image:
        assert image.family == "apptainer"
        config, platform = image.config, image.platform
        assert image.notes == ()  # its header says what no program of it does
    assert platform == Platform("linux", "arm64")
    assert (config.entrypoint, config.command) == (_CONFIG["entrypoint"], _CONFIG["command"])
    assert config.environment == _CONFIG["environment"]
    assert (config.working_directory, config.user, config.labels) == ("/work", "7:8", {"a": "b"})


def test_a_sif_converts_to_the_same_tree_as_the_image(sif, tmp_path):
    for name, reference in (("one", f"oci:{tmp_path}/layout:test"), ("two", str(sif))):
        with open_image(reference) as image:
            convert(image, "sandbox", tmp_path / name)
    one, two = _contents(f"dir:{tmp_path}/one"), _contents(f"dir:{tmp_path}/two")
    # Directories that imgcheck adds have no time of their own, and our squashfs counts whole seconds.
    assert {path: value[:4] + value[6:] for path, value in one.items()} == {
        path: value[:4] + value[6:] for path, value in two.items()
    }


@pytest.mark.slow
def test_a_sif_of_apptainer_is_read(apptainer, public_tmp):
    image = ImageBuilder(entrypoint=("/bin/probe",), environment=("PATH=/bin", "A=1 2"), working_directory="/w")
    layout = image.layer({"bin": Directory(), "bin/probe": File(b"#!x", 0o755)}).write(
        public_tmp / "layout", tag="test"
    )
    run("chmod", "-R", "a+rX", layout)
    built = apptainer("build", str(public_tmp / "app.sif"), f"oci:{layout}")
    assert built.returncode == 0, built.stdout + built.stderr
    with open_image(str(public_tmp / "app.sif")) as opened:
        assert opened.config.entrypoint == ("/bin/probe",)
        assert opened.config.environment[:2] == ("PATH=/bin", "A=1 2")
        assert opened.config.working_directory == "/w"
        files = {entry.path: content.read() for entry, content in opened.layers[0].entries() if content}
    assert files["bin/probe"] == b"#!x"


def _patched(path: Path, changes: dict[int, bytes]) -> Path:
    data = bytearray(path.read_bytes())
    for offset, value in changes.items():
        data[offset : offset + len(value)] = value
    changed = path.with_name("changed.sif")
    changed.write_bytes(data)
    return changed


def _descriptor(number: int, field: int) -> int:
    """Where a field of a descriptor stands; the offset is at 17 bytes, the size at 25."""
    return _DESCRIPTORS + number * _DESCRIPTOR + field


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({42: b"02"}, "SIF version"),
        ({88: struct.pack("<q", 1 << 40)}, "descriptors"),
        ({88: struct.pack("<q", -1)}, "descriptors"),
        ({96: struct.pack("<q", 1 << 40)}, "descriptors"),
        ({96: struct.pack("<q", -4096)}, "descriptors"),
        ({_descriptor(2, 17): struct.pack("<q", 1 << 50)}, "behind its end"),
        ({_descriptor(2, 17): struct.pack("<q", -1)}, "behind its end"),
        ({_descriptor(2, 25): struct.pack("<q", (1 << 63) - 1)}, "behind its end"),
        ({_descriptor(2, 25): struct.pack("<q", 200)}, "truncated"),
        ({_descriptor(2, 17): struct.pack("<q", 0)}, "no squashfs"),
        ({_descriptor(2, 0): struct.pack("<i", 0x4007)}, "no system partition"),
        ({_descriptor(2, 201): struct.pack("<i", 5)}, "an encrypted squashfs"),
        ({_descriptor(2, 201): struct.pack("<i", 77)}, "kind 77"),
    ],
)
def test_descriptors_are_not_believed(changes, said, sif):
    with pytest.raises(ImgcheckError, match=said):
        _contents(f"sif:{_patched(sif, changes)}")


@pytest.fixture
def covered(sif: Path) -> Path:
    """The SIF with an overlay partition of ext3, as `apptainer overlay create` appends one."""
    at = sif.stat().st_size
    extra = PARTITION.pack(2, OVERLAY, b"02\0")
    made = DESCRIPTOR.pack(IS_PARTITION, True, 4, 0xF0000001, 0, at, 65536, 65536, 0, 0, 0, 0, b"overlay.img", extra)
    return _patched(sif, {_descriptor(3, 0): made, at: bytes(65536)})


def test_an_overlay_partition_leaves_open_what_the_image_holds(covered):
    with open_image(f"sif:{covered}") as image:
        assert [note for note in image.notes if "its overlay partition (overlay.img)" in note]
        assert build_profile(image, SILENT).unreadable == {"/": image.notes[-1]}


@pytest.mark.parametrize("target", ["sandbox", "sif", "oci"])
def test_an_image_with_an_overlay_partition_is_not_converted_without_it(target, covered, tmp_path):
    with (
        open_image(f"sif:{covered}") as image,
        pytest.raises(ConvertError, match="/ of the image cannot be read: what"),
    ):
        convert(image, target, tmp_path / "converted")


def test_a_damaged_config_is_a_note(sif):
    offset = struct.unpack_from("<q", sif.read_bytes(), _descriptor(1, 17))[0]
    with open_image(f"sif:{_patched(sif, {offset: b'x'})}") as image:
        assert any("oci-config.json" in note for note in image.notes)
        assert image.config.entrypoint == _CONFIG["entrypoint"]


@pytest.mark.parametrize("name", ["missing", "directory", "fifo", "text"])
def test_what_is_no_sif_is_one_clear_error(name, tmp_path):
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "text").write_text("#!/bin/sh\n" * 100)
    with pytest.raises(ImgcheckError, match=name):
        _contents(f"sif:{tmp_path / name}")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A squashfs of a few files, whose tables are stored as they are, so that a changed byte is a changed number."""
    directory = tmp_path_factory.mktemp("small")
    (directory / "t/d/e").mkdir(parents=True)
    (directory / "t/d/file").write_bytes(b"x" * 9000)
    (directory / "t/d/e/file").write_bytes(b"y" * 5)
    (directory / "t/link").symlink_to("d")
    os.setxattr(directory / "t/d/file", "user.a", b"b")
    options = ("-noI", "-b", "4096", "-quiet", "-no-progress", "-nopad")
    run(need("mksquashfs"), directory / "t", directory / "image", *options)
    return (directory / "image").read_bytes()


def _read_all(data: bytes, path: Path) -> int:
    path.write_bytes(data)
    total = 0
    with path.open("rb", buffering=0) as file:
        for _entry, content in Squashfs(file, "x").entries(lambda amount: None):
            while content and (count := len(content.read(1 << 20))):
                total += count
                if total > 1 << 24:  # a size that lies is a hole: read on, and it is zeros to the end
                    return total
    return total


def test_every_cut_is_noticed(small, tmp_path):
    for end in range(len(small) - 1):
        with pytest.raises(LayerError):
            _read_all(small[:end], tmp_path / "cut")


@settings(max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_bytes_end_in_an_error_or_in_files(small, tmp_path, data):
    changed = bytearray(small)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(small) - 1))
        value = data.draw(st.binary(min_size=1, max_size=8))
        changed[position : position + len(value)] = value
    with contextlib.suppress(LayerError):
        _read_all(bytes(changed[: len(small)]), tmp_path / "changed")


@settings(max_examples=200, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_changed_bytes_of_a_sif_end_in_an_error_or_in_an_image(sif, data):
    changes = {}
    for _ in range(data.draw(st.integers(1, 4))):
        changes[data.draw(st.integers(0, 4096 + 3 * _DESCRIPTOR))] = data.draw(st.binary(min_size=1, max_size=8))
    try:
        with open_image(f"sif:{_patched(sif, changes)}") as image:
            list(image.layers[0].entries())
    except (LayerError, SourceError):
        pass


def _root_listing(image: bytes) -> tuple[int, int]:
    """Where the inode table and the directory table of `small` begin."""
    return struct.unpack_from("<2Q", image, 64)


def test_a_directory_that_contains_itself_is_refused(small, tmp_path):
    root = struct.unpack_from("<Q", small, 32)[0]
    _inodes, directories = _root_listing(small)
    changed = bytearray(small)
    at = small.index(b"d", directories)
    while struct.unpack_from("<H", small, at - 2)[0] != 0:
        at = small.index(b"d", at + 1)
    # The entry of "d" now names the root's inode.
    changed[at - 8 : at - 6] = struct.pack("<H", root & 0xFFFF)
    with pytest.raises(LayerError, match="two places"):
        _read_all(bytes(changed), tmp_path / "loop")


def test_searches_for_files_do_not_list_directories_without_end(tree, tmp_path):
    run(need("mksquashfs"), tree, tmp_path / "image", "-quiet", "-no-progress")
    with (tmp_path / "image").open("rb") as file:
        squashfs = Squashfs(file, "image")
        for _ in range(2000):
            assert squashfs.read_file("many/file1", 10) == b"1" * 10
            assert squashfs.read_file("many/none", 10) is None
        with pytest.raises(LayerError, match="list more files than it can hold"):
            for number in range(2000):
                squashfs.read_file(f"many/none{number}", 10)


def _with_attributes(image: bytes, number: int) -> bytes:
    """`small` with another table of attributes, in which `number` names of its file share one value of 60000 bytes."""
    stored = struct.pack("<2H", 0, 5) + b"00000" + struct.pack("<I", 60_000) + bytes(60_000)
    shared = struct.pack("<IQ", 8, 9)
    stored += b"".join(struct.pack("<2H", 0x100, 5) + b"%05d" % index + shared for index in range(1, number))
    chunks = [stored[at : at + 8192] for at in range(0, len(stored), 8192)]
    chunks.append(struct.pack("<Q2I", 0, number, len(stored)))
    blocks = [struct.pack("<H", 0x8000 | len(chunk)) + chunk for chunk in chunks]
    ids = len(image) + sum(map(len, blocks[:-1]))
    changed = bytearray(image + b"".join(blocks))
    table = len(changed)
    changed += struct.pack("<Q2IQ", len(image), 1, 0, ids)
    struct.pack_into("<Q", changed, 40, len(changed))
    struct.pack_into("<Q", changed, 56, table)
    return bytes(changed)


def test_value_that_many_attributes_share_is_not_read_without_end(small, tmp_path):
    assert _read_all(_with_attributes(small, 10), tmp_path / "some") == _read_all(small, tmp_path / "small")
    with pytest.raises(LayerError, match="attributes of more than 1 MiB"):
        _read_all(_with_attributes(small, 1000), tmp_path / "many")


@pytest.fixture
def holes(tmp_path: Path) -> Path:
    """A squashfs with some files of 16 MiB of zeros, which have the same attributes."""
    (tmp_path / "holes").mkdir()
    for name in "abc":
        with (tmp_path / "holes" / name).open("wb") as file:
            file.truncate(1 << 24)
        os.setxattr(tmp_path / "holes" / name, "user.a", b"b")
    run(need("mksquashfs"), tmp_path / "holes", tmp_path / "image", "-quiet", "-no-progress")
    return tmp_path / "image"


def _read_some(image: Path, size: int) -> list[int]:
    with image.open("rb") as file:
        return [len(content.read(size)) for _, content in Squashfs(file, "x").entries(lambda amount: None) if content]


def test_files_out_of_all_proportion_are_refused_where_they_are_read(holes, monkeypatch):
    assert sum(_read_some(holes, 1 << 24)) == 3 << 24
    monkeypatch.setattr("imgcheck.sources.squashfs.RATIO_FLOOR", 1 << 25)
    assert _read_some(holes, 10) == [10, 10, 10]
    with pytest.raises(LayerError, match=r"refused: \d+ bytes expand to more than 33554432"):
        _read_some(holes, 1 << 24)


def test_attributes_that_files_share_are_held_once_and_bounded(holes, small, tmp_path, monkeypatch):
    with holes.open("rb") as file:
        found = [entry.xattrs for entry, content in Squashfs(file, "x").entries(lambda amount: None) if content]
    assert found == [{"user.a": b"b"}] * 3 and found[0] is found[1] is found[2]
    monkeypatch.setattr("imgcheck.sources.squashfs._ALL_ATTRIBUTES", 1 << 19)
    with pytest.raises(LayerError, match="attributes of more than"):
        _read_all(_with_attributes(small, 10), tmp_path / "some")


def test_contents_are_freed_without_the_garbage_collector(holes):
    with holes.open("rb") as file:
        for _, content in Squashfs(file, "x").entries(lambda amount: None):
            if content:
                content.read(10)
                freed = weakref.ref(content)
                del content
                assert freed() is None


@pytest.mark.parametrize("name", [b"..", b"a/", b"\0x"])
def test_names_that_lead_elsewhere_are_refused(name, small, tmp_path):
    _inodes, directories = _root_listing(small)
    at = small.index(b"link", directories)
    changed = bytearray(small)
    changed[at - 2 : at] = struct.pack("<H", len(name) - 1)
    changed[at : at + len(name)] = name
    with pytest.raises(LayerError, match="a file named"):
        _read_all(bytes(changed), tmp_path / "names")


def test_an_image_of_singularity_2_is_a_squashfs_behind_a_line(tmp_path):
    for directory in ("env", "actions"):
        (tmp_path / "root/.singularity.d" / directory).mkdir(parents=True)
    (tmp_path / "root/.singularity.d/env/90-environment.sh").write_text("export A=1\n")
    (tmp_path / "root/.singularity.d/runscript").write_text('#!/bin/sh\nexec /bin/run "$@"\n')
    run(need("mksquashfs"), tmp_path / "root", tmp_path / "image", "-quiet", "-no-progress", "-all-root")
    image = tmp_path / "image.simg"
    image.write_bytes(b"#!/usr/bin/env run-singularity\n" + (tmp_path / "image").read_bytes())
    with open_image(str(image)) as opened:
        assert opened.family == "apptainer"
        assert (opened.config.command, opened.config.environment) == (("/bin/run",), ("A=1",))
        assert ".singularity.d/runscript" in {entry.path for entry, _ in opened.layers[0].entries()}


def test_unsquashfs_agrees_on_what_sqfstar_made(sif, tmp_path):
    offset = struct.unpack_from("<q", sif.read_bytes(), _descriptor(2, 17))[0]
    run(need("unsquashfs"), "-quiet", "-no-progress", "-offset", str(offset), "-dest", tmp_path / "theirs", sif)
    ours, theirs = _contents(str(sif)), _contents(f"dir:{tmp_path}/theirs")
    if os.getuid():
        ours, theirs = ({p: v[:2] + v[4:] for p, v in found.items()} for found in (ours, theirs))
    assert ours == theirs
