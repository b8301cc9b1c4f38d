"""Images in Podman's and Buildah's storage, made by a real buildah."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imgcheck.errors import DigestError, LayerError, SourceError
from imgcheck.sources.open import open_image
from tests.images import ImageBuilder, Symlink, Whiteout
from tests.sources.conftest import contents, read
from tests.tools import need, run

pytestmark = pytest.mark.slow

Buildah = Callable[..., str]


FILES = {"vfs": "vfs/dir/*", "overlay": "overlay/*/diff"}
"""Where each driver keeps the files of its layers."""


@pytest.fixture(params=list(FILES))
def driver(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def storage(tmp_path: Path, driver: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    configuration = tmp_path / "storage.conf"
    lines = ["[storage]", f'driver = "{driver}"', f'graphroot = "{tmp_path}/graph"', f'runroot = "{tmp_path}/run"']
    if driver == "overlay" and not _kernel_mounts_overlay(tmp_path / "probe"):
        lines += ["[storage.options.overlay]", f'mount_program = "{need("fuse-overlayfs")}"']
    configuration.write_text("\n".join(lines))
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(configuration))
    yield tmp_path / "graph"
    if driver == "overlay":
        subprocess.run([need("buildah"), "umount", "--all"], capture_output=True)
        subprocess.run(["umount", "--lazy", tmp_path / "graph" / "overlay"], capture_output=True)


def _kernel_mounts_overlay(place: Path) -> bool:
    """Whether an overlay can be mounted here: not as an ordinary user, nor upon another overlay."""
    for part in ("lower", "upper", "work", "merged"):
        (place / part).mkdir(parents=True)
    options = f"lowerdir={place}/lower,upperdir={place}/upper,workdir={place}/work"
    mounted = subprocess.run(
        ["mount", "-t", "overlay", "-o", options, "overlay", place / "merged"], capture_output=True
    )
    return mounted.returncode == 0 and subprocess.run(["umount", place / "merged"]).returncode == 0


@pytest.fixture
def buildah(storage: Path) -> Buildah:
    def call(*arguments: str | Path) -> str:
        return run(need("buildah"), *arguments).stdout.strip()

    return call


@pytest.fixture
def committed(buildah: Buildah) -> None:
    """localhost/app:1 of one layer, and localhost/app:latest that removes a file of it and adds one."""
    first = buildah("from", "scratch")
    root = Path(buildah("mount", first))
    (root / "bin").mkdir()
    (root / "bin" / "tool").write_bytes(b"tool" * 100_000)
    (root / "bin" / "link").symlink_to("tool")
    (root / "bin" / "strange-\udcff").write_text("name")
    (root / "gone").write_text("gone")
    buildah("commit", "-q", first, "app:1")
    second = buildah("from", "localhost/app:1")
    root = Path(buildah("mount", second))
    (root / "gone").unlink()
    (root / "new").write_text("new")
    buildah("config", "--entrypoint", '["/bin/tool"]', second)
    buildah("commit", "-q", second, "app")


def test_image_that_buildah_built_is_read_with_its_digests(committed: None, storage: Path) -> None:
    with open_image("containers-storage:localhost/app") as image:
        assert image.config.entrypoint == ("/bin/tool",)
        assert len(image.layers) == 2
        assert all(layer.info.diff_id for layer in image.layers)
        upper = [entry.path for entry, _ in image.layers[1].entries()]
        found = contents(image)
    assert {".wh.gone", "new"} <= set(upper)
    assert found["bin/tool"] == b"tool" * 100_000
    assert found["bin/strange-\udcff"] == b"name"
    assert found["gone"] == b"gone"


def test_names_are_found_as_people_write_them(committed: None, buildah: Buildah) -> None:
    number = buildah("images", "-q", "--no-trunc", "localhost/app:1").removeprefix("sha256:")
    for name in ("app:1", "localhost/app:1", number, number[:12]):
        assert "new" not in read(f"containers-storage:{name}")
    assert "new" in read("containers-storage:app")
    with pytest.raises(SourceError, match="app:3: no such image in "):
        read("containers-storage:app:3")


def test_layers_are_found_in_the_additional_image_stores(
    committed: None, buildah: Buildah, storage: Path, tmp_path: Path
) -> None:
    buildah("umount", "--all")
    configuration = tmp_path / "storage.conf"
    settings = configuration.read_text().replace(str(storage), f"{tmp_path}/own")
    configuration.write_text(f'{settings}\n[storage.options]\nadditionalimagestores = ["{storage}"]\n')
    container = buildah("from", "--pull=never", "localhost/app:1")
    (Path(buildah("mount", container)) / "own").write_text("own")
    buildah("commit", "-q", container, "mine")
    subprocess.run([need("buildah"), "umount", "--all"], capture_output=True)
    subprocess.run(["umount", "--lazy", tmp_path / "own" / "overlay"], capture_output=True)
    found = read("containers-storage:mine")
    assert found["own"] == b"own" and found["bin/tool"] == b"tool" * 100_000
    assert "own" not in read("containers-storage:app:1")


@pytest.mark.parametrize("key", ["graphroot", "rootless_storage_path"])
def test_the_users_number_in_a_configured_place_is_filled_in(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4321)
    monkeypatch.delenv("UID", raising=False)
    monkeypatch.setenv("PLACE", str(tmp_path))
    (tmp_path / "conf").write_text(f'[storage]\n{key} = "$PLACE/$UID/storage"\n')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "conf"))
    with pytest.raises(SourceError, match=f"no storage of Podman or Buildah at {tmp_path}/4321/storage"):
        read("containers-storage:app:1")


def test_image_pulled_with_compressed_layers_is_read(buildah: Buildah, tmp_path: Path) -> None:
    builder = ImageBuilder().layer({"a/b": "1", "link": Symlink("a"), "x": "2"}, compression="gzip")
    layout = builder.layer({"x": Whiteout(), "a/c": "3"}).write(tmp_path / "layout")
    buildah("pull", "-q", f"oci:{layout}:latest")
    number = buildah("images", "-q", "--no-trunc").removeprefix("sha256:")
    found = read(f"containers-storage:{number}")
    assert {path: found[path] for path in ("a/b", "a/c", "x")} == {"a/b": b"1", "a/c": b"3", "x": b"2"}


def test_file_that_was_changed_in_the_storage_is_noticed(committed: None, storage: Path, driver: str) -> None:
    for tool in storage.glob(f"{FILES[driver]}/bin/tool"):
        data = bytearray(tool.read_bytes())
        data[1000] ^= 1
        tool.write_bytes(data)
    with pytest.raises(DigestError, match="diff_id"):
        read("containers-storage:app:1")
    for tool in storage.glob(f"{FILES[driver]}/bin/tool"):
        tool.write_bytes(b"short")
    with pytest.raises(LayerError, match="bytes are missing: the storage was changed"):
        read("containers-storage:app:1")
    for tool in storage.glob(f"{FILES[driver]}/bin/tool"):
        tool.unlink()
        tool.symlink_to("/etc/passwd")
    with pytest.raises(SourceError, match="bin/tool: "):
        read("containers-storage:app:1")


def test_storage_that_lacks_its_parts_says_so(committed: None, buildah: Buildah, storage: Path, driver: str) -> None:
    for parts in storage.glob(f"{driver}-layers/*.tar-split.gz"):
        parts.write_bytes(parts.read_bytes()[:-10])
    with pytest.raises(LayerError, match="damaged"):
        read("containers-storage:app:1")
    for parts in storage.glob(f"{driver}-layers/*.tar-split.gz"):
        parts.unlink()
    with pytest.raises(SourceError, match="missing, so that the layer cannot be put together"):
        read("containers-storage:app:1")
    buildah("umount", "--all")
    subprocess.run(["umount", storage / "overlay"], capture_output=True)
    shutil.rmtree(storage)
    with pytest.raises(SourceError, match="no storage of Podman or Buildah at "):
        read("containers-storage:app:1")


@pytest.mark.parametrize("field", ["names", "digest", "id", "layer", "metadata"])
@pytest.mark.parametrize("value", [5, {}, [[]], [5], None, "x" * 100_000, True])
def test_storage_of_strange_documents_is_one_clear_error(
    field: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"id": "a" * 64, "names": ["localhost/app:1"], "layer": "b" * 64} | {field: value}
    (tmp_path / "graph/vfs-images").mkdir(parents=True)
    (tmp_path / "graph/vfs-layers").mkdir()
    (tmp_path / "graph/vfs-images/images.json").write_text(json.dumps([entry, value]))
    (tmp_path / "graph/vfs-layers/layers.json").write_text(json.dumps([value, {"id": value, "parent": value}]))
    (tmp_path / "conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/graph"\n[storage.options]\nadditionalimagestores = 5\n'
    )
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "conf"))
    with pytest.raises(SourceError):
        read("containers-storage:app:1")
