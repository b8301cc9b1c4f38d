"""Each layer's history line, as builders write it, finds the line of the Dockerfile that made the layer."""

import subprocess
import time
from pathlib import Path

import pytest

from demo.build import LAYOUT
from imgcheck.cli import main
from imgcheck.report.dockerfile import Dockerfile, read_dockerfile
from imgcheck.report.history import lines_of
from tests.tools import need

BUILT = """\
# syntax=docker/dockerfile:1
ARG BASE=debian
FROM ${BASE} AS build
RUN make
FROM debian
ARG DEST=/opt/app
ENV OTHER="/srv/x y"
COPY --from=build /out/solver /usr/bin/
COPY --chown=1:1 ["a", "b", "/json dest/"]
COPY libs ${DEST}/lib
add --link rootfs.tar.gz /
RUN --mount=type=cache,target=/root/.cache,sharing=locked \\
  # of wheels
  pip install "x>1" \\

  && rm -rf /tmp/x
run echo lower
RUN ["python", "-m", "compileall", "/opt"]
RUN <<EOF
set -e
make install
EOF
RUN python3 - <<'PY' && echo done
print(1)
PY
COPY <<-"CONF" /etc/app.conf
	a = 1
	CONF
SHELL ["/bin/bash", "-o", "pipefail", "-ec"]
RUN curl x | tar x
SHELL ["nu", "--commands"]
RUN ls
RUN make
COPY tool $OTHER
"""


def dockerfile(directory: Path, text: str) -> Dockerfile:
    (directory / "Dockerfile").write_text(text)
    return read_dockerfile(directory / "Dockerfile")


def found(directory: Path, text: str, *histories: str) -> list[int | None]:
    lines = lines_of(dockerfile(directory, text), histories)
    return [lines.get(index) for index in range(len(histories))]


@pytest.mark.parametrize(
    ("history", "line"),
    [
        # BuildKit: dockerfile2llb writes options other than --from before the sources, variables filled in.
        ("COPY /out/solver /usr/bin/ # buildkit", 8),
        ("COPY --chown=1:1 a b /json dest/ # buildkit", 9),
        ("COPY libs /opt/app/lib # buildkit", 10),
        ("COPY libs /from/an/argument/lib # buildkit", 10),
        ("ADD rootfs.tar.gz / # buildkit", 11),
        ('RUN /bin/sh -c pip install "x>1"   && rm -rf /tmp/x # buildkit', 12),
        ('RUN |1 DEST=/opt/app /bin/sh -c pip install "x>1"   && rm -rf /tmp/x # buildkit', 12),
        ('RUN |2 DEST=a b -c OTHER=-c d /bin/sh -c pip install "x>1" && rm -rf /tmp/x # buildkit', 12),
        ("RUN /bin/sh -c echo lower # buildkit", 17),
        ("RUN python -m compileall /opt # buildkit", 18),
        ("RUN |1 DEST=/opt/app python -m compileall /opt # buildkit", 18),
        ("RUN /bin/sh -c set -e\nmake install\n # buildkit", 19),
        ("RUN |1 DEST=/opt/app /bin/sh -c python3 - <<'PY' && echo done\nprint(1)\nPY # buildkit", 23),
        ("COPY <<CONF /etc/app.conf # buildkit", 26),
        ("RUN /bin/bash -o pipefail -ec curl x | tar x # buildkit", 30),
        ("RUN |1 DEST=/opt/app nu --commands ls # buildkit", 32),
        ("COPY tool /srv/x y # buildkit", 34),
        # Docker's classic builder and Buildah.
        ("/bin/sh -c #(nop) COPY file:0a1b in /usr/bin/ ", 8),
        ("/bin/sh -c #(nop) COPY --chown=1:1 multi:0a1b in /json dest/ ", 9),
        ("/bin/sh -c #(nop) COPY dir:0a1b in ${DEST}/lib ", 10),
        ("/bin/sh -c #(nop) COPY dir:0a1b in /opt/app/lib ", 10),
        ("/bin/sh -c #(nop) ADD file:0a1b in / ", 11),
        ('|1 DEST=/opt/app /bin/sh -c --mount=type=cache,target=/c pip install "x>1" && rm -rf /tmp/x', 12),
        ("/bin/sh -c echo lower", 17),
        ('/bin/sh -c ["python", "-m", "compileall", "/opt"]', 18),
        ("/bin/bash -o pipefail -ec curl x | tar x", 30),
        ("/bin/bash -o pipefail -ec #(nop) COPY file:0a1b in $OTHER", 34),
        # Kaniko.
        ("RUN echo lower", 17),
        ("COPY --from=build /out/solver /usr/bin/", 8),
        # Of no line.
        ("RUN /bin/sh -c pip install y # buildkit", None),
        ("/bin/sh -c #(nop) COPY dir:0a1b in /elsewhere ", None),
        ("/bin/sh -c x && echo lower", None),
        ('/bin/sh -c #(nop)  CMD ["bash"]', None),
        ("squashfs of app.sif", None),
        ("", None),
    ],
)
def test_history_of_every_builder_finds_its_line(history, line, tmp_path):
    assert found(tmp_path, BUILT, history) == [line]


def test_equal_lines_are_told_apart_by_their_place(tmp_path):
    text = "FROM debian\nCOPY a /app\nRUN make\nCOPY b /app\nRUN make\n"
    copy, make = "/bin/sh -c #(nop) COPY file:0a in /app", "/bin/sh -c make"
    assert found(tmp_path, text, copy, make, copy, make) == [2, 3, 4, 5]
    # What the base image has of them comes first.
    assert found(tmp_path, text, make, copy, copy, make, copy, make) == [None, None, 2, 3, 4, 5]


def test_a_value_that_no_build_can_change_is_compared_as_it_is(tmp_path):
    text = "FROM x\nARG A=/a\nENV E=/e\nENV F=$A/f\nCOPY one $A/x\nCOPY two $E/x\nCOPY three $F/x\n"
    copies = [f"/bin/sh -c #(nop) COPY file:0a in {path}" for path in ("/b/x", "/e/x", "/b/f/x")]
    assert found(tmp_path, text, *copies) == [5, 6, 7]
    assert found(tmp_path, "FROM x\nENV E=/e\nCOPY two $E/x\n", copies[0]) == [None]
    assert found(tmp_path, "FROM x\nARG A\nCOPY one ${A:-/e}/x\n", copies[0]) == [3]
    assert found(tmp_path, "FROM x\nENV E=/e\nFROM x\nARG E\nCOPY one $E/x\n", copies[0]) == [5]
    # Of a destination that is a variable alone nothing is known.
    assert found(tmp_path, "FROM x\nARG A\nCOPY a $A/\n", copies[0], "COPY abc /d # buildkit") == [None, None]
    assert found(tmp_path, "FROM x\nARG A\nCOPY a $A/\n", "COPY a /d/ # buildkit") == [3]


def test_stages_that_the_image_is_not_built_from_explain_nothing(tmp_path):
    text = "FROM x AS a\nRUN one\nFROM y AS b\nRUN two\nFROM a\nRUN three\n"
    assert found(tmp_path, text, "/bin/sh -c one", "/bin/sh -c two", "/bin/sh -c three") == [2, None, 6]


def test_another_target_than_the_last_stage_is_seen_by_what_it_explains(tmp_path):
    text = "FROM x AS test\nRUN one\nRUN make\nFROM x\nRUN make\n"
    assert found(tmp_path, text, "/bin/sh -c one", "/bin/sh -c make") == [2, 3]


def test_an_escape_directive_joins_lines(tmp_path):
    text = "# escape=`\nFROM x\nRUN one `\n two\nRUN three\n"
    assert found(tmp_path, text, "/bin/sh -c one  two", "/bin/sh -c three") == [3, 5]


def test_a_dockerfile_within_the_directory_is_named_as_the_repository_does(tmp_path, monkeypatch):
    (tmp_path / "Dockerfile").write_text("FROM debian\n")
    monkeypatch.chdir(tmp_path)
    assert read_dockerfile(tmp_path / "Dockerfile").path == "Dockerfile"
    assert read_dockerfile(Path("./Dockerfile")).path == "Dockerfile"


_MANY = 1 << 20


@pytest.mark.parametrize(
    "text",
    [
        "FROM a AS a\n" * (_MANY >> 4),
        "FROM a\n" + "RUN a\n" * (_MANY >> 3),
        "FROM a\nSHELL ['" + "x" * 4000 + "']\n" + "RUN a\n" * (_MANY >> 3),
        "FROM a\nENV " + "a" * _MANY,
        "FROM a\nENV " + 'a="' * (_MANY >> 2),
        "FROM a\nENV A=aaaaaaaa\n" + "ENV A=$A$A$A$A\n" * (_MANY >> 5) + "COPY $A$A $A\n" * (_MANY >> 5),
        "FROM a\nCOPY " + "${a-" * (_MANY >> 2),
        "FROM a\nCOPY " + "$a/" * (_MANY >> 2) + "\n" + "COPY $a/$a/$a/x y\n" * (_MANY >> 6),
        "FROM a\nRUN " + '--a="' * (_MANY >> 3),
        "FROM a\nRUN " + " <<a" * (_MANY >> 2),
        "FROM a\nRUN " + "[" * _MANY,
        "FROM a\n" + "RUN a\\\n" * (_MANY >> 3),
    ],
    ids=range(12),
)
def test_a_hostile_dockerfile_costs_no_more_than_its_size(text, tmp_path):
    begin = time.process_time()
    found(tmp_path, text, "/bin/sh -c a", "COPY " + "x/" * 1000 + " # buildkit", "/bin/sh -c #(nop) ADD file:0 in /")
    assert time.process_time() - begin < 10


@pytest.mark.parametrize(
    "history",
    [
        "RUN " + "--a=" * _MANY,
        "|9999 " + "a=b " * _MANY,
        "|1 a=" + " -c" * _MANY,
        "/bin/sh -c " + "[" * _MANY,
        "COPY " + "a/" * _MANY,
        "/bin/sh -c #(nop) COPY " + "a in " * _MANY,
        "#(nop" * _MANY,
    ],
    ids=range(7),
)
def test_a_hostile_history_line_costs_no_more_than_its_size(history, tmp_path):
    begin = time.process_time()
    assert found(tmp_path, BUILT, *[history] * 3) == [None] * 3
    assert time.process_time() - begin < 10


def test_history_lines_that_are_not_found_are_told_once(tmp_path, capsys):
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN other\n")
    host = tmp_path / "host.json"
    assert main(["probe", "--cpu", "haswell", "-o", str(host)]) == 0
    image = ["image", f"oci:{LAYOUT}", "--no-policy", "--no-store", "--host-probe", str(host)]
    assert main([*image, "-o", "github", "--dockerfile", str(tmp_path / "Dockerfile")]) == 1
    streams = capsys.readouterr()
    assert streams.err.count("1 history line with findings not found in") == 1
    assert "file=" not in streams.out


@pytest.mark.slow
@pytest.mark.parametrize("form", ["docker", "oci"])
def test_what_buildah_builds_finds_its_lines(form, tmp_path):
    text = (
        "FROM scratch AS one\nARG DEST=/opt/x\nCOPY a /a\nFROM scratch\nARG DEST=/opt/y\n"
        'COPY --from=one /a ${DEST}/matmul\nCOPY --chown=1:1 sub .\nCOPY ["a", "sub", "/json dest/"]\ncopy a /\n'
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_text("a")
    (tmp_path / "sub" / "b").write_text("b")
    file = dockerfile(tmp_path, text)
    storage = [need("buildah"), "--storage-driver", "vfs", "--root", tmp_path / "root", "--runroot", tmp_path / "run"]
    build = ["bud", "--layers", "--format", form, "--tag", "built", "--file", tmp_path / "Dockerfile", tmp_path]
    subprocess.run([*storage, *build], check=True, capture_output=True)
    template = "{{range .OCIv1.History}}{{if not .EmptyLayer}}{{println .CreatedBy}}{{end}}{{end}}"
    inspect = [*storage, "inspect", "--type", "image", "--format", template, "built"]
    shown = subprocess.run(inspect, check=True, capture_output=True, text=True)
    histories = [line for line in shown.stdout.splitlines() if line]
    assert lines_of(file, histories) == {0: 6, 1: 7, 2: 8, 3: 9}
