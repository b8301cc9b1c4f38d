"""The documents as scripts read them: their keys, their values, and the published schemas."""

import json
import os
import runpy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from demo.build import LAYOUT
from imgcheck.documents import HostProfile, ImageProfile, decode, encode
from imgcheck.documents.codec import read_document, read_regular
from imgcheck.documents.facts import CodeFacts, Linkage
from imgcheck.documents.image import FileRecord, ImageConfig, Platform, Script, TreeIndex
from imgcheck.documents.shell_commands import ShellCommand, packed
from imgcheck.errors import DocumentError
from tests.end_to_end.command import imgcheck
from tests.tools import CHECKOUT

_GENERATE = runpy.run_path(str(CHECKOUT / "docs/schema/generate.py"))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One of each kind, as the command line writes them."""
    directory = tmp_path_factory.mktemp("documents")
    host, image = directory / "host.json", directory / "image.json"
    described = (
        "--cpu",
        "broadwell",
        "--gpu",
        "Tesla K80",
        "--driver",
        "396.44",
        "--glibc",
        "2.27",
        "--kernel",
        "4.15",
    )
    assert imgcheck("probe", *described, "-o", host).returncode == 0
    assert imgcheck("profile", f"oci:{LAYOUT}", "-o", image).returncode == 0
    report = imgcheck("image", image, "--host-probe", host, "-o", "json")
    assert report.returncode == 1
    return {kind: json.loads(text) for kind, text in
            (("host", host.read_text()), ("image", image.read_text()), ("report", report.stdout))}  # fmt: skip


@pytest.mark.parametrize("kind", ["image", "host", "report"])
def test_published_schema_is_that_of_the_code(kind: str) -> None:
    published = (CHECKOUT / "docs/schema" / f"{kind}.json").read_text()
    assert published == _GENERATE["schema"](kind), "run `make schema`"


@pytest.mark.parametrize("kind", ["image", "host", "report"])
def test_documents_are_valid_by_their_schema(kind: str, documents: dict[str, Any]) -> None:
    schema = json.loads((CHECKOUT / "docs/schema" / f"{kind}.json").read_text())
    jsonschema.validate(documents[kind], schema)
    assert documents[kind]["kind"] == kind
    assert documents[kind]["schema_version"] == "1.0"


def test_probe_of_this_host_is_valid_by_its_schema(tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    assert imgcheck("probe", "-o", host).returncode == 0
    jsonschema.validate(json.loads(host.read_text()), json.loads((CHECKOUT / "docs/schema/host.json").read_text()))


def test_report_has_the_keys_that_scripts_index(documents: dict[str, Any]) -> None:
    report = documents["report"]
    assert set(report) >= {
        "kind", "schema_version", "verdict", "image", "host", "runtime", "runtime_chosen_by", "findings", "checks",
        "cells", "tool",
    }  # fmt: skip
    keys = {
        "rule", "severity", "title", "predicted_error", "why", "remedy", "subject", "fingerprint", "evidence",
        "sources",
    }  # fmt: skip
    assert report["findings"]
    assert all(set(finding) >= keys for finding in report["findings"])
    evidence = [each for finding in report["findings"] for each in finding["evidence"]]
    assert evidence
    assert all({"path", "layer", "reach", "detail"} <= set(each) for each in evidence)
    assert all(set(check) >= {"rule", "outcome", "reason"} for check in report["checks"])
    assert all({"host", "runtime", "verdict", "findings"} <= set(cell) for cell in report["cells"])


def test_cells_cover_every_runtime_and_refer_to_fingerprints(documents: dict[str, Any]) -> None:
    report = documents["report"]
    chosen = [cell for cell in report["cells"] if cell["runtime"] == report["runtime"]]
    assert [cell["verdict"] for cell in chosen] == [report["verdict"]]
    assert set(chosen[0]["findings"]) == {finding["fingerprint"] for finding in report["findings"]}


def test_fingerprint_survives_a_rebuild_and_another_place(documents: dict[str, Any], tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    host.write_text(json.dumps(documents["host"]))
    again = json.loads(imgcheck("image", f"oci:{LAYOUT}", "--host-probe", host, "-o", "json").stdout)
    assert [f["fingerprint"] for f in again["findings"]] == [f["fingerprint"] for f in documents["report"]["findings"]]


def test_newer_minor_version_is_read_and_its_new_fields_ignored(documents: dict[str, Any], tmp_path: Path) -> None:
    host = tmp_path / "host.json"
    host.write_text(json.dumps(documents["host"] | {"schema_version": "1.99", "new_field": {"a": 1}}))
    assert imgcheck("image", f"oci:{LAYOUT}", "--host-probe", host).returncode == 1


def test_the_place_of_a_documents_kind_does_not_matter_but_its_absence_does() -> None:
    host = {"schema_version": "1.0", "name": "node"}
    assert decode(json.dumps(host | {"kind": "host"}).encode(), HostProfile, "HOST").name == "node"
    for data, why in ((host, "it has no `kind`"), (host | {"kind": "image"}, "its kind is 'image'")):
        with pytest.raises(DocumentError, match=rf"HOST: not a host profile of imgcheck; {why}"):
            decode(json.dumps(data).encode(), HostProfile, "HOST")


def test_of_a_newer_major_version_its_age_is_told_whatever_else_is_wrong() -> None:
    for extra in ({}, {"name": 3}):
        data = json.dumps({"kind": "host", "schema_version": "2.0", "name": "node"} | extra).encode()
        with pytest.raises(DocumentError, match=r"schema version '2\.0' is newer"):
            decode(data, HostProfile, "HOST")


def test_a_profile_has_a_line_for_each_script_and_each_kind_of_facts() -> None:
    commands = packed([ShellCommand(("echo", "two\nlines,\n    and ]\n   }", "{"))])
    scripts = tuple(Script(f"/bin/{name}", ("/bin/sh",), commands) for name in "ab")
    facts = CodeFacts(1, Linkage(64, "x86_64", needed=("liba.so", "libb.so")))
    files, tree = (FileRecord("/bin/c", "c", 0),), TreeIndex(scripts=scripts)
    profile = ImageProfile("1.0", "test", Platform(), ImageConfig(), (), files, {"c": facts}, tree)
    written = encode(profile)
    assert decode(written, ImageProfile, "test") == profile
    lines = written.decode().splitlines()
    assert not [line for line in lines if line.startswith("    ")]
    assert [line for line in lines if "/bin/sh" in line] == [
        f'   {{"path": "/bin/{name}", "interpreter": ["/bin/sh"], "packed": {json.dumps(commands)}}}{end}'
        for name, end in (("a", ","), ("b", ""))
    ]
    assert '   "linkage": {"elf_class": 64, "machine": "x86_64", "needed": ["liba.so", "libb.so"]}' in lines


def test_a_fifo_that_takes_a_documents_place_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "a.json")
    monkeypatch.setattr(os.path, "isfile", lambda path: True)  # as it was a moment before
    assert read_document(tmp_path / "a.json") is None


def test_a_file_that_grows_while_it_is_read_is_read_no_further(tmp_path: Path) -> None:
    assert read_regular("/proc/self/status", 1000) == b""  # of size 0, and yet it has bytes
    (tmp_path / "a").write_bytes(bytes(1001))
    assert (read_regular(tmp_path / "a", 1000), read_regular(tmp_path / "a", 1001)) == (b"", bytes(1001))
