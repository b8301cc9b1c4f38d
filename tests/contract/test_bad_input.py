"""What cannot be read ends with one clear line on stderr and exit status 2, and never with a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.command import imgcheck
from tests.images import File, ImageBuilder
from tests.peers import Registry, start_registry
from tests.tools import CHECKOUT, compile_c, need

TROUBLE = 2


def _image() -> ImageBuilder:
    return ImageBuilder(command=("/app",)).layer({"etc/hostname": "x\n"}).layer({"app": File(b"#!/bin/sh\n", 0o755)})


def _refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit status 2, nothing on stdout, and one line (with at most one indented hint) that holds `words`."""
    assert done.returncode == TROUBLE, done.stdout + done.stderr
    assert done.stdout == ""
    first, *hint = done.stderr.splitlines()
    assert first.startswith("imgcheck: ")
    assert len(hint) <= 1
    assert all(line.startswith("  ") for line in hint)
    for word in words:
        assert word in done.stderr


def _blobs(layout: Path) -> list[Path]:
    return sorted((layout / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)


def _layer_blob(layout: Path, number: int) -> Path:
    index = json.loads((layout / "index.json").read_bytes())
    manifest = layout / "blobs" / index["manifests"][0]["digest"].replace(":", "/")
    return layout / "blobs" / json.loads(manifest.read_bytes())["layers"][number]["digest"].replace(":", "/")


@pytest.mark.slow
def test_no_such_image_in_the_registry(registry: Registry) -> None:
    _refused(imgcheck("image", f"{registry.address}/no/such:image", "--plain-http"), "no/such")


@pytest.mark.slow
def test_registry_that_asks_for_credentials(tmp_path: Path) -> None:
    with start_registry(tmp_path / "registry", user="user", password="secret") as registry:
        registry.push(f"oci:{_image().write(tmp_path / 'layout')}:latest", "app")
        reference = f"{registry.address}/app"
        _refused(imgcheck("image", reference, "--plain-http"), "401")
        wrong = ("--username", "user", "--password-stdin", "--plain-http")
        _refused(imgcheck("image", reference, *wrong, input="guess\n"), "login refused")
        assert imgcheck("image", reference, *wrong, input="secret\n").returncode == 0


def test_registry_that_does_not_answer() -> None:
    _refused(imgcheck("image", "localhost:1/app", "--plain-http"), "localhost:1")


def test_blob_whose_digest_is_wrong_is_named(tmp_path: Path) -> None:
    layout = _image().write(tmp_path / "layout")
    blob = _layer_blob(layout, 1)
    blob.write_bytes(_layer_blob(layout, 0).read_bytes())
    _refused(imgcheck("image", f"oci:{layout}"), blob.name)


def test_truncated_layer_is_named(tmp_path: Path) -> None:
    layout = _image().write(tmp_path / "layout")
    blob = _layer_blob(layout, 1)
    blob.write_bytes(blob.read_bytes()[:-20])
    _refused(imgcheck("image", f"oci:{layout}"), blob.name)


def test_layer_that_is_missing_is_named(tmp_path: Path) -> None:
    layout = _image().write(tmp_path / "layout")
    blob = _layer_blob(layout, 1)
    blob.unlink()
    _refused(imgcheck("image", f"oci:{layout}"), blob.name)


@pytest.mark.parametrize("content", [b"", b"hello\n", bytes(100_000), b"\x1f\x8b\x08\x00broken", b"{}", b"\x7fELF"])
def test_file_that_is_no_image(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "thing.bin"
    file.write_bytes(content)
    _refused(imgcheck("image", file), "thing.bin")


def test_directory_that_does_not_exist(tmp_path: Path) -> None:
    _refused(imgcheck("image", f"oci:{tmp_path / 'nowhere'}"), "nowhere")
    _refused(imgcheck("image", tmp_path / "nowhere"), "nowhere")


def test_layout_without_the_tag_names_those_that_it_has(tmp_path: Path) -> None:
    layout = _image().write(tmp_path / "layout", tag="v1")
    _refused(imgcheck("image", f"oci:{layout}:v2"), "v2", "v1")


def test_names_of_megabytes_are_not_all_told(tmp_path: Path) -> None:
    layout = _image().write(tmp_path / "layout", tag="v1")
    index = json.loads((layout / "index.json").read_bytes())
    (entry,) = index["manifests"]
    name = "org.opencontainers.image.ref.name"
    index["manifests"] = [entry | {"annotations": {name: letter * 1_000_000}} for letter in "ab"]
    (layout / "index.json").write_text(json.dumps(index))
    done = imgcheck("image", f"oci:{layout}")
    _refused(done, "holds several images")
    assert len(done.stderr) < 5000


def test_path_that_may_not_be_read(tmp_path: Path) -> None:
    layout = _image().write(tmp_path / "layout")
    blob = _layer_blob(layout, 0)
    blob.chmod(0)
    # Root reads everything unless it gives up the right to.
    drop = [need("setpriv"), "--bounding-set=-dac_override,-dac_read_search"]
    _refused(imgcheck("image", f"oci:{layout}", prefix=drop), "Permission denied")


@pytest.mark.parametrize("command", ["profile", "image"])
def test_no_space_left_for_the_output(command: str, tmp_path: Path) -> None:
    layout = _image().write(tmp_path / "layout")
    output = ("-o", "/dev/full") if command == "profile" else ("-o", "json=/dev/full")
    done = imgcheck(command, f"oci:{layout}", *output)
    assert done.returncode == TROUBLE
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda elf: elf[:20], id="ends in its header"),
        pytest.param(lambda elf: elf[:4000], id="ends before its sections"),
        pytest.param(lambda elf: elf[:56] + b"\xff\xff" * 4 + elf[64:], id="too many headers"),
        pytest.param(lambda elf: elf[:32] + b"\xff" * 8 + elf[40:], id="program headers far away"),
    ],
)
def test_absurd_elf_is_reported_and_the_rest_is_checked(damage, tmp_path: Path) -> None:
    good = compile_c("int main(void) { return 0; }\n", "-O2", out="good").read_bytes()
    image = ImageBuilder(command=("/good",)).layer({"good": File(good, 0o755), "bad.so": File(damage(good), 0o755)})
    done = imgcheck("profile", f"oci:{image.write(tmp_path / 'layout')}", "-o", tmp_path / "profile.json")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    profile = json.loads((tmp_path / "profile.json").read_bytes())
    objects = {file["path"]: profile["objects"][file["object"]] for file in profile["files"]}
    assert objects["/good"]["linkage"]["machine"] == "x86_64"
    assert objects.get("/bad.so", {}).get("error") or profile.get("unreadable", {}).get("/bad.so")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"not json", "not a JSON document"),
        (b'{"kind": "report", "schema_version": "1.0"}', "not a host profile"),
        (b'{"kind": "host", "schema_version": "2.0", "name": "x"}', "newer than this imgcheck reads"),
        (b'{"kind": "host", "schema_version": "1.0", "name": 5}', "damaged host document"),
        (b'{"kind": "host", "schema_version": "1.0", "name": "x", "new": ' + b"[" * 100_000, "host.json"),
    ],
)
def test_host_file_that_is_none(content: bytes, word: str, tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    host.write_bytes(content)
    _refused(imgcheck("image", f"oci:{_image().write(tmp_path / 'layout')}", "--host-probe", host), word, "host.json")


def test_host_file_of_absurd_size(tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    with host.open("wb") as file:
        file.truncate(40 << 30)
    _refused(imgcheck("image", f"oci:{_image().write(tmp_path / 'layout')}", "--host-probe", host), "larger than")
    _refused(imgcheck("hosts", tmp_path), "larger than")
    profile = tmp_path / "profile.json"
    imgcheck("profile", f"oci:{tmp_path / 'layout'}", "-o", profile)
    _refused(imgcheck("preflight", profile, "--host", host), "larger than")


def test_profile_that_names_a_file_without_facts(tmp_path: Path) -> None:
    program = compile_c("int main(void) { return 0; }\n", "-O2", out="good").read_bytes()
    layout = ImageBuilder(command=("/good",)).layer({"good": File(program, 0o755)}).write(tmp_path / "layout")
    profile = tmp_path / "profile.json"
    assert imgcheck("profile", f"oci:{layout}", "-o", profile).returncode == 0
    document = json.loads(profile.read_bytes())
    document["objects"].clear()
    profile.write_text(json.dumps(document))
    _refused(imgcheck("image", profile, "--host-probe"), "damaged image document", "/good")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("image",), "required: REF"),
        (("image", "app", "other"), "unrecognized arguments: other"),
        (("image", "app", "--fail-on", "all"), "--fail-on"),
        (("image", "app", "--store-limit", "-1"), "--store-limit"),
        (("image", "localhost:99999/app"), "is not a registry host"),
        (("convert", "app", "--to", "floppy", "x"), "--to"),
        (("store",), "ls|prune|verify"),
        (
            ("image", f"oci:{CHECKOUT}/demo/skylake512", "--fail-on", "risk"),
            "there is no host to hold the image against",
        ),
        (("image", f"oci:{CHECKOUT}/demo/skylake512", "--platform", "foo"), "no architecture is known as 'foo'"),
        (("image", f"oci:{CHECKOUT}/demo/skylake512", "--host-probe", "--runtime", "dokcer"), "did you mean docker?"),
        (("explain", "CPU01"), "did you mean CPU001?"),
        (("imag",), "did you mean image?"),
        (("--versio",), "unknown option"),
        (("probe", "--cpu", ""), "--cpu is empty"),
        (("binary", "no-such-file"), "no-such-file: No such file"),
        (("preflight",), "IMAGE|PROFILE"),
        (("preflight", "app.sif", "--timeout", "inf"), "--timeout inf"),
    ],
)
def test_command_line_that_means_nothing(arguments: tuple[str, ...], word: str) -> None:
    _refused(imgcheck(*arguments), word)


@pytest.mark.parametrize("scheme", ["docker-archive:", "oci-archive:", "sif:", ""])
def test_empty_file_is_said_to_be_empty(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    _refused(imgcheck("image", f"{scheme}{tmp_path}/empty"), "the file is empty")


def test_pipe_into_which_nothing_was_written_is_no_archive() -> None:
    _refused(imgcheck("image", "-", input=""), "standard input: nothing came from there", "see what the command says")


def test_site_data_where_nothing_looks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime/ours.toml").write_text("[[runtime]]\n")
    _refused(imgcheck("rules", "--rules", tmp_path), "runtime/ours.toml: nothing is read from there", "runtimes/")


def test_host_file_that_is_none_tells_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text("{")
    image = f"oci:{CHECKOUT}/demo/skylake512"
    _refused(imgcheck("image", image, "--host-probe", tmp_path / "host.json"), "imgcheck probe -o HOST.json")


def test_password_that_is_no_text_is_not_shown() -> None:
    line = f"printf 'p\\377ssword\\n' | {sys.executable} -m imgcheck image localhost:1/a --username u --password-stdin"
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    for encoding in ("utf-8", "utf-8:surrogateescape"):
        variables = environment | {"PYTHONIOENCODING": encoding}
        done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, env=variables, timeout=60)
        _refused(done, "--password-stdin: what comes is not UTF-8")


def test_unknown_command_option_rule_and_runtime() -> None:
    assert imgcheck("imagine").returncode == TROUBLE
    assert imgcheck("image", "--no-such-option", "x").returncode == TROUBLE
    assert imgcheck("explain", "CPU999").returncode == TROUBLE
    assert imgcheck("probe", "--cpu", "z80").returncode == TROUBLE


def test_command_of_a_megabyte_does_not_flood_the_terminal(tmp_path: Path) -> None:
    layers = ImageBuilder(entrypoint=("/bin/tool", "y" * 1_000_000), command=("z" * 100_000,))
    layout = layers.layer({"bin/tool": Path("/bin/true").read_bytes()}).write(tmp_path / "layout")
    for more in ((), ("--host-probe",), ("--host-probe", "--", "w" * 100_000)):
        assert len(imgcheck("image", f"oci:{layout}", *more).stdout) < 20_000
