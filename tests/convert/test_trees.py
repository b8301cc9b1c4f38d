"""The tree on disk is the one that the layers describe, and umoci's unpacker agrees."""

import itertools
import os
import stat
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import pytest

from imgcheck.convert.run import convert
from imgcheck.sources.open import open_image
from tests.convert.members import Device, Dir, Reg, Sym, build
from tests.convert.started import as_ordinary_user
from tests.images import ImageBuilder
from tests.peers import as_unprivileged
from tests.tools import need, run

H = "hardlink"
CASES = {
    "one_file": [{"a": Reg(b"x")}],
    "nested_directories_without_entries": [{"a/b/c/d": Reg(b"x")}],
    "file_over_file": [{"a": Reg(b"old")}, {"a": Reg(b"new", 0o600)}],
    "file_over_directory": [{"a/b/c": Reg(b"x")}, {"a": Reg(b"file")}],
    "directory_over_file": [{"a": Reg(b"x")}, {"a": Dir(), "a/b": Reg(b"y")}],
    "directory_over_link_to_a_directory": [{"real/x": Reg(b"1"), "a": Sym("real")}, {"a": Dir(), "a/y": Reg(b"2")}],
    "directory_attributes_replaced": [{"a": Dir(0o700), "a/b": Reg(b"x")}, {"a": Dir(0o2775, mtime=77)}],
    "link_over_directory": [{"a/b": Reg(b"x"), "t": Dir()}, {"a": Sym("t")}],
    "link_over_file": [{"a": Reg(b"x")}, {"a": Sym("/nowhere")}],
    "file_over_link": [{"t": Reg(b"kept"), "a": Sym("t")}, {"a": Reg(b"new")}],
    "write_through_a_link_to_a_directory": [{"real": Dir(), "a": Sym("real")}, {"a/x": Reg(b"x")}],
    "write_through_an_absolute_link": [{"real": Dir(), "a": Sym("/real")}, {"a/x": Reg(b"x")}],
    "write_through_a_link_that_climbs": [{"real": Dir(), "d/a": Sym("../../../../real")}, {"d/a/x": Reg(b"x")}],
    "write_through_two_links": [{"real": Dir(), "b": Sym("real"), "a": Sym("b")}, {"a/x": Reg(b"x")}],
    "whiteout_of_a_file": [{"a": Reg(b"x"), "b": Reg(b"y")}, {".wh.a": Reg()}],
    "whiteout_of_a_directory": [{"a/b/c": Reg(b"x")}, {".wh.a": Reg()}],
    "whiteout_of_a_link_removes_the_link_only": [{"t/x": Reg(b"x"), "a": Sym("t")}, {".wh.a": Reg()}],
    "whiteout_below_a_linked_directory": [{"t/x": Reg(b"x"), "a": Sym("t")}, {"a/.wh.x": Reg()}],
    "whiteout_of_nothing": [{"a": Reg(b"x")}, {".wh.b": Reg()}],
    "whiteout_then_the_same_name": [{"a/b": Reg(b"x")}, {".wh.a": Reg(), "a/c": Reg(b"y")}],
    "name_then_its_whiteout_in_one_layer": [{"a": Reg(b"old")}, {"a": Reg(b"new"), ".wh.a": Reg()}],
    "opaque_first": [{"a/b": Reg(b"x")}, {"a": Dir(), "a/.wh..wh..opq": Reg(), "a/c": Reg(b"y")}],
    "opaque_last": [{"a/b": Reg(b"x")}, {"a": Dir(), "a/c": Reg(b"y"), "a/.wh..wh..opq": Reg()}],
    "opaque_deep": [{"a/b/c/d": Reg(b"x"), "a/b/e": Reg(b"")}, {"a/b": Dir(), "a/b/.wh..wh..opq": Reg()}],
    "opaque_root": [{"a": Reg(b"x"), "b/c": Reg(b"y")}, {".wh..wh..opq": Reg(), "d": Reg(b"z")}],
    "removed_and_back": [{"a": Reg(b"1")}, {".wh.a": Reg()}, {"a": Reg(b"3")}],
    "hardlink_in_a_layer": [{"a": Reg(b"x"), "b": (H, "a")}],
    "hardlink_across_layers": [{"a": Reg(b"x")}, {"d/b": (H, "a")}],
    "hardlink_survives_its_first_name": [{"a": Reg(b"x"), "b": (H, "a")}, {".wh.a": Reg()}],
    "one_name_of_two_replaced": [{"a": Reg(b"x"), "b": (H, "a")}, {"a": Reg(b"new")}],
    "hardlink_to_a_link": [{"t": Reg(b"x"), "a": Sym("t"), "b": (H, "a")}],
    "hardlink_over_a_file": [{"a": Reg(b"x"), "b": Reg(b"y")}, {"b": (H, "a")}],
    "hardlinks_of_an_empty_file": [{"a": Reg(b""), "b": (H, "a"), "c/d": (H, "b")}],
    "hardlink_below_a_closed_directory": [{"d": Dir(0o000), "d/a": Reg(b"x"), "z": (H, "d/a")}],
    "setuid_and_sticky": [{"a": Reg(b"x", 0o4755), "b": Reg(b"x", 0o2755), "d": Dir(0o1777), "e": Dir(0o3755)}],
    "modes": [{f"m{mode:o}": Reg(b"x", mode) for mode in (0, 0o1, 0o400, 0o222, 0o640, 0o777)}],
    "closed_directories": [{"a": Dir(0o000), "a/b": Dir(0o111), "a/b/c": Reg(b"x", 0)}],
    "read_only_directory_updated": [{"a": Dir(0o555), "a/b": Reg(b"x")}, {"a/b": Reg(b"y"), "a/c": Reg(b"z")}],
    "times": [{"a": Reg(b"x", mtime=1), "d": Dir(mtime=2), "d/e": Reg(b"y", mtime=1_000_000_000), "l": Sym("a")}],
    "time_before_1970": [{"a": Reg(b"x", mtime=-86400)}],
    "fifo": [{"p": Device("fifo", 0o622)}],
    "device_nodes": [{"dev": Dir(), "dev/null": Device("char", 0o666), "dev/sda": Device("block", 0o660)}],
    "long_names": [{"n" * 255: Reg(b"x"), "/".join(["d" * 100] * 10): Reg(b"y")}],
    "name_that_is_no_utf8": [{"caf\udce9": Reg(b"x"), "\udcff\udcfe": Dir(), "l": Sym("caf\udce9")}],
    "odd_names": [{"a b": Reg(b"1"), "new\nline": Reg(b"2"), "-rf": Reg(b"3"), "*": Reg(b"4"), "~": Reg(b"5")}],
    "names_with_dots": [{"./a": Reg(b"1"), "d/../b": Reg(b"2"), "...": Reg(b"3"), "./e/./f": Reg(b"4")}],
    "absolute_names": [{"/a": Reg(b"1"), "//b/c": Reg(b"2")}],
    "twice_in_a_layer": [{"a": Reg(b"1"), "./a": Reg(b"2")}],
    "long_link": [{"a": Sym("x" * 2000)}],
    "links_in_a_circle": [{"a": Sym("b"), "b": Sym("a"), "c": Sym("c")}],
    "user_xattrs": [{"a": Reg(b"x", xattrs={"user.k": b"v\0\xff"}), "d": Dir(xattrs={"user.d": b"w"})}],
    "sparse_content": [{"a": Reg(bytes(3 << 20) + b"end"), "b": Reg(b"x" + bytes(1 << 20))}],
    "large_and_unaligned": [{f"f{size}": Reg(b"q" * size) for size in (511, 512, 513, 1 << 20, (1 << 20) + 1)}],
    "layer_without_entries": [{"a": Reg(b"x")}, {}],
    "root_attributes": [{"./": Dir(0o750, mtime=5), "a": Reg(b"x")}],
}


def snapshot(root: Path) -> dict[str, tuple]:
    """Everything about the tree that a user can have: kinds, modes, times, targets, contents, links, attributes."""
    found: dict[str, tuple] = {}
    inodes: dict[int, str] = {}
    # Not rglob: that of Python 3.11.2 follows links to see whether they lead to directories, and fails at long ones.
    names = (Path(place, name) for place, *below in os.walk(root) for name in itertools.chain(*below))
    for path in [root, *sorted(names)]:
        status = path.lstat()
        key = str(path.relative_to(root))
        kind = stat.S_IFMT(status.st_mode)
        content = b""
        if stat.S_ISLNK(kind):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(kind):
            content = path.read_bytes()
        same_as = key if stat.S_ISDIR(kind) else inodes.setdefault(status.st_ino, key)
        # Where umoci may not set an owner it says so in an attribute of its own.
        names = [name for name in os.listxattr(path, follow_symlinks=False) if name != "user.rootlesscontainers"]
        xattrs = {name: os.getxattr(path, name, follow_symlinks=False) for name in names}
        time = None if stat.S_ISLNK(kind) else int(status.st_mtime)
        found[key] = (kind, stat.S_IMODE(status.st_mode), time, content, same_as, xattrs)
    return found


@pytest.fixture
def layout_of(public_tmp: Path) -> Callable[[list], Path]:
    def write(layers: list) -> Path:
        image = ImageBuilder()
        for members in layers:
            image.layer(build(members))
        return image.write(public_tmp / "layout", tag="test")

    return write


@pytest.mark.parametrize("name", CASES)
def test_umoci_unpacks_the_same_tree(name, layout_of, public_tmp):
    layout = layout_of(CASES[name])
    bundle = public_tmp / "bundle"
    run(*as_unprivileged(need("umoci"), "unpack", "--rootless", "--image", f"{layout}:test", bundle))
    run("chmod", "-R", "o+rX", layout)

    def work() -> None:
        with open_image(f"oci:{layout}:test") as image:
            convert(image, "rootfs", public_tmp / "tree")

    as_ordinary_user(work)
    ours, theirs = snapshot(public_tmp / "tree"), snapshot(bundle / "rootfs")
    for path in set(ours) & set(theirs):
        if stat.S_ISDIR(ours[path][0]) and not _named(CASES[name], path):
            # Directories that no entry describes have the time at which they were made.
            ours[path] = (*ours[path][:2], None, *ours[path][3:])
            theirs[path] = (*theirs[path][:2], None, *theirs[path][3:])
    assert ours == theirs


def _named(layers: list, path: str) -> bool:
    return any(os.path.normpath(key).lstrip("/") == path for members in layers for key in members)


@pytest.mark.parametrize("target", ["oci", "docker-archive"])
@pytest.mark.parametrize("name", CASES)
def test_layers_that_are_repacked_stay_as_they_are(name, target, layout_of, public_tmp):
    with open_image(f"oci:{layout_of(CASES[name])}:test") as image:
        convert(image, target, public_tmp / "repacked")
        expected = [list(map(itemgetter(0), layer.entries())) for layer in image.layers]
    with open_image(f"{target}:{public_tmp / 'repacked'}") as image:
        assert [list(map(itemgetter(0), layer.entries())) for layer in image.layers] == expected


@pytest.mark.parametrize("target", ["rootfs", "sandbox", "sif", "enroot", "udocker"])
def test_what_a_target_cannot_hold_is_said(target, converted, tmp_path):
    image = ImageBuilder(entrypoint=("/a",))
    image.layer(build({"dev/sda": Device("block", 0o660), "a": Reg(b"x", xattrs={"security.capability": b"x"})}))
    notes = converted(image, target, tmp_path / "made").notes
    assert any(note.startswith("1 device nodes became empty files") for note in notes)
    assert any(note.startswith("1 extended attributes") for note in notes)
    plain = ImageBuilder(entrypoint=("/a",)).layer(build({"a": Reg(b"x", xattrs={"user.k": b"v"})}))
    notes = converted(plain, target, tmp_path / "plain").notes
    assert not any("device nodes" in note or "extended attributes" in note for note in notes)
