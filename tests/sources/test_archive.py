"""Archives of every age, from files and pipes."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from imgcheck.errors import DigestError, SourceError
from imgcheck.profile.blobs import KeptBlobs
from imgcheck.profile.store import Store
from imgcheck.sources.open import open_image
from tests.images import ImageBuilder, layer_tar
from tests.sources.conftest import QUICK, contents, read
from tests.tools import CHECKOUT, need, run

EXPECTED = {"bin/tool": b"x", "etc/name": b"y"}
Members = dict[str, bytes | str]
"""Archive members: bytes are files, a string is the target of a symbolic link."""


@pytest.fixture
def builder() -> ImageBuilder:
    return ImageBuilder(entrypoint=("/bin/tool",)).layer({"bin/tool": "x"}).layer({"etc/name": "y"})


@pytest.fixture
def layout(builder: ImageBuilder, tmp_path: Path) -> Path:
    return builder.write(tmp_path / "layout")


def _tar(members: Members) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _old_save(builder: ImageBuilder, tag: str = "a/b:1") -> Members:
    """Members as docker 1.10 to 24 writes them: one directory per layer."""
    config = json.dumps(builder.config()).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    members: Members = {name: config}
    for index, layer in enumerate(builder.layers):
        members |= {f"{index}/VERSION": b"1.0", f"{index}/json": b"{}", f"{index}/layer.tar": layer.tar}
    layers = [f"{index}/layer.tar" for index in range(len(builder.layers))]
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": layers}]
    return members | {"manifest.json": json.dumps(manifest).encode(), "repositories": b"{}"}


def _write(path: Path, members: Members) -> Path:
    path.write_bytes(_tar(members))
    return path


def _dig_holes(path: Path) -> None:
    data, block = path.read_bytes(), 4096
    with path.open("wb") as file:
        file.truncate(len(data))
        for at in range(0, len(data), block):
            if any(data[at : at + block]):
                os.pwrite(file.fileno(), data[at : at + block], at)


def _layout_members(layout: Path) -> Members:
    return {str(path.relative_to(layout)): path.read_bytes() for path in layout.rglob("*") if path.is_file()}


# --- forms


@pytest.mark.parametrize(
    "form", ["--format=gnu", "--sparse-version=0.0", "--sparse-version=0.1", "--sparse-version=1.0"]
)
def test_archive_whose_members_have_holes_is_read(tmp_path: Path, form: str) -> None:
    noise = os.urandom(10_000)
    files = {"first": bytes(3 << 20) + noise, "second": noise + bytes(5 << 20), "third": b"end"}
    layout = ImageBuilder().layer(files, compression="none").write(tmp_path / "layout")
    for blob in (layout / "blobs/sha256").iterdir():
        _dig_holes(blob)
    options = [form] if form == "--format=gnu" else ["--format=pax", form]
    run(need("tar"), "-C", layout, "--sparse", *options, "-cf", tmp_path / "a.tar", ".")
    assert (tmp_path / "a.tar").stat().st_size < 1 << 20
    assert read(f"oci-archive:{tmp_path / 'a.tar'}") == files


def test_docker_save_with_a_field_in_other_letters_is_refused(builder: ImageBuilder, tmp_path: Path) -> None:
    members = _old_save(builder)
    (entry,) = json.loads(members["manifest.json"])
    members["manifest.json"] = json.dumps([entry | {"LAYERS": entry["Layers"][::-1]}]).encode()
    with pytest.raises(SourceError, match="spells `Layers` as 'LAYERS'"):
        read(f"docker-archive:{_write(tmp_path / 'a.tar', members)}")


@pytest.mark.parametrize("scheme", ["docker-archive:", ""])
def test_old_docker_save_is_read(builder: ImageBuilder, tmp_path: Path, scheme: str) -> None:
    archive = _write(tmp_path / "a.tar", _old_save(builder))
    with open_image(f"{scheme}{archive}", QUICK) as image:
        assert image.config.entrypoint == ("/bin/tool",)
        assert image.layers[0].info.digest == "" and image.layers[0].info.diff_id.startswith("sha256:")
        assert contents(image) == EXPECTED


def test_layer_saved_once_and_linked_is_read_twice(tmp_path: Path) -> None:
    same = layer_tar({"f": "same"})
    builder = ImageBuilder().layer(same).layer(same)
    members = _old_save(builder) | {"1/layer.tar": "../0/layer.tar"}
    assert read(str(_write(tmp_path / "a.tar", members))) == {"f": b"same"}


def test_archives_written_by_skopeo_are_read(layout: Path, tmp_path: Path) -> None:
    for scheme in ("docker-archive", "oci-archive"):
        archive = tmp_path / f"{scheme}.tar"
        run(
            need("skopeo"),
            "--insecure-policy",
            "copy",
            "-q",
            f"oci:{layout}:latest",
            f"{scheme}:{archive}:host.example/b:2",
        )
        assert read(str(archive)) == EXPECTED
        assert read(f"{scheme}:{archive}") == EXPECTED
        assert read(f"{scheme}:{archive}:host.example/b:2") == EXPECTED


def test_archive_with_both_forms_and_sound_oci_manifest_gives_the_manifest_digest(
    builder: ImageBuilder, layout: Path, tmp_path: Path
) -> None:
    archive = _write(tmp_path / "a.tar", _old_save(builder) | _layout_members(layout))
    with open_image(str(archive), QUICK) as image:
        assert image.manifest_digest and contents(image) == EXPECTED


def test_oci_manifest_without_layers_as_docker_25_0_0_wrote_it_gives_way_to_manifest_json(
    builder: ImageBuilder, layout: Path, tmp_path: Path
) -> None:
    root = json.loads((layout / "index.json").read_text())["manifests"][0]
    manifest = json.loads((layout / "blobs/sha256" / root["digest"][7:]).read_text()) | {"layers": None}
    data = json.dumps(manifest).encode()
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs/sha256" / digest).write_bytes(data)
    index = {"schemaVersion": 2, "manifests": [root | {"digest": f"sha256:{digest}", "size": len(data)}]}
    (layout / "index.json").write_text(json.dumps(index))
    archive = _write(tmp_path / "a.tar", _old_save(builder) | _layout_members(layout))
    assert read(str(archive)) == EXPECTED
    with pytest.raises(SourceError, match="has 0 layers, but its config lists 2"):
        read(f"oci-archive:{archive}")


def test_manifest_json_that_points_into_blobs_has_its_digests_verified(layout: Path, tmp_path: Path) -> None:
    root = json.loads((layout / "index.json").read_text())["manifests"][0]
    manifest = json.loads((layout / "blobs/sha256" / root["digest"][7:]).read_text())
    paths = ["blobs/sha256/" + layer["digest"][7:] for layer in manifest["layers"]]
    listing = [{"Config": "blobs/sha256/" + manifest["config"]["digest"][7:], "RepoTags": None, "Layers": paths}]
    members = _layout_members(layout) | {"manifest.json": json.dumps(listing).encode()}
    archive = _write(tmp_path / "a.tar", members)
    with open_image(f"docker-archive:{archive}", QUICK) as image:
        assert [layer.info.digest for layer in image.layers] == [layer["digest"] for layer in manifest["layers"]]
        assert contents(image) == EXPECTED


def test_names_are_compared_with_registry_namespace_and_tag_written_out(builder: ImageBuilder, tmp_path: Path) -> None:
    archive = _write(tmp_path / "a.tar", _old_save(builder, "busybox:latest"))
    for name in ("busybox", "busybox:latest", "library/busybox"):
        assert read(f"docker-archive:{archive}:{name}") == EXPECTED
    with pytest.raises(SourceError, match="no image named 'other'; it holds busybox:latest"):
        read(f"docker-archive:{archive}:other")


def test_several_images_must_be_named(builder: ImageBuilder, tmp_path: Path) -> None:
    members = _old_save(builder)
    entry = json.loads(members["manifest.json"])[0]
    members["manifest.json"] = json.dumps([entry, entry | {"RepoTags": ["c:2"]}]).encode()
    archive = _write(tmp_path / "a.tar", members)
    with pytest.raises(SourceError, match="holds several images: a/b:1, c:2"):
        read(str(archive))
    assert read(f"docker-archive:{archive}:c:2") == EXPECTED


def test_several_images_of_a_layout_in_an_archive_must_be_named(layout: Path, tmp_path: Path) -> None:
    members = _layout_members(layout)
    index = json.loads(members["index.json"])
    index["manifests"].append(index["manifests"][0] | {"annotations": {"org.opencontainers.image.ref.name": "other"}})
    archive = _write(tmp_path / "a.tar", members | {"index.json": json.dumps(index).encode()})
    with pytest.raises(SourceError, match="holds several images: latest, other") as refused:
        read(str(archive))
    assert refused.value.hint == f"name one: oci-archive:{archive}:NAME"
    assert read(f"oci-archive:{archive}:other") == EXPECTED


def test_digest_that_manifest_json_cannot_tell_is_refused(layout: Path, builder: ImageBuilder, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    run(need("skopeo"), "--insecure-policy", "copy", "-q", f"oci:{layout}:latest", f"docker-archive:{archive}:a/b:1")
    with open_image(f"docker-archive:{archive}", QUICK) as image:
        config = image.config_digest
    for name in ("", ":a/b:1"):
        assert read(f"docker-archive:{archive}{name}@{config}")
        with pytest.raises(SourceError, match=f"knows no digest of an image, and its image's config is {config}"):
            read(f"docker-archive:{archive}{name}@sha256:{'1' * 64}")


# --- compressed, piped


def _skippable(data: bytes) -> bytes:
    """Zstd that begins with a skippable frame (RFC 8878, 3.1.2), as writers of zstd:chunked may put anywhere."""
    return b"\x50\x2a\x4d\x18\x04\x00\x00\x00note" + zstandard.compress(data)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress, _skippable])
def test_compressed_archive_is_read(builder: ImageBuilder, tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    (tmp_path / "a.tar.z").write_bytes(compress(_tar(_old_save(builder))))
    assert read(str(tmp_path / "a.tar.z")) == EXPECTED


_READ_STDIN = """
import sys
from imgcheck.profile.blobs import KeptBlobs
from imgcheck.profile.store import Store
from imgcheck.sources.open import open_image
with open_image("-") as image:
    for layer in image.layers:
        for entry, content in layer.entries():
            print(entry.path, content.read().decode())
"""


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("piped", [True, False])
def test_archive_on_standard_input_is_read(
    builder: ImageBuilder, tmp_path: Path, piped: bool, compress: Callable[[bytes], bytes]
) -> None:
    data = compress(_tar(_old_save(builder)))
    (tmp_path / "a").write_bytes(data)
    options: dict[str, Any] = {"input": data} if piped else {"stdin": (tmp_path / "a").open("rb")}
    done = subprocess.run([sys.executable, "-c", _READ_STDIN], capture_output=True, cwd=CHECKOUT, **options)
    assert done.stdout.decode().split("\n") == ["bin/tool x", "etc/name y", ""], done.stderr.decode()


def test_archive_is_spooled_beside_the_facts_unless_the_user_names_a_directory(
    builder: ImageBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(_tar(_old_save(builder))))
    (tmp_path / "chosen").mkdir()
    options = replace(QUICK, cache=KeptBlobs(Store(tmp_path / "store", "key"), keep=False))
    for directory, wanted in ((None, tmp_path / "store" / "v1"), (tmp_path / "chosen", tmp_path / "chosen")):
        monkeypatch.setattr(tempfile, "tempdir", None)  # where it keeps what TMPDIR was when it was first asked
        monkeypatch.delenv("TMPDIR", raising=False)
        if directory:
            monkeypatch.setenv("TMPDIR", str(directory))
        with open_image(f"docker-archive:{tmp_path}/a.tar.gz", options) as image:
            opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
            assert [Path(name).parent for name in opened if name.endswith(" (deleted)")].count(wanted) == 1
            assert contents(image) == EXPECTED
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "a.tar.gz"]


def test_archive_larger_than_the_limit_is_not_spooled(builder: ImageBuilder, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(5 << 20)))
    with pytest.raises(SourceError, match="which is the limit"):
        read(str(tmp_path / "a.tar.gz"), replace(QUICK, spool_limit=1 << 20))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
def test_compressed_archive_that_ends_early_is_one_clear_error(
    builder: ImageBuilder, tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    data = compress(_tar(_old_save(builder)) + os.urandom(4000))
    (tmp_path / "a.tar.z").write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceError, match=r"truncated|damaged|ends inside|of no image"):
        read(str(tmp_path / "a.tar.z"))


# --- what is no archive, or a hostile one


def test_what_is_no_image_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello\n" * 200)
    with pytest.raises(SourceError, match="not an image: no archive, layout, SIF file or image profile"):
        read(str(tmp_path / "text"))
    with pytest.raises(SourceError, match="a tar archive, but of no image"):
        read(str(_write(tmp_path / "root.tar", {"etc/passwd": b"root"})))
    with pytest.raises(SourceError, match="No such file"):
        read(f"docker-archive:{tmp_path}/nothing.tar")


def test_truncated_archive_names_where_it_ends(builder: ImageBuilder, tmp_path: Path) -> None:
    whole = _tar(_old_save(builder))
    (tmp_path / "a.tar").write_bytes(whole[: len(whole) // 3])
    with pytest.raises(SourceError, match="truncated: it ends inside"):
        read(str(tmp_path / "a.tar"))


@contextmanager
def _changed(builder: ImageBuilder, path: Path, **changes: Any) -> Iterator[str]:
    members = _old_save(builder)
    entry = json.loads(members["manifest.json"])[0] | changes
    yield str(_write(path, members | {"manifest.json": json.dumps([entry]).encode()}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Config": "nope.json"}, r"member nope\.json is missing"),
        ({"Config": "../../etc/passwd"}, "member ../../etc/passwd is missing"),
        ({"Config": 5}, "not a string"),
        ({"Layers": ["0/layer.tar"]}, "has 1 layers, but the config lists 2"),
        ({"Layers": "x"}, "has no list of layers"),
        ({"Layers": ["0/layer.tar", "/etc/passwd"]}, "member /etc/passwd is missing"),
    ],
)
def test_manifest_json_that_does_not_add_up(
    builder: ImageBuilder, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with _changed(builder, tmp_path / "a.tar", **changes) as archive, pytest.raises(SourceError, match=message):
        read(archive)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/etc/passwd", "leads out of the archive"),
        ("../../../etc/passwd", "leads out of the archive"),
        ("layer.tar", "a link to itself"),
        ("../nothing", "is missing"),
    ],
)
def test_layer_that_is_a_link_elsewhere_is_refused(
    builder: ImageBuilder, tmp_path: Path, target: str, message: str
) -> None:
    members = _old_save(builder) | {"1/layer.tar": target}
    with pytest.raises(SourceError, match=message):
        read(str(_write(tmp_path / "a.tar", members)))


def test_changed_layer_and_config_are_refused(builder: ImageBuilder, tmp_path: Path) -> None:
    members = _old_save(builder)
    with pytest.raises(DigestError, match="diff_id"):
        read(str(_write(tmp_path / "a.tar", members | {"1/layer.tar": layer_tar({"etc/name": "evil"})})))
    config = next(name for name in members if name.endswith(".json") and name != "manifest.json")
    with pytest.raises(DigestError, match="hash to"):
        read(str(_write(tmp_path / "b.tar", members | {config: members[config] + b" "})))


@pytest.mark.parametrize("names", [5, "app:1", None, [5], {"a": "b"}])
def test_names_that_are_no_list_of_names_are_none(builder: ImageBuilder, tmp_path: Path, names: object) -> None:
    members = _old_save(builder)
    (entry,) = json.loads(members["manifest.json"])
    archive = _write(
        tmp_path / "a.tar", members | {"manifest.json": json.dumps([entry | {"RepoTags": names}]).encode()}
    )
    assert read(str(archive)) == EXPECTED
    with pytest.raises(SourceError, match="no image named 'app:1'"):
        read(f"docker-archive:{archive}:app:1")


def test_fifo_as_archive_is_read(builder: ImageBuilder, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    data = tmp_path / "data"
    data.write_bytes(_tar(_old_save(builder)))
    with subprocess.Popen(["/bin/sh", "-c", 'cat "$0" > "$1"', data, tmp_path / "pipe"]):
        assert read(str(tmp_path / "pipe")) == EXPECTED


def test_full_disk_while_an_archive_from_a_pipe_is_kept_is_one_clear_line(tmp_path: Path) -> None:
    layout = ImageBuilder().layer({"bin/tool": os.urandom(200_000)}, compression="none").write(tmp_path / "layout")
    script = (
        f"mount -t tmpfs -o size=64k tmpfs {tmp_path / 'tmp'} && tar -C {layout} -c . | "
        f"TMPDIR={tmp_path / 'tmp'} {sys.executable} -m imgcheck profile - --no-store"
    )
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [need("unshare"), "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"no space left in {tmp_path}/tmp" in done.stderr and "set TMPDIR" in done.stderr
