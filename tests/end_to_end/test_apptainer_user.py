"""What Apptainer says to its user of an image whose files belong to somebody else, and what was predicted of it.

The image's tree is unpacked as root, so that it stands to the user as a SIF does.
"""

import json
import os
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.end_to_end.command import imgcheck
from tests.images import Directory, File, ImageBuilder, Member, Symlink, layer_tar, write_layout
from tests.peers import Peer
from tests.tools import compile_c

pytestmark = pytest.mark.slow

READER = """
#include <errno.h>
#include <stdio.h>
#include <string.h>
int main(int count, char **given) {
    for (int i = 1; i < count; i++) if (!fopen(given[i], "r")) printf("%s: %s\\n", given[i], strerror(errno));
    return 0;
}
"""
CASES = {
    "below a closed directory": (("/root/tool",), "RUN016"),
    "by a link in PATH": (("linked",), "RUN016"),
    "closed itself": (("mine",), "RUN016"),
    "named by the command": (("reader", "/root/notes.py"), "RUN016"),
    "named from the WORKDIR": (("reader", "app.py"), "RUN009"),
    "open": (("reader", "/app/app.py"), ""),
}


def members(program: bytes) -> dict[str, Member]:
    places = ("app", "bin", "dev", "proc", "sys", "tmp", "var", "var/tmp", "home", "etc")
    files = {"bin/sh": 0o755, "bin/reader": 0o755, "bin/mine": 0o700, "root/tool": 0o755}
    return {
        **{place: Directory() for place in places},
        "root": Directory(0o700),
        **{path: File(program, mode) for path, mode in files.items()},
        "bin/linked": Symlink("/root/tool"),
        "app/app.py": File(b"import os\n"),
        "root/notes.py": File(b"import os\n"),
    }


@pytest.mark.skipif(os.getuid() != 0, reason="files of another user are made by root")
@pytest.mark.parametrize("case", CASES)
def test_what_apptainer_says_was_predicted(case: str, apptainer: Peer, public_tmp: Path, tmp_path: Path) -> None:
    words, rule = CASES[case]
    content = members(compile_c(READER, "-static", "-O1", out="reader").read_bytes())
    tree = public_tmp / "tree"
    with tarfile.open(fileobj=BytesIO(layer_tar(content))) as archive:
        archive.extractall(tree, filter="fully_trusted")
    image = ImageBuilder(command=words, environment=("PATH=/bin",), working_directory="/app").layer(content)
    layout = write_layout(tmp_path / "layout", image)
    report = imgcheck("image", f"oci:{layout}", "--host-probe", "--runtime", "apptainer", "-o", "json")
    findings = json.loads(report.stdout)["findings"]
    predicted = [each["predicted_error"] for each in findings if each["rule"] in ("RUN009", "RUN016")]
    assert [each["rule"] for each in findings if each["severity"] == "fail"] == ([rule] if rule else [])
    told = apptainer("-s", "exec", "--userns", "--no-home", tree, *words)
    said = told.stdout + told.stderr
    assert all(" ".join(error.split()) in " ".join(said.split()) for error in predicted), said
    assert bool(predicted) == ("ermission denied" in said or "not found" in said or "No such file" in said), said
