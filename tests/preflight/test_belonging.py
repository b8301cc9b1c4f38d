"""A profile beside an image is believed where it is of this image; one that is not used is named."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from imgcheck.cli import main
from imgcheck.preflight.belonging import file_identity
from tests.images import File, ImageBuilder, write_layout
from tests.tools import CHECKOUT, compile_c

FITS, DOES_NOT, TROUBLE = 0, 1, 2
NAME = "org.opencontainers.image.ref.name"


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    """An OCI layout with two images: `good` runs anywhere, `bad` needs AVX-512."""
    program = compile_c("int main(void) { return 0; }", "-static", "-O2").read_bytes()
    good = ImageBuilder(command=("/app",)).layer({"app": File(program, mode=0o755)})
    place = write_layout(tmp_path / "img", good, tag="good")
    demo = CHECKOUT / "demo" / "skylake512"
    shutil.copytree(demo / "blobs", place / "blobs", dirs_exist_ok=True)
    index = json.loads((place / "index.json").read_bytes())
    (bad,) = json.loads((demo / "index.json").read_bytes())["manifests"]
    index["manifests"].append(bad | {"annotations": {NAME: "bad"}})
    (place / "index.json").write_text(json.dumps(index))
    return place


def _profile(reference: str, target: Path) -> None:
    assert main(["profile", reference, "--no-store", "--quiet", "-o", str(target)]) == 0


def _archive(layout: Path, tag: str, target: Path) -> None:
    """The layout as an archive in which one tag is named."""
    index = json.loads((layout / "index.json").read_bytes())
    index["manifests"] = [entry for entry in index["manifests"] if entry["annotations"][NAME] == tag]
    work = target.with_suffix(".work")
    shutil.copytree(layout, work)
    (work / "index.json").write_text(json.dumps(index))
    with tarfile.open(target, "w") as archive:
        archive.add(work, ".")
    shutil.rmtree(work)


def test_a_profile_of_another_tag_of_the_layout_is_not_believed(place, layout, capsys):
    beside = layout.with_name("img.imgcheck.json")
    _profile(f"oci:{layout}:good", beside)
    arguments = ("--host", place.host(), "--runtime", "apptainer")
    assert place.preflight(f"oci:{layout}:good", *arguments, "--on-missing", "fail") == FITS
    assert place.preflight(f"oci:{layout}:bad", *arguments) == DOES_NOT
    assert f"{beside} is of another image" in capsys.readouterr().out
    assert place.preflight(f"oci:{layout}:bad", *arguments, "--on-missing", "fail") == DOES_NOT


def test_a_profile_of_the_file_that_lay_there_before_is_not_believed(place, layout, capsys):
    image = place.directory / "app.tar"
    _archive(layout, "good", image)
    _profile(str(image), image.with_name("app.tar.imgcheck.json"))
    arguments = (image, "--host", place.host(), "--runtime", "apptainer")
    assert place.preflight(*arguments, "--on-missing", "fail") == FITS
    assert "not used" not in capsys.readouterr().out
    _archive(layout, "bad", image)
    assert place.preflight(*arguments) == DOES_NOT
    assert "of an earlier state of this one, and was not used" in capsys.readouterr().out


def test_an_image_of_an_archive_may_have_a_name_with_slash_and_tag(place, layout):
    image = place.directory / "app.tar"
    _archive(layout, "good", image)
    _profile(f"oci-archive:{image}:good", image.with_name("app.tar.imgcheck.json"))
    arguments = ("--host", place.host(), "--runtime", "apptainer", "--on-missing", "fail")
    assert place.preflight(f"oci-archive:{image}:good", *arguments) == FITS
    profile = json.loads(image.with_name("app.tar.imgcheck.json").read_bytes())
    profile["file_identity"] = file_identity(str(image), "repo/app:v1")
    image.with_name("app.tar.imgcheck.json").write_text(json.dumps(profile))
    assert place.preflight(f"docker-archive:{image}:repo/app:v1", *arguments) == FITS


def test_a_profile_is_of_the_digest_that_names_an_image_of_a_layout(place, layout):
    index = json.loads((layout / "index.json").read_bytes())
    digests = {entry["annotations"][NAME]: entry["digest"] for entry in index["manifests"]}
    _profile(f"oci:{layout}:good", layout.with_name("img.imgcheck.json"))
    arguments = ("--host", place.host(), "--runtime", "apptainer", "--on-missing", "fail")
    assert place.preflight(f"oci:{layout}@{digests['good']}", *arguments) == FITS
    assert place.preflight(f"oci:{layout}@{digests['bad']}", *arguments) == DOES_NOT


def test_a_profile_that_says_nothing_of_a_file_is_believed(place):
    image = place.image("app.sif", answer="dispatched")
    assert place.preflight(image, "--host", place.host(), "--runtime", "apptainer", "--on-missing", "fail") == FITS


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_profile_of_another_user_than_the_images_is_not_believed(place, capsys):
    image = place.image("app.sif", answer="dispatched")
    beside = image.with_name("app.sif.imgcheck.json")
    arguments = (image, "--host", place.host(), "--runtime", "apptainer", "--on-missing", "fail")
    os.chown(beside, 12345, 12345)
    assert place.preflight(*arguments) == DOES_NOT
    assert f"{beside} may be written by others than the image, and was not used" in capsys.readouterr().out
    os.chown(image, 12345, 12345)
    assert place.preflight(*arguments) == FITS
    beside.rename(place.directory / "elsewhere")
    beside.symlink_to(place.directory / "elsewhere")
    assert place.preflight(*arguments) == FITS
    os.chown(beside, 54321, 54321, follow_symlinks=False)
    shutil.rmtree(place.cache)
    assert place.preflight(*arguments) == DOES_NOT


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_profile_that_others_may_write_is_believed_where_they_may_write_the_image(place, mode):
    image = place.image("app.sif", answer="dispatched")
    image.with_name("app.sif.imgcheck.json").chmod(mode)
    arguments = (image, "--host", place.host(), "--runtime", "apptainer", "--on-missing", "fail")
    assert place.preflight(*arguments) == DOES_NOT
    image.chmod(mode)
    assert place.preflight(*arguments) == FITS


@pytest.mark.parametrize("content", [b"", b"{}", b"\x7fELF", None], ids=["empty", "no document", "binary", "directory"])
def test_what_is_no_profile_is_named(place, layout, content, capsys):
    beside = layout.with_name("img.imgcheck.json")
    beside.mkdir() if content is None else beside.write_bytes(content)
    assert place.preflight(f"oci:{layout}:good", "--host", place.host(), "--runtime", "apptainer") == FITS
    assert f"{beside} is no profile and was not used" in capsys.readouterr().out


def test_an_image_without_a_slash_in_its_name_is_the_file_that_lies_here(place, layout, monkeypatch):
    _archive(layout, "bad", place.directory / "app")
    monkeypatch.chdir(place.directory)
    assert place.preflight("app", "--host", place.host(), "--runtime", "apptainer") == DOES_NOT


@pytest.mark.parametrize(
    "index", ["[]", "{", '{"manifests": 7}', '{"manifests": [7, {"digest": "a/../b:c"}]}', "[" * 9999]
)
def test_a_damaged_layout_has_no_profile(place, layout, index):
    _profile(f"oci:{layout}:good", layout.with_name("img.imgcheck.json"))
    (layout / "index.json").write_text(index)
    assert place.preflight(f"oci:{layout}:good", "--host", place.host(), "--runtime", "apptainer") == TROUBLE


@pytest.fixture
def multi(tmp_path: Path) -> str:
    """An OCI layout of one image for two architectures, which runs on either."""
    compilers = {"amd64": "gcc", "arm64": "aarch64-linux-gnu-gcc"}
    source = "void _start(void) { for (;;); }"
    programs = {name: compile_c(source, "-static", "-nostdlib", compiler=gcc) for name, gcc in compilers.items()}
    builders = [
        ImageBuilder(architecture=name, command=("/app",)).layer({"app": File(program.read_bytes(), mode=0o755)})
        for name, program in programs.items()
    ]
    return f"oci:{write_layout(tmp_path / 'multi', *builders)}"


@pytest.mark.parametrize("cpu", ["haswell", "graviton2"])
@pytest.mark.parametrize("profile", ["amd64", "arm64", None])
def test_of_an_image_of_several_platforms_that_of_the_host_is_meant(place, multi, capsys, cpu, profile):
    if profile:
        beside = f"{multi.removeprefix('oci:')}.imgcheck.json"
        assert main(["profile", multi, "--no-store", "-q", "--platform", profile, "-o", beside]) == 0
    assert place.preflight(multi, "--host", place.host(cpu), "--runtime", "apptainer") == FITS
    of_another = profile == ("arm64" if cpu == "haswell" else "amd64")
    assert (f"is of the image for linux/{profile}, and was not used" in capsys.readouterr().out) is of_another


def test_of_kept_profiles_that_of_the_hosts_platform_is_taken(place, multi):
    store = ("--store", str(place.directory / "store"))
    for platform in ("amd64", "arm64"):
        assert main(["profile", multi, *store, "-q", "--platform", platform, "-o", "/dev/null"]) == 0
    options = ["--runtime", "apptainer", "--on-missing", "fail", f"--cache={place.cache}", *store]
    assert main(["preflight", multi, "--host", str(place.host("graviton2")), *options]) == FITS


def test_files_are_told_apart_by_size_and_both_ends(tmp_path):
    file = tmp_path / "f"
    seen = set()
    for data in (b"", b"a", b"a" * 300_000, b"b" + b"a" * 299_999, b"a" * 299_999 + b"b"):
        file.write_bytes(data)
        seen |= {file_identity(str(file), ""), file_identity(str(file), "tag")}
    assert len(seen) == 10
    assert file_identity(str(tmp_path), "") == ""
