"""The whole way for real: git, its pre-push hook, an image made by umoci, the gate, and a registry."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from imgcheck.cli import main
from tests.ci.images import program
from tests.tools import CHECKOUT, need, run

pytestmark = pytest.mark.slow

POLICY = """
runtimes = ["docker", "apptainer"]
[[host]]
name = "broadwell nodes"
cpu = "broadwell"
kernel = "3.10"
glibc = "2.17"
gpus = ["none"]
driver = "none"
"""


class Project:
    """A git repository with the hook installed, a remote, and an image beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "project"
        self.remote = directory / "remote.git"
        programs = directory / "bin"
        programs.mkdir()
        (programs / "imgcheck").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m imgcheck "$@"\n')
        (programs / "imgcheck").chmod(0o755)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
            "HOME": str(directory),
            "XDG_CACHE_HOME": str(directory / "cache"),
        }
        run(need("git"), "init", "--quiet", "--bare", self.remote)
        run(need("git"), "init", "--quiet", "--initial-branch=main", self.directory)
        self.git("config", "user.name", "A Developer")
        self.git("config", "user.email", "developer@example.org")
        self.git("remote", "add", "origin", self.remote)
        hook = self.directory / ".git" / "hooks" / "pre-push"
        shutil.copy(CHECKOUT / "integrations" / "ci" / "git" / "pre-push", hook)

    def git(self, *words: str | Path) -> str:
        return run(need("git"), "-C", self.directory, *words, env=self.environment).stdout

    def commit(self, message: str) -> None:
        self.git("add", "imgcheck.toml")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)

    def push(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [need("git"), "-C", str(self.directory), "push", "--quiet", *options, "origin", "main"]
        return subprocess.run(command, capture_output=True, text=True, env=self.environment)

    @property
    def pushed(self) -> list[str]:
        done = run(need("git"), "-C", self.remote, "log", "--all", "--format=%s", env=self.environment)
        return done.stdout.splitlines()

    def build(self, march: str) -> None:
        """The image of the project, from scratch, by umoci."""
        layout = self.directory / "build"
        shutil.rmtree(layout, ignore_errors=True)
        umoci = need("umoci")
        run(umoci, "init", "--layout", layout)
        run(umoci, "new", "--image", f"{layout}:latest")
        run(umoci, "insert", "--image", f"{layout}:latest", program(march), "/opt/app/solver")
        run(umoci, "config", "--image", f"{layout}:latest", "--config.entrypoint", "/opt/app/solver")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    (made.directory / "imgcheck.toml").write_text(POLICY)
    made.commit("first")
    return made


def test_the_gate_stops_the_avx512_variant_and_lets_the_broadwell_variant_go_to_the_registry(project, registry, capfd):
    project.git("config", "imgcheck.image", "oci:build:latest")
    project.build("skylake-avx512")
    stopped = project.push()
    assert stopped.returncode != 0
    assert project.pushed == []
    assert "broadwell nodes" in stopped.stderr
    assert "CPU001" in stopped.stderr
    assert "Illegal instruction" in stopped.stderr
    assert "pre-push: stopped: an image would fail on a required host" in stopped.stderr

    project.build("broadwell")
    project.commit("second")
    passed = project.push()
    assert (passed.returncode, passed.stdout) == (0, ""), passed.stderr
    assert project.pushed == ["second", "first"]

    name = registry.push(f"oci:{project.directory / 'build'}:latest", "gate/solver:1")
    capfd.readouterr()
    policy = str(project.directory / "imgcheck.toml")
    assert main(["image", name, "--plain-http", "--policy", policy, "--no-store"]) == 0
    assert "COMPATIBLE" in capfd.readouterr().out


def test_every_image_is_checked_though_an_earlier_one_failed(project):
    project.build("broadwell")
    project.git("config", "--add", "imgcheck.image", "oci:nowhere")
    project.git("config", "--add", "imgcheck.image", "oci:build:latest")
    stopped = project.push()
    assert "could not do its work (status 2)" in stopped.stderr
    assert "COMPATIBLE" in stopped.stderr
    assert project.pushed == []


def test_without_an_image_the_hook_says_how_to_name_it_and_git_can_go_on(project):
    stopped = project.push()
    assert "git config imgcheck.image REF" in stopped.stderr
    assert project.pushed == []
    assert project.push("--no-verify").returncode == 0
    assert project.pushed == ["first"]


def test_without_a_policy_nothing_is_pushed_and_the_hook_says_how_to_make_one(project):
    project.git("config", "imgcheck.image", "oci:build:latest")
    project.build("broadwell")
    policy = project.directory / "imgcheck.toml"
    policy.rename(project.directory / "other.toml")
    stopped = project.push()
    assert stopped.returncode != 0
    assert f"there is no file imgcheck.toml in {project.directory}" in stopped.stderr
    assert "docs/policy.md" in stopped.stderr
    assert project.pushed == []
    project.git("config", "imgcheck.policy", "other.toml")
    assert project.push().returncode == 0
    assert project.pushed == ["first"]


def test_a_policy_without_hosts_lets_nothing_be_pushed(project):
    project.git("config", "imgcheck.image", "oci:build:latest")
    project.build("broadwell")
    (project.directory / "imgcheck.toml").write_text('fail_on = "fail"\n')
    stopped = project.push()
    assert "imgcheck.toml: it has no [[host]]" in stopped.stderr
    assert "could not do its work (status 2)" in stopped.stderr
    assert project.pushed == []


@pytest.mark.parametrize(
    ("statuses", "told"),
    [
        ("12", "an image would fail on a required host"),
        ("13", "an image would fail on a required host"),
        ("21", "an image would fail on a required host"),
        ("32", "imgcheck could not do its work (status 2)"),
        ("23", "imgcheck could not do its work (status 2)"),
        ("30", "undecided"),
    ],
)
def test_of_several_images_the_worst_is_told(project, statuses, told):
    stand_in = project.directory.parent / "bin/imgcheck"
    stand_in.write_text('#!/bin/sh\nexit "$2"\n')
    for status in statuses:
        project.git("config", "--add", "imgcheck.image", status)
    stopped = project.push()
    assert f"pre-push: stopped: {told}" in stopped.stderr
    assert project.pushed == []
