"""Scripts in a chroot, beside what is said of them: loader variables, first lines, and where a script ends."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from imgcheck.documents.image import ImageProfile
from imgcheck.loader.kept import kept_work, with_loads
from imgcheck.loader.model import Loader
from imgcheck.loader.roots import find_roots
from imgcheck.profile.texts import read_script
from tests.loader.builder import Root
from tests.loader.walk import profile_of
from tests.tools import need

_PATH = "PATH=/bin:/usr/bin"
GOOD, WRONG = "/opt/lib", "/opt/wrong"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    need("gcc")
    root = Root(tmp_path_factory.mktemp("scripts") / "root")
    root.library(f"{GOOD}/libfoo.so")
    root.program("/app/server", [f"{GOOD}/libfoo.so"])
    root.program("/app/plain")
    root.at("/bin").mkdir()
    for file in (
        "/bin/sh", "/bin/bash", "/lib/x86_64-linux-gnu/libtinfo.so.6", "/usr/bin/dirname", "/usr/bin/readlink",
    ):  # fmt: skip
        root.at(file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(file).resolve(), root.at(file))
    return root


def runs(root: Root, text: str, *environment: str) -> bool:
    """Whether a script runs in the chroot; imgcheck must say the same of the image whose command it is."""
    root.write("/run", text)
    root.at("/run").chmod(0o755)
    command = [need("chroot"), root.path, "/usr/bin/env", "-i", _PATH, *environment, "/run"]
    done = subprocess.run(command, capture_output=True, check=False)
    told = starts(image_of(root, text, environment))
    assert told == (done.returncode == 0), (text, done.stderr)
    return told


def image_of(root: Root, text: str, environment: tuple[str, ...]) -> ImageProfile:
    image = profile_of(root.path, (_PATH, *environment), ("/run",))
    script = read_script(text.encode())
    assert script is not None
    scripts = (structs.replace(script, path="/run"),)
    return structs.replace(image, tree=structs.replace(image.tree, scripts=scripts))


def starts(image: ImageProfile) -> bool:
    """Whether all that the command starts finds its libraries, worked out anew and as a profile keeps it."""
    roots = find_roots(image)
    closure = Loader(image, roots).close()
    kept = kept_work(with_loads(image), ())
    assert kept is not None
    assert (kept.roots, kept.closure) == (roots, closure)
    return not roots.unstartable and not any(problem.root in roots.entries for problem in closure.problems)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exec /app/server", False),
        (f"export LD_LIBRARY_PATH={GOOD}\nexec /app/server", True),
        (f"export LD_LIBRARY_PATH={WRONG}\nexec /app/server", False),
        (f"LD_LIBRARY_PATH={GOOD}\nexec /app/server", False),
        (f"LD_LIBRARY_PATH={GOOD} /app/server", True),
        (f"LD_LIBRARY_PATH={GOOD}\nexport LD_LIBRARY_PATH\n/app/server", True),
        (f"export LD_LIBRARY_PATH={GOOD}\nexport LD_LIBRARY_PATH={WRONG}\n/app/server", False),
        (f"export LD_LIBRARY_PATH={WRONG}:$LD_LIBRARY_PATH:{GOOD}\n/app/server", True),
        ("cd /opt\nexport LD_LIBRARY_PATH=$PWD/lib\n/app/server", True),
        (f"export LD_LIBRARY_PATH={GOOD}$MORE\n/app/server", True),
        (f"export LD_LIBRARY_PATH=$MORE{WRONG}\n/app/server", False),
        (f'[ -z "$MORE" ] && export LD_LIBRARY_PATH={GOOD}\n/app/server', True),
        (f"export LD_LIBRARY_PATH={GOOD}\nexec env -i /app/server", False),
        (f"export LD_LIBRARY_PATH={GOOD}\nexec env -u LD_LIBRARY_PATH /app/server", False),
        (f"export LD_LIBRARY_PATH={GOOD}\nunset LD_LIBRARY_PATH\n/app/server", False),
        (f"exec env LD_PRELOAD={GOOD}/libfoo.so /app/server", True),
        (f"export LD_PRELOAD={GOOD}/libfoo.so\nexec /app/plain", True),
    ],
)
def test_a_script_hands_its_loader_variables_over(root: Root, text: str, expected: bool) -> None:
    assert runs(root, f"#!/bin/sh\n{text}\n") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exec /app/server", True),
        (f"export LD_LIBRARY_PATH={WRONG}\nexec /app/server", False),
        ("exec env -i /app/server", False),
        ("unset LD_LIBRARY_PATH\nexec /app/server", False),
        (f"LD_LIBRARY_PATH={WRONG}\nexec /app/server", False),
    ],
)
def test_a_script_changes_what_the_image_has_set(root: Root, text: str, expected: bool) -> None:
    assert runs(root, f"#!/bin/sh\n{text}\n", f"LD_LIBRARY_PATH={GOOD}") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"(export LD_LIBRARY_PATH={GOOD}; /app/server) && exec /app/server", False),
        (f"(export LD_LIBRARY_PATH={GOOD}; exec /app/server)", True),
        (f"(export LD_LIBRARY_PATH={WRONG}; /app/plain); export LD_LIBRARY_PATH={GOOD}\n(/app/server)", True),
        (f"V=$(export LD_LIBRARY_PATH={GOOD}; /app/server)\nexec /app/server", False),
        (f"export LD_LIBRARY_PATH={GOOD} | true\nexec /app/server", False),
        (f"export LD_LIBRARY_PATH={GOOD} &\nwait\nexec /app/server", False),
        (f"setup() ( export LD_LIBRARY_PATH={GOOD} )\nsetup\nexec /app/server", False),
        (f"setup() {{ export LD_LIBRARY_PATH={GOOD}; }}\n(setup)\nexec /app/server", False),
        (f"setup() {{ export LD_LIBRARY_PATH={GOOD}; }}\nsetup | /app/plain\nexec /app/server", False),
        (f"setup() {{ export LD_LIBRARY_PATH={GOOD}; }}\nsetup\nexec /app/server", True),
        (f"/app/plain | {{ export LD_LIBRARY_PATH={GOOD}; /app/server; }}", True),
        (f"/app/plain | while :; do export LD_LIBRARY_PATH={GOOD}; break; done\nexec /app/server", False),
        (f"{{ export LD_LIBRARY_PATH={GOOD}; }} 3>&1 2>&3 &\nwait; exec /app/server", False),
        (f"{{ export LD_LIBRARY_PATH={GOOD}; }} 3>&1 2>&3\nexec /app/server", True),
        (f"(cd /; exit 3)\nexport LD_LIBRARY_PATH={GOOD}\n/app/server", True),
        (f"(exec /app/plain); (exit 0; exec /absent); export LD_LIBRARY_PATH={GOOD}; exec /app/server", True),
        (f"export LD_LIBRARY_PATH={GOOD}\n(unset LD_LIBRARY_PATH)\nexec /app/server", True),
    ],
)
def test_what_a_subshell_changes_ends_with_it(root: Root, text: str, expected: bool) -> None:
    assert runs(root, f"#!/bin/sh\n{text}\n") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[ -n "$DEBUG" ] && T=/app/plain; exec ${T:-/app/server}', False),
        ("name=server; log() { local name=$1; }; log plain; exec /app/$name", False),
        ("name=plain; log() { local name=server other; name=$name; }; log; exec /app/$name", True),
        ("name=plain; log() { name=server; }; log; exec /app/$name", False),
        ('start() { /app/server; }; set -- start; "$@"', False),
        ("start_server() { /app/server; }; for n in server; do start_$n; done", False),
        ("plain() { /app/server; }; PATH=/app; $(echo plain) || plain", False),
        ("f() { g() { :; }; /app/server; }; f", False),
        ("f() { /app/server; g() { :; }; /app/server; }; f", False),
        ("f() { /app/server; }; /app/plain; f() { /app/plain; }; f", True),
        ("quiet() { echo; }; quiet; exec /app/plain", True),
        ('set -e -- /app/server; "$@"', False),
        ("set /app/plain x; exec $1", True),
        ("PATH=bin:$PATH; cd /app/..; PATH=app:$PATH; exec plain", True),
        ("cd /app; PATH=:$PATH; exec server", False),
        ("env -i sh -c /app/plain", True),
        (
            "set -- x --t=server; while [ $# -gt 0 ]; do case $1 in --t=*) T=${1#*=};; esac; shift; done\n"
            "exec /app/${T:-plain}",
            False,
        ),
        ("exec {fd}>&2; exec /app/plain", True),
        ('R=/app/server; eval exec "\\"$R\\"" "\\"$LOGS\\"" "$OPTS" start', False),
        ('eval "X=$(echo /app/server)"; eval "exec /app/plain $OPTS"', True),
        ("P=~/../app/plain; HOME=/app; P=~/plain; exec $P", True),
    ],
)
def test_variables_functions_and_arguments_are_those_of_bash(root: Root, text: str, expected: bool) -> None:
    assert runs(root, f"#!/bin/bash\n{text}\n") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('exec "/app/${0##*/}"', True),
        ('exec "$(dirname "$0")/other"', False),
        ('exec "$(dirname "$(readlink -f "$0")")/plain"', True),
        ('case "$0" in *plain) exec /app/plain ;; *) exec /app/server ;; esac', True),
    ],
)
def test_a_script_is_told_the_name_by_which_it_was_called(root: Root, text: str, expected: bool) -> None:
    root.write("/app/wrapper", f"#!/bin/bash\n{text}\n")
    root.at("/app/wrapper").chmod(0o755)
    root.at("/links").mkdir(exist_ok=True)
    root.at("/links/plain").unlink(missing_ok=True)
    root.link("/links/plain", "../app/wrapper")
    command = [need("chroot"), root.path, "/links/plain"]
    done = subprocess.run(command, capture_output=True, check=False)
    found = find_roots(root.profile(), ("/links/plain",))
    assert (done.returncode == 0) == ("/app/plain" in found.entries) == expected, done.stderr


def test_what_a_script_puts_first_is_what_the_program_gets(root: Root) -> None:
    root.library(f"{WRONG}2/libfoo.so")
    text = f"#!/bin/sh\nexport LD_LIBRARY_PATH={WRONG}2:{GOOD}\nexec /app/server\n"
    image = image_of(root, text, ())
    closure = Loader(image, find_roots(image)).close()
    assert closure.chosen["/app/server", "libfoo.so"] == f"{WRONG}2/libfoo.so"
    assert closure.reach(f"{WRONG}2/libfoo.so") == "entry"
    assert closure.reach(f"{GOOD}/libfoo.so") == "unreached"


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("#!/usr/bin/env bash", True),
        ("#!/usr/bin/env bash -e", False),
        ("#!/usr/bin/env -S bash -e", True),
        ("#! /bin/bash -e", True),
    ],
)
def test_a_first_line_has_one_argument(root: Root, first: str, expected: bool) -> None:
    assert runs(root, f"{first}\n/app/plain\n") == expected


@pytest.mark.parametrize(
    "text",
    [
        "exec /app/plain\nnothing --here\n",
        "/app/plain\nexit\n/app/server\n",
        "exit 0\nBIN\1\2 x\n",
        'exec "$@"\nexec /app/plain\n',
        "exec 3</dev/null\n/app/plain\n",
        "f() { exit 1; }\n/app/plain\n",
    ],
)
def test_what_stands_behind_the_end_of_a_script_does_not_run(root: Root, text: str) -> None:
    root.write("/dev/null", "")
    assert runs(root, f"#!/bin/sh\n{text}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"LD_LIBRARY_PATH={GOOD} exec /app/server", True),
        (f"LD_LIBRARY_PATH={GOOD} command /app/server", True),
        (f"start() {{ /app/server; }}\nLD_LIBRARY_PATH={GOOD} start", True),
        (f"start() {{ true; }}\nLD_LIBRARY_PATH={GOOD} start\n/app/server", False),
        (f"LD_LIBRARY_PATH={GOOD} eval true\n/app/server", False),
        ("cd /opt\nexport LD_LIBRARY_PATH=lib\n/app/server", True),
        ("export LD_LIBRARY_PATH=opt/lib\n/app/server", True),
        ("export LD_LIBRARY_PATH=opt/lib\ncd /opt\n/app/server", False),
        ("cd /opt/lib\nLD_PRELOAD=./libfoo.so /app/server", True),
        ("cd /opt/lib\nLD_LIBRARY_PATH=/nowhere: /app/server", True),
        ("cd /opt/lib\nunset LD_LIBRARY_PATH\n/app/server", False),
    ],
)
def test_what_stands_before_a_command_holds_for_it_alone(root: Root, text: str, expected: bool) -> None:
    assert runs(root, f"#!/bin/bash\n{text}\n") == expected


SETS = f"export LD_LIBRARY_PATH={GOOD}\n"
PROFILE = {"/etc/profile": "for i in /etc/profile.d/*.sh; do . $i; done\n", "/etc/profile.d/lib.sh": SETS}
BASHRC = {"/root/.bashrc": SETS}
NAMED = {"/etc/env.sh": SETS}
SOURCED = {"/app/env/here.sh": 'cd "$(dirname "${BASH_SOURCE[0]}")"\nexport LD_LIBRARY_PATH=$PWD/../../opt/lib\n'}
INSIDE = {
    "/app/env/here.sh": 'up() { cd "$(dirname "$BASH_SOURCE")"; }\nup\nexport LD_LIBRARY_PATH=$PWD/../../opt/lib\n'
}


@pytest.mark.parametrize(
    ("files", "command", "environment", "expected"),
    [
        (PROFILE, "bash -lc /app/server", "", True),
        (PROFILE, "bash --login -c /app/server", "", True),
        (PROFILE, "bash --noprofile -lc /app/server", "", False),
        (PROFILE, "bash -c /app/server", "", False),
        (PROFILE, "sh -l -c /app/server", "", True),
        (BASHRC, "bash -ic /app/server", "HOME=/root", True),
        (BASHRC, "bash --norc -ic /app/server", "HOME=/root", False),
        (BASHRC, "bash -c /app/server", "HOME=/root", False),
        (NAMED, "bash -c /app/server", "BASH_ENV=/etc/env.sh", True),
        (NAMED, "sh -c /app/server", "BASH_ENV=/etc/env.sh", False),
        (SOURCED, "bash -c ./run.sh", "", True),
        (INSIDE, "bash -c ./run.sh", "", True),
    ],
)
def test_a_shell_reads_files_before_its_command(
    root: Root, files: dict[str, str], command: str, environment: str, expected: bool
) -> None:
    files = files | {"/run.sh": "#!/bin/bash\n. /app/env/here.sh\n/app/server\n"}
    for path, text in files.items():
        root.write(path, text)
        root.at(path).chmod(0o755)
    variables, words = (_PATH, *environment.split()), command.split()
    done = subprocess.run(
        [need("chroot"), root.path, "/usr/bin/env", "-i", *variables, *words], capture_output=True, check=False
    )
    image = profile_of(root.path, variables, tuple(words))
    scripts = [structs.replace(read_script(text.encode()), path=path) for path, text in files.items()]
    image = structs.replace(image, tree=structs.replace(image.tree, scripts=tuple(scripts)))
    for path in files:
        root.at(path).unlink()
    assert (done.returncode == 0, starts(image)) == (expected, expected), done.stderr


@pytest.mark.parametrize("home", [("HOME=/root",), ()])  # runtimes set it where the image does not
@pytest.mark.parametrize("file", ["~/.bashrc", '"$HOME/.bashrc"', "${HOME}/.bashrc"])
def test_a_script_sources_a_file_of_roots_home_directory(root: Root, file: str, home: tuple[str, ...]) -> None:
    text = f"#!/bin/bash\n. {file}\n/app/server\n"
    image = image_of(root, text, home)
    assert find_roots(image).steered == ("/app/server",)  # whatever the file sets
    settings = structs.replace(read_script(SETS.encode(), executable=False), path="/root/.bashrc")
    image = structs.replace(image, tree=structs.replace(image.tree, scripts=(*image.tree.scripts, settings)))
    assert find_roots(image).steered == () and starts(image)


@pytest.mark.parametrize(
    ("shell", "text", "expected"),
    [
        ("sh", f"LD_LIBRARY_PATH={GOOD} eval true\nexport LD_LIBRARY_PATH\n/app/server", True),
        ("bash", f"LD_LIBRARY_PATH={GOOD} eval true\nexport LD_LIBRARY_PATH\n/app/server", False),
        ("sh", 'name=PASSWORD\nexport "$name"="$(cat /nowhere)"\n/app/server', False),
        ("bash", 'name=PASSWORD\nexport "$name"="$(cat /nowhere)"\n/app/server', False),
    ],
)
def test_what_stays_of_an_assignment(root: Root, shell: str, text: str, expected: bool) -> None:
    assert runs(root, f"#!/bin/{shell}\n{text}\n") == expected


@pytest.mark.parametrize(
    "text",
    [
        'LINE="A=1"\nexport "$(cat /env)"\n/app/server\n', "export $(grep -v '#' /env | xargs)\n/app/server\n",
        "exec env $(cat /env) /app/server\n", "env -i $(grep -v '#' /env | xargs) /app/server\n",
        "ln -s /opt/lib/libfoo.so /usr/lib/\nexec /app/server\n", "cp /mnt/*.so* /usr/lib\n/app/server\n",
        ". <(cat /env)\n/app/server\n", "source <(sed s/x/y/ /env)\n/app/server\n",
    ],
)  # fmt: skip
def test_variables_that_only_running_tells_are_no_failure_that_is_foreseen(root: Root, text: str) -> None:
    root.program("/bin/env")
    assert find_roots(image_of(root, f"#!/bin/bash\n{text}", ())).steered == ("/app/server",)
    for told in ("export A=$(cat /env)\n", "ln -s /a /b\n", "env A=$(cat /env) "):
        assert find_roots(image_of(root, f"#!/bin/bash\n{told}/app/server\n", ())).steered == ()


def unstartable(root: Root, text: str) -> list[tuple[str, str]]:
    return [(what.reason, what.word) for what in find_roots(image_of(root, text, ())).unstartable]


def test_a_program_that_makes_nothing_leaves_the_next_one_absent(root: Root) -> None:
    root.program("/bin/mkdir")
    root.program("/bin/tar")
    root.program("/bin/sed")
    assert unstartable(root, "#!/bin/sh\nmkdir -p /data\nexec absent\n") == [("absent", "absent")]
    assert unstartable(root, "#!/bin/sh\ntar xf /data.tar\nexec absent\n") == []
    assert unstartable(root, "#!/bin/sh\nsed -i s/x/y/ /opt/script\nexec absent\n") == []  # it may mend a script


def test_a_carriage_return_belongs_to_the_last_word_of_a_line(root: Root) -> None:
    text = "#!/bin/sh -e\nexec /app/plain\r\n"
    assert unstartable(root, text) == [("carriage-return", "/app/plain")]
    assert not runs(root, text)


def test_an_interpreter_without_an_execute_bit_is_told_so(root: Root) -> None:
    shutil.copy2(root.at("/bin/sh"), root.at("/bin/closed"))
    root.at("/bin/closed").chmod(0o644)
    text = "#!/bin/closed\n/app/plain\n"
    assert unstartable(root, text) == [("interpreter-not-executable", "/run")]
    root.write("/run", text)
    with pytest.raises(PermissionError):
        subprocess.run(["/run"], executable="/run", preexec_fn=lambda: os.chroot(root.path), check=False)
