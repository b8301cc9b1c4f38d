"""Launchers that are scripts, or know projects and environments of their own: what they start."""

import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from imgcheck.documents.facts import CodeFacts, Linkage
from imgcheck.documents.image import ImageConfig, ImageProfile
from imgcheck.loader.launchers import Front, Launcher, fronts, launched, launchers
from imgcheck.loader.roots import find_roots
from tests.loader.builder import Root

PROGRAMS = (
    "/bin/sh", "/opt/conda/bin/python3.11", "/opt/conda/envs/e/bin/python3.10", "/opt/conda/envs/e/bin/tool",
    "/opt/own/bin/tool", "/opt/mamba/envs/f/bin/tool", "/usr/bin/micromamba", "/usr/bin/uv", "/usr/bin/node",
    "/usr/bin/env", "/usr/bin/ruby", "/usr/bin/python3.9", "/usr/local/bin/app", "/opt/one", "/opt/two",
    "/srv/.venv/bin/app", "/usr/bin/other", "/usr/bin/ls", "/usr/bin/find", "/opt/pg/bin/initdb", "/opt/pg/bin/pg_ctl",
    "/opt/pg/bin/postgres", "/usr/local/bin/postgres",
)  # fmt: skip
SCRIPTS = {
    "/opt/conda/bin/conda": "#!/opt/conda/bin/python\n",
    "/usr/bin/poetry": "#!/usr/bin/python3\n",
    "/usr/bin/horovodrun": "#!/usr/bin/python3\n",
    "/usr/bin/bundle": "#!/usr/bin/ruby\n",
    "/usr/bin/npx": "#!/usr/bin/env node\n",
    "/srv/text.py": "#!/usr/bin/env python3\n",
    "/usr/bin/start": '#!/bin/sh\nif [ "$1" = a ]; then exec app; fi\nexec "$@"\n',
    "/usr/bin/split": '#!/bin/sh\nCOMMAND="app -x"\nexec env $COMMAND\n',
    "/opt/conda/bin/activate": '#!/bin/sh\n. /opt/conda/etc/profile.d/conda.sh || return\nconda activate "$@"\n',
    "/opt/conda/etc/profile.d/conda.sh": "export CONDA_EXE=/opt/conda/bin/conda\n"
    'conda() { local ask; ask="$("$CONDA_EXE" shell.posix "$@")" || return; eval "$ask"; }\n',
    "/opt/conda/envs/e/etc/conda/activate.d/libs.sh": 'export LD_LIBRARY_PATH="$CONDA_PREFIX/more"\n',
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageProfile:
    root = Root(tmp_path_factory.mktemp("launchers") / "root")
    for path in PROGRAMS:
        root.program(path)
    for path, target in (("/opt/conda/bin/python", "python3.11"), ("/opt/conda/envs/e/bin/python", "python3.10")):
        root.link(path, target)
    root.link("/usr/bin/python3", "python3.9")
    for path, text in SCRIPTS.items():
        root.write(path, text)
        root.at(path).chmod(0o755)
    variables = ("PATH=/opt/conda/bin:/usr/local/bin:/usr/bin:/bin", "MAMBA_ROOT_PREFIX=/opt/mamba")
    return structs.replace(root.profile(), config=ImageConfig(environment=variables, working_directory="/srv"))


def programs(image: ImageProfile, command: str) -> tuple[set[str], set[str]]:
    """Those that surely run besides the launcher's own interpreter, and those that may."""
    found = find_roots(image, tuple(command.split()))
    own = {"/bin/sh", "/usr/bin/env", "/usr/bin/node", "/usr/bin/ruby", "/usr/bin/python3.9", "/usr/bin/uv"}
    own |= {"/opt/conda/bin/python3.11", "/usr/bin/micromamba", "/usr/bin/other", "/usr/bin/ls"}
    named = set(found.entries) - own
    return named - set(found.perhaps), named & set(found.perhaps)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("conda run -n e python text.py", "/opt/conda/envs/e/bin/python3.10"),
        ("conda run --no-capture-output --name e tool --flag", "/opt/conda/envs/e/bin/tool"),
        ("conda run -p /opt/own --cwd /opt tool", "/opt/own/bin/tool"),
        ("conda run -n base /opt/one", "/opt/one"),
        ("conda run -n e --cwd /opt ./one", "/opt/one"),
        ("micromamba run -n f tool", "/opt/mamba/envs/f/bin/tool"),
        ("poetry run app", "/srv/.venv/bin/app"),
        ("uv run --no-sync app", "/srv/.venv/bin/app"),
        ("horovodrun -np 4 -H localhost:4 app", "/usr/local/bin/app"),
        ("bundle exec app", "/usr/local/bin/app"),
        ("npx app", "/usr/local/bin/app"),
        ("env start a", "/usr/local/bin/app"),
        ("env sh /usr/bin/start a", "/usr/local/bin/app"),
        ("split", "/usr/local/bin/app"),
    ],
)
def test_the_command_of_a_launcher_starts(image: ImageProfile, command: str, expected: str) -> None:
    assert programs(image, command) == ({expected}, set())


@pytest.mark.parametrize("option", ["-c", "-lc", "--command", "--session-command"])
def test_su_gives_its_line_to_a_shell(option: str) -> None:
    found = launched("su", ("root", option, "t1 x"))
    assert found is not None and found.words == ("/bin/sh", "-c", "t1 x")


@pytest.mark.parametrize(
    "launcher", {each.id: each for each in launchers().values()}.values(), ids=lambda each: each.id
)
def test_every_launcher_of_the_table_is_read_as_it_says_and_has_sources(launcher: Launcher) -> None:
    assert launcher.sources and all(source.startswith("https://") for source in launcher.sources)
    assert launcher.search or not (launcher.optional or launcher.own)
    assert launcher.lines or not launcher.shells
    assert all(launchers()[program] is launcher for program in launcher.programs)


@pytest.mark.parametrize("front", {each.id: each for each in fronts().values()}.values(), ids=lambda each: each.id)
def test_every_program_that_starts_others_has_sources(front: Front) -> None:
    assert front.starts and front.sources and all(source.startswith("https://") for source in front.sources)
    assert all(fronts()[program] is front for program in front.programs)


def test_programs_start_others_of_their_own_package(image: ImageProfile) -> None:
    own, other = "/opt/pg/bin/postgres", "/usr/local/bin/postgres"
    assert programs(image, "/opt/pg/bin/initdb -D /data") == ({"/opt/pg/bin/initdb", own}, set())
    assert programs(image, "/opt/pg/bin/pg_ctl start") == ({"/opt/pg/bin/pg_ctl"}, {own})
    assert other not in find_roots(image, ("/opt/pg/bin/initdb",)).entries


_LINES = ["flock {lock} -c", "flock -w 9 {lock} --command", "script -qec", "script {lock} -c", "sg root -c",
          "su root -s /bin/dash -c"]  # fmt: skip


@pytest.mark.parametrize("command", _LINES)
def test_what_has_a_line_for_a_shell_runs_it(command: str, tmp_path: Path) -> None:
    words = command.format(lock=tmp_path / "lock").split()
    line = f"touch {tmp_path}/done"
    found = launched(words[0], (*words[1:], line))
    assert found is not None and found.words[1:] == ("-c", line)
    subprocess.run([*words, line], stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path, check=True)
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize(
    ("command", "perhaps", "in_part"),
    [
        ("find /data ! -user app -exec ls app {} +", {"/usr/bin/ls"}, False),
        ("find /data -name other -ok app other ;", {"/usr/local/bin/app"}, False),
        ("find /data -name app", set(), False),
        ("find /data -executable -exec {} ;", set(), True),
    ],
)
def test_find_starts_what_stands_behind_its_verbs_for_what_it_finds(
    image: ImageProfile, command: str, perhaps: set[str], in_part: bool
) -> None:
    found = find_roots(image, tuple(command.split()))
    assert (set(found.entries), set(found.perhaps), found.in_part) == ({"/usr/bin/find", *perhaps}, perhaps, in_part)
    assert not found.unstartable


def test_a_dynamic_loader_takes_directories_in_place_of_the_variable(image: ImageProfile) -> None:
    linkages = (image.facts(record).linkage for record in image.files)
    (loader,) = {linkage.interpreter for linkage in linkages if linkage and linkage.interpreter}
    for name, told in ((loader, ("/opt/lib", "")), ("/lib/ld-musl-x86_64.so.1", None)):
        files = structs.replace(image.files[0], path=name, object="loader")
        known = structs.replace(
            image,
            files=(*image.files, files),
            objects=image.objects | {"loader": CodeFacts(1, Linkage(64, "x86_64", "shared"))},
        )
        found = find_roots(known, (name, "--library-path", "/opt/lib", "/opt/one"))
        assert found.environments.get("/opt/one") == told
        assert ("/opt/one" in found.steered) == (told is None)


def test_gosu_starts_no_text_without_an_interpreter(image: ImageProfile) -> None:
    text = structs.replace(image.tree.scripts[0], path="/opt/text", interpreter=())
    known = structs.replace(image, tree=structs.replace(image.tree, scripts=(*image.tree.scripts, text)))
    own = {each: structs.replace(image.files[0], path=f"/usr/bin/{each}") for each in ("gosu", "su-exec")}
    known = structs.replace(known, files=(*known.files, *own.values()))
    reasons = {each: find_roots(known, (each, "app", "/opt/text")).unstartable for each in own}
    assert [each.reason for each in reasons["gosu"]] == ["no-format"]
    assert not reasons["su-exec"]


def test_a_word_with_a_blank_is_a_name_where_no_shell_splits_it(image: ImageProfile) -> None:
    assert [each.word for each in find_roots(image, ("env", "app -x")).unstartable] == ["app -x"]


def test_an_option_of_the_command_is_no_line_of_its_launcher() -> None:
    found = launched("flock", ("/tmp/lock", "server", "-c", "server.conf"))
    assert found is not None and found.words[1:] == ("server", "-c", "server.conf")


def test_a_program_in_a_string_of_code_may_run(image: ImageProfile) -> None:
    for command in (("ruby", "-e", "exec'/opt/one'"), ("python3", "-c", "import os\nos.system('/opt/one -x')")):
        assert "/opt/one" in find_roots(image, command).perhaps


@pytest.mark.parametrize("command", ["conda install /opt/one", "conda run", "poetry install", "bundle config exec"])
def test_without_its_word_a_launcher_starts_nothing(image: ImageProfile, command: str) -> None:
    assert not programs(image, command)[0]
    assert not find_roots(image, tuple(command.split())).in_part


def test_a_command_that_is_in_no_environment_of_the_image_is_unknown(image: ImageProfile) -> None:
    for command in ("poetry run absent", "uv run absent", "conda run -n absent absent"):
        assert find_roots(image, tuple(command.split())).in_part, command


def test_what_an_environment_sets_where_it_is_activated_holds_for_its_program(image: ImageProfile) -> None:
    found = find_roots(image, ("conda", "run", "-n", "e", "tool"))
    library_path, _ = found.environments["/opt/conda/envs/e/bin/tool"]
    assert library_path == "/opt/conda/envs/e/more"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("source activate e; tool", "e"),
        (". /opt/conda/bin/activate; conda activate e && exec tool", "e"),
        (". /opt/conda/etc/profile.d/conda.sh; conda activate e; tool", "e"),
        ('eval "$(conda shell.bash hook 2>/dev/null)"; conda activate e; tool', "e"),
        ("eval \"$(/opt/conda/bin/conda 'shell.posix' 'hook')\"; N=e; conda activate $N; tool", "e"),
        ('eval "$(micromamba shell hook --shell bash)"; micromamba activate -n f; tool', "f"),
        ('setup="$(conda shell.bash hook)"\nif [ $? -eq 0 ]; then eval "$setup"; fi\nconda activate e\ntool', "e"),
        (
            'setup="$(conda shell.bash hook)" || true\nif [ -n "$setup" ]; then eval "$setup"; else . /absent.sh; fi\n'
            "conda activate e || exit 1\ntool",
            "e",
        ),
        ("conda activate e; micromamba activate f; tool", "f"),
        ("(conda activate f); conda activate e; tool", "e"),
    ],
)
def test_an_activated_environment_comes_first(image: ImageProfile, text: str, expected: str) -> None:
    found = find_roots(image, ("sh", "-c", text))
    root = {"e": "/opt/conda", "f": "/opt/mamba"}[expected]
    tools = {path: path in found.perhaps for path in found.entries if path.endswith("/tool")}
    assert tools == {f"{root}/envs/{expected}/bin/tool": False}
    assert expected == "f" or found.environments[f"{root}/envs/e/bin/tool"][0] == "/opt/conda/envs/e/more"


@pytest.mark.parametrize("name", ["absent", "$(cat /name)"])
def test_an_environment_that_the_image_lacks_leaves_open_which_program_is_first(image: ImageProfile, name: str) -> None:
    found = find_roots(image, ("sh", "-c", f"conda activate {name}; exec python"))
    assert found.in_part
    assert "/opt/conda/bin/python3.11" in found.perhaps


@pytest.mark.parametrize("name", ["", "base", '"$UNSET"'])
def test_without_a_name_the_base_environment_is_activated(image: ImageProfile, name: str) -> None:
    found = find_roots(image, ("sh", "-c", f"conda activate {name}; exec python"))
    assert set(found.entries) - set(found.perhaps) == {"/bin/sh", "/opt/conda/bin/python3.11"}


def test_without_its_word_conda_changes_nothing(image: ImageProfile) -> None:
    found = find_roots(image, ("sh", "-c", "conda info e; exec python"))
    assert "/opt/conda/envs/e/bin/python3.10" not in found.entries


@pytest.mark.parametrize(
    ("command", "perhaps"),
    [
        ("other --exec /opt/one -- /opt/two", "/opt/one /opt/two"),
        ("python3 text.py /opt/one", "/opt/one"),
        ("python3 /srv/text.py", ""),
        ("python3 ./text.py", ""),
        ("other --exec=/opt/one,/opt/two", "/opt/one /opt/two"),
        ("other --exec=/opt/ones", ""),
        ("ls /opt/one", ""),
        ("other one", ""),
    ],
)
def test_a_program_that_another_one_is_told_by_its_path_may_run(
    image: ImageProfile, command: str, perhaps: str
) -> None:
    assert programs(image, command) == (set(), set(perhaps.split()))
