"""A directory as the image: what cannot be read of it is never left out in silence."""

from pathlib import Path

import pytest

from imgcheck.convert.run import convert
from imgcheck.convert.targets import TARGETS
from imgcheck.errors import ConvertError
from imgcheck.sources.open import open_image
from tests.convert.started import as_ordinary_user


@pytest.fixture
def tree(public_tmp: Path) -> Path:
    root = public_tmp / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/a").write_bytes(b"a")
    (root / "link").symlink_to("/bin/a")
    return root


def _convert(root: Path, target: str, destination: Path) -> None:
    with open_image(f"dir:{root}") as image:
        convert(image, target, destination)


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
