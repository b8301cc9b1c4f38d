"""All or nothing: whatever interrupts a conversion, the destination is either complete or not there."""

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imgcheck.convert.disk import remove_tree
from imgcheck.convert.run import ConvertOptions, convert
from imgcheck.convert.stage import directory
from imgcheck.convert.targets import TARGETS
from imgcheck.errors import ConvertError, UsageError
from imgcheck.sources.open import open_image
from tests.convert.started import convert_apart
from tests.images import Directory, File, ImageBuilder
from tests.tools import missing, need, run


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image large enough to be interrupted: 3000 files and 30 MB that do not compress."""
    noise = random.Random(1)
    image = ImageBuilder(entrypoint=("/bin/x",))
    for number in range(3):
        files = {f"d{number}/{index}": noise.randbytes(10_000) for index in range(1000)}
        image.layer({f"d{number}": Directory(0o500), **files})
    image.layer({"closed": Directory(0o000), "closed/x": File(b"x", 0o000)})
    return image.write(tmp_path_factory.mktemp("image") / "layout", tag="test")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """An image that is converted in no time."""
    members = {"d": Directory(0o500), **{f"d/{index}": b"x" * index for index in range(50)}}
    image = ImageBuilder(entrypoint=("/bin/x",)).layer(members)
    return image.layer({"closed": Directory(0o000), "closed/x": File(b"x", 0o000)}).write(
        tmp_path / "small", tag="test"
    )


_KILLS = {"rootfs": 20, "sif": 8, "udocker": 8}
_ATTEMPTS = 20
"""Conversions that may be done before a signal reaches them."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "place"
    directory.mkdir()
    return directory


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _convert(layout: Path, target: str, destination: Path, **options: object) -> None:
    with open_image(f"oci:{layout}:test") as image:
        convert(image, target, destination, ConvertOptions(**options))


def _count(destination: Path) -> int:
    """The entries of a finished tree, or the bytes of a finished file."""
    return sum(1 for _ in destination.rglob("*")) if destination.is_dir() else destination.stat().st_size


@pytest.mark.parametrize("target", TARGETS)
def test_an_existing_destination_is_left_alone_without_force(target, small, place):
    (place / "out").write_bytes(b"mine")
    with pytest.raises(ConvertError, match="exists already"):
        _convert(small, target, place / "out")
    assert (place / "out").read_bytes() == b"mine"
    assert _names(place) == ["out"]


@pytest.mark.parametrize("target", TARGETS)
def test_force_replaces_what_is_there(target, small, place):
    for name in ("out", "out/dev", "out/etc", "out/proc", "out/sys"):
        (place / name).mkdir()
    (place / "out/old").write_bytes(b"old")
    (place / "out/old").chmod(0)
    _convert(small, target, place / "out", force=True)
    assert not (place / "out/old").exists()
    assert _names(place) == ["out"]


@pytest.mark.parametrize("target", ["sandbox", "charliecloud", "oci-bundle", "oci"])
def test_force_replaces_what_a_conversion_made(target, small, place):
    _convert(small, target, place / "out")
    _convert(small, target, place / "out", force=True)
    assert _names(place) == ["out"]


@pytest.mark.parametrize("target", TARGETS)
def test_force_leaves_a_directory_alone_that_is_no_converted_image(target, small, place):
    (place / "out/project/.git").mkdir(parents=True)
    (place / "out/etc").mkdir()
    with pytest.raises(ConvertError, match="does not look like a converted image"):
        _convert(small, target, place / "out", force=True)
    assert (place / "out/project/.git").is_dir()
    assert _names(place) == ["out"]


def test_force_replaces_a_link_and_not_what_it_means(small, place):
    (place / "kept").mkdir()
    (place / "kept/file").write_bytes(b"x")
    (place / "out").symlink_to("kept")
    _convert(small, "sandbox", place / "out", force=True)
    assert not (place / "out").is_symlink()
    assert (place / "kept/file").read_bytes() == b"x"


@pytest.mark.parametrize("precious", ["home", "working", "above"])
def test_force_never_replaces_a_home_or_working_directory(precious, small, place, monkeypatch):
    monkeypatch.setenv("HOME", str(place / "home"))
    for name in ("home", "working", "above/below"):
        (place / name).mkdir(parents=True)
    monkeypatch.chdir(place / ("above/below" if precious == "above" else "working"))
    with pytest.raises(ConvertError, match="is not replaced"):
        _convert(small, "sandbox", place / precious, force=True)
    assert _names(place) == ["above", "home", "working"]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """Mounts a directory of the same filesystem at a place; returns what lies in it."""
    if os.getuid():
        missing("needs root to mount a directory")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/kept").write_bytes(b"x")
    places = []

    def mount(place: Path) -> Path:
        run(need("mount"), "--bind", tmp_path / "data", place)
        places.append(place)
        return tmp_path / "data/kept"

    yield mount
    for place in places:
        run(need("umount"), place)


@pytest.mark.parametrize("target", ["rootfs", "sif"])
@pytest.mark.parametrize("where", ["", "mnt/my data"])
def test_force_never_removes_what_is_mounted_in_a_tree(where, target, small, place, mounted):
    for name in ("dev", "etc", "proc", "sys", "mnt/my data"):
        (place / "out" / name).mkdir(parents=True)
    kept = mounted(place / "out" / where)
    if not where:
        for name in ("dev", "etc", "proc", "sys"):
            (place / "out" / name).mkdir()
    with pytest.raises(ConvertError, match="is not replaced: a filesystem is mounted on") as raised:
        _convert(small, target, place / "out", force=True)
    assert str(place / "out" / where) in raised.value.message
    assert kept.read_bytes() == b"x"
    assert _names(place) == ["out"]


def test_what_is_mounted_in_a_tree_while_it_is_replaced_stays(small, place, mounted, monkeypatch):
    for name in ("dev", "etc", "proc", "sys", "mnt"):
        (place / "out" / name).mkdir(parents=True)
    kept = []
    monkeypatch.setattr("imgcheck.convert.run.sync_filesystem", lambda _fd: kept.append(mounted(place / "out/mnt")))
    with pytest.raises(ConvertError, match="a filesystem is mounted on"):
        _convert(small, "rootfs", place / "out", force=True)
    assert kept[0].read_bytes() == b"x"
    assert _names(place) == ["out"]


def test_a_leftover_with_something_mounted_in_it_is_not_emptied(place, mounted):
    (place / "tree/mnt").mkdir(parents=True)
    kept = mounted(place / "tree/mnt")
    with directory(place) as parent:
        remove_tree(parent, "tree")
    assert kept.read_bytes() == b"x"


def test_a_link_that_takes_a_directorys_place_is_not_followed(place, monkeypatch):
    (place / "tree/closed").mkdir(parents=True)
    (place / "others").mkdir(mode=0o755)
    really_open = os.open

    def swapped(path, flags, *rest, **more):
        if path == "closed" and not (place / "tree/closed").is_symlink():
            (place / "tree/closed").rmdir()
            (place / "tree/closed").symlink_to(place / "others")
            raise PermissionError(13, "as for a directory that its owner may not read", path)
        return really_open(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", swapped)
    with directory(place) as parent:
        remove_tree(parent, "tree")
    assert (place / "others").stat().st_mode & 0o777 == 0o755


def test_no_directory_stays_open_where_one_cannot_be_listed(place, monkeypatch):
    (place / "tree/below/lower").mkdir(parents=True)
    really_list = os.scandir

    def listed(fd):
        if Path(f"/proc/self/fd/{fd}").readlink().name == "lower":
            raise OSError(5, "as on a damaged disk")
        return really_list(fd)

    with directory(place) as parent:
        before = _names(Path("/proc/self/fd"))
        monkeypatch.setattr(os, "scandir", listed)
        remove_tree(parent, "tree")
        monkeypatch.undo()
        assert _names(Path("/proc/self/fd")) == before
    assert (place / "tree/below/lower").is_dir()


def test_an_existing_udocker_repository_gains_a_container(small, place):
    _convert(small, "udocker", place / "repo", name="one")
    _convert(small, "udocker", place / "repo", name="two")
    with pytest.raises(ConvertError, match="already has a container named two"):
        _convert(small, "udocker", place / "repo", name="two")
    links = {path.name: path.readlink() for path in (place / "repo/containers").iterdir() if path.is_symlink()}
    assert sorted(links) == ["one", "two"]
    assert len(list((place / "repo/containers").glob("*/container.json"))) == 4
    _convert(small, "udocker", place / "repo", name="two", force=True)
    assert (place / "repo/containers/two").readlink() != links["two"]
    assert (place / "repo/containers" / links["two"] / "ROOT").is_dir()


def test_a_container_that_is_no_name_is_not_replaced_and_nothing_is_left(small, place):
    _convert(small, "udocker", place / "repo", name="one")
    (place / "repo/containers/two").mkdir()
    before = _names(place / "repo/containers")
    with pytest.raises(ConvertError, match="the container two is a directory"):
        _convert(small, "udocker", place / "repo", name="two", force=True)
    assert _names(place / "repo/containers") == before


def test_a_container_whose_name_is_taken_meanwhile_is_taken_back(small, place, monkeypatch):
    _convert(small, "udocker", place / "repo", name="one")
    before = _names(place / "repo/containers")
    taken = place / "repo/containers/two"
    monkeypatch.setattr("imgcheck.convert.run.sync_filesystem", lambda _fd: taken.mkdir())
    with pytest.raises(ConvertError):
        _convert(small, "udocker", place / "repo", name="two", force=True)
    assert _names(place / "repo/containers") == sorted([*before, "two"])


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a b", "[x]", "-n", "a\n"])
def test_names_that_udocker_refuses_are_a_usage_error(name, small, place):
    with pytest.raises(UsageError, match="--name"):
        _convert(small, "udocker", place / "repo", name=name)
    assert not _names(place)


def test_a_destination_without_parent_says_how_to_make_it(small, place):
    with pytest.raises(ConvertError, match="does not exist") as raised:
        _convert(small, "rootfs", place / "no/such/tree")
    assert "mkdir -p" in raised.value.hint


@pytest.mark.parametrize("size", ["small", pytest.param("layout", marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", TARGETS)
def test_two_conversions_at_once_give_one_complete_tree(target, size, place, request):
    image = request.getfixturevalue(size)
    failures: list[ConvertError] = []

    def work() -> None:
        try:
            _convert(image, target, place / "out")
        except ConvertError as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _names(place) == ["out"]
    _convert(image, target, place / "alone")
    assert len(failures) == 1, [error.message for error in failures]
    assert _count(place / "out") == _count(place / "alone")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("target", ["rootfs", "sif"])
def test_a_signal_leaves_nothing(number, target, layout, place):
    finished = []
    for attempt in range(_ATTEMPTS):
        out = place / f"out{attempt}"
        process = convert_apart(layout, target, out)
        while process.poll() is None and not list(place.glob(".imgcheck-*/*")):
            time.sleep(0.001)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        if process.returncode:
            break
        finished.append(out.name)  # it was done before the signal came
    else:
        pytest.fail(f"{_ATTEMPTS} conversions ended before they could be interrupted")
    assert _names(place) == finished
    if number != signal.SIGINT:
        assert signal.Signals(number).name.encode() in said


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_kill_at_random_moments(target, layout, place):
    begun = time.monotonic()
    convert_apart(layout, target, place / "whole").communicate()
    took = time.monotonic() - begun
    whole = _count(place / "whole")
    chance = random.Random(target)
    wanted = _KILLS.get(target, 3)
    killed = 0
    for attempt in range(_ATTEMPTS * wanted):
        out = place / f"out{attempt}"
        begun = time.monotonic()
        process = convert_apart(layout, target, out)
        deadline = begun + chance.uniform(0.1, 0.9) * took
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        if process.poll() is None:
            killed += 1
        else:  # the first conversion may have had less of the machine
            took = min(took, time.monotonic() - begun)
        process.kill()
        process.communicate()
        assert not os.path.lexists(out) or _count(out) == whole
        if killed == wanted:
            break
    assert killed == wanted
    _convert(layout, target, place / "last")
    assert not [name for name in _names(place) if name.startswith(".imgcheck-")]
    assert _count(place / "last") == whole


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 8 MB."""
    if os.getuid():
        missing("needs root to mount a filesystem")
    directory = tmp_path / "disk"
    directory.mkdir()
    run(need("mount"), "-t", "tmpfs", "-o", "size=8m", "tmpfs", directory)
    yield directory
    run(need("umount"), directory)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_full_disk_leaves_nothing_and_says_so(target, layout, small_disk):
    with pytest.raises(ConvertError, match=r"[Nn]o space left") as raised:
        _convert(layout, target, small_disk / "out")
    assert "free space" in raised.value.hint
    assert _names(small_disk) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_read_only_destination_is_one_clear_error(target, layout, small_disk):
    subprocess.run([need("mount"), "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(ConvertError, match="Read-only file system"):
        _convert(layout, target, small_disk / "out")


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_root_that_its_owner_may_not_write_is_moved_and_replaced(mode, converted_rootless, public_tmp):
    """The root of Red Hat's images is 0555, and a directory's owner must write in it to move it (rename(2))."""
    place = public_tmp / "out"
    top = {name: Directory() for name in ("dev", "etc", "proc", "sys")}
    converted_rootless(ImageBuilder().layer({"./": Directory(mode), **top}), "rootfs", place)
    assert place.stat().st_mode & 0o7777 == mode
    place.chmod(0o555)
    converted_rootless(ImageBuilder().layer({"./": Directory(mode), **top}), "rootfs", place, force=True)
    assert place.stat().st_mode & 0o7777 == mode
    assert not [path for path in public_tmp.iterdir() if path.name.startswith(".imgcheck-")]


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def number(request):
    """A signal that ends a process, also where the tests run under nohup."""
    former = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, former)


def test_a_signal_is_reported_as_such_whatever_its_exception_became(number, small, place):
    """As in threading.Thread.start, whose own cleaning up fails with a KeyError where it is left in its midst."""

    class Interrupted:
        def start(self, *_: object) -> None:
            try:
                os.kill(os.getpid(), number)
            except BaseException:
                raise KeyError("limbo") from None

        advance = finish = start

    with open_image(f"oci:{small}:test") as image, pytest.raises(ConvertError, match=f"stopped by {number.name}"):
        convert(image, "rootfs", place / "out", ConvertOptions(), Interrupted())
    assert _names(place) == []
    assert signal.getsignal(number) is signal.SIG_DFL
