"""The ready files for CI systems: valid by their systems' schemas, and the GitHub action's own steps run for real."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci.images import layout
from tests.tools import CHECKOUT, cache_directory, pip, run

pytestmark = pytest.mark.slow

CI = CHECKOUT / "integrations" / "ci"


@pytest.fixture(scope="module")
def checker() -> Path:
    """check-jsonschema of PyPI, which carries the schemas of CI systems, in an environment of its own."""
    directory = cache_directory() / "check-jsonschema-0.33.0"
    if not (directory / "installed").exists():
        run(sys.executable, "-m", "venv", "--clear", directory)
        pip("install", "check-jsonschema==0.33.0", python=directory / "bin" / "python")
        (directory / "installed").touch()
    return directory / "bin"


@pytest.mark.parametrize(
    ("file", "schema", "right", "wrong"),
    [
        ("github/action.yml", "vendor.github-actions", "using: composite", "using: magic"),
        ("github/workflow.yml", "vendor.github-workflows", "runs-on:", "runs-upon:"),
        ("gitlab/imgcheck.gitlab-ci.yml", "vendor.gitlab-ci", "when: always", "when: sometimes"),
    ],
)
def test_files_are_valid_by_the_schemas_of_their_systems(file, schema, right, wrong, checker, tmp_path):
    command = [str(checker / "check-jsonschema"), "--builtin-schema", schema]
    text = (CI / file).read_text().replace("\n.imgcheck:", "\nimgcheck:")  # GitLab's lets hidden jobs be anything
    checked = tmp_path / Path(file).name
    checked.write_text(text)
    run(*command, checked)
    checked.write_text(text.replace(right, wrong))
    assert subprocess.run([*command, str(checked)], capture_output=True).returncode == 1


def parsed(checker: Path, file: str) -> dict:
    read = "import json, sys, ruamel.yaml as y; print(json.dumps(y.YAML(typ='safe').load(open(sys.argv[1]))))"
    return json.loads(run(checker / "python", "-c", read, CI / file).stdout)


def program_directory(directory: Path) -> Path:
    """A directory with an `imgcheck` that is this checkout's."""
    directory.mkdir(parents=True)
    (directory / "imgcheck").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m imgcheck "$@"\n')
    (directory / "imgcheck").chmod(0o755)
    return directory


def check_step(checker: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """The action's step that checks, run in `directory` as GitHub would."""
    program_directory(directory / "imgcheck" / "bin")
    (directory / "Dockerfile").write_text("FROM scratch\nCOPY solver /opt/app/solver\n")
    check = parsed(checker, "github/action.yml")["runs"]["steps"][1]
    assert set(check["env"]) == {"IMAGE", "DOCKERFILE", "POLICY", "BASELINE", "REPORTS"}
    environment = os.environ | {
        "IMAGE": "oci:$(touch owned)",
        "DOCKERFILE": "Dockerfile",
        "POLICY": "",
        "BASELINE": "",
        "REPORTS": "reports",
        "RUNNER_TEMP": str(directory),
        "GITHUB_STEP_SUMMARY": str(directory / "summary.md"),
        "GITHUB_OUTPUT": str(directory / "output"),
        "PYTHONPATH": str(CHECKOUT),
    }
    # This is how GitHub starts a step whose shell is bash.
    script = directory / "step.sh"
    script.write_text(check["run"])
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("march", "status"), [("skylake-avx512", 1), ("broadwell", 0)])
def test_the_check_step_of_the_action_annotates_summarises_and_fails(march, status, checker, tmp_path):
    (tmp_path / "imgcheck.toml").write_text('runtimes = ["docker"]\n[[host]]\ncpu = "broadwell"\nkernel = "4.18"\n')
    layout(tmp_path / "$(touch owned)", march)
    done = check_step(checker, tmp_path)
    assert done.returncode == status, done.stderr
    assert ("::error file=Dockerfile,line=2,title=CPU001 " in done.stdout) == (status == 1)
    assert not (tmp_path / "owned").exists()
    assert "imgcheck: " in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "output").read_text() == f"sarif=reports/imgcheck.sarif\nstatus={status}\n"
    assert json.loads((tmp_path / "reports" / "imgcheck.sarif").read_text())["version"] == "2.1.0"


def test_the_check_step_of_the_action_names_no_sarif_file_where_none_was_written(checker, tmp_path):
    (tmp_path / "imgcheck.toml").write_text('[[host]]\ncpuu = "broadwell"\n')
    assert check_step(checker, tmp_path).returncode == 2
    assert (tmp_path / "output").read_text() == "status=2\n"


@pytest.mark.parametrize("dockerfile", ["", "Dockerfile"])
def test_the_script_of_the_gitlab_template_writes_what_its_artifacts_name(dockerfile, checker, tmp_path):
    job = parsed(checker, "gitlab/imgcheck.gitlab-ci.yml")[".imgcheck"]
    programs = program_directory(tmp_path / "bin")
    (tmp_path / "imgcheck.toml").write_text('runtimes = ["docker"]\n[[host]]\ncpu = "broadwell"\nkernel = "4.18"\n')
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY solver /opt/app/solver\n")
    layout(tmp_path / "build", "skylake-avx512")
    environment = os.environ | job["variables"] | {"PYTHONPATH": str(CHECKOUT)}
    environment |= {"IMGCHECK_IMAGE": "oci:build", "IMGCHECK_DOCKERFILE": dockerfile}
    command = ["sh", "-euc", job["script"][-1].replace("/tmp/imgcheck/bin", str(programs))]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    named = [*job["artifacts"]["paths"], *job["artifacts"]["reports"].values()]
    assert all((tmp_path / file).is_file() for file in named)
    issue = json.loads((tmp_path / "gl-code-quality-report.json").read_text())[0]
    assert issue["location"]["path"] == (dockerfile or "opt/app/solver")
