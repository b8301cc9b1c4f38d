"""Labels state what the image needs, fit every tool that sets them, and betray an image that merely inherited them."""

import json
from pathlib import Path

import pytest

from imgcheck.cli import main
from tests.ci.images import layout, program
from tests.images import ImageBuilder
from tests.tools import need, run


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return layout(tmp_path_factory.mktemp("label") / "image", "skylake-avx512")


def labels_of(reference: str, capsys) -> dict[str, str]:
    assert main(["label", reference, "-o", "json", "--no-store"]) == 0
    return json.loads(capsys.readouterr().out)


def test_labels_tell_the_needs_and_whose_they_are(image, capsys):
    labels = labels_of(f"oci:{image}", capsys)
    assert labels["imgcheck.needs.architecture"] == "linux/amd64"
    assert "avx512f" in labels["imgcheck.needs.cpu"]
    diff_id = json.loads(next(image.glob("blobs/sha256/*")).parent.joinpath(_config(image)).read_text())["rootfs"]
    assert labels["imgcheck.of-layers"] == diff_id["diff_ids"][0]


def _config(image: Path) -> str:
    index = json.loads((image / "index.json").read_text())
    manifest = image / "blobs" / index["manifests"][0]["digest"].replace(":", "/")
    return json.loads(manifest.read_text())["config"]["digest"].removeprefix("sha256:")


def test_an_image_with_its_own_labels_passes_the_check_and_a_child_of_it_does_not(image, tmp_path, capsys):
    labels = labels_of(f"oci:{image}", capsys)
    own = ImageBuilder(entrypoint=("/opt/app/solver",), labels=labels | {"other": "x"})
    own.layer({"opt/app/solver": program("skylake-avx512")}, "COPY solver /opt/app/solver")
    own.write(tmp_path / "own")
    assert main(["label", "--check", f"oci:{tmp_path / 'own'}", "--no-store"]) == 0
    own.layer({"etc/more": "x"}).write(tmp_path / "child")
    assert main(["label", "--check", f"oci:{tmp_path / 'child'}", "--no-store"]) == 1
    assert "those of another image" in capsys.readouterr().out


def test_labels_that_tell_less_than_is_needed_are_named(image, tmp_path, capsys):
    labels = labels_of(f"oci:{image}", capsys) | {"imgcheck.needs.cpu": "sse2"}
    own = ImageBuilder(entrypoint=("/opt/app/solver",), labels=labels)
    own.layer({"opt/app/solver": program("skylake-avx512")}).write(tmp_path / "own")
    assert main(["label", "--check", f"oci:{tmp_path / 'own'}", "--no-store"]) == 1
    assert "imgcheck.needs.cpu is 'sse2', and should be" in capsys.readouterr().out


def test_a_format_of_labels_is_refused_where_none_are_printed(image, capsys):
    assert main(["label", "--check", f"oci:{image}", "-o", "json"]) == 2
    assert "-o json: --check prints no labels" in capsys.readouterr().err


def test_an_image_without_labels_fails_the_check(image, capsys):
    assert main(["label", "--check", f"oci:{image}", "--no-store"]) == 1
    assert "it carries no labels" in capsys.readouterr().out


def test_hostile_names_stay_within_their_line_and_quotes():
    from imgcheck.cli.label import _FORMATS

    labels = {"imgcheck.needs.x": 'a"b$c\\d `e`'}
    assert _FORMATS["dockerfile"](labels) == 'LABEL imgcheck.needs.x="a\\"b\\$c\\\\d `e`"\n'
    assert _FORMATS["options"](labels) == "--label 'imgcheck.needs.x=a\"b$c\\d `e`'\n"


@pytest.mark.slow
def test_umoci_sets_the_labels_as_documented(image, tmp_path, capsys):
    reference = f"oci:{image}"
    run("cp", "-r", image, tmp_path / "copy")
    assert main(["label", reference, "--no-store"]) == 0
    pipeline = "sed 's/^/--config.label=/' | xargs -d '\\n' \"$0\" config --image \"$1\""
    run("bash", "-c", pipeline, need("umoci"), f"{tmp_path / 'copy'}:latest", input=capsys.readouterr().out)
    assert main(["label", "--check", f"oci:{tmp_path / 'copy'}", "--no-store"]) == 0
