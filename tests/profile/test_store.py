"""The store: facts are paid for once, damage and strangers cost time and never the answer."""

import io
import os
from pathlib import Path

import pytest

from imgcheck.cli import main
from imgcheck.documents.image import ImageConfig, ImageProfile, LayerInfo, Platform
from imgcheck.errors import SourceError
from imgcheck.layers.stream import TarLayer
from imgcheck.profile.build import build_profile
from imgcheck.profile.store import Store, default_directory, open_store, store_key
from imgcheck.progress import SILENT
from imgcheck.sources.model import Image
from tests.layers.layouts import archive, digest_of, file, symlink
from tests.tools import compile_c


@pytest.fixture(scope="module")
def program() -> bytes:
    return compile_c("int main(void) { return 0; }", "-O1", out="program").read_bytes()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", "key")


class Counting:
    """A layer's blob that counts how often it is opened, and can be taken away."""

    def __init__(self, blob: bytes) -> None:
        self.blob = blob
        self.opened = 0
        self.gone = False

    def __call__(self) -> io.BytesIO:
        if self.gone:
            raise SourceError("the blob is gone")
        self.opened += 1
        return io.BytesIO(self.blob)


def image_of(*blobs: Counting, config_digest: str = "", reference: str = "test") -> Image:
    layers = tuple(TarLayer(LayerInfo(diff_id=digest_of(blob.blob), size=len(blob.blob)), blob) for blob in blobs)
    return Image(reference, Platform(), ImageConfig(), layers, config_digest=config_digest)


def without_reference(profile: ImageProfile) -> tuple:
    return profile.files, profile.objects, profile.tree, profile.components


def test_a_layer_shared_by_two_images_is_read_once(store: Store, program: bytes) -> None:
    base = Counting(archive([file("usr/bin/p", program, mode=0o755), symlink("bin", "usr/bin")]))
    app = Counting(archive([file("app", program, mode=0o755), file(".wh.nothing")]))
    alone = build_profile(image_of(base), SILENT, store)
    both = build_profile(image_of(base, app), SILENT, store)
    assert base.opened == 1
    assert [record.path for record in both.files] == ["/app", "/usr/bin/p"]
    assert both.tree.symlinks == alone.tree.symlinks == {"/bin": "usr/bin"}


def test_kept_and_fresh_profiles_are_equal(store: Store, program: bytes) -> None:
    script = file("usr/bin/s", "#!/bin/sh\nexec p\n", mode=0o755)
    odd = file(b"caf\xe9".decode("utf-8", "surrogateescape"), program)
    blob = Counting(archive([file("etc/os-release", "NAME=Test\nVERSION_ID=1\n"), script, odd, symlink("l", "usr")]))
    upper = Counting(archive([file("usr/.wh..wh..opq"), file("x", program)]))
    fresh = build_profile(image_of(blob, upper), SILENT)
    build_profile(image_of(blob, upper), SILENT, store)
    blob.gone = upper.gone = True
    assert without_reference(build_profile(image_of(blob, upper), SILENT, store)) == without_reference(fresh)


def test_a_known_image_needs_no_layer_and_carries_todays_name(store: Store, program: bytes) -> None:
    blob = Counting(archive([file("p", program)]))
    digest = "sha256:" + "a" * 64
    build_profile(image_of(blob, config_digest=digest), SILENT, store)
    blob.gone = True
    again = build_profile(image_of(blob, config_digest=digest, reference="renamed"), SILENT, store)
    assert again.reference == "renamed"
    assert blob.opened == 1


def test_a_damaged_entry_is_found_and_made_again(store: Store, program: bytes) -> None:
    blob = Counting(archive([file("p", program)]))
    build_profile(image_of(blob), SILENT, store)
    [kept] = store.files()
    data = bytearray(kept.path.read_bytes())
    data[-1] ^= 1
    kept.path.write_bytes(data)
    assert [file.name for file in store.damaged()] == [kept.name]
    build_profile(image_of(blob), SILENT, store)
    assert blob.opened == 2
    assert not list(store.damaged())


@pytest.mark.parametrize("kind", ["layers", "profiles"])
def test_an_entry_is_of_what_it_was_kept_for_alone(store: Store, program: bytes, kind: str) -> None:
    blob = Counting(archive([file("p", program)]))
    build_profile(image_of(blob, config_digest="sha256:" + "a" * 64), SILENT, store)
    (kept,) = (each for each in store.files() if each.kind == kind)
    for other in (store, Store(store.directory, "other key")):
        moved = other.place(kind, "sha256:" + "0" * 64)
        moved.parent.mkdir(parents=True)
        moved.write_bytes(kept.path.read_bytes())
        assert (other.layer if kind == "layers" else other.profile)("sha256:" + "0" * 64) is None
    assert {each.name for each in store.damaged()} == {"0" * 64}


@pytest.mark.parametrize("damage", [b"", b"imgchk2\n", b"x" * 100])
def test_a_truncated_or_foreign_file_is_no_entry(store: Store, program: bytes, damage: bytes) -> None:
    blob = Counting(archive([file("p", program)]))
    build_profile(image_of(blob), SILENT, store)
    [kept] = store.files()
    kept.path.write_bytes(damage)
    assert store.layer("sha256:" + kept.name) is None


def test_facts_of_other_engines_are_not_believed(tmp_path: Path, program: bytes) -> None:
    blob = Counting(archive([file("p", program)]))
    build_profile(image_of(blob), SILENT, Store(tmp_path, store_key({"isa": "1"})))
    build_profile(image_of(blob), SILENT, Store(tmp_path, store_key({"isa": "2"})))
    assert blob.opened == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_entry_that_a_stranger_wrote_is_not_believed(store: Store, program: bytes) -> None:
    blob = Counting(archive([file("p", program)]))
    build_profile(image_of(blob), SILENT, store)
    [kept] = store.files()
    os.chown(kept.path, 12345, 12345)
    build_profile(image_of(blob), SILENT, store)
    assert blob.opened == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_an_entry_that_a_stranger_linked_is_not_believed(store: Store, program: bytes, tmp_path: Path) -> None:
    blob = Counting(archive([file("p", program)]))
    build_profile(image_of(blob), SILENT, store)
    [kept] = store.files()
    kept.path.rename(tmp_path / "elsewhere")
    kept.path.symlink_to(tmp_path / "elsewhere")
    os.chown(kept.path, 12345, 12345, follow_symlinks=False)
    build_profile(image_of(blob), SILENT, store)
    assert blob.opened == 2


def test_a_store_that_cannot_be_written_costs_a_note_and_not_the_answer(tmp_path: Path, program: bytes) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "store", "key")
    profile = build_profile(image_of(Counting(archive([file("p", program)]))), SILENT, store)
    assert len(profile.files) == 1
    assert "cannot be written" in store.trouble


def test_a_layer_that_fails_its_digest_is_not_kept(store: Store, program: bytes) -> None:
    blob = Counting(archive([file("p", program)]))
    layer = TarLayer(LayerInfo(diff_id="sha256:" + "0" * 64), blob)
    with pytest.raises(SourceError):
        build_profile(Image("test", Platform(), ImageConfig(), (layer,)), SILENT, store)
    assert not list(store.files())


def test_pruning_drops_the_least_recently_used_first(store: Store, program: bytes) -> None:
    for name, used in (("old", 1_000), ("new", 2_000_000)):
        blob = Counting(archive([file(name, program)]))
        build_profile(image_of(blob), SILENT, store)
        place = store.place("layers", digest_of(blob.blob))
        os.utime(place, (used, used))
    sizes = {kept.used: kept.size for kept in store.files()}
    dropped = store.prune(limit=sizes[2_000_000])
    assert [kept.used for kept in dropped] == [1_000]
    assert len(list(store.files())) == 1


def test_default_place_follows_xdg_and_ignores_a_relative_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_directory() == tmp_path / ".cache" / "imgcheck"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert default_directory() == tmp_path / "x" / "imgcheck"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_the_owner_of_a_directory_counts_where_it_was_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: bytes
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    digest = "sha256:" + "a" * 64
    named = open_store(tmp_path / "imgcheck", "key")
    build_profile(image_of(Counting(archive([file("p", program)])), config_digest=digest), SILENT, named)
    for path in (tmp_path / "imgcheck").rglob("*"):
        os.chown(path, 12345, 12345)
    assert named.profile(digest) is None
    own = open_store(None, "key")
    os.chown(tmp_path / "imgcheck", 12345, 12345)
    assert named.profile(digest) is not None
    assert own.profile(digest) is None
    assert open_store(None, "key") is None


def test_list_names_the_image_of_a_profile_and_sizes(
    tmp_path: Path, program: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "store", "key")
    digest = "sha256:" + "a" * 64
    build_profile(
        image_of(Counting(archive([file("p", program)])), config_digest=digest, reference="x/y:1\x1b"), SILENT, store
    )
    assert main(["store", "ls", "--store", str(tmp_path / "store")]) == 0
    layer, profile, total = capsys.readouterr().out.splitlines()
    assert layer.startswith("layer    ") and len(layer.split()) == 4
    assert profile.startswith("profile  " + "a" * 64) and profile.split()[4] == "x/y:1\\x1b"
    assert total == f"2 entries, {sum(kept.size for kept in store.files())} bytes in {tmp_path}/store"


def test_one_entry_is_told_as_one(
    store: Store, tmp_path: Path, program: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    build_profile(image_of(Counting(archive([file("p", program)])), config_digest="sha256:" + "a" * 64), SILENT, store)
    damaged = next(iter(store.files())).path
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert main(["store", "verify", "--store", str(tmp_path / "store")]) == 1
    assert capsys.readouterr().out == "1 entry is sound, 1 was dropped\n"
    assert main(["store", "prune", "--limit", "0", "--store", str(tmp_path / "store")]) == 0
    assert capsys.readouterr().out.startswith("dropped 1 entry, ")


def test_store_that_is_not_there_is_no_empty_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("ls", "prune", "verify"):
        assert main(["store", action, "--store", str(tmp_path / "typo")]) == 2
        assert f"--store {tmp_path}/typo: no such directory" in capsys.readouterr().err


def test_many_scripts_above_leave_the_texts_below_whole(store: Store, program: bytes) -> None:
    """What is kept of a layer rests on its bytes alone, whatever other layers hold, and serves other images so."""
    conf = b"/opt/application/lib\n/opt/second/lib\n"
    base = Counting(archive([file("etc/ld.so.conf", conf), file("usr/bin/p", program, mode=0o755)]))
    scripts = [file(f"opt/t/{number:04}", b"#!/bin/sh\nexec p\n", mode=0o755) for number in range(1100)]
    above = Counting(archive([*scripts, file("blob", bytes(range(256)) * 1000)]))
    both = build_profile(image_of(base, above), SILENT, store)
    alone = build_profile(image_of(base), SILENT, store)
    assert both.tree.ld_so_conf == alone.tree.ld_so_conf == ("/opt/application/lib", "/opt/second/lib")


def test_a_cache_of_the_loader_behind_a_link_is_read(program: bytes) -> None:
    cache = b"ld.so-1.7.0\0" + (1).to_bytes(4, "little") + (3).to_bytes(4, "little") + bytes(4)
    cache += (10).to_bytes(4, "little") + b"libx.so.1\0/opt/libx.so.1\0"
    entries = [file("var/cache/ld.so.cache", cache), symlink("etc/ld.so.cache", "../var/cache/ld.so.cache")]
    tree = build_profile(image_of(Counting(archive([*entries, file("p", program)]))), SILENT).tree
    assert [each.path for each in tree.ld_so_cache] == ["/opt/libx.so.1"]


def test_a_link_in_the_place_of_an_entry_is_not_followed(store: Store, program: bytes, tmp_path: Path) -> None:
    blob = Counting(archive([file("p", program)]))
    build_profile(image_of(blob), SILENT, store)
    (kept,) = [each for each in store.files() if each.kind == "layers"]
    kept.path.rename(tmp_path / "elsewhere")
    kept.path.symlink_to(tmp_path / "elsewhere")
    assert store.layer(f"sha256:{kept.name}") is None


def test_a_fifo_in_the_place_of_an_entry_holds_nobody_up(store: Store, program: bytes) -> None:
    build_profile(image_of(Counting(archive([file("p", program)]))), SILENT, store)
    (kept,) = [each for each in store.files() if each.kind == "layers"]
    kept.path.unlink()
    os.mkfifo(kept.path)
    assert store.layer(f"sha256:{kept.name}") is None


def test_only_the_stores_own_files_are_listed_and_dropped(store: Store, program: bytes, tmp_path: Path) -> None:
    build_profile(image_of(Counting(archive([file("p", program)]))), SILENT, store)
    (kept,) = store.files()
    folder = kept.path.parent
    foreign = tmp_path / "home"
    foreign.mkdir(parents=True)
    name = "f" * 64
    for place in (foreign / name, tmp_path / name, folder / "notes.txt"):
        place.write_text("precious")
    (folder / ("a" * 64)).symlink_to(tmp_path / name)
    (folder.parent / "ff").symlink_to(foreign)
    (store.directory / "v1" / "other").symlink_to(folder.parent.parent)
    os.mkfifo(folder / ("e" * 64))
    assert [file.path for file in store.files()] == [kept.path]
    assert not list(store.damaged())
    assert [file.path for file in store.prune(limit=0)] == [kept.path]
    assert (foreign / name).exists() and (tmp_path / name).exists() and (folder / "notes.txt").exists()


def test_a_directory_that_has_become_a_link_is_not_pruned(store: Store, program: bytes, tmp_path: Path) -> None:
    build_profile(image_of(Counting(archive([file("p", program)]))), SILENT, store)
    (kept,) = store.files()
    kept.path.parent.rename(tmp_path / "elsewhere")
    kept.path.parent.symlink_to(tmp_path / "elsewhere")
    assert not store.drop(kept)
    assert (tmp_path / "elsewhere" / kept.name).exists()


def test_new_directories_are_as_readable_as_the_files(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        Store(tmp_path / "shared" / "store", "key").keep_profile("sha256:" + "0" * 64, None)
    finally:
        os.umask(before)
    below = [tmp_path / "shared/store", *(tmp_path / "shared/store").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in below if path.is_dir()} == {0o755}
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o700


def test_room_is_counted_once_while_there_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, "key", limit=1000)
    place = store.place("blobs", "sha256:" + "0" * 64)
    assert place is not None
    place.parent.mkdir(parents=True)
    place.write_bytes(bytes(500))
    looks = []
    files = store.files
    monkeypatch.setattr(store, "files", lambda: looks.append(1) or files())
    assert [store.make_room(size, ()) for size in (100, 200, 500)] == [True] * 3
    assert (len(looks), place.exists()) == (1, True)
    assert store.make_room(501, ())
    assert (len(looks), place.exists()) == (2, False)
