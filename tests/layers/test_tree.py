"""The merged tree against umoci's unpacker, and by itself where umoci differs from the specification."""

import contextlib
import hashlib
import io
import itertools
import os
import stat
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imgcheck.documents.image import LayerInfo
from imgcheck.errors import LayerError
from imgcheck.layers.entry import Entry
from imgcheck.layers.stream import TarLayer
from imgcheck.layers.tar import read_tar
from imgcheck.layers.tree import MergedTree
from tests.layers.layouts import (
    Member,
    archive,
    digest_of,
    directory,
    file,
    hardlink,
    member,
    symlink,
    write_layout,
)
from tests.tools import need

Layers = list[list[Member]]


def whiteout(path: str) -> Member:
    head, _, name = path.rpartition("/")
    return file(f"{head}/.wh.{name}" if head else f".wh.{name}")


def opaque(path: str) -> Member:
    return file(f"{path}/.wh..wh..opq")


LOWER = [directory("d"), file("d/a", "a"), file("d/b", "b"), directory("d/sub"), file("d/sub/c", "c"), file("f", "f")]

CASES: dict[str, Layers] = {
    "file_replaces_file": [LOWER, [file("f", "new", mode=0o600)]],
    "directory_over_directory_keeps_content_and_takes_attributes": [LOWER, [directory("d", mode=0o700)]],
    "file_replaces_directory_with_all_below": [LOWER, [file("d", "now a file")]],
    "directory_replaces_file": [LOWER, [directory("f"), file("f/x", "x")]],
    "directory_replaces_symlink_to_directory": [[*LOWER, symlink("l", "d")], [directory("l"), file("l/x", "x")]],
    "symlink_replaces_directory": [LOWER, [symlink("d", "f")]],
    "symlink_replaces_file": [LOWER, [symlink("f", "nowhere")]],
    "file_replaces_symlink_and_leaves_its_target": [[*LOWER, symlink("l", "f")], [file("l", "l")]],
    "whiteout_of_file": [LOWER, [whiteout("d/a")]],
    "whiteout_of_directory_removes_all_below": [LOWER, [whiteout("d")]],
    "whiteout_of_symlink_removes_the_link_only": [[*LOWER, symlink("l", "d")], [whiteout("l")]],
    "whiteout_of_what_is_not_there": [LOWER, [whiteout("none"), whiteout("d/none")]],
    "whiteout_after_a_file_of_the_same_layer_keeps_it": [LOWER, [file("f", "upper"), whiteout("f")]],
    "whiteout_before_a_file_of_the_same_layer_keeps_it": [LOWER, [whiteout("f"), file("f", "upper")]],
    "whiteout_of_directory_that_the_layer_makes_again": [
        LOWER, [whiteout("d"), directory("d", mode=0o711), file("d/new", "n")]],
    "whiteout_of_directory_after_the_layer_made_it_again": [
        LOWER, [directory("d", mode=0o711), file("d/new", "n"), whiteout("d")]],
    "whiteout_under_a_linked_directory": [[*LOWER, symlink("l", "/d")], [whiteout("l/a")]],
    "opaque_first": [LOWER, [directory("d"), opaque("d"), file("d/new", "n")]],
    "opaque_last": [LOWER, [directory("d"), file("d/new", "n"), file("d/sub/new", "n"), opaque("d")]],
    "opaque_hides_below_directories_that_the_layer_repeats": [
        LOWER, [directory("d"), directory("d/sub"), file("d/sub/new", "n"), opaque("d")]],
    "opaque_of_what_is_not_there": [LOWER, [directory("e"), opaque("e")]],
    "opaque_in_the_root": [LOWER, [file(".wh..wh..opq"), file("only", "o")]],
    "a_whiteout_lasts_for_its_layer_only": [LOWER, [whiteout("f")], [file("f", "again")]],
    "whiteout_name_as_a_directory_component": [[directory("x"), file("x/.wh.y/z", "z")]],
    "parent_is_an_absolute_link": [[directory("real"), symlink("a", "/real")], [file("a/x", "x")]],
    "parent_is_a_relative_link_upwards": [
        [directory("usr/lib"), directory("deep"), symlink("deep/l", "../../../usr/lib")], [file("deep/l/x", "x")]],
    "parent_is_a_chain_of_links": [
        [directory("z"), symlink("a", "b"), symlink("b", "/c"), symlink("c", "./z")], [file("a/x", "x")]],
    "parent_is_a_dangling_link": [[symlink("a", "/made/here")], [file("a/x", "x")]],
    "parents_are_made": [[file("p/q/r/s", "s")]],
    "names_are_cleaned_under_the_root": [[file("/abs", "1"), file("./dot", "2"), file("e/../../up", "3")]],
    "the_last_of_equal_names_counts": [[file("f", "1"), file("f", "2"), symlink("f", "x"), file("f", "3")]],
    "hardlinks_share_their_file": [[file("f", "f"), hardlink("g", "f"), hardlink("h", "g")]],
    "hardlink_into_a_lower_layer": [LOWER, [hardlink("g", "f"), hardlink("d/h", "/d/a")]],
    "hardlink_to_a_symlink_is_that_symlink": [[symlink("l", "nowhere"), hardlink("m", "l")]],
    "hardlink_through_a_linked_directory": [[*LOWER, symlink("l", "d")], [hardlink("g", "l/a")]],
    "hardlink_outlives_the_name_it_was_made_from": [[file("f", "f"), hardlink("g", "f")], [whiteout("f")]],
    "replacing_one_name_leaves_the_other": [[file("f", "f"), hardlink("g", "f")], [file("f", "new")]],
    "the_root_may_be_described": [[directory("./"), file("f", "f")]],
    "device_and_fifo": [[member("fifo", kind=b"6"), file("f", "f")], [file("fifo", "replaced")]],
    "special_bits_stay": [[file("s", "s", mode=0o4755), directory("t", mode=0o1777), file("z", mode=0)]],
    "names_that_are_no_utf_8": [[file("caf\udce9", "x"), symlink("l\udcff", "caf\udce9")], [whiteout("l\udcff")]],
    "unwritable_directory_is_written_below": [[directory("ro", mode=0o555), file("ro/x", "x")], [file("ro/y", "y")]],
}  # fmt: skip

REFUSED: dict[str, Layers] = {
    "whiteout_of_dot": [LOWER, [file("d/.wh..")]],
    "whiteout_of_dot_dot": [LOWER, [file("d/.wh...")]],
    "hardlink_without_target": [[hardlink("g", "nowhere")]],
    "hardlink_to_a_later_file": [[hardlink("g", "f"), file("f", "f")]],
    "parent_is_a_file": [LOWER, [file("f/x", "x")]],
    "parent_is_a_loop_of_links": [[symlink("a", "b"), symlink("b", "a")], [file("a/x", "x")]],
    "hardlink_to_a_directory": [LOWER, [hardlink("g", "d")]],
    "root_becomes_a_symlink": [[symlink(".", "/elsewhere"), file("x", "x")]],
    "root_becomes_a_file": [[file("./", "x")]],
}


def merge(layers: list[bytes]) -> MergedTree:
    """The tree of `layers`; payloads are the SHA-256 of files."""
    tree = MergedTree()
    for index, data in enumerate(layers):
        tree.begin_layer(index)
        layer = TarLayer(LayerInfo(diff_id=digest_of(data)), lambda data=data: io.BytesIO(data))
        for entry, content in layer.entries():
            tree.apply(entry, hashlib.sha256(content.read()).hexdigest() if content else None)
    return tree


def described(tree: MergedTree) -> dict[str, tuple]:
    names: dict[int, str] = {}
    found = {}
    for path, node in tree.walk():
        first = names.setdefault(id(node), path)
        if node.kind == "symlink":
            found[path] = ("symlink", node.link, first)
        elif node.kind == "file":
            found[path] = ("file", node.mode, node.payload, first)
        else:
            found[path] = (node.kind, node.mode, first)
    return found


def unpacked(root: Path) -> dict[str, tuple]:
    """What lies on disk under `root`, in the form of `described`."""
    names: dict[int, str] = {}
    found = {}
    stack = [(path.name, path) for path in root.iterdir()]
    paths = []
    while stack:
        name, path = stack.pop()
        paths.append((name, path))
        if path.is_dir() and not path.is_symlink():
            stack.extend((f"{name}/{child.name}", child) for child in path.iterdir())
    for name, path in sorted(paths, key=lambda item: item[0].split("/")):
        status = path.lstat()
        first = names.setdefault(status.st_ino, name)
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            found[name] = ("symlink", os.readlink(path), first)  # noqa: PTH115 (Path would tidy the target)
        elif stat.S_ISREG(status.st_mode):
            found[name] = ("file", mode, hashlib.sha256(path.read_bytes()).hexdigest(), first)
        elif stat.S_ISDIR(status.st_mode):
            found[name] = ("directory", mode, first)
        else:
            found[name] = ("fifo" if stat.S_ISFIFO(status.st_mode) else "other", mode, first)
    return found


def umoci_unpack(layers: list[bytes], place: Path) -> subprocess.CompletedProcess:
    layout = write_layout(place / "layout", layers)
    command = [need("umoci"), "unpack", "--rootless", "--image", f"{layout}:t", str(place / "bundle")]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", CASES)
def test_tree_equals_what_umoci_unpacks(name: str, tmp_path: Path) -> None:
    layers = [archive(members) for members in CASES[name]]
    done = umoci_unpack(layers, tmp_path)
    assert done.returncode == 0, done.stderr
    assert described(merge(layers)) == unpacked(tmp_path / "bundle/rootfs")


@pytest.mark.parametrize("name", REFUSED)
def test_what_umoci_refuses_is_refused(name: str, tmp_path: Path) -> None:
    layers = [archive(members) for members in REFUSED[name]]
    assert umoci_unpack(layers, tmp_path).returncode != 0
    with pytest.raises(LayerError):
        merge(layers)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([file("n" * 256)], "name is longer than the 255 bytes"),
        ([file("é" * 128)], "name is longer than the 255 bytes"),
        ([symlink("l", "t" * 4096)], "target is longer than the 4095 bytes"),
        ([symlink("l", "x/.." * 1024)], "target is longer than the 4095 bytes"),
    ],
)
def test_names_and_targets_that_linux_does_not_take_are_refused(members: list[Member], message: str) -> None:
    with pytest.raises(LayerError, match=message):
        merge([archive(members)])


def test_longest_names_and_targets_are_taken() -> None:
    tree = merge([archive([file("n" * 255), symlink("l", "./" * 2047 + "n")])])
    assert tree.lookup("n" * 255) is not None
    assert tree.lookup("l", follow_last=False).link == "./" * 2047 + "n"


def test_links_that_lead_on_through_long_targets_cost_a_bounded_time() -> None:
    tree = MergedTree()
    tree.begin_layer(0)
    tree.apply(Entry("d", "directory"))
    for index in range(200):
        tree.apply(Entry(f"l{index}", "symlink", link="d/../" * 800 + f"l{index + 1}"))
    tree.apply(Entry("l200", "symlink", link="d"))
    begun = time.process_time()
    for index in range(200):
        assert tree.lookup(f"l0/{index}") is None
        with pytest.raises(LayerError, match="leads through too many"):
            tree.apply(Entry(f"l0/{index}/x", "file"))
    assert time.process_time() - begun < 2


def test_marks_of_an_opaque_directory_cost_the_same_however_often_they_stand() -> None:
    tree = MergedTree()
    tree.begin_layer(0)
    for index in range(2000):
        tree.apply(Entry(f"a/b/{index}/x", "file"))
    tree.begin_layer(1)
    for index in range(2000):
        tree.apply(Entry(f"a/b/{index}/y", "file"))
    begun = time.process_time()
    for _ in range(1000):
        for above in ("a/b/", "a/", ""):
            tree.apply(Entry(f"{above}.wh..wh..opq", "file"))
    assert time.process_time() - begun < 1
    assert {path for path, node in tree.walk() if node.kind == "file"} == {f"a/b/{i}/y" for i in range(2000)}


def test_directory_that_was_opaque_in_one_layer_can_be_in_the_next() -> None:
    mark = [opaque("d")]
    assert "d/new" not in described(merge([archive(layer) for layer in (LOWER, [*mark, file("d/new")], mark)]))


def test_whiteout_without_a_name_is_refused() -> None:
    with pytest.raises(LayerError, match="names no file"):
        merge([archive(LOWER), archive([file("d/.wh.")])])


def test_metadata_of_aufs_is_ignored() -> None:
    layer = archive([directory(".wh..wh.plnk"), file(".wh..wh.aufs"), file("d/.wh..wh.orph"), file("f", "f")])
    assert set(described(merge([layer]))) == {"f"}


def test_layer_of_a_file_is_the_one_that_brought_its_bytes() -> None:
    tree = merge([archive(LOWER), archive([file("f", "new"), hardlink("g", "d/a")]), archive([directory("d")])])
    layers = {path: node.layer for path, node in tree.walk()}
    assert (layers["f"], layers["g"], layers["d/a"], layers["d/b"]) == (1, 0, 0, 0)


def is_plain(entry: Entry) -> bool:
    return entry.kind == "file" and ".wh." not in entry.path


def names_of(layers: list[list[Entry]], together: bool) -> dict[str, str] | str:
    """Names of the merged tree with their kinds; with `together`, runs of files are put there as plain ones."""
    tree = MergedTree()
    try:
        for index, entries in enumerate(layers):
            tree.begin_layer(index)
            for plain, run in itertools.groupby(entries, is_plain):
                if plain and together:
                    tree.apply_files(entry.path for entry in run)
                else:
                    for entry in run:
                        tree.apply(entry)
    except LayerError as error:
        return error.message
    return {path: node.kind for path, node in tree.walk()}


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_plain_files_make_the_same_tree(data: st.DataObject) -> None:
    layers = data.draw(st.lists(st.lists(MEMBERS, min_size=1, max_size=8), min_size=1, max_size=3))
    entries = [[entry for entry, _ in read_tar(iter([archive(members)]), "layer")] for members in layers]
    assert names_of(entries, together=True) == names_of(entries, together=False)


def test_resolve_follows_links_inside_the_root() -> None:
    tree = merge([archive([directory("usr/lib"), file("usr/lib/x.so.1", "x"), symlink("lib", "../../usr/lib"),
                           symlink("usr/lib/x.so", "x.so.1"), symlink("abs", "/lib/x.so"), symlink("loop", "loop"),
                           symlink("bad", "usr/lib/x.so.1/y")])])  # fmt: skip
    assert tree.resolve("/lib/x.so") == "usr/lib/x.so.1"
    assert tree.resolve("lib/x.so", follow_last=False) == "usr/lib/x.so"
    assert tree.resolve("abs") == "usr/lib/x.so.1"
    assert tree.resolve("lib/../abs") is None  # `..` leaves the directory that the link leads to: usr/abs
    assert tree.resolve("lib/../lib/x.so") == "usr/lib/x.so.1"
    assert tree.resolve("loop") is None
    assert tree.resolve("bad") is None
    assert tree.resolve("") == ""
    assert tree.lookup("lib").kind == "directory"
    assert tree.lookup("lib", follow_last=False).kind == "symlink"


def test_chain_of_41_links_is_too_long_for_linux() -> None:
    tree = merge([archive([file("l0", "x"), *(symlink(f"l{i}", f"l{i - 1}") for i in range(1, 42))])])
    assert tree.resolve("l40") == "l0"
    assert tree.resolve("l41") is None


def test_deep_paths_cost_no_recursion() -> None:
    tree = MergedTree()
    deep = "/".join(["d"] * 2000)
    tree.apply(Entry(deep, "file"))
    assert sum(1 for _ in tree.walk()) == 2000
    tree.begin_layer(1)
    tree.apply(Entry(".wh..wh..opq", "file"))
    assert sum(1 for _ in tree.walk()) == 0


@pytest.mark.parametrize("step", ["d/" * 2100, "long" * 50 + "/"])
def test_paths_that_linux_does_not_take_are_refused(step: str) -> None:
    tree = MergedTree()
    with pytest.raises(LayerError, match="longer than the 4096 bytes") as caught:
        tree.apply(Entry(step * 100 + "file", "file"))
    assert len(str(caught.value)) < 1000


def test_paths_that_links_make_longer_are_refused_as_well() -> None:
    tree = MergedTree()
    tree.apply(Entry("l", "symlink", link="d/" * 900))
    tree.apply(Entry("d/" * 900 + "file", "file"))
    tree.apply(Entry("l/" + "d/" * 900 + "file", "file"))
    with pytest.raises(LayerError, match="longer than the 4096 bytes"):
        tree.apply(Entry("l/" + "d/" * 1200 + "file", "file"))


NAMES = st.sampled_from(["a", "b", "l", "a/b", "a/c", "l/a", "a/b/c", "b/l", "l/b", "a/l/c"])
TARGETS = st.sampled_from(["a", "/b", "../a", "l", "a/b", "/", "none"])
MEMBERS = st.one_of(
    st.builds(file, NAMES, st.sampled_from(["1", "2"])),
    st.builds(directory, NAMES),
    st.builds(symlink, NAMES, TARGETS),
    st.builds(hardlink, NAMES, NAMES),
    st.builds(whiteout, NAMES),
    st.builds(opaque, st.sampled_from(["a", "b", "a/b"])),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(MEMBERS, min_size=1, max_size=6), min_size=1, max_size=3))
def test_any_small_image_equals_what_umoci_unpacks(tmp_path_factory: pytest.TempPathFactory, layers: Layers) -> None:
    data = [archive(members) for members in layers]
    place = tmp_path_factory.mktemp("any")
    done = umoci_unpack(data, place)
    if done.returncode == 0:
        assert described(merge(data)) == unpacked(place / "bundle/rootfs")
    else:
        # umoci refuses more than we do: whiteouts below a loop of links, for one.
        with contextlib.suppress(LayerError):
            merge(data)
