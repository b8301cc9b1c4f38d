"""The name under which a repacked image is loaded, where none is asked for."""

import json
import subprocess

import pytest

from imgcheck.cli import main
from imgcheck.convert.archives import image_name, tagged_name
from tests.images import ImageBuilder
from tests.tools import need


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("app", "app:latest"),
        ("host.example:5000/team/app:1.2", "host.example:5000/team/app:1.2"),
        ("team/app@sha256:" + 64 * "0", "team/app:latest"),
        ("docker-daemon:app:2", "app:2"),
        ("containers-storage:localhost/app:3", "localhost/app:3"),
        ("-", "image:latest"),
    ],
)
def test_a_name_is_kept(reference, name):
    assert tagged_name("", reference) == name


@pytest.mark.parametrize(
    ("file", "name"),
    [("My App (2).tar.gz", "my-app-2:latest"), ("app_v1.2.tar", "app_v1.2:latest"), ("...tar", "image:latest")],
)
def test_a_file_gives_its_own_name_as_far_as_a_repository_may_have_it(file, name, tmp_path):
    (tmp_path / file).write_bytes(bytes(1024))
    assert tagged_name("", f"docker-archive:{tmp_path / file}") == name


def test_the_name_of_the_image_in_a_file_is_kept(tmp_path):
    layout = ImageBuilder().layer({"a": b"1"}).write(tmp_path / "build", tag="v1")
    assert tagged_name("", f"oci:{layout}:v1") == "build:v1"
    assert tagged_name("", f"oci:{layout}:team/app:1") == "team/app:1"
    assert tagged_name("", f"oci:{layout}:docker.io/team/app") == "docker.io/team/app:latest"
    assert image_name("mine:2", f"oci:{layout}:v1") == "mine:2"


@pytest.mark.parametrize(
    ("inside", "tag"), [("named:team/app", "named-team-app"), ("Team/App:1", "Team-App-1"), ("./..", "latest")]
)
def test_what_an_image_in_a_layout_is_called_becomes_a_tag(inside, tag, tmp_path):
    layout = ImageBuilder().layer({"a": b"1"}).write(tmp_path / "build", tag=inside)
    assert tagged_name("", f"oci:{layout}:{inside}") == f"build:{tag}"


@pytest.mark.parametrize(("asked", "name"), [("app", "app:latest"), ("host:5000/a/b:1", "host:5000/a/b:1")])
def test_the_name_asked_for_is_given_a_tag(asked, name):
    assert tagged_name(asked, "other:2") == name


@pytest.mark.parametrize("name", ["APP:1", "Bad Name:1", "app:", ":1", f"app@sha256:{64 * '0'}", "a//b"])
def test_a_name_that_nothing_is_loaded_under_is_refused_before_anything_is_read(name, tmp_path, capsys):
    arguments = ("convert", "oci:/nowhere", "--to", "docker-archive", str(tmp_path / "app.tar"))
    assert main([*arguments, "--name", name]) == 2
    assert f"--name {name}: not NAME[:TAG] as docker load takes it" in capsys.readouterr().err
    assert main([*arguments[:2], "--to", "udocker", str(tmp_path / "udocker"), "--name", "a b"]) == 2
    assert "--name 'a b': udocker takes letters" in capsys.readouterr().err


def test_what_is_loaded_has_that_name(tmp_path):
    layout = ImageBuilder().layer({"a": b"1"}).write(tmp_path / "build")
    archive = tmp_path / "app.tar"
    assert main(["convert", f"oci:{layout}", "--to", "docker-archive", str(archive), "--quiet"]) == 0
    listed = subprocess.run(
        [need("skopeo"), "--insecure-policy", "list-tags", f"docker-archive:{archive}"], capture_output=True, check=True
    )
    assert json.loads(listed.stdout)["Tags"] == ["build:latest"]
