"""Profiles beside their images: pushed to a real registry, believed only when told to and only about that image."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from imgcheck.attach.profile import ARTIFACT_TYPE, BLOB_TYPE
from imgcheck.attach.push import Artifact, attach
from imgcheck.cli import main
from imgcheck.documents import ImageProfile, decode
from imgcheck.sources.open import open_image
from imgcheck.sources.options import SourceOptions
from tests.images import File, ImageBuilder, write_layout
from tests.peers import Registry, start_registry
from tests.sources.conftest import Handler, Server, start_server
from tests.tools import compile_c, need, run

pytestmark = pytest.mark.slow

PLAIN = SourceOptions(plain_http=True, backoff=0.01)
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "--plain-http", "--no-store"])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def _layout(directory: Path, marker: str = "") -> Path:
    program = compile_c("int main(void) { return 0; }", "-O1", out="program").read_bytes()
    builder = ImageBuilder(command=("/app",)).layer({"app": File(program, 0o755), "etc/marker": marker})
    return builder.write(directory / f"layout{marker}")


@pytest.fixture
def image(registry: Registry, tmp_path: Path) -> str:
    return registry.push(f"oci:{_layout(tmp_path)}:latest", f"attach/{tmp_path.name.lower()}:1")


def _layers_read(registry: Registry, image: str) -> int:
    """How often the registry was asked for the image's layer, by its log."""
    with open_image(image, PLAIN) as found:
        digest = found.layers[0].info.digest
    log = (registry.directory.parent / "docker-registry.out").read_text()
    return sum(
        "GET" in line and f"blobs/{digest}" in line and "response completed" in line for line in log.splitlines()
    )


def test_it_is_said_where_the_store_answers_in_place_of_an_attached_profile(
    image: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ((), ("--trust-attached",)):
        assert main(["profile", image, "--plain-http", "--store", str(tmp_path / "store"), *option]) == 0
    assert "the facts kept in the store were used; no attached profile" in capsys.readouterr().err


def test_attached_profile_answers_without_the_layers(registry: Registry, image: str, command: Command) -> None:
    status, place, _ = command("attach", image)
    assert status == 0 and place.startswith(f"{image.rpartition(':')[0]}@sha256:")
    before = _layers_read(registry, image)
    assert before > 0
    status, attached, said = command("profile", image, "--trust-attached")
    assert (status, _layers_read(registry, image)) == (0, before)
    assert f"the attached profile {place.strip().partition('@')[2]} was used" in said
    _, analysed, silence = command("profile", image)
    assert _layers_read(registry, image) == before + 1
    assert attached == analysed and silence == ""


def test_registry_without_referrers_gets_the_list_that_other_clients_read(
    registry: Registry, image: str, command: Command, tmp_path: Path
) -> None:
    place = command("attach", image)[1].strip()
    with open_image(image, PLAIN) as found:
        subject = found.manifest_digest
    repository = image.rpartition(":")[0]
    copied = tmp_path / "fallback"
    run(need("skopeo"), "--insecure-policy", "inspect", "--raw", "--tls-verify=false",
        f"docker://{repository}:{subject.replace(':', '-')}")  # fmt: skip
    raw = run(need("skopeo"), "--insecure-policy", "inspect", "--raw", "--tls-verify=false", f"docker://{place}").stdout
    manifest = json.loads(raw)
    assert manifest["artifactType"] == ARTIFACT_TYPE
    assert manifest["subject"]["digest"] == subject
    assert manifest["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
    run(
        need("skopeo"),
        "--insecure-policy",
        "copy",
        "-q",
        "--src-tls-verify=false",
        f"docker://{place}",
        f"dir:{copied}",
    )
    data = gzip.decompress((copied / manifest["layers"][0]["digest"][7:]).read_bytes())
    assert decode(data, ImageProfile, "x").manifest_digest == subject


def test_list_keeps_what_others_attached(registry: Registry, image: str, command: Command) -> None:
    with open_image(image, PLAIN) as found:
        subject = found.manifest_digest
    other = Artifact("application/vnd.example.sbom", "text/plain", b"nothing", {})
    attach(image, subject, other, PLAIN)
    command("attach", image)
    attach(image, subject, Artifact("application/vnd.example.sbom", "text/plain", b"more", {}), PLAIN)
    with open_image(image, PLAIN) as found:
        assert [one.read(100) for one in found.attached("application/vnd.example.sbom")] in (
            [b"more", b"nothing"], [b"nothing", b"more"],
        )  # fmt: skip
        assert len(list(found.attached(ARTIFACT_TYPE))) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"manifest_digest": "sha256:" + "1" * 64}, "is about another image"),
        ({"config_digest": "sha256:" + "1" * 64}, "is about another image"),
        ({"engines": {"isa": "other"}}, "was made by another version of imgcheck"),
        ({"schema_version": "9.0"}, "is newer than this imgcheck reads"),
        ({"files": "no"}, "damaged image document"),
    ],
)
def test_profile_that_does_not_fit_is_told_and_not_used(
    image: str, command: Command, change: dict[str, object], why: str
) -> None:
    _, analysed, _ = command("profile", image)
    subject = json.loads(analysed)["manifest_digest"]
    data = gzip.compress(msgspec.json.encode(json.loads(analysed) | change))
    attach(image, subject, Artifact(ARTIFACT_TYPE, BLOB_TYPE, data, {}), PLAIN)
    status, out, said = command("profile", image, "--trust-attached")
    assert (status, out) == (0, analysed)
    assert why in said and "the image was analysed" in said


@pytest.mark.parametrize("data", [b"", b"no gzip", gzip.compress(b"{}", mtime=0)[:-9]])
def test_damaged_attachment_is_told_and_not_used(image: str, command: Command, data: bytes) -> None:
    _, analysed, _ = command("profile", image)
    subject = json.loads(analysed)["manifest_digest"]
    attach(image, subject, Artifact(ARTIFACT_TYPE, BLOB_TYPE, data, {}), PLAIN)
    status, out, said = command("profile", image, "--trust-attached")
    assert (status, out) == (0, analysed) and "the image was analysed" in said


def test_only_the_digest_whose_signature_was_verified_counts_where_one_is_named(image: str, command: Command) -> None:
    digest = command("attach", image)[1].strip().partition("@")[2]
    subject = json.loads(command("profile", image)[1])["manifest_digest"]
    attach(image, subject, Artifact(ARTIFACT_TYPE, BLOB_TYPE, b"forged later", {}), PLAIN)
    assert f"attached profile {digest} was used" in command("profile", image, "--attached-digest", digest)[2]
    old = json.loads(command("profile", image)[1]) | {"engines": {"isa": "old"}}
    data = gzip.compress(msgspec.json.encode(old))
    stale = attach(image, subject, Artifact(ARTIFACT_TYPE, BLOB_TYPE, data, {}), PLAIN).partition("@")[2]
    said = command("profile", image, "--attached-digest", stale)[2]
    assert f"{stale} was made by another version of imgcheck; the image was analysed" in said
    other = "sha256:" + "0" * 64
    said = command("profile", image, "--attached-digest", other)[2]
    assert said == f"imgcheck: note: no attached profile has the digest {other}; the image was analysed\n"


def test_nothing_attached_and_nothing_attachable_are_told(image: str, command: Command, tmp_path: Path) -> None:
    assert "no profile is attached to the image" in command("profile", image, "--trust-attached")[2]
    layout = f"oci:{_layout(tmp_path, 'other')}"
    status, _, said = command("profile", layout, "--trust-attached")
    assert status == 0 and "no profile can be attached to an image outside a registry" in said
    status, _, said = command("attach", layout)
    assert status == 2 and "only an image in a registry can be attached to" in said


def test_each_platform_has_its_own_profile(registry: Registry, tmp_path: Path, command: Command) -> None:
    builders = [ImageBuilder(architecture=name).layer({"which": name}) for name in ("amd64", "arm64")]
    image = registry.push(f"oci:{write_layout(tmp_path / 'multi', *builders)}:latest", "attach/multi:1")
    command("attach", image, "--platform", "linux/arm64")
    assert "was used" in command("profile", image, "--platform", "linux/arm64", "--trust-attached")[2]
    assert "no profile is attached" in command("profile", image, "--platform", "linux/amd64", "--trust-attached")[2]


def test_pushing_needs_a_login_where_reading_does_and_names_it(tmp_path: Path, command: Command) -> None:
    with start_registry(tmp_path / "registry", user="user", password="secret") as locked:
        image = locked.push(f"oci:{_layout(tmp_path)}:latest", "app:1")
        status, _, said = command("attach", image)
        assert status == 2 and "login required (401)" in said
        (tmp_path / ".docker").mkdir()
        login = {"auths": {locked.address: {"auth": "dXNlcjpzZWNyZXQ="}}}
        (tmp_path / ".docker" / "config.json").write_text(json.dumps(login))
        assert command("attach", image)[0] == 0
        assert "was used" in command("profile", image, "--trust-attached")[2]


def test_read_only_registry_refuses_with_its_reason(tmp_path: Path, command: Command) -> None:
    with start_registry(tmp_path / "registry") as writable:
        image = writable.push(f"oci:{_layout(tmp_path)}:latest", "app:1")
    settings = {"REGISTRY_STORAGE_MAINTENANCE": '{"readonly": {"enabled": true}}'}
    with start_registry(tmp_path / "registry", environment=settings) as frozen:
        status, _, said = command("attach", f"{frozen.address}/{image.partition('/')[2]}")
        assert status == 2 and "upload: " in said and said.count("\n") <= 2


class Modern:
    """A registry with the referrers API in pages of one entry, as a fault of the small server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.entries: list[dict[str, object]] = []

    def __call__(self, request: Handler) -> bool:
        path, _, query = request.path.partition("?")
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if request.command == "POST":
            request.answer(202, headers={"Location": "/v2/repo/blobs/uploads/1?state=x"})
        elif request.command == "PUT" and "digest=" in query:
            self.server.blobs[query.partition("digest=")[2]] = body
            request.answer(201)
        elif request.command == "PUT":
            return self._manifest(request, path.rpartition("/")[2], body)
        elif "/referrers/" in path:
            self._list(request, int(query.rpartition("last=")[2] or 0) if "last=" in query else 0)
        else:
            return False
        return True

    def _manifest(self, request: Handler, digest: str, body: bytes) -> bool:
        document = json.loads(body)
        self.server.manifests[digest] = (document["mediaType"], body)
        self.entries.append(
            {"mediaType": document["mediaType"], "digest": digest, "size": len(body),
             "artifactType": document["artifactType"], "annotations": document["annotations"]}
        )  # fmt: skip
        request.answer(201, headers={"OCI-Subject": document["subject"]["digest"]})
        return True

    def _list(self, request: Handler, at: int) -> None:
        headers = {"Content-Type": "application/vnd.oci.image.index.v1+json"}
        if at + 1 < len(self.entries):
            headers["Link"] = f'<{request.path.partition("?")[0]}?last={at + 1}>; rel="next"'
        listed = {"schemaVersion": 2, "manifests": self.entries[at : at + 1]}
        request.answer(200, json.dumps(listed).encode(), headers)


def test_registry_with_referrers_lists_itself_in_pages(tmp_path: Path, command: Command) -> None:
    with start_server() as server:
        image = server.load(_layout(tmp_path))
        server.fault = modern = Modern(server)
        with open_image(image, PLAIN) as found:
            subject = found.manifest_digest
        attach(image, subject, Artifact("application/vnd.example", "text/plain", b"x", {}), PLAIN)
        digest = command("attach", image)[1].strip().partition("@")[2]
        assert len(modern.entries) == 2
        assert not any(key.startswith("sha256-") for key in server.manifests)
        assert f"attached profile {digest} was used" in command("profile", image, "--trust-attached")[2]


def test_list_that_lies_about_an_artifact_leads_nowhere(tmp_path: Path, command: Command) -> None:
    with start_server() as server:
        image = server.load(_layout(tmp_path))
        server.fault = modern = Modern(server)
        attach(image, json.loads(command("profile", image)[1])["manifest_digest"],
               Artifact("application/vnd.example", "text/plain", b"x", {}), PLAIN)  # fmt: skip
        modern.entries[0]["artifactType"] = ARTIFACT_TYPE
        said = command("profile", image, "--trust-attached")[2]
        assert "is of another type than the list of referrers says; the image was analysed" in said


def test_list_that_names_what_is_gone_keeps_nothing_else_from_use(tmp_path: Path, command: Command) -> None:
    with start_server() as server:
        image = server.load(_layout(tmp_path))
        server.fault = modern = Modern(server)
        gone = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 9, "artifactType": ARTIFACT_TYPE}
        later = {"annotations": {"org.opencontainers.image.created": "2999-01-01T00:00:00Z"}}
        modern.entries.append(gone | later | {"digest": f"sha256:{'1' * 64}"})
        status, analysed, said = command("profile", image, "--trust-attached")
        assert status == 0 and "is missing in the registry; the image was analysed" in said
        digest = command("attach", image)[1].strip().partition("@")[2]
        for option, missed in ((("--trust-attached",), 1), (("--attached-digest", digest), 0)):
            asked = len(server.requests)
            status, attached, said = command("profile", image, *option)
            assert (status, attached) == (0, analysed) and f"{digest} was used" in said
            assert sum("/manifests/sha256:1111" in path for path, _ in server.requests[asked:]) == missed
