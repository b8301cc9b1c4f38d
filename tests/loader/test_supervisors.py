"""Supervisors in a chroot, beside what is said of what they start."""

import posixpath
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.execline import read_execline
from imgcheck.loader.expansion import Shell
from imgcheck.loader.roots import find_roots
from imgcheck.loader.services import read_services
from imgcheck.loader.supervisors import Supervisor, supervisor_of
from imgcheck.loader.supervisors import supervisors as supervisors_known
from imgcheck.profile.build import build_profile
from imgcheck.progress import SILENT
from imgcheck.sources.open import open_image
from tests.loader.builder import Root
from tests.loader.roots import supervisors
from tests.tools import compile_c, need

NOTES = """
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words)
{
    char path[256];
    snprintf(path, sizeof path, "/ran/%s", strrchr(words[0], '/') ? strrchr(words[0], '/') + 1 : words[0]);
    close(open(path, O_CREAT | O_WRONLY, 0666));
    return pause();
}
"""
"""A program that leaves a file with its name."""
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SECONDS = 15


@dataclass(frozen=True)
class Case:
    """A command with the configuration that it reads, and the programs that run or do not."""

    command: str
    files: dict[str, str]
    runs: str
    perhaps: str = ""
    """Programs of which it is told that they may run."""


def service(text: str) -> str:
    return f"#!/bin/sh\n{text}\n"


CASES = [
    Case(
        "supervisord -n -c /etc/supervisor/supervisord.conf",  # Debian's, with its include
        {
            "/etc/supervisor/conf.d/a.conf": "[program:a]\ncommand=/opt/a1 --port %(ENV_PORT)s ; the server\n"
            "environment=PORT=\"1,2\",MODE='x'\n[program:b]\ncommand = a2\nautostart=true\nautorestart=false\n",
            "/etc/supervisor/conf.d/b.conf": "[program:c]\ncommand=/opt/a3\nautostart=false\n"
            "[eventlistener:d]\ncommand=/opt/a4\nevents=PROCESS_STATE\n",
            "/etc/supervisor/conf.d/c.ini": "[program:e]\ncommand=/opt/a5\n",
        },
        "a1 a2 a4",
        "a3",
    ),
    Case(
        "supervisord -nc /srv/b/own.conf",
        {
            "/srv/b/own.conf": "[supervisord]\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile=/tmp/b.pid\n"
            "environment=WHERE=/opt\n[include]\nfiles = more/*.ini %(here)s/other/x.conf\n"
            '[program:a]\ndirectory=/opt/inner\ncommand=bash -c "./b1; exec sleep 9"\n'
            "[program:b]\ncommand=%(here)s/b2\n[program:c]\ncommand=/opt/b3%(process_num)02d\nnumprocs=1\n"
            "[program:d]\nprocess_name=%(program_name)s\ncommand=/bin/sh -c 'exec $WHERE/b4'\n",
            "/srv/b/more/one.ini": "[program:e]\ncommand=/opt/b5\n",
            "/srv/b/other/x.conf": '[program:f]\ncommand=b6\nenvironment=PATH="/opt/inner:%(ENV_PATH)s"\n',
            "/srv/b/other/y.conf": "[program:g]\ncommand=/opt/b7\n",
        },
        "b1 b2 b300 b4 b5 b6",
    ),
    Case(
        "runsvdir /srv/c",
        {
            "/srv/c/one/run": service("exec /opt/c1"),
            "/srv/c/two/run": service("cd /opt/inner\nexec chpst -u root ./c2"),
            "/srv/c/three/run": service("exec sleep 9"),
            "/srv/c/three/log/run": service("exec /opt/c3"),
            "/srv/c/four/finish": service("exec /opt/c4"),
            "/srv/c/.five/run": service("exec /opt/c5"),
        },
        "c1 c2 c3",
    ),
    Case(
        "s6-svscan -t 9 /srv/d",
        {
            "/srv/d/one/run": "#!/usr/bin/execlineb -P\n# a log\nfdmove -c 2 1\nforeground { /opt/d1 now }\n/opt/d2\n",
            "/srv/d/two/run": "#!/usr/bin/execlineb -S0\nexport HOLD x cd /opt/inner\nbackground\n{\n  ./d3\n}\n"
            'backtick WHERE { echo /opt } importas -i HOME WHERE /opt/d4 "a \\" b" $HOME\n',
            "/srv/d/three/run": "#!/usr/bin/execlineb -P\nifelse { test -e /absent } { /opt/d5 } s6-setsid /opt/d6\n",
            "/srv/d/.four/run": "#!/usr/bin/execlineb -P\n/opt/d7\n",
        },
        "d1 d3 d4 d6",
        "d1 d3 d5 d6",
    ),
    Case("svscan /srv/e", {"/srv/e/one/run": service("exec envdir ./env setuidgid nobody /opt/e1")}, "e1"),
    Case(
        "python3 -m honcho -f /srv/f/Procfile start",
        {"/srv/f/Procfile": "# all\nweb: /opt/f1 --port $PORT\nworker_1:   cd /opt/inner && exec ./f2\n"},
        "f1 f2",
    ),
]
NAMES = sorted({name for case in CASES for name in f"{case.runs} {case.perhaps}".split()})


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chroot with all that the cases have."""
    root = tmp_path_factory.mktemp("supervisors") / "root"
    subprocess.run(["cp", "-al", supervisors().path, root], check=True)
    program = compile_c(NOTES, "-static")
    for place in ("opt/inner", "usr/local/bin", "srv/b", "srv/e/one/env", "ran"):
        (root / place).mkdir(parents=True, exist_ok=True)
    (root / "ran").chmod(0o777)
    for case in CASES:
        for path, text in case.files.items():
            (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            (root / path[1:]).write_text(text)
            (root / path[1:]).chmod(0o755)
    for name in NAMES:
        for place in ("opt", "opt/inner", "usr/local/bin", "srv/b"):
            shutil.copy2(program, root / place / name)
    return root


@pytest.fixture(scope="module")
def image(system: Path) -> ImageProfile:
    with open_image(f"dir:{system}") as image:
        return build_profile(image, SILENT)


@pytest.fixture(scope="module")
def ran(system: Path, image: ImageProfile) -> set[str]:
    """Names of the programs that run where all supervisors do for a while."""
    command = [need("unshare"), "--pid", "--fork", "--kill-child", need("chroot"), system, "/usr/bin/env", "-i", _PATH]
    started = [
        subprocess.Popen([*command, *shlex.split(case.command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for case in CASES
    ]
    expected = {name for case in CASES for name in case.runs.split()}
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and not expected <= _names(system / "ran"):
        time.sleep(0.2)
    time.sleep(1)  # for what should not run
    for process in started:
        process.kill()
        process.wait()
    return _names(system / "ran")


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.command)
def test_what_a_supervisor_starts_is_started(case: Case, image: ImageProfile, ran: set[str]) -> None:
    runs, doubtful = set(case.runs.split()), set(case.perhaps.split())
    assert (runs | doubtful) & ran == runs
    roots = find_roots(image, tuple(shlex.split(case.command)))
    perhaps = {posixpath.basename(path) for path in roots.perhaps}
    found = {posixpath.basename(path) for path in roots.entries} & set(NAMES)
    assert (found - perhaps, found & perhaps) == (runs - doubtful, doubtful)
    assert not roots.in_part


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """Programs that are named as supervisors, and configurations of those that run as process 1 or by the clock."""
    need("gcc")
    root = Root(tmp_path_factory.mktemp("supervised") / "root")
    for path in (
        "/bin/sh", "/usr/lib/systemd/systemd", "/usr/sbin/cron", "/usr/sbin/sshd", "/usr/bin/python3.11",
        "/usr/bin/runsvdir", "/bin/s6-overlay-suexec",
        "/command/execlineb", "/command/s6-envdir", "/opt/one", "/opt/two", "/opt/three",
    ):  # fmt: skip
        root.program(path)
    root.link("/usr/bin/python3", "python3.11")
    root.link("/usr/sbin/init", "../lib/systemd/systemd")
    root.write(
        "/usr/lib/systemd/system/one.service", "[Unit]\nExecStart=/opt/three\n[Service]\nExecStart=-@/opt/one a\n"
    )
    root.write(
        "/etc/systemd/system/two.service", "[Service]\nEnvironment=AT=/opt\nExecStart=/bin/sh -c 'exec $$AT/two'\n"
    )
    root.write("/etc/systemd/system/three.service", "[Service]\nExecStart=/opt/three\n")
    root.link("/etc/systemd/system/multi-user.target.wants/one.service", "/lib/systemd/system/one.service")
    root.link("/etc/systemd/system/multi-user.target.wants/two.service", "../two.service")
    root.link("/lib/systemd", "/usr/lib/systemd")
    root.write(
        "/etc/crontab", "# m h\nAT = '/opt'\n*/5 * * * *\troot\t$AT/one %input\n@reboot nobody true; exec /opt/two\n"
    )
    root.write("/etc/cron.hourly/three", "#!/bin/sh\n/opt/three\n")
    root.write("/init", '#!/bin/sh -e\nexec s6-overlay-suexec /package/stage0 "$@"\n')
    root.write("/command/with-contenv", "#!/command/execlineb -S0\ns6-envdir -fn -- /run/s6/container_environment $@\n")
    root.write("/etc/services.d/one/run", "#!/command/with-contenv sh\nexec /opt/one\n")
    root.write("/etc/s6-overlay/s6-rc.d/two/up", "/etc/s6-overlay/two\n")
    root.write("/etc/s6-overlay/two", "#!/command/with-contenv sh\n/opt/two\n")
    root.write("/sbin/my_init", "#!/usr/bin/python3 -u\n")
    root.write("/etc/my_init.d/10_one", "#!/bin/sh\n/opt/one\n")
    root.write("/etc/sv/two/run", "#!/bin/sh\nexec /opt/two\n")
    root.link("/etc/service/two", "/etc/sv/two")
    root.write("/usr/bin/supervisord", "#!/usr/bin/python3\n")
    root.write("/opt/env/bin/supervisord", "#!/usr/bin/python3\n")
    root.write("/opt/env/etc/supervisord.conf", "[program:three]\ncommand=/opt/three\n")
    for script in (
        "/init", "/sbin/my_init", "/command/with-contenv", "/etc/s6-overlay/two", "/etc/cron.hourly/three",
        "/etc/my_init.d/10_one", "/etc/sv/two/run", "/etc/services.d/one/run", "/usr/bin/supervisord",
        "/opt/env/bin/supervisord",
    ):  # fmt: skip
        root.at(script).chmod(0o755)
    return root


@pytest.fixture(scope="module")
def supervised(small: Root) -> ImageProfile:
    return small.profile()


@pytest.mark.parametrize(
    ("command", "certain", "perhaps", "in_part"),
    [
        ("/usr/sbin/init", "", "one two", False),
        ("cron -f", "", "one two three", False),
        ("/init", "one two", "", False),
        ("/init /opt/three", "one two three", "", False),
        ("/sbin/my_init", "one two", "", False),
        ("/sbin/my_init --quiet -- /opt/three now", "one two three", "", False),
        ("runsvdir -P /etc/service", "two", "", False),
        ("runsvdir /absent", "", "", True),
        ("/usr/sbin/sshd -D", "", "", True),
        ("supervisord -c /mounted.conf", "", "", True),
        ("/opt/one supervisord", "one", "", False),
        ("/opt/env/bin/supervisord", "three", "", False),
    ],
)
def test_who_reads_which_configuration(
    supervised: ImageProfile, command: str, certain: str, perhaps: str, in_part: bool
) -> None:
    roots = find_roots(supervised, tuple(command.split()))
    doubtful = {posixpath.basename(path) for path in roots.perhaps if path.startswith("/opt/")}
    found = {posixpath.basename(path) for path in roots.entries if path.startswith("/opt/")}
    assert (found - doubtful, found & doubtful) == (set(certain.split()), set(perhaps.split()))
    assert roots.in_part == in_part


@pytest.mark.parametrize("kind", supervisors_known(), ids=lambda kind: kind.id)
def test_every_supervisor_of_the_table_says_where_and_has_sources(kind: Supervisor) -> None:
    assert kind.first_of or kind.files or kind.scripts or kind.unread
    assert all(source.startswith("https://") for source in kind.sources)
    assert bool(kind.options or kind.operand) >= bool(kind.first_of or kind.valued or kind.directories)
    for program in kind.programs:
        assert supervisor_of({program}) is kind


def test_a_finding_says_which_configuration_starts_the_program(supervised: ImageProfile) -> None:
    roots = find_roots(supervised, ("/sbin/my_init",))
    assert (roots.ways["/opt/two"], roots.ways["/etc/sv/two/run"]) == ("/etc/sv/two/run", "/sbin/my_init")


def test_configurations_that_include_and_start_each_other_end(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    root.program("/usr/bin/python3")
    root.program("/opt/last")
    root.write("/usr/bin/supervisord", "#!/usr/bin/python3\n")
    root.at("/usr/bin/supervisord").chmod(0o755)
    again = "\n".join(f"[program:again{i}]\ncommand=supervisord -c /etc/supervisord.conf -i {i}" for i in range(9))
    text = f"[include]\nfiles = *.conf ../etc/supervisord.conf\n{again}\n[program:last]\ncommand=/opt/last\n"
    root.write("/etc/supervisord.conf", text)
    root.write("/etc/other.conf", text)
    assert "/opt/last" in find_roots(root.profile(), ("supervisord",)).entries


@pytest.mark.parametrize(
    "text",
    [
        "[program:a]\ncommand=/opt/a 'unclosed\n",
        "[program:a]\ncommand=%(process_num)99999999d\n",
        "[program:a]\nnumprocs_start=x\ncommand=/opt/%(process_num)d\n",
        "command before any section\n[program:a]\n",
        "[program:a]\n[program:a]\ncommand\n",
    ],
)
def test_a_configuration_that_cannot_be_read_names_nothing(text: str) -> None:
    found = read_services("etc/supervisord.conf", text.encode())
    assert found is None or not any("/opt" in word for service in found.services for word in service.words)


@given(
    st.sampled_from(["a.conf", "etc/crontab", "x/Procfile", "/systemd/system/a.service", "/s6-rc.d/a/up"]), st.binary()
)
def test_any_bytes_are_read_without_an_error(path: str, data: bytes) -> None:
    read_services(path, data)
    read_services(path, b"[program:a]\n" + data)
    read_services(path, b"[Service]\nExecStart=" + data)


@given(st.lists(st.text(st.characters(exclude_characters="$\0"), min_size=1), min_size=1))
def test_words_of_execline_come_through_its_quotes(words: list[str]) -> None:
    quoted = ['"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words]
    (command,) = read_execline("/opt/a " + " ".join(quoted))
    assert [Shell({}, ["/"]).expand_word(word) for word in command.words[1:]] == [[word] for word in words]


def test_what_a_supervisor_goes_on_without_is_a_risk(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    for path in ("/init", "/bin/sh", "/bin/run-parts", "/opt/one", "/opt/two"):
        root.program(path)
    texts = {"/etc/cont-init.d/10-one": "/opt/one", "/etc/services.d/two/run": "exec /opt/two"}
    texts |= {"/hooks/10-two": "/opt/two", "/hooks/20.one": "/opt/one"}
    for path, text in texts.items():
        root.write(path, f"#!/bin/sh\n{text}\n")
        root.at(path).chmod(0o755)
    listed = subprocess.run(["run-parts", "--test", root.at("/hooks")], capture_output=True, text=True, check=True)
    assert [Path(line).name for line in listed.stdout.split()] == ["10-two"]
    image = root.profile()
    for command in (("/init",), ("run-parts", "/hooks")):
        found = find_roots(image, command)
        assert {"/opt/one", "/opt/two"} <= set(found.entries)
        assert set(found.perhaps) & {"/opt/one", "/opt/two"} == {"/opt/one"}


def rooted(tmp_path: Path, texts: dict[str, str], programs: Iterable[str]) -> Root:
    root = Root(tmp_path / "root")
    for program in ("/bin/sh", *programs):
        root.program(program)
    for path, text in texts.items():
        root.write(path, text)
        root.at(path).chmod(0o755)
    return root


def sure_and_perhaps(root: Root, *command: str) -> tuple[set[str], set[str]]:
    """The programs in /opt that a command surely starts, and those that it may."""
    found = find_roots(root.profile(), command)
    names = {path for path in found.entries if path.startswith("/opt/")}
    return names - {*found.perhaps}, names & {*found.perhaps}


def test_services_that_take_long_to_follow_do_not_cost_the_others(tmp_path: Path) -> None:
    long = "".join(f"f{n}() {{ {f'f{n + 1};' * 20} }}\n" for n in range(9))
    texts = {"a": f"{long}f0", "b": f"{long}f0", "c": "exec /opt/server", "d": "exec /opt/other"}
    runs = {f"/etc/service/{name}/run": service(text) for name, text in texts.items()}
    root = rooted(tmp_path, runs, ("/usr/bin/runsvdir", "/opt/server", "/opt/other"))
    assert sure_and_perhaps(root, "runsvdir", "/etc/service")[0] == {"/opt/server", "/opt/other"}


def test_a_service_that_is_held_down_is_a_risk(tmp_path: Path) -> None:
    texts = {f"/etc/service/{name}/run": service(f"exec /opt/{name}") for name in ("a", "b")}
    root = rooted(tmp_path, texts | {"/etc/service/b/down": ""}, ("/usr/bin/runsvdir", "/opt/a", "/opt/b"))
    assert sure_and_perhaps(root, "runsvdir", "/etc/service") == ({"/opt/a"}, {"/opt/b"})


def test_services_in_no_bundle_that_is_started_are_a_risk(tmp_path: Path) -> None:
    place = "/etc/s6-overlay/s6-rc.d"
    texts = {f"{place}/{name}/run": service(f"exec /opt/{name}") for name in ("app", "base", "off")}
    texts |= {f"{place}/setup/up": "/opt/setup\n", f"{place}/app/dependencies.d/base": ""}
    programs = ("/init", *(f"/opt/{name}" for name in ("app", "base", "off", "setup")))
    root = rooted(tmp_path, texts, programs)
    every = {"/opt/app", "/opt/base", "/opt/off", "/opt/setup"}
    assert sure_and_perhaps(root, "/init") == (every, set())  # what is started is told nowhere
    root.write(f"{place}/user/contents.d/more", "")
    root.write(f"{place}/more/contents.d/app", "")
    assert sure_and_perhaps(root, "/init") == ({"/opt/app", "/opt/base"}, {"/opt/off", "/opt/setup"})
    root.write(f"{place}/user/contents.d/pipeline", "")
    root.write(f"{place}/off/producer-for", "log")
    root.write(f"{place}/log/pipeline-name", "pipeline")
    assert sure_and_perhaps(root, "/init") == (every - {"/opt/setup"}, {"/opt/setup"})


def test_options_of_my_init_leave_out_what_it_starts(tmp_path: Path) -> None:
    texts = {"/etc/my_init.d/a": service("exec /opt/a"), "/etc/service/b/run": service("exec /opt/b")}
    root = rooted(tmp_path, texts, ("/sbin/my_init", "/opt/a", "/opt/b"))
    for options, started in ((), {"/opt/a", "/opt/b"}), (("--skip-runit",), {"/opt/a"}):
        assert sure_and_perhaps(root, "my_init", *options)[0] == started
