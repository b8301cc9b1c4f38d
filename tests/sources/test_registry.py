"""Images in a real docker-registry: plain, behind a password, behind TLS."""

import contextlib
import json
import shutil
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from imgcheck.errors import SourceError
from imgcheck.sources.open import open_image
from tests.images import ImageBuilder, write_layout
from tests.peers import Registry, start_registry
from tests.sources.conftest import QUICK, Handler, contents, read, start_server
from tests.tools import need, run

TLS = replace(QUICK, plain_http=False)


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return ImageBuilder(entrypoint=("/bin/tool",)).layer({"bin/tool": "x"}).write(tmp_path / "layout")


def test_pushed_image_is_read_by_tag_and_by_digest(registry: Registry, layout: Path) -> None:
    reference = registry.push(f"oci:{layout}:latest", "qnib/tool:1")
    with open_image(reference, QUICK) as image:
        assert image.config.entrypoint == ("/bin/tool",)
        assert contents(image) == {"bin/tool": b"x"}
        digest = image.manifest_digest
    assert read(f"{registry.address}/qnib/tool@{digest}") == {"bin/tool": b"x"}
    assert read(f"docker://{reference}", TLS) == {"bin/tool": b"x"}


def test_docker_manifest_made_by_skopeo_is_read(registry: Registry, layout: Path) -> None:
    reference = f"{registry.address}/docker/tool:1"
    run(need("skopeo"), "--insecure-policy", "copy", "-q", "--format", "v2s2", "--dest-tls-verify=false",
        f"oci:{layout}:latest", f"docker://{reference}")  # fmt: skip
    assert read(reference) == {"bin/tool": b"x"}


def test_platform_of_a_pushed_index_is_chosen(registry: Registry, tmp_path: Path) -> None:
    builders = [ImageBuilder(architecture=name).layer({"which": name}) for name in ("amd64", "arm64")]
    reference = registry.push(f"oci:{write_layout(tmp_path / 'multi', *builders)}:latest", "multi:1")
    for name in ("amd64", "arm64"):
        assert read(reference, replace(QUICK, platform=f"linux/{name}")) == {"which": name.encode()}


def test_missing_image_tag_and_digest_are_one_clear_error(registry: Registry, layout: Path) -> None:
    registry.push(f"oci:{layout}:latest", "there:1")
    for name in ("nothing", "there:2", "there@sha256:" + "0" * 64):
        with pytest.raises(SourceError, match=f"{name}: no such image at {registry.address}"):
            read(f"{registry.address}/{name}")


def test_short_name_goes_to_the_registry_that_configuration_names(
    registry: Registry, layout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.push(f"oci:{layout}:latest", "short/name:latest")
    monkeypatch.setenv("IMGCHECK_DEFAULT_REGISTRY", registry.address)
    assert read("short/name") == {"bin/tool": b"x"}
    monkeypatch.delenv("IMGCHECK_DEFAULT_REGISTRY")
    conf = tmp_path / "registries.conf"
    conf.write_text(f'unqualified-search-registries = ["127.0.0.1:1", "{registry.address}"]\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(conf))
    with open_image("short/name", QUICK) as image:
        assert image.notes == (f"found at {registry.address}/short/name",)


def test_mirror_is_asked_first_and_the_registry_itself_where_it_fails(
    registry: Registry, layout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.push(f"oci:{layout}:latest", "mirrored/team/name:1")
    conf = tmp_path / "registries.conf"
    mirrors = '[[registry.mirror]]\nlocation = "127.0.0.1:1"\n[[registry.mirror]]\nlocation = "{}/mirrored"\n'
    conf.write_text('[[registry]]\nlocation = "registry.example"\n' + mirrors.format(registry.address))
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(conf))
    assert read("registry.example/team/name:1") == {"bin/tool": b"x"}


# --- password


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with start_registry(tmp_path_factory.mktemp("guarded"), "user", "pass:word") as running:
        yield running


@pytest.fixture
def private(guarded: Registry, layout: Path) -> str:
    return guarded.push(f"oci:{layout}:latest", "private:1")


def test_login_is_asked_for_and_a_wrong_password_refused(private: str) -> None:
    with pytest.raises(SourceError, match=r"login required \(401\)"):
        read(private)
    with pytest.raises(SourceError, match="login refused with the credentials from --username"):
        read(private, replace(QUICK, username="user", password="wrong"))
    assert read(private, replace(QUICK, username="user", password="pass:word")) == {"bin/tool": b"x"}


def test_login_that_skopeo_stored_is_used(
    guarded: Registry, private: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authfile = tmp_path / "auth.json"
    run(need("skopeo"), "login", "--tls-verify=false", "--authfile", authfile, "-u", "user", "-p", "pass:word",
        guarded.address)  # fmt: skip
    assert read(private, replace(QUICK, authfile=str(authfile))) == {"bin/tool": b"x"}
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(authfile))
    assert read(private) == {"bin/tool": b"x"}


def test_credential_helper_is_asked(
    guarded: Registry, private: str, bare_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-mine"
    answer = json.dumps({"Username": "user", "Secret": "pass:word"})
    helper.write_text(f"#!/bin/sh\nread server\n[ \"$1 $server\" = 'get {guarded.address}' ] && echo '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (bare_environment / ".docker").mkdir()
    for config in ({"credHelpers": {guarded.address: "mine"}}, {"credsStore": "mine"}):
        (bare_environment / ".docker" / "config.json").write_text(json.dumps(config))
        assert read(private) == {"bin/tool": b"x"}


# --- TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ca.crt and, signed by it, server.crt and server.key for localhost."""
    place = tmp_path_factory.mktemp("tls")
    openssl = need("openssl")
    key = ("-newkey", "rsa:2048", "-nodes")
    run(openssl, "req", "-x509", *key, "-keyout", place / "ca.key", "-out", place / "ca.crt", "-subj", "/CN=test")
    run(openssl, "req", *key, "-keyout", place / "server.key", "-out", place / "server.csr", "-subj", "/CN=localhost")
    (place / "names").write_text("subjectAltName=DNS:localhost\n")
    run(openssl, "x509", "-req", "-in", place / "server.csr", "-CA", place / "ca.crt", "-CAkey", place / "ca.key",
        "-CAcreateserial", "-out", place / "server.crt", "-extfile", place / "names")  # fmt: skip
    return place


@pytest.fixture(scope="module")
def secure(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    settings = {
        "REGISTRY_HTTP_TLS_CERTIFICATE": str(authority / "server.crt"),
        "REGISTRY_HTTP_TLS_KEY": str(authority / "server.key"),
    }
    with start_registry(tmp_path_factory.mktemp("secure"), environment=settings) as running:
        yield running


def test_certificate_of_an_own_authority_needs_its_file(secure: Registry, authority: Path, layout: Path) -> None:
    reference = secure.push(f"oci:{layout}:latest", "tool:1")
    with pytest.raises(SourceError, match="its TLS certificate is not trusted"):
        read(reference, TLS)
    assert read(reference, replace(TLS, ca_file=str(authority / "ca.crt"))) == {"bin/tool": b"x"}
    assert read(reference, replace(TLS, insecure=True)) == {"bin/tool": b"x"}


def test_greeting_without_an_end_is_not_read(authority: Path, layout: Path) -> None:
    sent = [0]

    def greet(request: Handler) -> bool:
        if request.path != "/v2/":
            return False
        request.send_response(200)
        request.end_headers()
        request.close_connection = True
        with contextlib.suppress(OSError):
            for _ in range(64):
                request.wfile.write(bytes(1 << 20))
                sent[0] += 1
        return True

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "server.crt", authority / "server.key")
    with start_server(context) as server:
        server.fault = greet
        assert read(server.load(layout), replace(TLS, insecure=True)) == {"bin/tool": b"x"}
        assert sent[0] < 32


def test_certificate_for_another_host_is_refused(secure: Registry, authority: Path) -> None:
    address = secure.address.replace("localhost", "127.0.0.1")
    with pytest.raises(SourceError, match="its TLS certificate does not name this host") as refused:
        read(f"{address}/tool:1", replace(TLS, ca_file=str(authority / "ca.crt")))
    assert refused.value.hint.endswith("use a name that the certificate has")


def test_certificate_that_has_expired_is_told_from_one_of_an_unknown_authority(authority: Path, tmp_path: Path) -> None:
    openssl = need("openssl")
    run(openssl, "x509", "-req", "-in", authority / "server.csr", "-CA", authority / "ca.crt",
        "-CAkey", authority / "ca.key", "-set_serial", "7", "-days", "-1", "-out", tmp_path / "server.crt",
        "-extfile", authority / "names")  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", authority / "server.key")
    with start_server(context) as server:
        reference = f"{server.address.replace('127.0.0.1', 'localhost')}/tool:1"
        with pytest.raises(SourceError, match=r"its TLS certificate has expired$") as refused:
            read(reference, replace(TLS, ca_file=str(authority / "ca.crt")))
        assert "renewed" in refused.value.hint
        with pytest.raises(SourceError, match=r"its TLS certificate is not trusted \(unable to get") as refused:
            read(reference, TLS)
        assert "--ca-file" in refused.value.hint


def test_authority_in_the_users_own_directory_is_taken(
    secure: Registry, authority: Path, layout: Path, bare_environment: Path
) -> None:
    reference = secure.push(f"oci:{layout}:latest", "tool:1")
    place = bare_environment / ".config/containers/certs.d" / secure.address
    place.mkdir(parents=True)
    shutil.copy(authority / "ca.crt", place / "mine.crt")
    assert read(reference, TLS) == {"bin/tool": b"x"}


def test_client_certificate_is_shown_where_the_registry_asks_for_one(
    authority: Path, layout: Path, tmp_path: Path, bare_environment: Path
) -> None:
    settings = {
        "REGISTRY_HTTP_TLS_CERTIFICATE": str(authority / "server.crt"),
        "REGISTRY_HTTP_TLS_KEY": str(authority / "server.key"),
        "REGISTRY_HTTP_TLS_CLIENTCAS": f"[{authority / 'ca.crt'}]",
    }
    with start_registry(tmp_path / "registry", environment=settings) as registry:
        reference = f"{registry.address}/tool:1"
        for options in (replace(TLS, ca_file=str(authority / "ca.crt")), replace(TLS, insecure=True)):
            with pytest.raises(SourceError, match="asks for a client certificate") as refused:
                read(reference, options)
            assert refused.value.hint.endswith(f"~/.config/containers/certs.d/{registry.address}")
        place = bare_environment / ".config/containers/certs.d" / registry.address
        place.mkdir(parents=True)
        for source, name in (("ca.crt", "mine.crt"), ("server.crt", "me.cert"), ("server.key", "me.key")):
            shutil.copy(authority / source, place / name)
        assert registry.push(f"oci:{layout}:latest", "tool:1") == reference
        assert read(reference, TLS) == {"bin/tool": b"x"}
        (place / "me.key").write_text("nonsense")
        with pytest.raises(SourceError, match=r"me\.cert: no PEM file of a certificate that me\.key fits"):
            read(reference, TLS)
        (place / "me.key").unlink()
        with pytest.raises(SourceError, match=r"me\.cert: me\.key is not beside it"):
            read(reference, TLS)


def test_unreadable_authority_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nonsense")
    for name, cause in (("ca.crt", "no PEM file"), ("missing.crt", "No such file")):
        with pytest.raises(SourceError, match=f"{name}: {cause}"):
            read("localhost:1/a", replace(TLS, ca_file=str(tmp_path / name)))
