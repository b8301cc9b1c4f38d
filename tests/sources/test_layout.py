"""OCI layouts: real ones, and hostile ones."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imgcheck.errors import DigestError, SourceError
from imgcheck.sources.blobs import decode_json
from imgcheck.sources.open import open_image
from tests.images import ImageBuilder, write_layout
from tests.sources.conftest import QUICK, contents, read
from tests.tools import need, run

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    builder = ImageBuilder(entrypoint=("/bin/tool",), environment=("A=B",), working_directory="/work", user="app")
    return (
        builder.layer({"bin/tool": "x"}, history="RUN make")
        .layer({"etc/name": "y"}, compression="none")
        .write(tmp_path / "layout")
    )


def _add(layout: Path, document: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps(document).encode()
    digest = hashlib.sha256(data).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(data)
    return {"mediaType": document.get("mediaType", MANIFEST), "digest": f"sha256:{digest}", "size": len(data)}


def _root(layout: Path) -> dict[str, Any]:
    return json.loads((layout / "index.json").read_text())["manifests"][0]


def _set_root(layout: Path, *entries: dict[str, Any]) -> None:
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _manifest(layout: Path) -> dict[str, Any]:
    return json.loads(_blob(layout, _root(layout)["digest"]).read_text())


def _rewrite(layout: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = _manifest(layout)
    change(document)
    _set_root(layout, _add(layout, document))


def test_config_layers_and_history_are_read(layout: Path) -> None:
    with open_image(f"oci:{layout}:latest", QUICK) as image:
        assert image.config.entrypoint == ("/bin/tool",)
        assert (image.config.environment, image.config.working_directory, image.config.user) == (
            ("A=B",),
            "/work",
            "app",
        )
        assert [layer.info.history for layer in image.layers] == ["RUN make", "COPY layer1 /"]
        assert image.manifest_digest == _root(layout)["digest"]
        assert hashlib.sha256(image.raw_config).hexdigest() == image.config_digest.removeprefix("sha256:")
        assert contents(image) == {"bin/tool": b"x", "etc/name": b"y"}


def test_layout_written_by_umoci_and_copied_by_skopeo_is_read(tmp_path: Path, layout: Path) -> None:
    made = tmp_path / "umoci"
    run(need("umoci"), "init", "--layout", made)
    run(need("umoci"), "new", "--image", f"{made}:a")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_bytes(b"from umoci".ljust(512))
    run(need("umoci"), "insert", "--image", f"{made}:a", tmp_path / "tree", "/data")
    run(need("umoci"), "config", "--image", f"{made}:a", "--config.entrypoint", "/bin/x", "--config.cmd", "y")
    with open_image(f"oci:{made}:a", QUICK) as image:
        assert (image.config.entrypoint, image.config.command) == (("/bin/x",), ("y",))
        assert contents(image)["data/file"].strip() == b"from umoci"
    run(need("skopeo"), "--insecure-policy", "copy", "-q", f"oci:{layout}:latest", f"oci:{made}:host.example/b:2")
    assert read(f"oci:{made}:host.example/b:2")["bin/tool"] == b"x"


def test_layer_whose_last_member_lacks_its_padding_is_read_as_others_read_it(tmp_path: Path) -> None:
    made = tmp_path / "umoci"
    run(need("umoci"), "init", "--layout", made)
    run(need("umoci"), "new", "--image", f"{made}:a")
    (tmp_path / "file").write_text("short")
    run(need("umoci"), "insert", "--image", f"{made}:a", tmp_path / "file", "/file")
    assert read(f"oci:{made}:a") == {"file": b"short"}


def test_several_images_must_be_named(layout: Path, tmp_path: Path) -> None:
    first = _root(layout)
    second = first | {"annotations": {"org.opencontainers.image.ref.name": "other"}}
    _set_root(layout, first, second)
    with pytest.raises(SourceError, match="holds several images: latest, other"):
        read(f"oci:{layout}")
    with pytest.raises(SourceError, match="no image named 'third'; it holds latest, other"):
        read(f"oci:{layout}:third")
    assert read(f"oci:{layout}:other") and read(f"oci:{layout}@{first['digest']}")


def test_of_a_layout_that_was_pushed_to_twice_the_later_image_is_taken(layout: Path, tmp_path: Path) -> None:
    later = ImageBuilder().layer({"bin/tool": "later"}).write(tmp_path / "later")
    for source in (layout, later):
        run(need("skopeo"), "--insecure-policy", "copy", "-q", f"oci:{source}:latest", f"oci:{tmp_path}/build:latest")
    assert "annotations" not in _root(tmp_path / "build")
    assert read(f"oci:{tmp_path}/build") == read(f"oci:{tmp_path}/build:latest") == {"bin/tool": b"later"}
    assert read(f"oci:{tmp_path}/build@{_root(tmp_path / 'build')['digest']}")["bin/tool"] == b"x"


@pytest.mark.parametrize("name", [{}, {"annotations": {"org.opencontainers.image.ref.name": "latest"}}])
def test_images_for_one_platform_that_no_name_tells_apart_are_refused(layout: Path, name: dict[str, Any]) -> None:
    first = _root(layout)
    _rewrite(layout, lambda document: document.update(annotations={"a": "b"}))
    second = _root(layout)
    del first["annotations"]
    _set_root(layout, first | name, second | name)
    with pytest.raises(SourceError, match=r"holds several images for linux/amd64: sha256:\w+, sha256:") as refused:
        read(f"oci:{layout}")
    assert "@DIGEST" in refused.value.hint
    assert read(f"oci:{layout}@{second['digest']}")
    _set_root(layout, first | name, first | name)
    assert read(f"oci:{layout}")


def _platforms(tmp_path: Path, *platforms: str) -> str:
    builders = []
    for platform in platforms:
        architecture, _, variant = platform.partition("/")
        builder = ImageBuilder(architecture=architecture, variant=variant)
        builders.append(builder.layer({"which": platform}))
    return f"oci:{write_layout(tmp_path / 'multi', *builders)}"


def _which(reference: str, platform: str) -> tuple[str, bool]:
    with open_image(reference, replace(QUICK, platform=platform)) as image:
        return contents(image)["which"].decode(), image.platform_matches


def test_platform_is_chosen_and_a_missing_one_is_told(tmp_path: Path) -> None:
    reference = _platforms(tmp_path, "ppc64le", "arm64", "amd64/v3", "amd64")
    assert _which(reference, "linux/arm64") == ("arm64", True)
    assert _which(reference, "linux/amd64") == ("amd64", True)
    assert _which(reference, "linux/amd64/v4") == ("amd64/v3", True)
    # None fits: linux/amd64 is what most people mean, and the mismatch is said.
    assert _which(reference, "linux/s390x")[1] is False
    assert _which(reference, "linux/s390x")[0].startswith("amd64")


def test_single_manifest_of_another_platform_is_taken_and_told(tmp_path: Path) -> None:
    layout = ImageBuilder(architecture="arm64").layer({"which": "arm64"}).write(tmp_path / "arm")
    assert _which(f"oci:{layout}", "linux/amd64") == ("arm64", False)


def test_unknown_entries_and_attestations_are_skipped_and_nested_indexes_entered(layout: Path) -> None:
    image = _root(layout) | {"platform": {"os": "linux", "architecture": "amd64"}}
    attestation = image | {"platform": {"os": "unknown", "architecture": "unknown"}}
    annotated = image | {"annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    strange = image | {"mediaType": "application/vnd.example.thing"}
    old = image | {"mediaType": "application/vnd.docker.distribution.manifest.v1+prettyjws"}
    inner = _add(layout, {"schemaVersion": 2, "mediaType": INDEX, "manifests": [strange, attestation, old, image]})
    outer = _add(layout, {"schemaVersion": 2, "mediaType": INDEX, "manifests": [annotated, inner]})
    _set_root(layout, outer)
    with open_image(f"oci:{layout}", QUICK) as found:
        assert contents(found)["bin/tool"] == b"x"
        assert len([note for note in found.notes if "was skipped" in note]) == 2


@pytest.mark.parametrize("in_index", [True, False])
@pytest.mark.parametrize("layer", ["text/plain", "application/vnd.example.chart.v1.tar+gzip"])
def test_artifact_beside_the_image_is_skipped_and_noted(layout: Path, in_index: bool, layer: str) -> None:
    artifact = _manifest(layout)
    artifact["artifactType"] = "application/vnd.example.sbom"
    artifact["config"]["mediaType"] = "application/vnd.oci.empty.v1+json"
    artifact["layers"][0]["mediaType"] = layer
    entries = [_add(layout, artifact), _root(layout)]
    del entries[1]["annotations"]
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
    _set_root(layout, *([_add(layout, index)] if in_index else entries))
    with open_image(f"oci:{layout}", QUICK) as found:
        assert contents(found)["bin/tool"] == b"x"
        assert [note for note in found.notes if "is an artifact of type 'application/vnd.example.sbom'" in note]


def test_index_of_nothing_usable_is_no_image(layout: Path) -> None:
    _set_root(layout, _add(layout, {"schemaVersion": 2, "mediaType": INDEX, "manifests": []}))
    with pytest.raises(SourceError, match="names no image"):
        read(f"oci:{layout}")


def test_platform_whose_blobs_are_absent_gives_way_to_one_that_is_there(layout: Path) -> None:
    there = _root(layout) | {"platform": {"os": "linux", "architecture": "amd64"}}
    absent = there | {"digest": "sha256:" + "1" * 64, "platform": {"os": "linux", "architecture": "arm64"}}
    _set_root(layout, _add(layout, {"schemaVersion": 2, "mediaType": INDEX, "manifests": [absent, there]}))
    with open_image(f"oci:{layout}", replace(QUICK, platform="linux/arm64")) as image:
        assert image.platform.architecture == "amd64" and not image.platform_matches
        assert any("1111" in note and "missing" in note for note in image.notes)


def test_index_that_contains_itself_by_depth_is_refused(layout: Path) -> None:
    entry = _root(layout)
    for _ in range(8):
        entry = _add(layout, {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]})
    _set_root(layout, entry)
    with pytest.raises(SourceError, match="lies deeper than"):
        read(f"oci:{layout}")


def test_index_that_says_another_platform_than_the_config_is_noted(layout: Path) -> None:
    _set_root(layout, _root(layout) | {"platform": {"os": "linux", "architecture": "arm64"}})
    with open_image(f"oci:{layout}", replace(QUICK, platform="linux/arm64")) as image:
        assert str(image.platform) == "linux/amd64"
        assert "the index says linux/arm64, the config linux/amd64" in image.notes
        assert not image.platform_matches


# --- what does not add up


def test_wrong_manifest_config_and_layer_are_each_named_by_digest(layout: Path) -> None:
    manifest = _manifest(layout)
    for digest in (_root(layout)["digest"], manifest["config"]["digest"], manifest["layers"][1]["digest"]):
        path = _blob(layout, digest)
        good = path.read_bytes()
        path.write_bytes(good + b" ")
        with pytest.raises(DigestError, match=digest):
            read(f"oci:{layout}")
        path.write_bytes(good)
    assert read(f"oci:{layout}")


def test_layer_whose_content_is_not_the_diff_id_is_refused(layout: Path) -> None:
    def swap(manifest: dict[str, Any]) -> None:
        manifest["layers"].reverse()

    _rewrite(layout, swap)
    with pytest.raises(DigestError, match="diff_id"):
        read(f"oci:{layout}")


def test_missing_layer_blob_is_named(layout: Path) -> None:
    digest = _manifest(layout)["layers"][0]["digest"]
    _blob(layout, digest).unlink()
    with pytest.raises(SourceError, match=f"blob {digest} is missing"):
        read(f"oci:{layout}")


def _change_config(layout: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads(_blob(layout, _manifest(layout)["config"]["digest"]).read_text())
    change(config)
    media_type = _manifest(layout)["config"]["mediaType"]
    _rewrite(layout, lambda manifest: manifest.update(config=_add(layout, config) | {"mediaType": media_type}))


def test_null_stands_for_any_optional_field(layout: Path) -> None:
    def empty(config: dict[str, Any]) -> None:
        config["config"] = dict.fromkeys(("Env", "Cmd", "Entrypoint", "WorkingDir", "User", "Labels", "Volumes"))
        config["history"] = None

    _change_config(layout, empty)
    with open_image(f"oci:{layout}", QUICK) as image:
        assert image.config.entrypoint == () and image.layers[0].info.history == ""
    _change_config(layout, lambda config: config.update(config=None))
    assert read(f"oci:{layout}")


def test_empty_layers_are_left_out_of_the_history(layout: Path) -> None:
    lines = [("FROM x", False), ("ENV A=B", True), ("RUN make", False), ("CMD z", True)]
    history = [{"created_by": text, "empty_layer": empty} for text, empty in lines]
    _change_config(layout, lambda config: config.update(history=history))
    with open_image(f"oci:{layout}", QUICK) as image:
        assert [layer.info.history for layer in image.layers] == ["FROM x", "RUN make"]


def test_history_that_does_not_fit_the_layers_is_not_guessed_at(layout: Path) -> None:
    _change_config(layout, lambda config: config.update(history=[{"created_by": "RUN one"}]))
    with open_image(f"oci:{layout}", QUICK) as image:
        assert [layer.info.history for layer in image.layers] == ["", ""]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["rootfs"]["diff_ids"].pop(), "has 2 layers, but its config lists 1 diff_ids"),
        (lambda c: c.update(rootfs=None), "has no rootfs.diff_ids"),
        (lambda c: c["rootfs"].update(diff_ids=["sha256:../../x", "y"]), "not a digest"),
        (lambda c: c["config"].update(Env=[1]), "config.Env is not a list of strings"),
        (lambda c: c.update(config=[]), "`config` is not an object"),
    ],
)
def test_config_that_contradicts_itself_is_refused(layout: Path, change: Callable, message: str) -> None:
    _change_config(layout, change)
    with pytest.raises(SourceError, match=message):
        read(f"oci:{layout}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(manifests=[]), "both an index and a manifest"),
        (lambda m: m.update(mediaType=INDEX), "was announced as"),
        (lambda m: m.update(schemaVersion=1), "manifest schema 1"),
        (lambda m: m.pop("config"), "has no `config` and `layers`"),
        (lambda m: m.update(layers={}), None),
        (lambda m: m.update(layers="x"), "`layers` is not a list"),
        (lambda m: m["layers"][0].update(digest="sha256:../../../../etc/passwd"), "not a sha256 or sha512 digest"),
        (lambda m: m["layers"][0].update(digest="md5:" + "0" * 32), "not a sha256 or sha512 digest"),
        (lambda m: m["layers"][0].update(size=-5), "the size -5"),
        (lambda m: m["layers"].append(7), "not a descriptor"),
    ],
)
def test_manifest_that_is_none_is_refused(layout: Path, change: Callable, message: str | None) -> None:
    def apply(manifest: dict[str, Any]) -> None:
        change(manifest)
        manifest.setdefault("mediaType", MANIFEST)

    document = _manifest(layout)
    apply(document)
    _set_root(layout, _add(layout, document) | {"mediaType": MANIFEST})
    with pytest.raises(SourceError, match=message):
        read(f"oci:{layout}")


@pytest.mark.parametrize("name", ["LAYERS", "Layers", "layer\u017f"])
@pytest.mark.parametrize("keep", [True, False])
def test_field_in_other_letters_is_refused_as_engines_would_take_it(layout: Path, name: str, keep: bool) -> None:
    def spell(manifest: dict[str, Any]) -> None:
        manifest[name] = manifest["layers"][:1]
        if not keep:
            del manifest["layers"]

    _rewrite(layout, spell)
    with pytest.raises(SourceError, match="spells `layers` as"):
        read(f"oci:{layout}")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda c: c["config"].update(CMD=["/bin/other"]), "Cmd"),
        (lambda c: c["rootfs"].update(Diff_IDs=[]), "diff_ids"),
        (lambda c: c.update(Architecture="arm64"), "architecture"),
    ],
)
def test_field_of_the_config_in_other_letters_is_refused(layout: Path, change: Callable, field: str) -> None:
    _change_config(layout, change)
    with pytest.raises(SourceError, match=f"spells `{field}` as"):
        read(f"oci:{layout}")


def test_names_that_are_the_images_own_may_differ_in_case_alone(layout: Path) -> None:
    def own(config: dict[str, Any]) -> None:
        config["config"] |= {"Labels": {"Architecture": "a", "architecture": "b", "os": "c"}, "Volumes": {"Env": {}}}

    _change_config(layout, own)
    _rewrite(layout, lambda manifest: manifest.update(annotations={"Config": "a", "config": "b"}))
    with open_image(f"oci:{layout}", QUICK) as image:
        assert image.config.labels["architecture"] == "b"


def test_field_that_stands_twice_is_refused(layout: Path) -> None:
    data = json.dumps(_manifest(layout)).replace('"layers":', '"layers": [], "layers":').encode()
    digest = hashlib.sha256(data).hexdigest()
    _blob(layout, digest).write_bytes(data)
    _set_root(layout, {"mediaType": MANIFEST, "digest": f"sha256:{digest}", "size": len(data)})
    with pytest.raises(SourceError, match="has the name 'layers' twice"):
        read(f"oci:{layout}")


def test_many_fields_of_which_one_stands_twice_are_read_in_no_time() -> None:
    pairs = ",".join(f'"{number}": 0' for number in [*range(200_000), 7])
    started = time.process_time()
    with pytest.raises(SourceError, match="document: an object has the name '7' twice"):
        decode_json(f"{{{pairs}}}".encode(), "document")
    assert time.process_time() - started < 5


def test_artifacts_are_named_for_what_they_are(layout: Path) -> None:
    def chart(manifest: dict[str, Any]) -> None:
        manifest["config"]["mediaType"] = "application/vnd.example.chart"
        manifest["layers"] = [manifest["layers"][0] | {"mediaType": "application/vnd.example.content"}]

    _rewrite(layout, chart)
    with pytest.raises(
        SourceError, match=r"an artifact of type 'application/vnd\.example\.chart', not a container image"
    ):
        read(f"oci:{layout}")


def test_encrypted_layer_is_named_as_such(layout: Path, tmp_path: Path) -> None:
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    run(need("openssl"), "genrsa", "-out", key, "2048")
    run(need("openssl"), "rsa", "-in", key, "-pubout", "-out", public)
    copy = (need("skopeo"), "--insecure-policy", "copy", "-q")
    run(*copy, "--encryption-key", f"jwe:{public}", f"oci:{layout}:latest", f"oci:{tmp_path}/encrypted:1")
    with open_image(f"oci:{tmp_path}/encrypted:1", QUICK) as image:
        assert image.config.entrypoint == ("/bin/tool",)
        with pytest.raises(SourceError, match=r"encrypted: layer sha256:\w+ is encrypted") as refused:
            contents(image)
    assert "skopeo copy --decryption-key" in refused.value.hint
    run(*copy, "--decryption-key", key, f"oci:{tmp_path}/encrypted:1", f"oci:{tmp_path}/decrypted:1")
    assert read(f"oci:{tmp_path}/decrypted:1")["bin/tool"] == b"x"


@pytest.mark.parametrize("target", ["/etc/passwd", "../../index.json"])
def test_blob_that_is_a_symbolic_link_is_not_followed(layout: Path, target: str) -> None:
    digest = _manifest(layout)["layers"][0]["digest"]
    _blob(layout, digest).unlink()
    _blob(layout, digest).symlink_to(target)
    with pytest.raises(SourceError, match=f"{digest}: a symbolic link, which is not followed"):
        read(f"oci:{layout}")


def test_blob_directory_that_is_a_symbolic_link_is_not_followed(layout: Path, tmp_path: Path) -> None:
    (layout / "blobs").rename(tmp_path / "moved")
    (layout / "blobs").symlink_to(tmp_path / "moved")
    with pytest.raises(SourceError, match=r"not followed|Not a directory"):
        read(f"oci:{layout}")


def test_fifo_in_place_of_a_blob_does_not_hang(layout: Path) -> None:
    digest = _manifest(layout)["layers"][0]["digest"]
    _blob(layout, digest).unlink()
    os.mkfifo(_blob(layout, digest))
    with pytest.raises(SourceError, match="not a regular file"):
        read(f"oci:{layout}")


def test_oversized_documents_are_refused(layout: Path) -> None:
    path = _blob(layout, _root(layout)["digest"])
    path.write_bytes(b" " * ((4 << 20) + 1))
    with pytest.raises(SourceError, match="larger than 4 MiB"):
        read(f"oci:{layout}")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"manifests": {}}', '{"manifests": [{}]}', "[" * 100_000, "\udcff"])
def test_index_that_is_no_index_is_one_clear_error(layout: Path, text: str) -> None:
    (layout / "index.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceError, match=r"index\.json"):
        read(f"oci:{layout}")


def test_directory_that_is_no_layout(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"not an OCI layout: it has no index\.json"):
        read(f"oci:{tmp_path}")


def test_documents_without_end_are_not_all_read(layout: Path) -> None:
    manifest, entries = _manifest(layout), []
    config = _blob(layout, manifest["config"]["digest"]).read_bytes()
    for number in range(12):
        data = config + b" " * (7_000_000 + number)
        digest = hashlib.sha256(data).hexdigest()
        _blob(layout, digest).write_bytes(data)
        described = manifest["config"] | {"digest": f"sha256:{digest}", "size": len(data)}
        entries.append(_add(layout, manifest | {"config": described}))
    _set_root(layout, _add(layout, {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries[:5]}))
    assert read(f"oci:{layout}") == {"bin/tool": b"x", "etc/name": b"y"}
    _set_root(layout, _add(layout, {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}))
    with pytest.raises(SourceError, match="more than 64 MiB of manifests and configs"):
        read(f"oci:{layout}")


def test_platform_that_the_image_lacks_is_told(layout: Path) -> None:
    with open_image(f"oci:{layout}", replace(QUICK, platform="linux/arm64")) as image:
        assert "no image for linux/arm64 there: that for linux/amd64 was taken" in image.notes
    with open_image(f"oci:{layout}", QUICK) as image:
        assert image.notes == ()
