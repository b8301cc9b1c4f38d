"""Real runtimes start what was converted exactly as the image's config says."""

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from imgcheck.convert.run import Converted
from tests.convert.started import Started, privately, read_probe
from tests.images import Directory, File, ImageBuilder
from tests.peers import Peer, as_unprivileged
from tests.tools import missing, need

pytestmark = pytest.mark.slow

_PATH = "PATH=/usr/local/bin:/usr/bin:/bin"
_NASTY = "a\"b'c $HOME `id` \\ * ~ ;&|<>(){}[]#!?%^\ttab"


_APPTAINER_LOSES = ("IFS", "OPTIND", "UID")
"""Variables that belong to the shell which reads the image's environment."""
_UDOCKER_SETS = ("PS1", "USER")
_S1_LOSES = (*_APPTAINER_LOSES, *_UDOCKER_SETS, "HOME")
_NOT_BEGUN = "could not ensure we are a cloned binary: Device or resource busy"
"""runc runs from a sealed copy of itself; the kernel seals none of which a page is in other hands just then (fcntl(2),
F_ADD_SEALS). It has not looked at the container by then."""
_TRIES = 3
_READ_BY_A_SHELL = set("$`")
"""Characters that Apptainer's shell expands in the variables which udocker's S1 mode passes to it."""


@dataclass(frozen=True)
class Case:
    """A config, arguments of the user, and what the program must see."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = (_PATH,)
    working_directory: str = ""
    user: str = ""
    given: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    """argv; ENTRYPOINT and CMD, or ENTRYPOINT and what was given, where empty."""
    one_line: bool = True
    """Whether every value fits a line of an environment file."""
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def argv(self) -> tuple[str, ...]:
        return self.expected or self.entrypoint + (self.given or self.command)


CASES = {
    "entrypoint": Case(("/bin/probe",)),
    "command": Case(command=("/bin/probe", "one")),
    "entrypoint_and_command": Case(("/bin/probe", "fixed"), ("default",)),
    "arguments_replace_the_command": Case(("/bin/probe", "fixed"), ("default",), given=("mine", "too")),
    "arguments_replace_a_command_without_entrypoint": Case(command=("/bin/other",), given=("/bin/probe", "x")),
    "found_in_path": Case(("probe",)),
    "empty_argument": Case(("/bin/probe", ""), ("", "x", "")),
    "spaces": Case(("/bin/probe", " a  b "), ("  ",)),
    "quotes": Case(("/bin/probe", "it's", '"quoted"', "'"), ("a\"b'c",)),
    "dollars": Case(("/bin/probe", "$HOME", "${PATH}", "$(id)", "$$"), ("`id`",)),
    "backslashes": Case(("/bin/probe", "\\", "a\\nb", "\\\\"), ("\\$x",)),
    "newlines_in_arguments": Case(("/bin/probe", "a\nb", "\n"), ("c\n",)),
    "globs": Case(("/bin/probe", "*", "?", "[a-z]", "~"), ("/*",)),
    "shell_syntax": Case(("/bin/probe", ";", "&&", "|", ">x", "#", "!", "("), ("{a,b}",)),
    "dashes": Case(("/bin/probe", "-c", "--", "-e"), ("--help",)),
    "no_ascii": Case(("/bin/probe", "grüße", "日本"), ("🐧",), (_PATH, "NAME=größe")),
    "nasty_arguments_of_the_user": Case(("/bin/probe",), given=("$(id)", "`id`", "a b", "it's", '"', "\\")),
    "environment": Case(("/bin/probe",), environment=(_PATH, "A=1", "B=two words", "EMPTY=", "EQUALS=a=b=c")),
    "nasty_environment": Case(("/bin/probe",), environment=(_PATH, f"NASTY={_NASTY}", "QUOTE='", 'DOUBLE="')),
    "environment_in_quotes": Case(("/bin/probe",), environment=(_PATH, "A='a'", 'B="b"', "C=''", "D=a'b'c")),
    "references_in_environment": Case(
        ("/bin/probe",), environment=(_PATH, "A=${HOME}", "B=$${X}{Y}", "C='${PATH}' ", "D=$HOME:x", "E=:$PATH")
    ),
    "newlines_in_environment": Case(("/bin/probe",), environment=(_PATH, "LINES=a\nb\n'c'"), one_line=False),
    "blanks_in_environment": Case(("/bin/probe",), environment=(_PATH, "BEFORE=  x", "INSIDE=a  b\tc", "AFTER=x  ")),
    "special_names": Case(("/bin/probe",), environment=(_PATH, "IFS=x", "UID=7", "PPID=1", "PS1=p", "OPTIND=3", "_=u")),
    "names_of_the_host": Case(("/bin/probe",), environment=(_PATH, "HOME=/data", "USER=u", "SHELL=/s", "TERM=t")),
    "backtick_in_environment": Case(("/bin/probe",), environment=(_PATH, "TICK=`", "AFTER=set")),
    "last_of_two_values": Case(("/bin/probe",), environment=(_PATH, "A=first", "B=x", "A=last")),
    "no_environment": Case(("/bin/probe",), environment=()),
    "searched_without_environment": Case(command=("searched",), environment=()),
    "library_path": Case(("/bin/probe",), environment=(_PATH, "LD_LIBRARY_PATH=/opt/lib:/x y")),
    "working_directory": Case(("/bin/probe",), working_directory="/work"),
    "working_directory_that_the_image_lacks": Case(("/bin/probe",), working_directory="/made/for it/'here'"),
    "relative_working_directory": Case(("/bin/probe",), working_directory="app/../srv"),
    "numeric_user": Case(("/bin/probe",), user="1234:5678"),
    "named_user": Case(("/bin/probe",), user="app"),
    "user_and_group": Case(("/bin/probe",), user="app:staff"),
    "labels": Case(("/bin/probe",), labels={"a.b": 'c"d', "empty": ""}),
}
# crun refuses a machine that has cgroups of both versions, even where it is to use none.
_WITHOUT_HYBRID_CGROUPS = "umount --lazy /sys/fs/cgroup/unified 2>/dev/null || :"
_DIRECTORIES = {"working_directory_that_the_image_lacks": "/made/for it/'here'", "relative_working_directory": "/srv"}
_PASSWD = "root:x:0:0::/root:/bin/sh\napp:x:1500:1600::/home/app:/bin/sh\n"
_GROUP = "root:x:0:\nstaff:x:1700:\n"


@pytest.fixture
def image_of(probe: Path) -> Callable[[Case], ImageBuilder]:
    def build(case: Case) -> ImageBuilder:
        image = ImageBuilder(
            entrypoint=case.entrypoint,
            command=case.command,
            environment=case.environment,
            working_directory=case.working_directory,
            user=case.user,
            labels=case.labels,
        )
        files = {"etc": Directory(), "etc/passwd": _PASSWD, "etc/group": _GROUP, "work": Directory()}
        programs = {"bin": Directory(), "bin/probe": probe, "usr/local/bin/searched": probe}
        return image.layer(programs | files)

    return build


def _check(case: Case, name: str, started: Started, environment: dict[str, str]) -> None:
    # Runtimes that search PATH themselves pass the path they found as argv[0].
    assert (Path(started.arguments[0]).name, *started.arguments[1:]) == (Path(case.argv[0]).name, *case.argv[1:])
    assert {key: value for key, value in started.environment.items() if key in environment} == environment
    assert started.directory == (_DIRECTORIES.get(name, case.working_directory) or "/")


def _environment(case: Case, one_line: bool = False) -> dict[str, str]:
    pairs = dict(line.split("=", 1) for line in case.environment)
    return {key: value for key, value in pairs.items() if not (one_line and "\n" in value)}


def _started(done: subprocess.CompletedProcess[str]) -> Started:
    assert done.returncode == 0, done.stdout + done.stderr
    return read_probe(done.stdout.encode())


def _arguments(done: Converted, given: tuple[str, ...]) -> list[str]:
    """The printed command, without its program, with the user's arguments."""
    return shlex.split(done.command)[1:] + list(given)


def _check_apptainer(case: Case, name: str, started: Started) -> None:
    """Apptainer appends its default directories to PATH, and the one of injected libraries to LD_LIBRARY_PATH."""
    environment = _environment(case)
    environment = {key: value for key, value in environment.items() if key not in _APPTAINER_LOSES}
    path, libraries = environment.pop("PATH", ""), environment.pop("LD_LIBRARY_PATH", "")
    assert started.environment["PATH"].startswith(path)
    assert started.environment["LD_LIBRARY_PATH"] == f"{libraries}:/.singularity.d/libs".lstrip(":")
    _check(case, name, started, environment)


@pytest.mark.parametrize("name", CASES)
def test_apptainer_runs_a_sandbox(name, image_of, converted_rootless, apptainer, public_tmp):
    done = converted_rootless(image_of(CASES[name]), "sandbox", public_tmp / "tree")
    _check_apptainer(CASES[name], name, _started(apptainer(*_arguments(done, CASES[name].given))))


@pytest.mark.parametrize("name", CASES)
def test_apptainer_runs_a_sif(name, image_of, converted_rootless, apptainer, public_tmp):
    done = converted_rootless(image_of(CASES[name]), "sif", public_tmp / "app.sif")
    action, *rest = _arguments(done, CASES[name].given)
    _check_apptainer(CASES[name], name, _started(apptainer(action, "--unsquash", *rest)))


@pytest.mark.parametrize("name", ["entrypoint_and_command", "nasty_environment", "working_directory"])
def test_apptainer_mounts_a_sif(name, image_of, converted_rootless, apptainer, public_tmp):
    if not Path("/dev/fuse").exists():
        missing("needs /dev/fuse")
    done = converted_rootless(image_of(CASES[name]), "sif", public_tmp / "app.sif")
    variables = [f"{key}={value}" for key, value in apptainer.environment.items()]
    command = as_unprivileged("env", "-i", *variables, *apptainer.command, *_arguments(done, CASES[name].given))
    opened = f"mknod {public_tmp}/fuse c 10 229; chmod 666 {public_tmp}/fuse; mount --bind {public_tmp}/fuse /dev/fuse"
    _check_apptainer(CASES[name], name, _started(privately(opened, *command)))


@pytest.mark.parametrize("mode", ["P1", "P2", "R1"])
@pytest.mark.parametrize("name", CASES)
def test_udocker_runs_a_container(name, mode, image_of, converted_rootless, udocker):
    case = CASES[name]
    # The pseudo-terminal of udocker's R1 may lose the end of the output, so the program writes into its container.
    image = image_of(case).layer({"out": File(mode=0o666)})
    done = converted_rootless(image, "udocker", udocker.home / "udocker", name="app")
    repository, run, container = _arguments(done, ())
    for _ in range(_TRIES):
        ran = udocker("--quiet", repository, run, container, *case.given, UDOCKER_DEFAULT_EXECUTION_MODE=mode)
        if _NOT_BEGUN not in ran.stdout + ran.stderr:
            break
    output = (udocker.home / "udocker/containers/app/ROOT/out").read_bytes()
    assert output, ran.stdout + ran.stderr
    environment = {key: value.strip() for key, value in _environment(case).items() if key not in _UDOCKER_SETS}
    started = read_probe(output)
    _check(case, name, started, environment)
    if case.user == "1234:5678" and mode != "R1":
        assert (started.uid, started.gid) == (1234, 5678)


@pytest.mark.parametrize("name", CASES)
def test_udocker_runs_a_container_by_apptainer(name, image_of, converted_rootless, udocker, apptainer_program):
    case = CASES[name]
    done = converted_rootless(image_of(case), "udocker", udocker.home / "udocker", name="app")
    repository, run, container = _arguments(done, ())
    settings = {
        "UDOCKER_DEFAULT_EXECUTION_MODE": "S1",
        "UDOCKER_USE_SINGULARITY_EXECUTABLE": str(apptainer_program),
    }
    started = _started(udocker("--quiet", repository, run, container, *case.given, **settings))
    environment = {key: value.strip() for key, value in _environment(case).items() if key not in _S1_LOSES}
    environment = {key: value for key, value in environment.items() if not _READ_BY_A_SHELL & set(value)}
    if name == "backtick_in_environment":
        environment = {}  # a single one, and that shell reads no variable at all
    if "LD_LIBRARY_PATH" in environment:
        environment["LD_LIBRARY_PATH"] += ":/.singularity.d/libs"
    _check(case, name, started, environment)


@pytest.mark.parametrize("name", CASES)
def test_charliecloud_runs_a_directory(name, image_of, converted_rootless, public_tmp):
    case = CASES[name]
    done = converted_rootless(image_of(case), "charliecloud", public_tmp / "tree")
    peer = Peer((need("ch-run"),), {"USER": "nobody", "HOME": "/", "PATH": "/usr/bin:/bin"}, public_tmp)
    words = _arguments(done, ())
    if case.given:
        words = [*words[: words.index("--") + 1], *case.entrypoint, *case.given]
    environment = _environment(case, one_line=True)
    path = environment.pop("PATH", "")
    started = _started(peer(*words))
    assert started.environment.get("PATH", "").startswith(path)
    _check(case, name, started, environment)


@pytest.mark.parametrize("runtime", ["runc", "crun"])
@pytest.mark.parametrize("name", CASES)
def test_oci_runtimes_run_a_bundle(name, runtime, image_of, converted_rootless, public_tmp):
    case = CASES[name]
    if case.given:
        return  # a bundle's arguments stand in its config
    done = converted_rootless(image_of(case), "oci-bundle", public_tmp / "bundle")
    options = [f"--root={public_tmp / 'state'}", *(("--cgroup-manager=disabled",) if runtime == "crun" else ())]
    command = as_unprivileged("env", "-i", "PATH=/usr/sbin:/usr/bin", need(runtime), *options, *_arguments(done, ()))
    started = _started(privately(_WITHOUT_HYBRID_CGROUPS, *command))
    _check(case, name, started, _environment(case))
    assert (started.uid, started.gid) == (0, 0)


@pytest.mark.parametrize("name", CASES)
def test_the_plain_tree_runs_by_unshare(name, image_of, converted_rootless, public_tmp):
    case = CASES[name]
    if case.given:
        return
    done = converted_rootless(image_of(case), "rootfs", public_tmp / "tree")
    peer = Peer((need("env"),), {"PATH": "/usr/bin:/bin"}, public_tmp)
    words = _arguments(done, ())
    started = _started(peer(*words))
    if name in _DIRECTORIES:  # which the image lacks
        assert any(repr(_DIRECTORIES[name]) in note for note in done.notes)
        started = replace(started, directory=_DIRECTORIES[name])
    _check(case, name, started, _environment(case))
