"""A directory as the image: what cannot be read of it is never left out in silence."""

import os
import stat
from pathlib import Path

import pytest

from imgcheck.cli import main
from imgcheck.convert.run import Converted, convert
from imgcheck.convert.targets import TARGETS
from imgcheck.errors import ConvertError
from imgcheck.layers.entry import Entry
from imgcheck.sources.open import open_image
from tests.convert.started import as_ordinary_user
from tests.tools import missing


@pytest.fixture
def tree(public_tmp: Path) -> Path:
    root = public_tmp / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/a").write_bytes(b"a")
    (root / "link").symlink_to("/bin/a")
    return root


def _convert(root: Path, target: str, destination: Path) -> Converted:
    with open_image(f"dir:{root}") as image:
        return convert(image, target, destination)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_can_be_made_of_a_directory(target, tree, public_tmp):
    _convert(tree, target, public_tmp / "out")
    assert (public_tmp / "out").exists()


@pytest.mark.parametrize("closed", ["bin/a", "bin"])
@pytest.mark.parametrize("target", TARGETS)
def test_an_unreadable_file_or_directory_ends_the_conversion(closed, target, tree, public_tmp):
    (tree / closed).chmod(0)
    with pytest.raises(ConvertError, match="cannot be read"):
        as_ordinary_user(lambda: _convert(tree, target, public_tmp / "out"))
    assert not (public_tmp / "out").exists()


def _packed(root: Path, target: str, destination: Path) -> tuple[dict[str, Entry], tuple[str, ...]]:
    """The entries of the only layer, by path, and the notes."""
    notes = _convert(root, target, destination).notes
    with open_image(f"{target}:{destination}") as image:
        return {entry.path: entry for entry, _content in image.layers[0].entries()}, notes


@pytest.mark.parametrize("target", ["oci", "docker-archive"])
def test_a_repacked_directory_keeps_its_owners_so_that_nobodys_setuid_program_becomes_roots(target, tree, public_tmp):
    if os.getuid():
        missing("needs root to give files away")
    os.chown(tree / "bin/a", 1000, 3_000_000)
    (tree / "bin/a").chmod(0o6755)
    os.lchown(tree / "link", 1001, 1002)
    os.mknod(tree / "bin/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    found, notes = _packed(tree, target, public_tmp / "out")
    program, link, node = found["bin/a"], found["link"], found["bin/null"]
    assert (program.mode, program.uid, program.gid) == (0o6755, 1000, 3_000_000)
    assert (link.uid, link.gid, link.device) == (1001, 1002, (0, 0))
    assert (node.kind, node.device) == ("character", (1, 3))
    assert not notes


@pytest.mark.parametrize("target", ["oci", "docker-archive"])
def test_a_repacked_directory_keeps_capabilities_and_says_what_attributes_it_loses(target, tree, public_tmp):
    capability = bytes.fromhex("0100000200040000000000000000000000000000")  # cap_net_bind_service, version 2
    try:
        os.setxattr(tree / "bin/a", "security.capability", capability)
        os.setxattr(tree / "bin/a", "trusted.x", b"1")
    except OSError as error:
        missing(f"needs root and a filesystem with attributes: {error}")
    found, notes = _packed(tree, target, public_tmp / "out")
    assert found["bin/a"].xattrs == {"security.capability": capability}
    assert notes == ("1 extended attributes (labels of SELinux and the like) could not be kept",)


@pytest.mark.parametrize("place", ["out", "bin/out", "../root/out"])
def test_a_destination_in_the_directory_that_is_converted_is_refused(place, tree, capsys):
    assert main(["convert", f"dir:{tree}", "--to", "rootfs", str(tree / place)]) == 2
    assert "which is converted" in capsys.readouterr().err
    assert sorted(path.name for path in tree.iterdir()) == ["bin", "link"]
    assert main(["convert", f"dir:{tree}", "--to", "rootfs", str(tree.parent / "root2")]) == 0
