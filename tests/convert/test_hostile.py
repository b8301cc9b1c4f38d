"""Images that are out to harm: whatever they hold, nothing outside the destination is touched, for any target."""

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from imgcheck.convert.run import ConvertOptions, Limits, convert
from imgcheck.convert.targets import TARGETS
from imgcheck.errors import ImgcheckError
from imgcheck.profile.build import build_profile
from imgcheck.progress import SILENT
from imgcheck.sources.open import open_image
from tests.convert.members import Device, Dir, Reg, Sym, build
from tests.images import ImageBuilder

H = "hardlink"
VICTIM = "/VICTIM"
"""Stands for the absolute path of the victim directory in names and targets."""
_EVIL = Reg(b"evil", 0o4777)
_UP = "../" * 40

CORPUS = {
    "absolute_name": [{f"{VICTIM}/file": _EVIL}],
    "climbing_name": [{f"{_UP}{VICTIM}/file": _EVIL}],
    "climbing_name_inside": [{"a/../../../../victim/file": _EVIL}],
    "climbing_directory": [{"../victim": Dir(0o000)}],
    "climbing_symlink": [{"../victim/file": Sym("x")}],
    "climbing_hardlink_name": [{"a": Reg(b"x"), "../victim/new": (H, "a")}],
    "symlink_up_and_out": [{"up": Sym("../victim"), "up/file": _EVIL}],
    "symlink_absolute_and_out": [{"out": Sym(VICTIM), "out/file": _EVIL}],
    "symlink_in_a_lower_layer": [{"out": Sym(VICTIM)}, {"out/file": _EVIL}],
    "symlink_chain": [{"a": Sym(".."), "b": Sym("a/.."), "c": Sym("b/../victim")}, {"c/file": _EVIL}],
    "symlink_climbs_from_deep": [{"d/d/d/l": Sym(f"{_UP}{VICTIM}")}, {"d/d/d/l/file": _EVIL}],
    "symlink_to_itself_as_parent": [{"a": Sym("a"), "a/file": _EVIL}],
    "symlinks_in_a_circle_as_parent": [{"a": Sym("b"), "b": Sym("a"), "a/file": _EVIL}],
    "symlink_named_dot": [{".": Sym(VICTIM)}, {"file": _EVIL}],
    "symlink_named_dot_slash": [{"./": Sym(VICTIM)}, {"file": _EVIL}],
    "symlink_as_the_root": [{"": Sym(VICTIM)}, {"file": _EVIL}],
    "symlink_overwritten_by_a_file": [{"file": Sym(f"{VICTIM}/file")}, {"file": _EVIL}],
    "symlink_overwritten_in_one_layer": [[("l", Sym(f"{VICTIM}/file")), ("l", _EVIL)]],
    "symlink_to_the_destination": [{"l": Sym("."), "l/l/l/l/../../victim/file": _EVIL}],
    "symlink_through_proc": [{"l": Sym("/proc/self/cwd"), "l/file": _EVIL}],
    "symlink_through_fd": [{"l": Sym("/proc/self/fd/5/../../victim"), "l/file": _EVIL}],
    "directory_swapped_for_a_symlink": [{"d/x": Reg(b"x")}, {"d": Sym(VICTIM), "d/file": _EVIL}],
    "directory_swapped_within_a_layer": [[("d", Dir()), ("d", Sym(VICTIM)), ("d/file", _EVIL)]],
    "symlink_swapped_for_a_directory": [[("d", Sym(VICTIM)), ("d", Dir(0o777)), ("d/file", _EVIL)]],
    "hardlink_to_an_absolute_path": [{"h": (H, f"{VICTIM}/file")}, {"h": _EVIL}],
    "hardlink_that_climbs": [{"h": (H, "../victim/file")}],
    "hardlink_through_a_symlink": [{"out": Sym(VICTIM), "h": (H, "out/file")}],
    "hardlink_to_a_symlink_then_chmod": [{"l": Sym(f"{VICTIM}/file"), "h": (H, "l")}, {"h": Reg(b"evil", 0o777)}],
    "hardlink_to_a_directory": [{"d": Dir(), "h": (H, "d")}],
    "hardlink_to_itself": [{"h": (H, "h")}],
    "hardlink_to_the_root": [{"h": (H, ".")}],
    "hardlink_to_a_device": [{"d": Device("char"), "h": (H, "d")}],
    "hardlink_to_a_later_file": [{"h": (H, "later"), "later": Reg(b"x")}],
    "whiteout_that_climbs": [{"../victim/.wh.file": Reg()}],
    "whiteout_of_the_parent": [{".wh..": Reg()}],
    "whiteout_of_the_root": [{".wh..": Reg(), ".wh.": Reg()}],
    "whiteout_of_dot_dot": [{"a/.wh...": Reg()}],
    "whiteout_through_a_symlink": [{"out": Sym(VICTIM)}, {"out/.wh.file": Reg()}],
    "opaque_through_a_symlink": [{"out": Sym(VICTIM)}, {"out/.wh..wh..opq": Reg()}],
    "opaque_that_climbs": [{"../victim/.wh..wh..opq": Reg()}],
    "whiteout_as_a_directory": [{".wh.victim": Dir()}, {".wh.victim/file": _EVIL}],
    "whiteout_as_a_symlink": [{".wh.x": Sym(VICTIM)}],
    "our_directory_is_a_symlink": [{".singularity.d": Sym(VICTIM), "ch": Sym(VICTIM)}],
    "our_directory_climbs": [{".singularity.d": Sym(f"{_UP}{VICTIM}"), "ch": Sym("../victim")}],
    "our_file_is_a_symlink": [{"ch/environment": Sym(f"{VICTIM}/file"), "etc/rc": Sym(f"{VICTIM}/file")}],
    "our_scripts_are_symlinks": [
        {".singularity.d/env": Sym(VICTIM), ".singularity.d/runscript": Sym(f"{VICTIM}/file")}
    ],
    "our_file_is_a_directory": [
        {"etc/passwd/x": Reg(b"x"), ".singularity.d/runscript/x": Reg(b"x"), "etc/rc/x": Dir()}
    ],
    "our_file_is_a_fifo": [
        {"etc/resolv.conf": Device("fifo"), "etc/rc": Device("fifo"), ".singularity.d": Device("fifo")}
    ],
    "our_file_is_a_hardlink": [{"a": Reg(b"x"), "etc/hosts": (H, "a"), "ch/environment": (H, "a")}],
    "etc_is_a_symlink": [{"etc": Sym(VICTIM)}],
    "etc_is_a_file": [{"etc": Reg(b"x")}],
    "account_files_are_symlinks": [{"etc/passwd": Sym(f"{VICTIM}/file"), "etc/group": Sym("../../../victim/file")}],
    "account_files_in_a_circle": [{"etc/passwd": Sym("group"), "etc/group": Sym("passwd")}],
    "mountpoints_are_symlinks": [{name: Sym(VICTIM) for name in ("dev", "proc", "sys", "tmp", "var", "root", "home")}],
    "mountpoints_are_files": [dict.fromkeys(("dev", "proc", "sys", "tmp", "var", "root", "home"), _EVIL)],
    "working_directory_is_a_symlink": [{"w": Sym(VICTIM)}],
    "metadata_names_in_the_root": [
        {"container.json": _EVIL, "ROOT": Sym(VICTIM), "config.json": _EVIL, "rootfs": Sym("/")}
    ],
    "stage_names_in_the_root": [{"objects": Sym(VICTIM), "tree": Sym(VICTIM), "former": _EVIL, "image": _EVIL}],
    "device_nodes": [{"disk": Device("block", 0o666), "mem": Device("char", 0o666)}],
    "device_node_over_a_file": [{"f": Reg(b"x")}, {"f": Device("char", 0o777)}],
    "fifo_that_nobody_reads": [{"p": Device("fifo")}, {"p": Reg(b"x")}],
    "name_with_a_newline": [{"a\n/VICTIM/file": _EVIL, "b\r": _EVIL}],
    "name_that_looks_like_options": [{"-rf": Dir(), "--force": _EVIL, "-offset": _EVIL}],
    "link_target_with_a_newline": [{"l": Sym("a\nb")}],
    "name_of_surrogates": [{"\udcff/\udcfe": _EVIL}],
    "name_too_long": [{"n" * 256: _EVIL}],
    "path_too_long": [{"/".join(["d" * 200] * 30): _EVIL}],
    "link_target_too_long": [{"l": Sym("x" * 5000)}],
    "empty_link_target": [{"l": Sym("")}],
    "deep_directories": [{"/".join(["d"] * 3000): Dir()}],
    "deeper_with_every_link": [{"d" + "/d" * 150: Dir(), "l": Sym("d" + "/d" * 150)}, {"l/" + "d/" * 300: Dir()}],
    "file_below_a_file": [{"a": Reg(b"x"), "a/b": _EVIL}],
    "root_becomes_a_file": [{"./": Reg(b"x")}],
    "root_without_permissions": [{"./": Dir(0o000), "a": Reg(b"x")}],
    "xattrs_of_the_system": [{"a": Reg(b"x", xattrs={"security.capability": b"\1\0\0\2" + bytes(16)})}],
    "xattrs_of_overlayfs": [
        {"a": Dir(xattrs={"trusted.overlay.redirect": b"/VICTIM", "trusted.overlay.opaque": b"y"})}
    ],
}
CONFIGS = {
    "working_directory_climbs": {"working_directory": f"/../../..{VICTIM}"},
    "working_directory_of_a_descriptor": {"working_directory": "/proc/self/fd/7"},
    "working_directory_like_a_whiteout": {"working_directory": "/.wh.bin"},
    "working_directory_with_a_newline": {"working_directory": "/a\nb"},
    "working_directory_too_long": {"working_directory": "/" + "w" * 5000},
    "working_directory_too_deep": {"working_directory": "/x" * 2000},
    "user_out_of_range": {"user": "4294967296:0"},
    "user_with_a_path": {"user": f"../..{VICTIM}:x"},
    "environment_with_a_nul": {"environment": ("A=\0", "B", "=x", "C=1")},
    "environment_that_ends_the_script": {"environment": ("A='; touch /VICTIM/new; '", "B\n=1", "C;id=1")},
    "arguments_that_end_the_script": {"entrypoint": ("'; touch /VICTIM/new; '", "$(touch /VICTIM/new)")},
    "labels_of_many_kinds": {"labels": {"\n": "\n", "x" * 10000: "y" * 10000}},
}


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where the system has such a place: every conversion waits until its filesystem is written back."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="imgcheck-test-", dir=memory))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A directory beside every destination that must be the same afterwards."""
    directory = tmp_path / "victim"
    directory.mkdir()
    (directory / "file").write_bytes(b"precious")
    (directory / "file").chmod(0o640)
    os.utime(directory / "file", (1, 1))
    os.utime(directory, (1, 1))
    before = _state(tmp_path)
    yield directory
    assert _state(tmp_path) == before


def _state(parent: Path) -> list[tuple]:
    """Everything beside the destination, whose own name is `out`, and the layout's."""
    found = []
    for path in sorted(parent.rglob("*")):
        if path.relative_to(parent).parts[0] in ("out", "layout"):
            continue
        status = path.lstat()
        found.append((str(path), status.st_mode, status.st_nlink, status.st_mtime_ns, status.st_size))
    return found


def _layer(members, victim: Path) -> bytes:
    pairs = list(members.items()) if isinstance(members, dict) else members
    found = []
    for name, member in pairs:
        if isinstance(member, Sym):
            member = Sym(member.target.replace(VICTIM, str(victim)))
        elif isinstance(member, tuple):
            member = (H, member[1].replace(VICTIM, str(victim)))
        found.append((name.replace(VICTIM, str(victim)), member))
    return build(found)


def _convert(image: ImageBuilder, target: str, parent: Path, limits: Limits | None = None) -> None:
    layout = image.write(parent / "layout", tag="test")
    destination = parent / "out" / "made"
    destination.parent.mkdir()
    with open_image(f"oci:{layout}:test") as opened:
        try:
            convert(opened, target, destination, ConvertOptions(limits=limits or Limits()))
        except ImgcheckError:
            assert not os.path.lexists(destination)
    assert {path.name for path in destination.parent.iterdir()} <= {"made"}
    _check_inside(destination)


def _check_inside(destination: Path) -> None:
    """No device node, no file of the victim's, nothing setuid where root converts."""
    for path in destination.rglob("*"):
        status = path.lstat()
        assert not stat.S_ISBLK(status.st_mode)
        assert not stat.S_ISCHR(status.st_mode)
        if stat.S_ISREG(status.st_mode):
            assert b"precious" not in path.read_bytes()
            assert os.geteuid() or not status.st_mode & 0o6000


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CORPUS)
def test_hostile_layers_stay_inside(name, target, victim, tmp_path):
    image = ImageBuilder(entrypoint=("/bin/x",), working_directory="/w")
    for members in CORPUS[name]:
        image.layer(_layer(members, victim))
    _convert(image, target, tmp_path)


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_layers_are_analysed_without_a_trace(name, victim, tmp_path):
    image = ImageBuilder(entrypoint=("/bin/x",), working_directory="/w")
    for members in CORPUS[name]:
        image.layer(_layer(members, victim))
    layout = image.write(tmp_path / "layout", tag="test")
    with open_image(f"oci:{layout}:test") as opened, suppress(ImgcheckError):
        build_profile(opened, SILENT)


@pytest.mark.parametrize("name", CORPUS)
def test_hostile_trees_stay_inside_when_they_come_as_squashfs(name, victim, tmp_path):
    """What survives of a hostile image in a SIF is a hostile SIF."""
    image = ImageBuilder(entrypoint=("/bin/x",), working_directory="/w")
    for members in CORPUS[name]:
        image.layer(_layer(members, victim))
    layout = image.write(tmp_path / "layout", tag="test")
    sif = layout / "app.sif"
    with open_image(f"oci:{layout}:test") as opened, suppress(ImgcheckError):
        convert(opened, "sif", sif)
    if not sif.exists():
        return
    (tmp_path / "out").mkdir()
    with open_image(str(sif)) as opened, suppress(ImgcheckError):
        convert(opened, "sandbox", tmp_path / "out/made")
    _check_inside(tmp_path / "out/made")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CONFIGS)
def test_hostile_configs_stay_inside(name, target, victim, tmp_path):
    config = {
        key: value.replace(VICTIM, str(victim)) if isinstance(value, str) else value
        for key, value in CONFIGS[name].items()
    }
    _convert(ImageBuilder(**config).layer({"bin/x": b"x"}), target, tmp_path)


def _with_size(archive: bytes, size: bytes) -> bytes:
    """The archive with the size field of its first header changed, and the checksum that goes with it."""
    header = archive[:124] + size + archive[136:148] + b" " * 8 + archive[156:512]
    return header[:148] + b"%06o\0 " % sum(header) + header[156:] + archive[512:]


def _bad_blobs() -> dict[str, bytes]:
    good = build({"a": Reg(b"x" * 2000), "b": Reg(b"y")})
    huge_pax = tarfile.TarInfo("p")
    huge_pax.type, huge_pax.size = tarfile.XHDTYPE, (1 << 33) - 1
    return {
        "truncated_in_a_file": good[:1500],
        "truncated_in_a_header": good[:100],
        "wrong_checksum": b"x" + good[1:],
        "negative_size": _with_size(good, b"-0000000001\0"),
        "absurd_size": _with_size(good, b"\x80" + b"\x7f" * 11),
        "pax_header_of_eight_gigabytes": huge_pax.tobuf(tarfile.USTAR_FORMAT),
        "no_archive": b"this is no archive" * 100,
        "html": b"<html><body>404</body></html>" * 40,
        "nothing": b"",
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", _bad_blobs())
def test_damaged_archives_leave_nothing(name, target, victim, tmp_path):
    _convert(ImageBuilder().layer({"first": b"x"}).layer(_bad_blobs()[name]), target, tmp_path)


@pytest.mark.parametrize("target", TARGETS)
def test_a_layer_that_was_altered_is_refused(target, victim, tmp_path):
    layout = ImageBuilder().layer({"a": b"x"}, compression="none").write(tmp_path / "layout", tag="test")
    for blob in (layout / "blobs/sha256").iterdir():
        data = blob.read_bytes()
        if data[257:262] == b"ustar":
            blob.write_bytes(data.replace(b"x", b"z", 1) if b"x" in data[512:1024] else data)
            assert hashlib.sha256(blob.read_bytes()).hexdigest() != blob.name
    with open_image(f"oci:{layout}:test") as image, pytest.raises(ImgcheckError, match=r"hash to|checksum"):
        convert(image, target, tmp_path / "out", ConvertOptions())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(entries=2), "more than 2 entries"),
        (Limits(file_size=10), "claims 1000 bytes"),
        (Limits(ratio=1, ratio_floor=100), "out of all proportion"),
        (Limits(xattrs=4), "more than 4 bytes of extended attributes"),
        (Limits(depth=3), "directories deep"),
        (Limits(name=4), "file name"),
        (Limits(path=40), "the path"),
    ],
)
def test_limits_name_themselves(limits, said, target, victim, tmp_path):
    members = {"a": bytes(1000), "b": b"", "d/d/d/d/d/d": b"", "/".join(["12345"] * 12): b""}
    attributes = build([("x", Reg(b"", xattrs={"user.x": b"12345"}))])
    layout = ImageBuilder().layer(attributes).layer(members).write(tmp_path / "layout", tag="test")
    with open_image(f"oci:{layout}:test") as image, pytest.raises(ImgcheckError, match=said):
        convert(image, target, tmp_path / "out", ConvertOptions(limits=limits))
    assert not (tmp_path / "out").exists()
