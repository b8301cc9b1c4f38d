"""The name `imgcheck` in the package index is another program: nothing that we ship may install what it finds there."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.tools import CHECKOUT

INSTALL = CHECKOUT / "integrations/install/install.sh"
SHIPPED = ("integrations", "docs", "imgcheck", "rules", "demo", ".ci", "README.md", "Makefile")
_INSTALLERS = re.compile(
    r"\b(?:pip3?|pipx|uv(?: tool)?)\s+(?:-\S+\s+)*(?:install|download|wheel|run)\b(?P<words>[^;|&`]*)"
)
_DEFAULTS = re.compile(r"(?:PACKAGE|SOURCE)\w*(?::-|:\s*|=)[\"']?(?P<words>[\w.=\[\]<>~!-]+)")
_BARE = re.compile(r"imgcheck(?:\[[\w,]*\])?(?:[=<>~!]=?\S*)?")


def foreign(text: str) -> list[str]:
    """Lines of `text` that would install `imgcheck` by its name alone."""
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    found = [
        (line, match["words"])
        for line in lines
        for match in (_INSTALLERS.search(line), _DEFAULTS.search(line))
        if match
    ]
    return [line for line, words in found if any(_BARE.fullmatch(word.strip("\"'`,;)}")) for word in words.split())]


def _texts() -> list[Path]:
    places = [CHECKOUT / name for name in SHIPPED]
    files = [path for place in places for path in ([place] if place.is_file() else place.rglob("*")) if path.is_file()]
    return [path for path in files if b"\0" not in path.read_bytes()[:4096]]


@pytest.mark.parametrize(
    "line",
    [
        "pip install imgcheck",
        "python3 -m pip download \\\n  imgcheck==0.1.0 --dest wheels",
        "run: pipx install 'imgcheck[test]'",
        "    IMGCHECK_PACKAGE: imgcheck",
        '--target "$new" "$@" "${IMGCHECK_SOURCE:-imgcheck}"',
    ],
)
def test_a_line_that_installs_it_by_name_is_seen(line):
    assert foreign(line)


def test_nothing_that_is_shipped_installs_it_by_name():
    found = {
        str(path): lines for path in _texts() if (lines := foreign(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert found == {}


def test_no_manifest_names_an_image_without_a_registry():
    named = re.findall(r"image: (\S*imgcheck\S*)", (CHECKOUT / "integrations/kubernetes/job.yaml").read_text())
    assert named
    assert all(name.startswith("registry.example.org/") for name in named)


def _installed_from(script: Path, directory: Path, **more: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What the script says, and the words of the pip that it called, which does nothing."""
    called = directory / "called"
    pip = directory / "pip"
    pip.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{called}"\nexit 7\n')
    pip.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "IMGCHECK_SOURCE"}
    command = ["sh", str(script), str(directory / "tree")]
    done = subprocess.run(command, env=environment | {"PIP": str(pip)} | more, capture_output=True, text=True)
    return done, called.read_text().splitlines() if called.exists() else []


def test_the_tree_is_made_from_the_checkout_that_the_script_lies_in(tmp_path):
    done, words = _installed_from(INSTALL, tmp_path)
    assert done.returncode == 7
    assert Path(words[-1]).resolve() == CHECKOUT.resolve()


def test_without_a_checkout_the_script_asks_for_a_source_and_calls_no_pip(tmp_path):
    alone = tmp_path / "alone/deep/install.sh"
    alone.parent.mkdir(parents=True)
    alone.write_bytes(INSTALL.read_bytes())
    done, words = _installed_from(alone, tmp_path)
    assert (done.returncode, words) == (1, [])
    assert "set IMGCHECK_SOURCE to its wheel, checkout or URL" in done.stderr
    assert _installed_from(alone, tmp_path, IMGCHECK_SOURCE="/a/wheel.whl")[1][-1] == "/a/wheel.whl"


def test_a_gitlab_job_without_a_package_ends_before_pip():
    lines = (CHECKOUT / "integrations/ci/gitlab/imgcheck.gitlab-ci.yml").read_text().splitlines()
    first = lines[lines.index("  script:") + 2].strip()
    done = subprocess.run(["sh", "-euc", first], env={"IMGCHECK_PACKAGE": ""}, capture_output=True, text=True)
    assert done.returncode != 0
    assert "name what pip installs" in done.stderr
    assert subprocess.run(["sh", "-euc", first], env={"IMGCHECK_PACKAGE": "git+https://x"}).returncode == 0
