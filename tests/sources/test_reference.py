"""What people type for an image, and what becomes of it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgcheck.errors import SourceError
from imgcheck.sources.reference import Reference, local_hint, parse

DIGEST = "sha256:" + "0" * 64


def _name(text: str) -> tuple[str, str, str, str]:
    found = parse(text)
    assert found.kind == "registry" and found.text == text
    return found.registry, found.repository, found.tag, found.digest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("debian", ("", "debian", "", "")),
        ("qnib/cv-nccl92-tf-dev", ("", "qnib/cv-nccl92-tf-dev", "", "")),
        ("qnib/cv-nccl92-tf-dev:1.12.0-rev10", ("", "qnib/cv-nccl92-tf-dev", "1.12.0-rev10", "")),
        ("registry:5000/powerai/base:4.0.0", ("registry:5000", "powerai/base", "4.0.0", "")),
        ("localhost/a", ("localhost", "a", "", "")),
        ("registry.example/a/b/c", ("registry.example", "a/b/c", "", "")),
        (f"a@{DIGEST}", ("", "a", "", DIGEST)),
        (f"registry.example:443/a:b@{DIGEST}", ("registry.example:443", "a", "b", DIGEST)),
        ("[::1]:5000/a", ("[::1]:5000", "a", "", "")),
        ("a__b/c--d.e_f", ("", "a__b/c--d.e_f", "", "")),
        ("docker://registry.example/a:b", ("registry.example", "a", "b", "")),
        # Without a dot, a colon or `localhost` the first component is no host.
        ("registry/a", ("", "registry/a", "", "")),
    ],
)
def test_names(text: str, expected: tuple[str, str, str, str]) -> None:
    assert _name(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not an image reference"),
        (" debian", "not an image reference"),
        ("Debian", "repository names are lower case"),
        ("a..b/c", "'a..b' is not a registry host"),
        ("-a.b/c", "is not a registry host"),
        ("localhost:65536/a", "is not a registry host"),
        ("[:::]:5000/a", "is not a registry host"),
        ("a:", "'' is not a tag"),
        ("a:.hidden", "is not a tag"),
        ("a@sha256:123", "is not a digest"),
        ("a@sha256:" + "A" * 64, "is not a digest"),
        ("a@sha256:../../../../etc/passwd", "is not a digest"),
        ("a//b", "not an image reference"),
        ("-a", "not an image reference"),
        ("a/" * 200 + "a", "at most 255 characters"),
        ("./nothing-here", "No such file"),
        ("/nothing/here", "No such file"),
        ("missing.tar", "no such file"),
        ("missing.sif", "no such file"),
        ("oci:", "nothing after oci:"),
        ("docker://", "not an image reference"),
        ("bad_host-.example:x/a", "not a registry host"),
    ],
)
def test_what_is_no_reference_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("library://lolcow", "apptainer pull FILE.sif library://lolcow, then"),
        ("shub://GodloveD/lolcow", "apptainer pull"),
        ("oras://registry.example.org/a/b:1", "apptainer pull"),
        ("https://hub.docker.com/_/ubuntu", "write HOST/NAME[:TAG]"),
        ("docker:a/b", "written docker://a/b, or without docker:"),
    ],
)
def test_what_other_tools_take_is_answered_with_how_it_is_written_here(text: str, hint: str) -> None:
    with pytest.raises(SourceError) as refused:
        parse(text)
    assert hint in refused.value.hint
    assert refused.value.message.startswith(f"{text}: ")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_paths_are_recognised_by_content(here: Path) -> None:
    (here / "layout").mkdir()
    (here / "layout" / "oci-layout").write_text("{}")
    (here / "root" / "usr").mkdir(parents=True)
    (here / "udocker" / "ROOT").mkdir(parents=True)
    (here / "empty").mkdir()
    (here / "a.sqsh").write_bytes(b"hsqs" + bytes(60))
    (here / "a.sif").write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0")
    (here / "p.json").write_text('{"kind": "image"}')
    (here / "a.tar").write_bytes(bytes(512))
    for path, kind in {
        "./layout": "oci",
        "./root": "dir",
        "./udocker": "dir",
        "a.sif": "sif",
        "a.sqsh": "sif",
        "p.json": "profile",
        "a.tar": "archive",
    }.items():
        assert parse(path) == Reference(kind, path, path=path)
    with pytest.raises(SourceError, match="neither an OCI layout nor an unpacked root"):
        parse("./empty")


def test_a_layout_written_like_a_name_is_told_how_to_be_meant(here: Path) -> None:
    (here / "imgs" / "one").mkdir(parents=True)
    (here / "imgs" / "one" / "oci-layout").write_text("{}")
    with pytest.raises(SourceError) as refused:
        parse("./imgs/one:hello")
    assert refused.value.hint.startswith("did you mean oci:./imgs/one:hello?")
    assert local_hint("imgs/one:hello").startswith("did you mean oci:imgs/one:hello?")
    assert local_hint("imgs/two:hello") == "no file or directory of that name is here either"
    assert local_hint("docker:24") == "an image in a registry is written docker://24, or without docker:"
    assert local_hint("docker://nope") == ""


def test_name_without_slash_or_dot_is_a_registry_name_even_where_a_file_has_it(here: Path) -> None:
    (here / "debian").write_text("")
    assert parse("debian").kind == "registry"


def test_a_single_binary_is_named_as_such(here: Path) -> None:
    (here / "x.bin").write_bytes(b"\x7fELF" + bytes(60))
    with pytest.raises(SourceError, match="a single binary"):
        parse("./x.bin")


def test_unreadable_path_is_one_line(here: Path) -> None:
    (here / "loop").symlink_to("loop")
    with pytest.raises(SourceError, match=r"\./loop: Too many levels of symbolic links"):
        parse("./loop")


def test_schemes_split_path_and_name_at_what_exists(here: Path) -> None:
    (here / "with:colon").mkdir()
    (here / "f.tar").write_text("")
    assert parse("oci:with:colon") == Reference("oci", "oci:with:colon", path="with:colon")
    assert parse("oci:with:colon:1.0").tag == "1.0"
    assert parse("docker-archive:f.tar:host.example:5000/a:b").tag == "host.example:5000/a:b"
    assert parse(f"oci:with:colon@{DIGEST}").digest == DIGEST
    assert parse("docker-daemon:a/b:c") == Reference("docker-daemon", "docker-daemon:a/b:c", repository="a/b", tag="c")
    assert parse("-") == Reference("archive", "-", path="-")


@given(st.text(alphabet=st.sampled_from("abAB01/:@.-_ \0[]\u00e9\n"), max_size=40) | st.text(max_size=20))
def test_any_text_is_a_reference_or_a_source_error(text: str) -> None:
    try:
        assert parse(text).text == text
    except SourceError as error:
        assert error.message and "\n" not in error.message.replace(text, "")
