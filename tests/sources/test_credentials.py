"""Which credentials go to which registry."""

import base64
import json
import pwd
from pathlib import Path
from typing import Any

import pytest

from imgcheck.errors import SourceError
from imgcheck.sources.credentials import Credentials, find_credentials
from imgcheck.sources.options import SourceOptions
from imgcheck.sources.reference import parse
from imgcheck.sources.registries import Endpoint, endpoints, short_names

HOST = "registry.example:5000"


def _auth(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


def _find(home: Path, document: Any, repository: str = "team/image", **options: Any) -> Credentials | None:
    (home / "auth.json").write_text(document if isinstance(document, str) else json.dumps(document))
    endpoint = Endpoint(HOST, repository, (HOST,))
    return find_credentials(endpoint, SourceOptions(authfile=str(home / "auth.json"), **options), {"HOME": str(home)})


def test_a_user_without_a_home_has_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "~/.docker/config.json"
    place.parent.mkdir(parents=True)
    place.write_text('{"auths": {"registry.example:5000": {"auth": "YTpi"}}}')
    assert find_credentials(Endpoint(HOST, "image", (HOST,)), SourceOptions(), {}) is None


def test_longest_matching_path_wins(tmp_path: Path) -> None:
    auths = {HOST: _auth("host:1"), f"{HOST}/team": _auth("team:2"), f"{HOST}/team/image": _auth("image:3")}
    assert _find(tmp_path, {"auths": auths}).username == "image"
    assert _find(tmp_path, {"auths": auths}, "team/other").username == "team"
    assert _find(tmp_path, {"auths": auths}, "teammate").username == "host"
    assert _find(tmp_path, {"auths": {"other.example": _auth("x:y")}}) is None


@pytest.mark.parametrize("key", [HOST, f"https://{HOST}", f"https://{HOST}/v1/", f"http://{HOST}/v2/"])
def test_keys_written_as_addresses_are_understood(tmp_path: Path, key: str) -> None:
    found = _find(tmp_path, {"auths": {key: _auth("user:pass:with:colons")}})
    assert (found.username, found.password) == ("user", "pass:with:colons")


def test_a_namespace_called_v1_is_no_part_of_an_address(tmp_path: Path) -> None:
    auths = {f"{HOST}/team/v1": _auth("v1:1"), f"{HOST}/v2": _auth("v2:2")}
    assert _find(tmp_path, {"auths": auths}, "team/app") is None
    assert _find(tmp_path, {"auths": auths}, "team/v1/app").username == "v1"
    assert _find(tmp_path, {"auths": auths}, "v2/app").username == "v2"


def test_the_tokens_that_docker_keeps_beside_a_password_are_not_taken_for_it(tmp_path: Path) -> None:
    key = f"https://{HOST}/v1/"
    auths = {key: _auth("me:password"), f"{key}access-token": _auth("me:a"), f"{key}refresh-token": _auth("me:r")}
    assert _find(tmp_path, {"auths": auths}).password == "password"


@pytest.mark.parametrize("order", [1, -1])
def test_a_plain_key_goes_before_an_address_of_the_same_host(tmp_path: Path, order: int) -> None:
    keys = [(HOST, _auth("plain:1")), (f"https://{HOST}/v1/", _auth("old:2"))]
    assert _find(tmp_path, {"auths": dict(keys[::order])}).username == "plain"


def test_default_registry_is_known_under_the_key_that_docker_writes(tmp_path: Path) -> None:
    endpoint = endpoints(parse("debian"), {"CONTAINERS_REGISTRIES_CONF": "/dev/null"})[0][0]
    for key in (short_names().credentials_key, short_names().host):
        (tmp_path / "auth.json").write_text(json.dumps({"auths": {key: _auth("user:pass")}}))
        options = SourceOptions(authfile=str(tmp_path / "auth.json"))
        assert find_credentials(endpoint, options, {}).username == "user"


def test_options_go_before_files_but_never_to_a_mirror(tmp_path: Path) -> None:
    options = SourceOptions(username="me", password="secret")
    environment = {"HOME": str(tmp_path)}
    assert find_credentials(Endpoint(HOST, "a", (HOST,)), options, environment).username == "me"
    assert find_credentials(Endpoint(HOST, "a", (HOST,), mirror=True), options, environment) is None


def test_places_are_searched_in_the_order_of_podman_then_docker(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    endpoint = Endpoint(HOST, "a", (HOST,))
    order = ["run/containers/auth.json", ".config/containers/auth.json", ".docker/config.json"]
    for place in reversed([*order, ".apptainer/docker-config.json"]):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(json.dumps({"auths": {HOST: _auth(f"{place}:x")}}))
        assert find_credentials(endpoint, SourceOptions(), environment).username == place


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "not valid JSON"),
        ({"auths": {HOST: {"auth": "***"}}}, "not base64"),
        ({"credHelpers": {HOST: "../../bin/sh"}}, "not the name of a credential helper"),
        ({"credHelpers": {HOST: "absent-helper"}}, "docker-credential-absent-helper, which is not installed"),
    ],
)
def test_damaged_credentials_are_one_clear_error(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        _find(tmp_path, document)


def test_named_file_that_is_missing_is_an_error_and_others_are_not(tmp_path: Path) -> None:
    endpoint = Endpoint(HOST, "a", (HOST,))
    with pytest.raises(SourceError, match="credentials cannot be read"):
        find_credentials(endpoint, SourceOptions(authfile=str(tmp_path / "none")), {})
    with pytest.raises(SourceError, match="credentials cannot be read"):
        find_credentials(endpoint, SourceOptions(), {"REGISTRY_AUTH_FILE": str(tmp_path / "none")})
    assert find_credentials(endpoint, SourceOptions(), {"HOME": str(tmp_path)}) is None


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    found = _find(tmp_path, {"auths": {HOST: _auth("user:s3cret") | {"identitytoken": "t0ken"}}})
    assert "s3cret" not in repr(found) and "t0ken" not in repr(found)
    with pytest.raises(SourceError) as caught:
        _find(tmp_path, '{"auths": s3cret')
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("value", [5, ["x"], {"x": "y"}, None])
def test_values_that_are_no_text_are_none(tmp_path: Path, value: Any) -> None:
    entry = {"username": "user", "password": value, "identitytoken": value, "registrytoken": value}
    assert _find(tmp_path, {"auths": {HOST: entry}}) == Credentials("user", origin=str(tmp_path / "auth.json"))
    assert _find(tmp_path, {"auths": {HOST: entry | {"username": value}}}) is None
