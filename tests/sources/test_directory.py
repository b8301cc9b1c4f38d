"""Unpacked roots: every file once, nothing outside, and the settings that runtimes keep."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from imgcheck.documents.image import ImageConfig
from imgcheck.errors import SourceError
from imgcheck.layers.entry import Entry
from imgcheck.sources.open import open_image
from tests.peers import UNPRIVILEGED
from tests.sources.conftest import QUICK, contents, read


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for directory in ("bin", "etc", "usr/lib"):
        (root / directory).mkdir(parents=True)
    (root / "bin" / "tool").write_bytes(b"tool")
    (root / "etc" / "name").write_text("value")
    return root


def _entries(root: Path) -> dict[str, Entry]:
    with open_image(f"dir:{root}", QUICK) as image:
        return {entry.path: entry for entry, _ in image.layers[0].entries()}


def _config(root: Path) -> ImageConfig:
    with open_image(f"dir:{root}", QUICK) as image:
        return image.config


def test_files_links_and_attributes_are_read(root: Path) -> None:
    (root / "bin" / "tool").chmod(0o4755)
    (root / "bin" / "alias").symlink_to("/bin/tool")
    (root / "usr" / "lib" / "same").hardlink_to(root / "bin" / "tool")
    os.mkfifo(root / "etc" / "fifo")
    found = _entries(root)
    assert [*found][:2] == ["", "bin"]
    assert (found["bin/tool"].kind, found["bin/tool"].mode, found["bin/tool"].size) == ("file", 0o4755, 4)
    assert (found["bin/alias"].kind, found["bin/alias"].link) == ("symlink", "/bin/tool")
    assert (found["usr/lib/same"].kind, found["usr/lib/same"].link) == ("hardlink", "bin/tool")
    assert found["etc/fifo"].kind == "fifo"
    assert read(f"dir:{root}") == {"bin/tool": b"tool", "etc/name": b"value"}


def test_links_out_of_the_root_are_listed_and_never_entered(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "usr" / "out").symlink_to(outside)
    (root / "etc" / "passwd").symlink_to(outside / "secret")
    assert _entries(root)["usr/out"].kind == "symlink"
    assert b"secret" not in read(f"dir:{root}").values()


def test_directory_called_root_in_an_image_does_not_stand_for_it(root: Path, tmp_path: Path) -> None:
    (root / "ROOT" / "bin").mkdir(parents=True)
    (root / "container.json").write_text("{}")
    assert "bin/tool" in _entries(root)
    other = tmp_path / "other"
    other.mkdir()
    (other / "ROOT").symlink_to(root)
    assert [*_entries(other)] == ["", "ROOT"]


def test_tree_of_any_depth_is_read_as_far_as_descriptors_go(root: Path) -> None:
    place = os.open(root, os.O_RDONLY)
    for _ in range(600):
        os.mkdir("d", dir_fd=place)
        place, above = os.open("d", os.O_RDONLY, dir_fd=place), place
        os.close(above)
    os.close(place)
    with open_image(f"dir:{root}", QUICK) as image:
        (layer,) = image.layers
        deepest = max(entry.path.count("/") for entry, _ in layer.entries())
        assert deepest >= 499
        assert [*layer.unreadable.values()] == ["more than 500 directories deep"]


def test_names_that_are_no_unicode_keep_their_bytes(root: Path) -> None:
    (Path(os.fsdecode(os.fsencode(root) + b"/etc/caf\xe9"))).write_text("x")
    assert "etc/caf\udce9" in _entries(root)


@contextmanager
def _ordinary_user() -> Iterator[None]:
    """Without root's right to read everything, where the tests run as root."""
    if os.getuid():
        yield
        return
    os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_may_not_be_read_is_noted_with_its_cause(public_tmp: Path) -> None:
    for path, mode in {"usr/bin/open": 0o644, "usr/bin/closed": 0o000, "usr/shut/x": 0o644}.items():
        (public_tmp / path).parent.mkdir(parents=True, exist_ok=True)
        (public_tmp / path).write_text("x")
        (public_tmp / path).chmod(mode)
    (public_tmp / "usr/shut").chmod(0o000)
    with _ordinary_user(), open_image(f"dir:{public_tmp}", QUICK) as image:
        layer = image.layers[0]
        found = {entry.path: content is not None for entry, content in layer.entries()}
    (public_tmp / "usr/shut").chmod(0o700)
    assert found["usr/bin/open"] and not found["usr/bin/closed"] and "usr/shut/x" not in found
    assert layer.unreadable == {"usr/bin/closed": "Permission denied", "usr/shut": "Permission denied"}


def test_architecture_is_told_by_a_program_of_the_root(root: Path) -> None:
    header = bytearray(64)
    header[:6], header[18] = b"\x7fELF\x02\x01", 183
    (root / "bin" / "ls").write_bytes(header)
    with open_image(f"dir:{root}", QUICK) as image:
        assert image.platform.architecture == "arm64" and not image.platform_matches
    (root / "bin" / "ls").unlink()
    with open_image(f"dir:{root}", QUICK) as image:
        assert image.platform_matches and any("architecture" in note for note in image.notes)


def test_missing_and_closed_directories_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such directory"):
        read(f"dir:{tmp_path}/nothing")


# --- settings


def test_udocker_container_gives_its_config(tmp_path: Path, root: Path) -> None:
    container = tmp_path / "container"
    container.mkdir()
    root.rename(container / "ROOT")
    config = {"Env": ["A=B"], "Cmd": ["/bin/tool"], "WorkingDir": "/w", "User": "1"}
    (container / "container.json").write_text(json.dumps({"architecture": "arm64", "os": "linux", "config": config}))
    for reference in (f"dir:{container}", f"dir:{container}/ROOT", str(container)):
        with open_image(reference, QUICK) as image:
            assert image.config == ImageConfig(
                command=("/bin/tool",), environment=("A=B",), working_directory="/w", user="1"
            )
            assert image.platform.architecture == "arm64"
            assert image.family == "udocker"
            assert "bin/tool" in contents(image)


def _singularity(root: Path, environment: str = "", runscript: str = "") -> None:
    (root / ".singularity.d" / "env").mkdir(parents=True)
    (root / ".singularity.d" / "env" / "10-docker2singularity.sh").write_text("#!/bin/sh\n" + environment)
    (root / ".singularity.d" / "runscript").write_text("#!/bin/sh\n" + runscript)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('export PATH="/a:/b"', ("PATH=/a:/b",)),
        ('export A="${A:-"v w"}"', ("A=v w",)),
        ('export A="${A:-"q\\"\\$x"}"', ('A=q"$x',)),
        ("export A='it'\"'\"'s $HOME'", ("A=it's $HOME",)),
        ("export A='two\nlines'", ("A=two\nlines",)),
        ("A=1; export A", ("A=1",)),
        ('export A=1\nexport B="$A:${A}2"', ("A=1", "B=1:12")),
        ("# export A=1", ()),
        ("if true; then", ()),
        ("export A='never closed", ()),
    ],
)
def test_singularity_environment_is_read(root: Path, line: str, expected: tuple[str, ...]) -> None:
    _singularity(root, environment=line + "\n")
    assert _config(root).environment == expected


@pytest.mark.parametrize(
    ("script", "entrypoint", "command"),
    [
        ('OCI_ENTRYPOINT=\'"/bin/tool" "a b"\'\nOCI_CMD=\'"x"\'\nexec $X\n', ("/bin/tool", "a b"), ("x",)),
        ("OCI_ENTRYPOINT=''\nOCI_CMD='\"bash\"'\n", (), ("bash",)),
        ('exec /opt/run --fast "$@"\n', (), ("/opt/run", "--fast")),
        ("cd /x\n/opt/run\n", ("/.singularity.d/runscript",), ()),
        ("", (), ()),
    ],
)
def test_singularity_runscript_is_read(
    root: Path, script: str, entrypoint: tuple[str, ...], command: tuple[str, ...]
) -> None:
    _singularity(root, runscript=script)
    assert (_config(root).entrypoint, _config(root).command) == (entrypoint, command)


def test_statement_that_no_program_could_be_given_is_passed_over_at_once(root: Path) -> None:
    _singularity(root, environment=f"export LONG='{'x' * 1_000_000}'\nexport A='1'\n")
    begun = time.process_time()
    with open_image(f"dir:{root}") as image:
        assert image.config.environment == ("A=1",)
    assert time.process_time() - begun < 2


def test_the_form_of_a_root_tells_which_runtimes_take_it(root: Path) -> None:
    with open_image(f"dir:{root}", QUICK) as image:
        assert image.family == ""
    _singularity(root)
    with open_image(f"dir:{root}", QUICK) as image:
        assert image.family == "apptainer"


def test_charliecloud_environment_and_metadata_are_read(root: Path) -> None:
    (root / "ch").mkdir()
    (root / "ch" / "environment").write_text("A='b c'\nB=d=e\n")
    (root / "ch" / "metadata.json").write_text(json.dumps({"arch": "aarch64", "cwd": "/w", "env": {"Z": "1"}}))
    with open_image(f"dir:{root}", QUICK) as image:
        assert image.config == ImageConfig(environment=("A=b c", "B=d=e"), working_directory="/w")
        assert image.platform.architecture == "arm64"
        assert image.family == "charliecloud"


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("'\n" + "word\n" * 100_000, id="quotation that never closes"),
        pytest.param('export A="0123456789"\n' + 'export A="$A$A"\n' * 60, id="variable that doubles with each line"),
        pytest.param(
            f'export A="{"0" * 500_000}"\n' + 'export B="$A$A$A"\n' * 10_000, id="large variable, named often"
        ),
    ],
)
def test_scripts_made_to_be_endless_are_read_within_bounds(root: Path, script: str) -> None:
    _singularity(root, environment=script, runscript=script)
    started = time.monotonic()
    with open_image(f"dir:{root}", QUICK) as image:
        assert sum(map(len, image.config.environment)) < 2 << 20
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("script", "environment"),
    [
        ("export A='one\ntwo'\nexport B=\"x $A\"\n", ("A=one\ntwo", "B=x one\ntwo")),
        ("# it's a comment\nexport A=\"it's\"\nexport B='\"'\n", ("A=it's", 'B="')),
    ],
)
def test_values_of_several_lines_and_quotes_within_quotes_are_read(
    root: Path, script: str, environment: tuple[str, ...]
) -> None:
    _singularity(root, environment=script)
    assert _config(root).environment == environment


@pytest.mark.parametrize("path", [".singularity.d/runscript", "ch/environment", "ch/metadata.json"])
def test_settings_that_are_links_out_of_the_root_are_not_followed(root: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("SECRET=1")
    (root / path).parent.mkdir()
    (root / path).symlink_to(tmp_path / "secret")
    with open_image(f"dir:{root}", QUICK) as image:
        assert image.config == ImageConfig()
        assert any("symbolic link" in note or "Too many levels" in note for note in image.notes)


def test_damaged_settings_are_a_note_and_the_files_are_read(root: Path) -> None:
    (root / "ch").mkdir()
    (root / "ch" / "metadata.json").write_text("{")
    with open_image(f"dir:{root}", QUICK) as image:
        assert any("not valid JSON" in note for note in image.notes)
        assert "bin/tool" in contents(image)
