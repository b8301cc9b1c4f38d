"""What is written for enroot: read by its rules (doc/image-format.md, src/common.sh), it is what the image says."""

import re
from pathlib import Path

import pytest

from imgcheck.sources.open import open_image
from tests.images import Directory, ImageBuilder
from tests.tools import need, run

_VALUES = {
    "PLAIN": "a=b c",
    "QUOTED": "'a'",
    "MIXED": "\"a'",
    "QUOTED_INSIDE": "a 'b' c",
    "ONE_QUOTE": "'",
    "QUOTED_AND_BLANK": "'a' ",
    "REFERENCE": "${HOME}/x:${PATH}",
    "DOLLARS": "$HOME $$ $${A}{B} ${1} ${A",
    "QUOTED_REFERENCE": '"${HOME}"',
    "BACKSLASHES": "\\ \\n $(id) `id`",
    "EMPTY": "",
}


def _image(**config: object) -> ImageBuilder:
    return ImageBuilder(entrypoint=("/bin/app",), **config).layer({"bin": Directory(), "bin/app": b"x"})


def _unpacked(made: Path, into: Path) -> Path:
    run(need("unsquashfs"), "-quiet", "-no-progress", "-dest", into, made)
    return into


def _read_by_enroot(path: Path) -> dict[str, str]:
    """The variables as enroot 4.1 leaves them: references replaced by the host's, then quotes taken off twice."""
    host = {"HOME": "/home/of/the/host"}
    text = re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", lambda match: host.get(match[1], ""), path.read_text())
    for _ in range(2):
        text = re.sub(r"""^(\w+)=["'](.*)["'][ \t]*$""", r"\1=\2", text, flags=re.MULTILINE)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_values_are_read_as_they_were(converted, tmp_path):
    environment = tuple(f"{name}={value}" for name, value in _VALUES.items())
    converted(_image(environment=environment), "enroot", tmp_path / "x.sqsh")
    assert _read_by_enroot(_unpacked(tmp_path / "x.sqsh", tmp_path / "tree") / "etc/environment") == _VALUES
    with open_image(str(tmp_path / "x.sqsh")) as image:
        assert image.config.environment == environment


@pytest.mark.parametrize(
    ("line", "word"), [("A=1\n2", "'A'"), ("a.b=1", "'a.b'"), ("ENROOT_X=1", "'ENROOT_X'"), ("IFS=x", "IFS")]
)
def test_variables_that_enroot_does_not_take_are_named(line, word, converted, tmp_path):
    done = converted(_image(environment=(line, "B=2")), "enroot", tmp_path / "x.sqsh")
    assert any(note.startswith(f"ENV {word}") for note in done.notes)


def test_the_home_of_a_login_shell_exists(converted, tmp_path):
    done = converted(_image(environment=("HOME=/data/home",)), "enroot", tmp_path / "x.sqsh")
    assert (_unpacked(tmp_path / "x.sqsh", tmp_path / "tree") / "data/home").is_dir()
    assert "--env=HOME" not in done.command
    assert "--env=HOME" in converted(_image(), "enroot", tmp_path / "y.sqsh").command


def test_labels_are_comments_and_nothing_else(converted, tmp_path):
    labels = {"a": "1\ntouch /tmp/x", "b\ntouch /tmp/y": "2"}
    converted(_image(labels=labels), "enroot", tmp_path / "x.sqsh")
    lines = (_unpacked(tmp_path / "x.sqsh", tmp_path / "tree") / "etc/rc").read_text().splitlines()
    assert lines[1:4] == ["# a 1 touch /tmp/x", "# b touch /tmp/y 2", "cd / || exit 1"]
