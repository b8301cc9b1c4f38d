"""From a command to the ELF files that it executes."""

import errno
import subprocess
from pathlib import Path

import msgspec
import pytest

from imgcheck.documents.facts import CodeFacts
from imgcheck.documents.image import FileRecord, ImageConfig, ImageProfile, Script, Unstartable
from imgcheck.loader.closure import Roots
from imgcheck.loader.environment import DEFAULT_PATH
from imgcheck.loader.launchers import launched
from imgcheck.loader.model import close
from imgcheck.loader.roots import find_roots
from imgcheck.profile.texts import read_script
from tests.loader.builder import Root
from tests.loader.walk import profile_of
from tests.tools import need

SEARCHED = tuple(DEFAULT_PATH.split(":"))

_MODULE = "/usr/lib/python3.11/site-packages/pkg/core.cpython-311-x86_64-linux-gnu.so"

_BESIDE = "/opt/proj/pkg/fast.cpython-311-x86_64-linux-gnu.so"
_PROGRAMS = (
    "/usr/bin/python3.11", "/bin/bash", "/bin/dash", "/usr/bin/server", "/usr/bin/tini", "/usr/bin/env", "/opt/job",
    "/opt/app/run", "/usr/bin/timeout",
)  # fmt: skip


def script(path: str, text: str, executable: bool = True) -> Script:
    found = read_script(text.encode(), executable)
    assert found is not None
    return msgspec.structs.replace(found, path=path)


_SCRIPTS = (
    script("/usr/bin/tool", "#!/usr/bin/python3\n"),
    script("/entry.sh", '#!/bin/bash\nexec "$@"\n'),
    script("/start.sh", "#!/bin/sh\nexec server\n"),
    script("/opaque.sh", "#!/bin/sh\n"),
    script("/usr/bin/envtool", "#!/usr/bin/env python3\n"),
    script("/endless.sh", "#!/bin/sh\n" + "".join(f"f{n}() {{ {f'f{n + 1};' * 20} }}\n" for n in range(9)) + "f0\n"),
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageProfile:
    need("gcc")
    root = Root(tmp_path_factory.mktemp("roots") / "root")
    for program in _PROGRAMS:
        root.program(program)
    root.link("/usr/bin/python3", "python3.11")
    root.link("/bin/sh", "dash")
    root.library(_MODULE, flags=["-x", "c", "-include", str(_header(root))])
    root.library(_BESIDE, flags=["-x", "c", "-include", str(_header(root))])
    root.library("/usr/lib/python3.12/site-packages/pkg/core.cpython-312-x86_64-linux-gnu.so")
    profile = profile_of(root.path)
    return msgspec.structs.replace(profile, tree=msgspec.structs.replace(profile.tree, scripts=_SCRIPTS))


def _header(root: Root) -> Path:
    root.write("/entry.h", "void PyInit_core(void){}\n")
    return root.at("/entry.h")


def roots(image: ImageProfile, *command: str, entrypoint: tuple[str, ...] = (), user: tuple[str, ...] | None = None):
    config = ImageConfig(entrypoint=entrypoint, command=command)
    return find_roots(msgspec.structs.replace(image, config=config), user)


@pytest.mark.parametrize(
    ("command", "entries"),
    [
        (("server",), {"/usr/bin/server"}),
        (("/usr/bin/env", "A=1", "server"), {"/usr/bin/env", "/usr/bin/server"}),
        (("/usr/bin/env", "-S", "server -x"), {"/usr/bin/env", "/usr/bin/server"}),
        (("tini", "--", "server"), {"/usr/bin/tini", "/usr/bin/server"}),
        (("tool",), {"/usr/bin/python3.11"}),
        (("envtool",), {"/usr/bin/env", "/usr/bin/python3.11"}),
        (("/entry.sh", "server"), {"/bin/bash", "/usr/bin/server"}),
        (("/start.sh",), {"/bin/dash", "/usr/bin/server"}),
        (("sh", "-c", "cd /x && exec server --port 1"), {"/bin/dash", "/usr/bin/server"}),
        (("bash", "/start.sh"), {"/bin/bash", "/usr/bin/server"}),
    ],
)
def test_a_command_leads_to_what_it_executes(image: ImageProfile, command: tuple[str, ...], entries: set[str]) -> None:
    found = roots(image, *command)
    assert set(found.entries) == entries
    assert not found.everything


def test_a_variable_that_env_splits_into_its_words_may_name_any_program(image: ImageProfile) -> None:
    assert not roots(image, "/usr/bin/env", "-S", "A=b ${TOOL} -x").unstartable
    assert [each.word for each in roots(image, "/usr/bin/env", "-S", "A=b tools -x").unstartable] == ["tools"]


@pytest.mark.parametrize("command", [(), ("bash",), ("sh", "-l"), ("/entry.sh",)])
def test_a_shell_that_waits_for_commands_reaches_everything(image: ImageProfile, command: tuple[str, ...]) -> None:
    found = roots(image, *command)
    assert found.everything
    assert set(close(image, found).reaches.values()) == {"entry"}


def test_the_users_command_takes_the_place_of_the_images(image: ImageProfile) -> None:
    found = roots(image, "server", entrypoint=("tini", "--"), user=("/opt/job",))
    assert set(found.entries) == {"/usr/bin/tini", "/opt/job"}


def test_the_users_command_may_start_without_the_entrypoint(image: ImageProfile) -> None:
    config = ImageConfig(entrypoint=("/opt/job", "--"))
    image = msgspec.structs.replace(image, config=config)
    assert set(find_roots(image, ("server",)).entries) == {"/opt/job", "/usr/bin/server"}
    assert find_roots(image, ("server",), bare=False).entries == ("/opt/job",)


def test_a_named_entry_replaces_the_command(image: ImageProfile) -> None:
    found = find_roots(image, None, ("/opt/job",))
    assert (found.entries, found.everything) == (("/opt/job",), False)


def test_a_command_that_is_not_there_is_told(image: ImageProfile) -> None:
    found = roots(image, "nothing")
    assert found.unstartable == (Unstartable("nothing", "absent", searched=SEARCHED),)
    assert found.in_part and not found.everything  # it comes from outside, and may use anything


def test_a_python_reaches_its_own_modules_as_imports(image: ImageProfile) -> None:
    found = roots(image, "python3", "train.py")
    assert found.imports == (_MODULE,)
    closure = close(image, found)
    assert closure.reach(_MODULE) == "import"
    assert closure.reach("/usr/bin/python3.11") == "entry"
    assert closure.reach("/usr/bin/server") == "path"
    assert closure.reach("/opt/job") == "unreached"


@pytest.mark.parametrize(
    ("python", "module", "found"),
    [
        ("/opt/conda/envs/a/bin/python3.11", "/opt/conda/envs/a/lib/python3.11/site-packages/m.so", True),
        ("/opt/conda/envs/a/bin/python3.11", "/opt/conda/envs/b/lib/python3.11/site-packages/m.so", False),
        ("/opt/conda/envs/a/bin/python3.11", "/opt/conda/lib/python3.11/site-packages/m.so", False),
        ("/opt/conda/bin/python3.11", "/opt/conda/envs/b/lib/python3.11/site-packages/m.so", False),
        ("/usr/local/bin/python3.11", "/usr/lib/python3/dist-packages/m.so", False),
        ("/usr/local/bin/python3.11", "/usr/local/lib/python3.11/site-packages/m.so", True),
        ("/usr/local/bin/python3.11", "/venv/lib/python3.11/site-packages/m.so", True),
        ("/usr/bin/python3.11", "/usr/local/lib/python3.11/dist-packages/m.so", True),
        ("/usr/bin/python3.11", "/usr/local/lib/python3.11/site-packages/m.so", False),
    ],
)
def test_a_python_imports_what_no_other_one_owns(image: ImageProfile, python: str, module: str, found: bool) -> None:
    prefixes = ("/opt/conda", "/opt/conda/envs/a", "/opt/conda/envs/b", "/usr", "/usr/local")
    image = with_programs(image, *(f"{prefix}/bin/python3.11" for prefix in prefixes))
    records = (*image.files, msgspec.structs.replace(record(image, _MODULE), path=module))
    tree = msgspec.structs.replace(image.tree, python_paths=(str(Path(module).parent),))
    image = msgspec.structs.replace(image, files=records, tree=tree)
    assert find_roots(image, (python, "/x.py")).imports == ((module,) if found else ())


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (("/opt/a/bin/python", "/x.py"), {"/opt/a"}),
        (("/opt/b/bin/python3", "/x.py"), {"/opt/b"}),
        (("sh", "-c", "PATH=/opt/a/bin:$PATH python /x.py"), {"/opt/a"}),
        (("/opt/b/bin/tool",), {"/opt/b"}),
        (("python3", "/x.py"), set()),
    ],
)
def test_a_virtual_environment_is_none_of_another_ones_nor_of_the_python_behind_it(
    image: ImageProfile, command: tuple[str, ...], found: set[str]
) -> None:
    modules = {place: f"{place}/lib/python3.11/site-packages/m.so" for place in ("/opt/a", "/opt/b")}
    records = (msgspec.structs.replace(record(image, _MODULE), path=path) for path in modules.values())
    links = {f"/opt/{name}/bin/{python}": "/usr/bin/python3" for name in "ab" for python in ("python", "python3")}
    tree = msgspec.structs.replace(
        image.tree,
        python_paths=tuple(path.removesuffix("/m.so") for path in modules.values()),
        symlinks=image.tree.symlinks | links,
        scripts=(*image.tree.scripts, script("/opt/b/bin/tool", "#!/opt/b/bin/python\nimport m\n")),
    )
    image = msgspec.structs.replace(image, files=(*image.files, *records), tree=tree)
    assert set(roots(image, *command).imports) == {modules[place] for place in found}


ADDONS = ("/app/node_modules/@img/sharp-linux-x64/lib/sharp.node", "/usr/lib/node_modules/tool/tool.node")


@pytest.mark.parametrize(
    ("command", "reached"),
    [
        (("node", "/app/src/server.js"), {ADDONS[0]}),
        (("sh", "-c", "cd /app && exec node --inspect server.js"), {ADDONS[0]}),
        (("node", "/usr/lib/node_modules/tool/cli.js"), {ADDONS[1]}),
        (("node", "/srv/server.js"), set()),
        (("server",), set()),
    ],
)
def test_a_node_may_load_the_addons_of_its_packages(
    image: ImageProfile, command: tuple[str, ...], reached: set[str]
) -> None:
    image = with_programs(image, "/usr/bin/node")
    others = [f"/app/node_modules/pkg/prebuilds/{system}/pkg.node" for system in ("linux-arm", "android", "musl")]
    needs = {others[1]: ("libc.so",), others[2]: ("libc.musl-x86_64.so.1",)}
    node = msgspec.structs.replace(record(image, "/usr/bin/node"), object="node")
    objects = dict(image.objects)
    linkage = image.facts(record(image, "/usr/bin/server")).linkage
    assert linkage is not None
    for path in (*ADDONS, *others):
        machine = "arm" if "arm" in path else "x86_64"
        facts = msgspec.structs.replace(
            linkage, type="shared", interpreter="", machine=machine, needed=needs.get(path, ("libc.so.6",))
        )
        objects[path] = CodeFacts(1, facts)
    objects["node"] = CodeFacts(1, msgspec.structs.replace(linkage, needed=("libc.so.6",)))
    records = [FileRecord(path, path, 0) for path in (*ADDONS, *others)]
    files = tuple(each for each in image.files if each.path != node.path)
    image = msgspec.structs.replace(image, files=(*files, node, *records), objects=objects)
    closure = close(image, roots(image, *command))
    assert {path for path in (*ADDONS, *others) if closure.reach(path) == "path"} == reached


def record(image: ImageProfile, path: str) -> FileRecord:
    return next(each for each in image.files if each.path == path)


def with_programs(image: ImageProfile, *paths: str) -> ImageProfile:
    """The image with more programs."""
    known = {each.path for each in image.files}
    more = [msgspec.structs.replace(record(image, "/usr/bin/server"), path=path) for path in paths if path not in known]
    return msgspec.structs.replace(image, files=(*image.files, *more))


@pytest.mark.parametrize(
    ("command", "directory", "environment", "found"),
    [
        (("python3", "/opt/proj/train.py"), "/", (), True),
        (("python3", "-u", "-W", "ignore", "proj/train.py"), "/opt", (), True),
        (("python3", "-m", "train"), "/opt/proj", (), True),
        (("python3", "-c", "import pkg.fast"), "/opt/proj", (), True),
        (("python3", "/train.py"), "/", ("PYTHONPATH=/nowhere:/opt/proj",), True),
        (("sh", "-c", "cd /opt/proj && python3 train.py"), "/", (), True),
        (("python3", "/opt/other/train.py"), "/", (), False),
        (("python3", "/train.py"), "/opt/proj", (), False),
        (("python3.12", "/opt/proj/train.py"), "/", (), False),
    ],
)
def test_a_python_imports_what_lies_beside_its_script(
    image: ImageProfile, command: tuple[str, ...], directory: str, environment: tuple[str, ...], found: bool
) -> None:
    config = ImageConfig(command=command, working_directory=directory, environment=environment)
    assert (_BESIDE in find_roots(msgspec.structs.replace(image, config=config)).imports) == found


def test_scripts_that_run_each_other_end(image: ImageProfile) -> None:
    circle = (script("/a", "#!/bin/sh\nexec /b\n"), script("/b", "#!/bin/sh\nexec /a\n"))
    looped = msgspec.structs.replace(image, tree=msgspec.structs.replace(image.tree, scripts=circle))
    assert roots(looped, "/a").entries == ("/bin/dash",)


SHELL = {"/bin/dash"}

RUNS = [
    ("a function defined anew", "f() { /opt/job; }\nf() { server; }\nf\n", {"/usr/bin/server"}),
    ("plain commands before the last", "set -e\necho hi\nserver --port 1\n", {"/usr/bin/server"}),
    ("exec of an absolute path", 'exec /opt/job "$@"\n', {"/opt/job"}),
    ("a directory changed before", "cd /opt/app && ./run\n", {"/opt/app/run"}),
    ("a directory changed on a line of its own", "cd /opt\ncd app\nexec ./run\n", {"/opt/app/run"}),
    ("a variable of the image", 'exec "$APP"\n', {"/opt/job"}),
    ("a variable of the script", "BIN=/opt\nexec $BIN/job\n", {"/opt/job"}),
    ("a default", "exec ${JOB:-/opt/job}\n", {"/opt/job"}),
    ("words in one variable", 'CMD="server -x"\nexec $CMD\n', {"/usr/bin/server"}),
    ("an array", 'run=(server)\nrun+=(-v)\nexec "${run[@]}"\n', {"/usr/bin/server"}),
    ("the script's own directory", 'exec "$(dirname "$0")"/opt/job\n', {"/opt/job"}),
    ("the usual way to one's own directory", 'here=$(cd "$(dirname "$0")" && pwd)\nexec $here/opt/job\n', {"/opt/job"}),
    ("env before it", "exec env X=1 /opt/job\n", {"/usr/bin/env", "/opt/job"}),
    ("tini before it", "exec tini -- /opt/job\n", {"/usr/bin/tini", "/opt/job"}),
    ("a duration before it", "exec timeout -k 5 10 /opt/job\n", {"/usr/bin/timeout", "/opt/job"}),
    ("PATH of the script", "export PATH=/opt:$PATH\njob\n", {"/opt/job"}),
    ("a function", "main() {\n  exec server\n}\nmain\n", {"/usr/bin/server"}),
    ("a function with arguments", 'run() { "$@"; }\nrun server x\n', {"/usr/bin/server"}),
    ("both ways of a condition", "if [ -n $X ]; then server; else /opt/job; fi\n", {"/usr/bin/server", "/opt/job"}),
    ("each branch of a case", "case $X in a) server;; *) /opt/job;; esac\n", {"/usr/bin/server", "/opt/job"}),
    ("arguments that the script sets", 'set -- server -x\nexec "$@"\n', {"/usr/bin/server"}),
    ("a pipe", "server | /opt/job\n", {"/usr/bin/server", "/opt/job"}),
    ("a loop over programs", "for x in server /opt/job; do $x; done\n", {"/usr/bin/server", "/opt/job"}),
    ("words of which some are unknown", 'run=(server --user "$USER")\n"${run[@]}"\n', {"/usr/bin/server"}),
    ("eval", "eval server\n", {"/usr/bin/server"}),
    ("another shell's line", "exec sh -c 'cd /opt && ./job'\n", {"/opt/job"}),
    ("a here-document before it", "cat <<EOF > /x\nexec nothing\nEOF\nserver\n", {"/usr/bin/server"}),
    ("a sourced file", ". /lib.sh\nexec $TOOL\n", {"/usr/bin/server"}),
    ("files that find lists", "find /opt/app -type f | cat | while read -r f; do $f; done\n", {"/opt/app/run"}),
    (
        "sourced files that find lists",
        'find -L /parts.d/ | cat | while IFS= read -r f; do . "$f"; done\n',
        {"/opt/job"},
    ),
    (
        "deeper files that find lists",
        'find /opt -type f | cat | while read f; do\n"$f"\ndone\n',
        {"/opt/job", "/opt/app/run", _BESIDE},
    ),
    ("python beside", "exec python3 -u /train.py\n", {"/usr/bin/python3.11"}),
]


def follows(image: ImageProfile, text: str, *arguments: str, environment: tuple[str, ...] = ("APP=/opt/job",)) -> Roots:
    begins = "" if text.startswith("#!") else "#!/bin/sh\n"
    scripts = (script("/run", begins + text), script("/lib.sh", "TOOL=server\n", executable=False))
    scripts += (script("/parts.d/10-tool.sh", "/opt/job --check\n", executable=False),)
    config = ImageConfig(entrypoint=("/run",), command=arguments, environment=environment)
    tree = msgspec.structs.replace(image.tree, scripts=scripts)
    return find_roots(msgspec.structs.replace(image, tree=tree, config=config))


@pytest.mark.parametrize(("text", "entries"), [case[1:] for case in RUNS], ids=[case[0] for case in RUNS])
def test_a_script_leads_to_the_programs_that_it_runs(image: ImageProfile, text: str, entries: set[str]) -> None:
    found = follows(image, text)
    assert set(found.entries) == SHELL | entries
    assert not found.everything
    assert not found.in_part or "cat" in text
    assert found.unstartable == ()


@pytest.mark.parametrize(
    "text",
    [
        'exec "$JOB"\n', "$(find / -name job)\n", "eval $(start)\n", "exec ./$X/run\n", "cd $WHERE\n./run\n",
        "if [ -n x ]; then $A; fi\n", "source /nowhere\njob2\n", 'find /opt $A | while read -r f; do "$f"; done\n',
        'find /opt | sed s/a/b/ | while read -r f; do "$f"; done\n', 'find /opt | cat; while read f; do "$f"; done\n',
    ],
)  # fmt: skip
def test_where_only_running_tells_what_a_script_starts_everything_may_be_reached(
    image: ImageProfile, text: str
) -> None:
    found = follows(image, text)
    assert (found.everything, found.in_part) == (False, True)
    assert "unreached" not in close(image, found).reaches.values()


@pytest.mark.parametrize("text", ["exec bash\n", 'exec "$@"\n'])
def test_a_script_that_ends_in_a_shell_that_waits_reaches_everything(image: ImageProfile, text: str) -> None:
    assert follows(image, text).everything


@pytest.mark.parametrize("text", ["echo hi\n", "", "export A=1; umask 77; exit 0\n"])
def test_a_script_of_the_shells_own_commands_reaches_the_shell_alone(image: ImageProfile, text: str) -> None:
    found = follows(image, text)
    assert set(found.entries) == SHELL
    assert not found.everything and not found.in_part


@pytest.mark.parametrize("text", ["$JOB\nserver\n", "if x; then exec $JOB; fi\nserver\n", "eval $(x)\nserver\n"])
def test_a_script_that_starts_more_than_can_be_told_makes_the_rest_a_risk(image: ImageProfile, text: str) -> None:
    found = follows(image, text)
    assert (found.everything, found.in_part) == (False, True)
    closure = close(image, found)
    assert closure.reach("/usr/bin/server") == "entry"
    assert closure.reach("/opt/job") == "path"


def test_arguments_that_start_leave_no_doubt(image: ImageProfile) -> None:
    found = follows(image, 'if [ -z "$1" ]; then exec bash; fi\nexec "$@"\n', "server")
    assert {"/usr/bin/server"} <= set(found.entries)
    assert (found.everything, found.in_part) == (False, False)


def test_parts_that_are_sourced_by_a_pattern_of_names_are_followed(image: ImageProfile) -> None:
    text = """#!/bin/bash
    here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
    declare -a PARTS=( "${here}/parts.d"/*@(.txt|.sh) )
    for file in "${PARTS[@]}"; do
      case "$file" in *.txt) cat "$file";; *.sh) source "$file";; esac
    done
    if [[ $# -eq 0 ]]; then exec "/bin/bash"; else exec "$@"; fi
    """
    found = follows(image, text, "server")
    assert {"/opt/job", "/usr/bin/server"} <= set(found.entries)
    assert (found.everything, found.in_part, found.steered) == (False, False, ())
    assert follows(image, text).everything


def test_a_file_that_is_sourced_gets_the_words_behind_its_name(image: ImageProfile) -> None:
    parts = (
        script("/own.sh", "TOOL=$1\n", executable=False),
        script("/sh", "#!/bin/bash\n. /own.sh server x\nexec $TOOL $1\n"),
    )
    tree = msgspec.structs.replace(image.tree, scripts=parts)
    config = ImageConfig(entrypoint=("/sh", "/opt/job"))
    found = find_roots(msgspec.structs.replace(image, tree=tree, config=config))
    assert "/usr/bin/server" in found.entries


@pytest.mark.parametrize("text", ["echo server | sh", "sh -s < /commands", "bash <<< server", "sh <<E\nserver\nE"])
def test_a_shell_that_reads_its_commands_waits_for_nobody(image: ImageProfile, text: str) -> None:
    found = follows(image, text + "\n")
    assert (found.everything, found.in_part) == (False, True)


def test_what_a_file_that_is_not_known_may_have_set_is_a_risk(image: ImageProfile) -> None:
    text = "TOOL=server\n[ -r /etc/default/tool ] && . /etc/default/tool\nexec $TOOL\n"
    assert "/usr/bin/server" in follows(image, text).perhaps
    assert "/usr/bin/server" not in follows(image, text.replace("exec $TOOL", "exec server")).perhaps


def test_what_runs_where_users_set_nothing_is_certain(image: ImageProfile) -> None:
    for begins in (
        '[ "$DEBUG" ] && exec /opt/job',
        'if [ "$MODE" = job ]; then exec /opt/job; fi',
        "[ -x /x ] || exit 1",
    ):
        assert "/usr/bin/server" not in follows(image, f"{begins}\nexec server\n").perhaps, begins
    for begins in (
        '[ "$DEBUG" ] || exec /opt/job',
        "grep -q x /y || exec /opt/job",
        "if grep -q x /y; then /opt/job; exit; fi",
    ):
        assert "/usr/bin/server" in follows(image, f"{begins}\nexec server\n").perhaps, begins


def test_a_script_that_starts_itself_as_another_user_is_followed_to_the_end(image: ImageProfile) -> None:
    text = """if [ "${1#-}" != "$1" ]; then set -- server "$@"; fi
    if [ "$1" = server ] && [ "$(id -u)" = 0 ]; then exec tini -- "$0" "$@"; fi
    exec "$@"
    """
    found = follows(image, text, "server")
    assert set(found.entries) == {*SHELL, "/usr/bin/tini", "/usr/bin/server"}
    assert (found.everything, found.in_part) == (False, False)


def test_an_option_first_is_taken_for_the_servers_own(image: ImageProfile) -> None:
    found = follows(image, 'if [ "${1#-}" != "$1" ]; then set -- server "$@"; fi\nexec "$@"\n', "--port", "1")
    assert "/usr/bin/server" in found.entries
    assert not found.everything


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("export LD_LIBRARY_PATH=/opt/lib\nserver\n", ("/opt/lib", "")),
        ("LD_LIBRARY_PATH=/x:$LD_LIBRARY_PATH server\n", ("/x:$LD_LIBRARY_PATH", "")),
        ("export LD_LIBRARY_PATH=/x${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\nserver\n", ("/x:$LD_LIBRARY_PATH", "")),
        ("export LD_LIBRARY_PATH=/x\nexec env -i server\n", ("", "")),
        ("export LD_LIBRARY_PATH=/x\nunset LD_LIBRARY_PATH\nserver\n", ("", "")),
        ("LD_LIBRARY_PATH=/x\nexport LD_LIBRARY_PATH\nserver\n", ("/x", "")),
        ("declare -x LD_LIBRARY_PATH=/x\nserver\n", ("/x", "")),
        ("export LD_LIBRARY_PATH=/x\nLD_LIBRARY_PATH=/y\nserver\n", ("/y", "")),
        ("exec env LD_PRELOAD=/x.so server\n", ("$LD_LIBRARY_PATH", "/x.so")),
        ("export LD_LIBRARY_PATH=$(setup)\nserver\n", None),
        ("if probe; then export LD_LIBRARY_PATH=/x; fi\nserver\n", None),
        ("LD_LIBRARY_PATH=/x server\nLD_LIBRARY_PATH=/y server\n", None),
        (". /opt/setvars.sh\nserver\n", None),
        ("eval $(setup)\nserver\n", None),
        ("/sbin/ldconfig && exec server\n", None),
    ],
)
def test_loader_variables_that_a_script_gives_a_program(
    image: ImageProfile, text: str, given: tuple[str, ...] | None
) -> None:
    found = follows(image, text)
    assert ("/usr/bin/server" in found.steered) == (given is None)
    assert found.environments.get("/usr/bin/server") == given


@pytest.mark.parametrize(
    "text",
    [
        "find /hooks | while read -r f; do . $f; done\nserver\n",
        "LD_LIBRARY_PATH=/x /opt/job\nserver\n",
        "LD_LIBRARY_PATH=/x\nserver\n",
        "export LANG=C\nserver\n",
    ],
)
def test_a_program_that_gets_no_loader_variables(image: ImageProfile, text: str) -> None:
    found = follows(image, text)
    assert "/usr/bin/server" in found.entries
    assert (found.steered, found.environments.get("/usr/bin/server")) == ((), None)


@pytest.mark.parametrize("words", ["exec env -i", "exec env -u LD_LIBRARY_PATH", "unset LD_LIBRARY_PATH;"])
def test_loader_variables_of_the_image_are_taken_away(image: ImageProfile, words: str) -> None:
    found = follows(image, f"{words} server\n", environment=("LD_LIBRARY_PATH=/opt/lib",))
    assert found.environments == {"/usr/bin/server": ("", "")}


def test_sudo_gives_no_loader_variables_on() -> None:
    for options in ((), ("-E", "-u", "nobody")):
        inner = launched("sudo", (*options, "server"))
        assert inner is not None
        assert (inner.words, inner.removed) == (("server",), ("LD_LIBRARY_PATH", "LD_PRELOAD"))


_STARTING = ("/usr/bin/flock", "/usr/bin/xargs", "/usr/bin/find", "/usr/bin/s6-setuidgid", "/usr/bin/mpiexec.hydra")


@pytest.mark.parametrize(
    "text",
    [
        "exec flock /lock server\n", "ls | xargs -n1 server\n", "find / -name x -exec server ;\n",
        "exec s6-setuidgid app server\n", "exec mpiexec.hydra -n 4 server\n",
    ],
)  # fmt: skip
def test_what_other_programs_start_in_turn_is_found(image: ImageProfile, text: str) -> None:
    assert "/usr/bin/server" in follows(with_programs(image, *_STARTING), text).entries


def test_a_search_that_starts_nothing_leaves_nothing_open(image: ImageProfile) -> None:
    text = "find /hooks -name '*.sh'\nls | xargs echo\nexec server\n"
    assert not follows(with_programs(image, *_STARTING), text).in_part


@pytest.mark.parametrize(
    ("text", "perhaps"),
    [
        (
            "if grep -q avx512f /proc/cpuinfo; then exec /opt/job; else exec server; fi\n",
            {"/opt/job", "/usr/bin/server"},
        ),
        ("case $(uname -m) in x86_64) exec server;; *) exec /opt/job;; esac\n", set()),
        ("case $(uname -r) in 6.*) exec server;; *) exec /opt/job;; esac\n", {"/opt/job", "/usr/bin/server"}),
        ("T=/opt/job\nif lscpu | grep -q avx2; then T=server; fi\nexec $T\n", {"/opt/job", "/usr/bin/server"}),
        ("grep avx2 /proc/cpuinfo && exec /opt/job\nexec server\n", {"/opt/job", "/usr/bin/server"}),
        ("grep avx2 /proc/cpuinfo && server\nexec server\n", set()),
        ('if [ -n "$DEBUG" ]; then exec /opt/job; fi\nexec server\n', {"/opt/job"}),
        ('[ "$MODE" = job ] && exec /opt/job\nexec server\n', {"/opt/job"}),
        ('case "$MODE" in job) exec /opt/job;; *) exec server;; esac\n', {"/opt/job"}),
        ('case "$HOME" in job) exec /opt/job;; *) exec server;; esac\n', {"/opt/job", "/usr/bin/server"}),
        ('if [ -n "$MODE" ]; then exec /opt/job; else exec server; fi\n', {"/opt/job"}),
        ('if [ -n "$SLURM_JOB_ID" ]; then exec /opt/job; else exec server; fi\n', {"/opt/job", "/usr/bin/server"}),
        ('[ -z "$MODE" ] && exec server\nexec /opt/job\n', {"/opt/job"}),
        ('if [ "$MODE" = job ]; then T=/opt/job; else T=server; fi\nexec $T\n', {"/opt/job"}),
        ('if [ -z "$T" ]; then T=server; fi\nexec "$T"\n', set()),
        (
            '. /etc/os-release\nif [ "$ID" = debian ]; then /opt/job; fi\n'
            'quiet() { [ -z "$Q" ] || echo; }\nquiet\nserver\n',
            {"/opt/job"},
        ),
        ("if [ -f /opt/mounted.py ]; then exec /opt/job; fi\nexec server\n", {"/opt/job"}),
        ("if [ -x /usr/local/bin/mounted ]; then exec /opt/job; fi\nexec server\n", {"/opt/job"}),
        ("if [ -x /opt/mounted ]; then exec /opt/job; fi\nexec server\n", {"/opt/job", "/usr/bin/server"}),
        (
            "".join(f"[ -f /{n} ] && A={n}\n" for n in range(20)) + "T=/opt/job\n[ -e /y ] && T=server\nexec $T $A\n",
            {"/opt/job", "/usr/bin/server"},
        ),
        (f"usage='{'How to use it. ' * 99}'\nexec server\n", set()),
        (
            "/opt/job; if [ -f /opt/made.py ]; then exec server; fi\nexec /opt/app/run\n",
            {"/opt/job", "/usr/bin/server", "/opt/app/run"},
        ),
        ("if [ -f /x ]; then exec server --debug; else exec server; fi\n", set()),
        ("if [ -f /x ]; then exec sh -c '/opt/job; exec server'; fi\nexec server\n", {"/opt/job"}),
        ('if [ -f /x ]; then /opt/job; fi\nif [ "$1" ]; then exec server "$1"; else exec server; fi\n', {"/opt/job"}),
        ("if /opt/job --check; then :; fi\nexec server\n", {"/opt/job"}),
        ("# first\n/opt/job --migrate &&\n  exec server\n", set()),
        ("/opt/job --check && server\n/opt/app/run\n", {"/opt/job", "/usr/bin/server"}),
        ("/opt/job --check && exec server || exec /opt/app/run\n", {"/opt/job", "/usr/bin/server", "/opt/app/run"}),
        ("while ! /opt/job; do sleep 1; done\nexec server\n", {"/opt/job"}),
        ("/opt/job || true\nexec server\n", {"/opt/job"}),
        ("warm() { /opt/job --all; }\nwarm || echo cold\nexec server\n", {"/opt/job"}),
        ("server || true\nexec server\n", set()),
        ("/opt/job || exit 1\nexec server\n", set()),
    ],
)
def test_programs_that_a_script_chooses_or_does_without_are_told_apart(
    image: ImageProfile, text: str, perhaps: set[str]
) -> None:
    found = follows(image, text)
    assert set(found.perhaps) == perhaps
    reaches = close(image, found).reaches
    assert {path for path in found.entries if reaches[path] == "path"} == perhaps


def test_a_line_of_commands_that_looks_at_the_cpu_chooses_as_a_script_does(image: ImageProfile) -> None:
    line = "if grep -q avx2 /proc/cpuinfo; then exec server; else exec server; fi"
    assert find_roots(image, ("sh", "-c", line)).perhaps == ("/usr/bin/server",)


@pytest.mark.parametrize(
    "command",
    [
        ("su", "-s", "/bin/sh", "nobody", "-c", "server --x"),
        ("su", "-c", "exec server"),
        ("runuser", "-u", "app", "--command=server"),
    ],
)
def test_the_line_that_su_gives_to_a_shell_is_followed(image: ImageProfile, command: tuple[str, ...]) -> None:
    image = with_programs(image, f"/usr/bin/{command[0]}")
    assert "/usr/bin/server" in find_roots(image, command).entries


def test_the_command_that_is_handed_over_runs_whatever_the_cpu_has(image: ImageProfile) -> None:
    text = 'if grep -q avx2 /proc/cpuinfo; then exec "$@"; else exec "$@"; fi\n'
    assert follows(image, text, "server").perhaps == ()


NOT_STARTING = [
    ("exec /opt/nothing\n", Unstartable("/opt/nothing", "absent", by="/run")),
    ("set -e\nnothing --all\n", Unstartable("nothing", "absent", by="/run", searched=SEARCHED)),
    ("exec tini -- nothing\n", Unstartable("nothing", "absent", by="tini", searched=SEARCHED)),
    ("exec env -i X=1 nothing\n", Unstartable("nothing", "absent", by="env", searched=("/bin", "/usr/bin"))),
    ("exec sh -c 'nothing'\n", Unstartable("nothing", "absent", by="sh", searched=SEARCHED)),
    ("exec /lib.sh\n", Unstartable("/lib.sh", "not-executable", "/lib.sh", by="/run")),
]


@pytest.mark.parametrize(("text", "expected"), NOT_STARTING)
def test_what_a_script_surely_runs_and_what_does_not_start_is_told(
    image: ImageProfile, text: str, expected: Unstartable
) -> None:
    assert follows(image, text).unstartable == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        "nothing || server\n", "[ -x /nothing ] && /nothing\nserver\n", "if [ -f /x ]; then exec nothing; fi\n",
        "nothing\nserver\n", "server\n/made-by-it\n", "exec $X\n", ". /nowhere\nexec nothing\n",
        "cd $X\nexec ./nothing\n", "/opt/j?b\n", "exec ~/nothing\n", "exec ~app/nothing\n", "exec /opt/{nothing,}\n",
    ],
)  # fmt: skip
def test_what_may_never_run_or_may_be_made_before_is_not_said_to_fail(image: ImageProfile, text: str) -> None:
    assert follows(image, text).unstartable == ()


@pytest.mark.parametrize(
    ("text", "executable", "reason"),
    [
        ("#!/bin/sh\nserver\n", False, "not-executable"),
        ("#!/bin/zsh\nserver\n", True, "no-interpreter"),
        ("#!/bin/sh\r\nserver\r\n", True, "carriage-return"),
        ("#!/usr/bin/env bash\r\nserver\r\n", True, "carriage-return"),
        ("#!/bin/sh -e\r\nserver\r\n", True, "carriage-return"),
        ("server\n", True, "no-format"),
        ("#!/usr/bin/env ruby\n", True, "absent"),
        ("#!/bin/sh\nserver\n", True, None),
    ],
)
def test_a_script_that_the_kernel_refuses_is_told(
    image: ImageProfile, text: str, executable: bool, reason: str | None
) -> None:
    tree = msgspec.structs.replace(image.tree, scripts=(script("/go.sh", text, executable),))
    found = find_roots(msgspec.structs.replace(image, tree=tree, config=ImageConfig(command=("/go.sh",))))
    assert [each.reason for each in found.unstartable] == ([reason] if reason else [])
    assert found.in_part == (reason is not None)


def test_a_script_has_a_shell_read_a_text_that_names_none(image: ImageProfile) -> None:
    with_text = msgspec.structs.replace(image, tree=msgspec.structs.replace(image.tree, files=("/usr/bin/text",)))
    found = follows(with_text, "set -e\ntext\n")
    assert found.unstartable == () and found.in_part
    assert [each.reason for each in roots(with_text, "text").unstartable] == ["no-format"]
    assert [each.reason for each in roots(with_text, "tini", "--", "text").unstartable] == []


def test_a_shell_reads_a_file_that_may_not_be_executed(image: ImageProfile) -> None:
    tree = msgspec.structs.replace(image.tree, scripts=(script("/go.sh", "server\n", executable=False),))
    found = find_roots(msgspec.structs.replace(image, tree=tree, config=ImageConfig(command=("sh", "/go.sh"))))
    assert set(found.entries) == {*SHELL, "/usr/bin/server"}
    assert found.unstartable == ()


def test_endless_nesting_ends(image: ImageProfile) -> None:
    found = follows(image, "f() { f; f; }\nf\n")
    assert found.in_part
    assert follows(image, "x=aa\n" + "x=$x$x\n" * 200 + "$x\n").in_part


@pytest.mark.parametrize(
    ("text", "executable", "reason", "expected"),
    [
        ("#!/bin/sh\nexit 0\n", False, "not-executable", errno.EACCES),
        ("#!/bin/no-such-shell\nexit 0\n", True, "no-interpreter", errno.ENOENT),
        ("#!/bin/sh\r\nexit 0\r\n", True, "carriage-return", errno.ENOENT),
        ("exit 0\n", True, "no-format", errno.ENOEXEC),
        ("#!/bin/sh\nexit 0\n", True, None, 0),
    ],
)
def test_the_kernel_refuses_what_is_said_not_to_start(
    image: ImageProfile, text: str, executable: bool, reason: str | None, expected: int, tmp_path: Path
) -> None:
    file = tmp_path / "go"
    file.write_bytes(text.encode())
    file.chmod(0o755 if executable else 0o644)
    try:
        subprocess.run([file], check=True, timeout=20)
        refused = 0
    except OSError as error:
        refused = error.errno
    assert refused == expected
    tree = msgspec.structs.replace(image.tree, scripts=(script("/go", text, executable),))
    found = find_roots(msgspec.structs.replace(image, tree=tree, config=ImageConfig(command=("/go",))))
    assert [each.reason for each in found.unstartable] == ([reason] if reason else [])


@pytest.mark.parametrize(("name", "text"), [("env", "#!/usr/bin/env sh\r\n"), ("an option", "#!/bin/sh -e\r\n")])
def test_dos_line_ends_fail_behind_env_and_options_as_well(name: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "go"
    file.write_bytes(f"{text}exit 0\r\n".encode())
    file.chmod(0o755)
    assert subprocess.run([file], capture_output=True, timeout=20).returncode in (2, 127)


@pytest.mark.parametrize("before", ["/endless.sh", "/endless.sh x; /endless.sh y; env /endless.sh z"])
def test_a_script_that_takes_too_long_to_follow_does_not_cost_what_comes_behind(
    image: ImageProfile, before: str
) -> None:
    found = roots(image, "sh", "-c", f"{before}; exec server")
    assert "/usr/bin/server" in {*found.entries} - {*found.perhaps}


def test_a_loop_over_files_that_the_image_lacks_reads_none(image: ImageProfile) -> None:
    loop = 'for f in /init.d/*; do case "$f" in *.sh) . "$f";; esac; done'
    for text in (loop, f"if [ -d /data ]; then {loop}; fi", f"setup() {{ {loop}; }}\n[ -d /data ] || setup"):
        found = follows(image, f"{text}\nif [ -z x ]; then exec /opt/job; fi\nexec server\n")
        assert (set(found.entries) - {*SHELL}, found.perhaps, found.in_part) == ({"/usr/bin/server"}, (), False), text


@pytest.mark.parametrize(("command", "starts"), [(("env",), False), (("env", "A=1"), False), (("tini", "--"), True)])
def test_env_alone_tells_its_variables_and_ends(image: ImageProfile, command: tuple[str, ...], starts: bool) -> None:
    assert roots(image, *command).everything == starts
