"""Where results go: files, links, pipes that close, and streams that the caller closed or narrowed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.build import LAYOUT
from imgcheck.cli.files import write
from imgcheck.streams import lead_nowhere
from tests.tools import CHECKOUT

_COMMAND = f"{sys.executable} -m imgcheck"


def _shell(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(CHECKOUT), **environment}
    return subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, env=variables, timeout=120)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host that the demo does not run on."""
    file = tmp_path_factory.mktemp("hosts") / "host.json"
    assert _shell(f"{_COMMAND} probe --cpu broadwell -o {file}").returncode == 0
    return file


def test_what_a_link_leads_to_is_written_and_the_link_stays(tmp_path: Path) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    for data in (b"first", b"second"):
        write(link, data)
        assert link.is_symlink() and target.read_bytes() == data


def test_standard_output_by_its_name_in_dev_is_not_replaced(tmp_path: Path) -> None:
    """/dev/stdout leads to a plain file after `> out.json`: root must not rename something over the link."""
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")
    done = _shell(f"{_COMMAND} profile oci:{LAYOUT} -o {link} > {tmp_path}/out.json")
    assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    assert json.loads((tmp_path / "out.json").read_bytes())["kind"] == "image"


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "no/such", Path("/dev/full")):
        with pytest.raises(OSError) as caught:
            write(place, b"data")
        assert caught.value.filename == str(place)


def test_reader_that_goes_away_is_no_verdict() -> None:
    done = _shell(f"set -o pipefail; {_COMMAND} rules | true")
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_stream_that_the_caller_closed_changes_no_verdict(closed: str) -> None:
    assert _shell(f"{_COMMAND} rules {closed}").returncode == 0
    done = _shell(f"{_COMMAND} image no-such-file.tar {closed}")
    assert (done.returncode, done.stdout) == (2, "")


def test_signs_that_the_locale_lacks_are_spelt_out(host: Path) -> None:
    done = _shell(f"{_COMMAND} image oci:{LAYOUT} --host-probe {host}", PYTHONIOENCODING="latin-1")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("\\u2717 INCOMPATIBLE")


@pytest.mark.parametrize("status", [0, 1, 2])
def test_full_disk_behind_stderr_changes_no_status(tmp_path: Path, host: Path, status: int) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    commands = [
        f"hosts {host.parent} --nodes broadwell,absent",
        f"image oci:{LAYOUT} --host-probe {host} --dockerfile {tmp_path}/Dockerfile",
        "image no-such-file.tar",
    ]
    for target in ("/dev/full", ">(true)"):
        assert _shell(f"{_COMMAND} {commands[status]} 2> {target}").returncode == status


@pytest.mark.parametrize("name", ["json", "junit", "sarif", "markdown", "github"])
@pytest.mark.parametrize("locale", ["latin-1", "ascii"])
def test_what_is_for_programs_is_utf_8_whatever_the_locale(tmp_path: Path, host: Path, name: str, locale: str) -> None:
    (tmp_path / "café").symlink_to(LAYOUT)
    command = f"{_COMMAND} image oci:{tmp_path}/café --host-probe {host} -o {name}"
    done = [_shell(f"{command} | base64", PYTHONIOENCODING=encoding).stdout for encoding in (locale, "utf-8")]
    assert done[0] == done[1] != ""


@pytest.mark.parametrize("columns", ["0", "1", "2", "-3", "99999999999"])
@pytest.mark.parametrize("command", ["rules", "explain CPU001", "probe", "image --help", f"image oci:{LAYOUT}"])
def test_an_absurd_width_is_no_defect(columns: str, command: str) -> None:
    done = _shell(f"ulimit -v 8000000; {_COMMAND} {command}", COLUMNS=columns)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("columns", [1, 2])
def test_a_terminal_of_one_column_gets_its_table(columns: int) -> None:
    script = f"stty cols {columns}; unset COLUMNS; {_COMMAND} rules"
    done = _shell(f"script --quiet --return --command '{script}' /dev/null", TERM="xterm")
    assert done.returncode == 0 and "CPU001" in done.stdout


def test_explain_fills_its_lines() -> None:
    lines = _shell(f"{_COMMAND} explain GPU014", COLUMNS="100").stdout.splitlines()
    paragraph = lines[lines.index("What it is") + 1 : lines.index("", lines.index("What it is"))]
    assert len(paragraph) > 2
    assert min(map(len, paragraph[:-1])) > 80


def test_a_stream_that_cannot_be_written_costs_no_descriptor() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3):
            lead_nowhere(full)
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        full.write("x")
