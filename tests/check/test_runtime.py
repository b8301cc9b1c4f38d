"""The rules on runtimes: each with a case that fires and one that does not."""

import json
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from imgcheck.check.gpu import check as check_gpu
from imgcheck.check.kernel import check as check_kernel
from imgcheck.check.libraries import check as check_libraries
from imgcheck.check.runtime import check
from imgcheck.documents.facts import CodeFacts, GpuCode, Linkage
from imgcheck.documents.host import HostLibrary, HostProfile, InstalledRuntime, known, unknown
from imgcheck.documents.image import Component, ImageConfig, Script, TreeIndex
from imgcheck.documents.report import Finding
from imgcheck.documents.shell_commands import ShellCommand, packed
from imgcheck.knowledge import Knowledge
from imgcheck.loader.model import close
from imgcheck.loader.roots import Roots, find_roots
from tests.check.contexts import CUDA, KNOWLEDGE, code, context, cpu, findings, outcome

ASKED = KNOWLEDGE.asked_paths
FULL_TREE = TreeIndex(
    directories=("/dev", "/proc", "/sys", "/tmp", "/root", "/usr/lib64"),
    files=("/etc/passwd", "/etc/group"),
    looked_for=ASKED,
)
GPU_NODE = {"gpus": ["Tesla K80"], "driver": "396.44"}


def judged(runtime: str, rule: str, host=None, files=None, **image):
    image.setdefault("tree", FULL_TREE)
    answers = check(context(files or {"/app": CUDA}, host or cpu("haswell", **GPU_NODE), runtime, **image))
    found = findings(answers, rule)
    return outcome(answers, rule), found


@pytest.mark.parametrize(
    ("driver", "result"),
    [("352.99", "fail"), ("361.93.02", "fail"), ("361.93.03", "ok"), ("375.51", "ok"), ("361", "unknown")],
)
def test_nvidia_docker_1_refuses_old_drivers(driver: str, result: str) -> None:
    host = cpu("power8", gpus=["Tesla P100-SXM2-16GB"], driver=driver)
    assert judged("nvidia-docker1", "RUN001", host)[0] == result
    assert judged("lsf-docker", "RUN001", host)[0] == result
    assert judged("docker", "RUN001", host)[0] == "not-applicable"


def test_what_no_command_reaches_asks_no_runtime_for_the_driver() -> None:
    unreached = {"/app": "unreached"}
    assert judged("enroot", "RUN002", reaches=unreached)[0] == "not-applicable"
    assert judged("enroot", "RUN002")[0] == "fail"


def test_unknown_driver_is_unknown() -> None:
    assert judged("nvidia-docker1", "RUN001", cpu("haswell"))[0] == "unknown"


def test_enroot_gives_no_gpu_to_an_image_without_its_variables() -> None:
    result, found = judged("enroot", "RUN002")
    assert result == "fail"
    assert [finding.subject for finding in found] == ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"]
    good = ImageConfig(environment=("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"))
    assert judged("enroot", "RUN002", config=good) == ("ok", [])


@pytest.mark.parametrize("value", ["void", "", "none"])
def test_variable_that_turns_injection_off_counts_as_missing(value: str) -> None:
    config = ImageConfig(environment=(f"NVIDIA_VISIBLE_DEVICES={value}", "NVIDIA_DRIVER_CAPABILITIES=all"))
    assert judged("enroot", "RUN002", config=config)[0] == "fail"


def test_docker_user_asks_for_gpus_by_option() -> None:
    result, (finding,) = judged("nvidia", "RUN002")
    assert (result, finding.severity) == ("ok", "info")
    assert "--gpus all" in finding.remedy
    shut = ImageConfig(environment=("NVIDIA_VISIBLE_DEVICES=void",))
    assert judged("nvidia", "RUN002", config=shut)[0] == "risk"


def test_image_without_gpu_code_needs_no_variables() -> None:
    assert judged("enroot", "RUN002", files={"/app": code()})[0] == "not-applicable"
    assert judged("enroot", "RUN002", cpu("haswell", gpus=["none"]))[0] == "not-applicable"


def _linked(*needed: str, functions: tuple[str, ...] = ()) -> CodeFacts:
    return CodeFacts(1000, Linkage(64, "x86_64", needed=needed, driver_functions=functions))


@pytest.mark.parametrize(
    ("facts", "wants"),
    [
        (CUDA, True),
        (CodeFacts(1000, gpu=GpuCode(cudart="9.0")), True),
        (_linked("libcuda.so.1"), True),
        (_linked("libcudart.so.11.0"), True),
        (_linked("libcudart.so.12"), True),
        (_linked("libcudart.so.11.0.194"), True),
        (_linked(functions=("cuMemAlloc_v2",)), True),
        (_linked("libcudart.so.11.0-debug"), False),
        (_linked("libc.so.6"), False),
    ],
)
def test_all_rules_agree_on_whether_the_image_wants_a_gpu(facts: CodeFacts, wants: bool) -> None:
    made = context({"/app": facts}, cpu("haswell", **GPU_NODE), "nvidia", tree=FULL_TREE)
    assert (outcome(check(made), "RUN002") != "not-applicable") == wants
    reasons = {answer.rule: answer.reason for answer in (*check(made).checks, *check_gpu(made).checks)}
    without = {"the image has no code for NVIDIA GPUs", "the image has no GPU code"}
    assert (reasons["RUN002"] in without) == (reasons["GPU007"] in without) == (not wants)
    made = replace(made, closure=replace(made.closure, injected=frozenset({"/usr/lib64/libcuda.so.1"})))
    (library,) = [answer.reason for answer in check_libraries(made).checks if answer.rule == "LIB003"]
    assert (library == "nothing in the image uses the host's libraries") == (not wants)


def test_each_reason_why_a_rule_does_not_apply_is_the_true_one() -> None:
    def reason(runtime: str, rule: str, host: HostProfile, facts: CodeFacts) -> str:
        answers = check(context({"/app": facts}, host, runtime, tree=FULL_TREE))
        (found,) = [answer.reason for answer in answers.checks if answer.rule == rule]
        return found

    with_gpu, without = cpu("haswell", **GPU_NODE), cpu("haswell", gpus=["none"])
    for rule, asks, does_not in (
        ("RUN001", "lsf-docker", "docker"),
        ("RUN002", "enroot", "docker"),
        ("RUN003", "nvidia-docker1", "docker"),
        ("RUN007", "udocker-nvidia", "udocker"),
        ("RUN008", "udocker-nvidia", "docker"),
        ("RUN012", "udocker-nvidia", "docker"),
    ):
        assert reason(asks, rule, with_gpu, code()) == "the image has no code for NVIDIA GPUs"
        assert reason(asks, rule, without, CUDA) == "the host has no NVIDIA GPU"
        assert reason(does_not, rule, with_gpu, CUDA).startswith(KNOWLEDGE.runtimes[does_not].title)


def test_nvidia_docker_1_mounts_the_driver_by_label() -> None:
    assert judged("nvidia-docker1", "RUN003")[0] == "fail"
    config = ImageConfig(labels={"com.nvidia.volumes.needed": "nvidia_driver"})
    assert judged("nvidia-docker1", "RUN003", config=config)[0] == "ok"


def test_udocker_refuses_an_image_without_passwd_and_group() -> None:
    result, found = judged("udocker", "RUN004", tree=TreeIndex(looked_for=ASKED, directories=("/root",)))
    assert result == "fail"
    assert [finding.subject for finding in found] == ["/etc/passwd", "/etc/group"]
    assert found[0].predicted_error == "Error: invalid host volume path: /etc/passwd"
    assert judged("udocker", "RUN004")[0] == "ok"
    assert judged("docker", "RUN004", tree=TreeIndex())[0] == "not-applicable"


def test_what_a_profile_was_not_made_to_tell_of_is_unknown_and_not_missing() -> None:
    tree = replace(FULL_TREE, looked_for=("/etc/passwd", "/etc/group"), files=("/etc/passwd",))
    assert judged("udocker", "RUN004", tree=tree)[0] == "fail"
    tree = replace(tree, looked_for=("/etc/passwd",))
    assert judged("udocker", "RUN004", tree=tree) == ("unknown", [])
    assert judged("apptainer", "RUN014", tree=tree) == ("ok", [])  # which would have been information
    assert judged("udocker-nvidia", "RUN007", tree=replace(tree, directories=()))[0] == "unknown"
    assert judged("udocker-nvidia", "RUN012", tree=tree)[0] == "unknown"


def test_charliecloud_binds_to_directories_of_the_image() -> None:
    result, (finding,) = judged(
        "charliecloud",
        "RUN004",
        tree=TreeIndex(looked_for=ASKED, directories=("/dev", "/proc", "/sys"), files=FULL_TREE.files),
    )
    assert result == "fail"
    assert finding.predicted_error == "can't bind: destination not found: /tmp"


@pytest.mark.parametrize(
    ("config", "result"),
    [
        (ImageConfig(working_directory="/work"), "fail"),
        (ImageConfig(working_directory="/tmp/"), "ok"),
        (ImageConfig(), "ok"),
        (ImageConfig(user="app"), "ok"),
    ],
)
def test_udocker_does_not_create_the_working_directory(config: ImageConfig, result: str) -> None:
    assert judged("udocker", "RUN005", config=config)[0] == result


def test_missing_home_of_root_is_found_where_there_is_no_workdir() -> None:
    assert judged("udocker", "RUN005", tree=TreeIndex(looked_for=ASKED, files=FULL_TREE.files))[0] == "fail"


@pytest.mark.parametrize(
    ("user", "result"),
    [("", "ok"), ("app", "ok"), ("1000", "ok"), ("1000:1000", "ok"), ("app:app", "fail"), ("a.b", "fail")],
)
def test_udocker_understands_few_forms_of_user(user: str, result: str) -> None:
    assert judged("udocker", "RUN006", config=ImageConfig(user=user))[0] == result


def test_udocker_needs_a_place_for_the_driver() -> None:
    tree = TreeIndex(looked_for=ASKED, directories=("/root",), files=FULL_TREE.files)
    assert judged("udocker-nvidia", "RUN007", tree=tree)[0] == "fail"
    assert judged("udocker-nvidia", "RUN007")[0] == "ok"
    assert judged("udocker", "RUN007", tree=tree)[0] == "not-applicable"


def test_udocker_injects_nothing_on_arm() -> None:
    host = cpu("graviton2", **GPU_NODE)
    assert judged("udocker-nvidia", "RUN008", host)[0] == "fail"
    assert judged("udocker-nvidia", "RUN008")[0] == "ok"


def test_relative_command_depends_on_the_working_directory() -> None:
    config = ImageConfig(entrypoint=("./run.sh",), working_directory="/app")
    result, (finding,) = judged("apptainer", "RUN009", config=config)
    assert result == "fail"
    assert "--pwd /app" in finding.remedy
    assert judged("docker", "RUN009", config=config)[0] == "not-applicable"
    assert (
        judged("apptainer", "RUN009", config=ImageConfig(entrypoint=("run.sh",), working_directory="/app"))[0] == "ok"
    )


@pytest.mark.parametrize(
    ("words", "directory", "expected"),
    [
        (("python", "app.py"), "/app", "fail"),
        (("/app/run", "settings.yaml"), "/app", "risk"),
        (("python", "/app/app.py"), "/app", "ok"),
        (("python", "other.py"), "/app", "ok"),  # the image has none
        (("python", "-u", "app.py"), "/app", "fail"),
        (("python", "app/app.py"), "/", "ok"),
    ],
)
def test_a_file_that_the_command_names_from_its_workdir_is_not_found(
    words: tuple[str, ...], directory: str, expected: str
) -> None:
    tree = replace(FULL_TREE, files=(*FULL_TREE.files, "/app/app.py", "/app/settings.yaml"))
    config = ImageConfig(entrypoint=words[:1], command=words[1:], working_directory=directory)
    assert judged("apptainer", "RUN009", config=config, tree=tree)[0] == expected
    typed = replace(
        context({"/app": CUDA}, runtime="apptainer", config=config, tree=tree),
        roots=Roots(("python", "mine", "app.py")),
    )
    assert outcome(check(typed), "RUN009") == "ok"  # a user's own


def test_what_is_found_from_the_workdir_alone_is_told_by_its_name() -> None:
    config = ImageConfig(command=("/bin/sh", "-c", "uvicorn --host :: main:app"), working_directory="/app")
    image = context({"/app": CUDA}, runtime="apptainer", config=config)
    roots = Roots(("/bin/sh", "-c", "uvicorn --host :: main:app"), from_workdir=("main:app",))
    (finding,) = findings(check(replace(image, roots=roots)), "RUN009")
    assert (finding.severity, finding.subject) == ("fail", "main:app")
    assert finding.predicted_error == "No module named main" and "PYTHONPATH=/app" in finding.remedy
    (finding,) = findings(check(replace(image, roots=replace(roots, from_workdir=("job.py",)))), "RUN009")
    assert finding.predicted_error == "job.py: No such file or directory"
    for words in (("python", "-m", "main:app"), ("sh", "-c", "uvicorn main:app"), ("flask", "--app=main:app", "run")):
        typed = replace(roots, command=words)
        assert outcome(check(replace(image, roots=typed)), "RUN009") == "ok"  # a user's own
    assert outcome(check(replace(image, roots=replace(roots, from_workdir=()))), "RUN009") == "ok"


def test_a_script_before_the_command_may_go_to_the_workdir() -> None:
    tree = replace(FULL_TREE, files=(*FULL_TREE.files, "/app/app.py"))
    config = ImageConfig(entrypoint=("/enter.sh",), command=("python", "app.py"), working_directory="/app")
    image = context({"/app": CUDA}, runtime="apptainer", config=config, tree=tree)
    roots = Roots((*config.entrypoint, *config.command), ways={"/usr/bin/python3": "/enter.sh"})
    assert outcome(check(replace(image, roots=roots)), "RUN009") == "ok"
    assert outcome(check(replace(image, roots=replace(roots, from_workdir=("app.py",)))), "RUN009") == "fail"
    assert outcome(check(replace(image, roots=replace(roots, ways={}))), "RUN009") == "fail"


@pytest.mark.parametrize(("version", "result"), [("1.4.5", "fail"), ("", "risk"), ("1.5.0", "ok")])
def test_backtick_in_the_environment_breaks_old_apptainer(version: str, result: str) -> None:
    installed = known((InstalledRuntime("apptainer", version, "/usr/bin/apptainer"),), "PATH")
    host = replace(cpu("haswell"), runtimes=installed)
    config = ImageConfig(environment=("PS1=`hostname`",))
    assert judged("apptainer", "RUN010", host, config=config)[0] == result
    assert judged("apptainer", "RUN010", host, config=ImageConfig(environment=("A=b",)))[0] == "ok"


@pytest.mark.parametrize("name", sorted(KNOWLEDGE.runtimes))
def test_a_runtime_of_a_site_is_judged_as_that_of_the_same_program(name: str, tmp_path: Path) -> None:
    """What a runtime does follows from its family and program, never from the names of the entries shipped."""
    (tmp_path / "runtimes").mkdir()
    parsed = Knowledge((tmp_path,)).runtimes[name]
    given = {**to_builtins(parsed), "id": "ours", "title": parsed.title}
    lines = [f"{key} = {_toml(value)}" for key, value in given.items() if value not in ("", (), {})]
    (tmp_path / "runtimes/site.toml").write_text("\n".join(["[[runtime]]", *lines]))
    site = Knowledge((tmp_path,))
    config = ImageConfig(
        entrypoint=("./run.sh",),
        working_directory="/app",
        environment=("PS1=`hostname`", "NVIDIA_DISABLE_REQUIRE=yes", "NVIDIA_REQUIRE_CUDA=cuda>=99.0"),
    )
    tree = TreeIndex(directories=("/.singularity.d",))
    found = InstalledRuntime(name, "1.4.5", f"/usr/bin/{parsed.programs[-1]}")
    host = replace(cpu("haswell", **GPU_NODE), runtimes=known((found,), "PATH"))
    made = context({"/app/run": CUDA}, host, name, config=config, tree=tree)
    copy = replace(made, knowledge=site, runtime=site.runtimes["ours"])
    for family in (check, check_gpu, check_kernel):
        ours, shipped = (
            {(each.rule, each.outcome, each.reason) for each in family(one).checks} for one in (copy, made)
        )
        assert ours == shipped


def _toml(value: object) -> str:
    """A value of a runtime in TOML: JSON but for its tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {_toml(each)}' for key, each in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


@pytest.mark.parametrize(("driver", "result"), [("352.99", "fail"), ("375.51", "ok")])
def test_nvidia_docker_1_compares_the_cuda_label(driver: str, result: str) -> None:
    config = ImageConfig(labels={"com.nvidia.cuda.version": "8.0.61"})
    host = cpu("haswell", gpus=["K80"], driver=driver)
    outcome_, found = judged("nvidia-docker1", "RUN011", host, config=config)
    assert outcome_ == result
    if found:
        assert found[0].predicted_error == "nvidia-docker | Error: unsupported CUDA version: driver 7.5 < image 8.0"


@pytest.mark.parametrize(("label", "result"), [("12.2", "ok"), ("12.3", "unknown")])
def test_a_driver_of_a_branch_that_no_table_has_is_of_the_next_olders_cuda_at_least(label: str, result: str) -> None:
    config = ImageConfig(labels={"com.nvidia.cuda.version": label})
    host = cpu("haswell", gpus=["cc 8.7"], driver="540.4.0")
    assert judged("nvidia-docker1", "RUN011", host, config=config)[0] == result


@pytest.mark.parametrize("runtime", sorted(KNOWLEDGE.runtimes))
def test_every_runtime_answers_every_rule_once(runtime: str) -> None:
    answers = check(context({"/app": CUDA}, runtime=runtime, tree=FULL_TREE))
    rules = [result.rule for result in answers.checks]
    assert rules == [f"RUN{number:03}" for number in range(1, 17)]


MULTIARCH = "/usr/lib/x86_64-linux-gnu"


def way(*paths: str, host=None, runtime: str = "udocker-nvidia", links=None, directory: str = MULTIARCH, files=()):
    """RUN012 for an image with code at `paths`."""
    tree = TreeIndex(
        looked_for=ASKED,
        directories=(*FULL_TREE.directories, directory),
        files=(*FULL_TREE.files, *files),
        symlinks=links or {},
    )
    return judged(runtime, "RUN012", host, {"/app": CUDA} | dict.fromkeys(paths, CUDA), tree=tree)


def test_udocker_places_no_driver_beside_one_of_the_image() -> None:
    result, (finding,) = way(f"{MULTIARCH}/libcuda.so.410.48", links={f"{MULTIARCH}/libcuda.so.1": "libcuda.so.410.48"})
    assert result == "risk"
    assert [evidence.path for evidence in finding.evidence] == [f"{MULTIARCH}/libcuda.so.1"]
    assert finding.predicted_error == "Error: nvidia installation already exists, use --force to overwrite"
    assert "--force" in finding.remedy
    assert way(f"{MULTIARCH}/libcuda.so.396.44")[0] == "risk"
    assert way(runtime="udocker")[0] == "not-applicable"
    assert way(runtime="apptainer-nv")[0] == "not-applicable"


@pytest.mark.parametrize(
    "path",
    [
        f"{MULTIARCH}/libcuda.so.410.48",  # not the host's version
        f"{MULTIARCH}/libcudart.so.1",
        "/usr/local/cuda/compat/libcuda.so.1",
        "/usr/lib64/libcuda.so.1",  # udocker takes the other directory
        "/usr/bin/nvidia-modprobe",
    ],
)
def test_other_files_are_not_in_udockers_way(path: str) -> None:
    assert way(path) == ("ok", [])


@pytest.mark.parametrize("path", ["/etc/OpenCL/vendors/nvidia.icd", "/usr/bin/nvidia-smi", f"{MULTIARCH}/libcuda.so.1"])
def test_files_without_code_are_in_udockers_way(path: str) -> None:
    result, (finding,) = way(files=(path,))
    assert (result, finding.evidence[0].path) == ("risk", path)


def test_an_opencl_loader_is_in_the_way_of_a_host_that_has_one() -> None:
    loader = f"{MULTIARCH}/libOpenCL.so.1"
    node = cpu("haswell", **GPU_NODE)
    assert way(loader, host=node)[0] == "risk"  # not known
    for name, result in (("libOpenCL.so.1", "risk"), ("libnvidia-ml.so.1", "ok")):
        library = HostLibrary(f"/usr/lib64/{name}", name)
        assert way(loader, host=replace(node, libraries=known((library,), "test")))[0] == result


def test_the_directory_may_be_reached_by_a_link() -> None:
    links = {"/usr/lib64": "lib"}
    assert way("/usr/lib/libcuda.so.1", links=links, directory="/opt")[0] == "risk"


def test_a_file_that_is_no_library_stands_in_the_way_as_well() -> None:
    tree = replace(FULL_TREE, unloadable={"/usr/lib64/libcuda.so.1": "file too short"})
    result, (finding,) = judged("udocker-nvidia", "RUN012", tree=tree)
    assert (result, finding.evidence[0].path) == ("risk", "/usr/lib64/libcuda.so.1")


def test_a_dangling_link_stops_the_copy_without_an_error() -> None:
    link = f"{MULTIARCH}/libcuda.so.1"
    result, (finding,) = way(links={link: "libcuda.so.410.48"})
    assert result == "risk"
    assert finding.predicted_error == f"Info: nvidia file already exists {link} , use --force to overwrite"


def test_apptainer_keeps_scripts_that_the_image_ships() -> None:
    tree = TreeIndex(looked_for=ASKED, directories=(*FULL_TREE.directories, "/.singularity.d"))
    result, (finding,) = judged("apptainer-nv", "RUN013", tree=tree)
    assert (result, finding.severity) == ("ok", "info")
    link = TreeIndex(looked_for=ASKED, symlinks={"/.singularity.d": "opt/real"})
    assert "opt/real" in judged("singularity", "RUN013", tree=link)[1][0].evidence[0].detail
    assert judged("apptainer", "RUN013") == ("ok", [])
    assert judged("udocker", "RUN013", tree=tree)[0] == "not-applicable"
    assert judged("apptainer", "RUN013", tree=tree, config_digest="") == ("not-applicable", [])  # a sandbox or a SIF


def test_apptainer_makes_mountpoints_only_where_it_may() -> None:
    result, (finding,) = judged(
        "apptainer", "RUN014", tree=TreeIndex(looked_for=ASKED, directories=("/dev", "/proc", "/sys", "/tmp"))
    )
    assert (result, finding.severity) == ("ok", "info")
    assert [evidence.path for evidence in finding.evidence] == ["/var/tmp", "/home", "/root"]
    everything = TreeIndex(
        looked_for=ASKED, directories=("/dev", "/proc", "/sys", "/tmp", "/var/tmp", "/home"), symlinks={"/root": "home"}
    )
    assert judged("apptainer", "RUN014", tree=everything) == ("ok", [])
    assert judged("docker", "RUN014", tree=TreeIndex())[0] == "not-applicable"


def preloaded(component: Component | None, interpreter: str) -> list[Finding]:
    facts = CodeFacts(1000, Linkage(64, "x86_64", type="executable", interpreter=interpreter))
    components = (component,) if component else ()
    given = context({"/app": facts}, runtime="udocker", tree=FULL_TREE, components=components)
    return findings(check(replace(given, roots=Roots(entries=("/app",)))), "RUN015")


def test_udockers_f_modes_want_a_named_distribution_and_a_dynamic_program() -> None:
    debian = Component("Debian GNU/Linux", "12", "/etc/os-release")
    assert preloaded(debian, "/lib64/ld-linux-x86-64.so.2") == []
    (unnamed,) = preloaded(None, "/lib64/ld-linux-x86-64.so.2")
    assert unnamed.severity == "info"
    assert unnamed.evidence[0].path == "/etc/os-release"
    (static,) = preloaded(debian, "")
    assert static.evidence[0].path == "/app"
    assert judged("docker", "RUN015")[0] == "not-applicable"


PROGRAM = CodeFacts(1000, Linkage(64, "x86_64", type="executable", interpreter="/lib64/ld-linux-x86-64.so.2"))
HOME_PROGRAM = "/root/.local/bin/app"


def closed_to(
    *command: str, closed: tuple[str, ...] = ("/root",), runtime: str = "apptainer", path: str = "", **image
) -> tuple[str, list[Finding]]:
    tree = replace(
        FULL_TREE,
        closed=closed,
        symlinks={"/usr/bin/linked": HOME_PROGRAM},
        scripts=(Script("/root/run.sh", ("/bin/sh",), packed([ShellCommand(("/usr/bin/tool",))])),),
    )
    config = ImageConfig(command=command, environment=(f"PATH={path}",) if path else ())
    files = dict.fromkeys(("/bin/sh", "/usr/bin/tool", HOME_PROGRAM), PROGRAM)
    given = context(files, runtime=runtime, tree=tree, config=config, **image)
    roots = find_roots(given.image)
    answers = check(replace(given, roots=roots, closure=close(given.image, roots)))
    return outcome(answers, "RUN016"), findings(answers, "RUN016")


@pytest.mark.parametrize(
    ("word", "error"),
    [
        (HOME_PROGRAM, f"FATAL:   stat {HOME_PROGRAM}: permission denied"),
        ("linked", 'FATAL:   "linked": executable file not found in $PATH'),
        ("/root/run.sh", "FATAL:   stat /root/run.sh: permission denied"),
    ],
)
def test_what_lies_in_roots_home_is_closed_to_the_users_of_apptainer(word: str, error: str) -> None:
    result, (finding,) = closed_to(word)
    assert (result, finding.predicted_error, finding.subject) == ("fail", error, "/root")
    assert closed_to(word, runtime="docker")[0] == "not-applicable"
    assert closed_to(word, closed=())[0] == "ok"
    assert closed_to(word, config_digest="")[0] == "not-applicable"  # an unpacked tree


def test_a_program_that_its_owner_alone_may_execute_is_closed_too() -> None:
    result, (finding,) = closed_to("tool", closed=("/usr/bin/tool",))
    assert (result, finding.predicted_error) == ("fail", "FATAL:   exec /usr/bin/tool failed: permission denied")


def test_what_a_shell_starts_is_told_with_what_leads_to_it() -> None:
    result, (finding,) = closed_to("sh", "-c", f"exec {HOME_PROGRAM}")
    assert (result, finding.predicted_error) == ("fail", f"{HOME_PROGRAM}: Permission denied")
    assert finding.evidence[0].way == ("sh",)


def test_what_the_command_names_is_closed_too() -> None:
    result, (finding,) = closed_to("sh", "/root/run.sh")
    assert (result, finding.predicted_error) == ("fail", "/root/run.sh: Permission denied")
    assert closed_to("sh", "/root/other") == ("ok", [])


def test_what_the_command_does_not_start_may_be_closed() -> None:
    assert closed_to("tool") == ("ok", [])


def test_a_closed_directory_of_path_is_a_risk_where_a_shell_waits() -> None:
    assert closed_to("sh") == ("ok", [])
    result, (finding,) = closed_to("sh", path="/usr/bin:/bin:/root/.local/bin")
    assert (result, [evidence.path for evidence in finding.evidence]) == ("risk", [HOME_PROGRAM])
    assert closed_to("sh", path="/usr/bin:/bin", closed=("/usr/bin/tool",)) == ("ok", [])


def test_shifter_enters_the_working_directory_only_when_asked() -> None:
    config = ImageConfig(entrypoint=("./run.sh",), working_directory="/app")
    result, (finding,) = judged("shifter", "RUN009", config=config)
    assert result == "fail"
    assert "--workdir=/app" in finding.remedy
    assert judged("shifter", "RUN009", config=ImageConfig(entrypoint=("/run.sh",)))[0] == "ok"


def of_docker(version: str) -> HostProfile:
    installed = known((InstalledRuntime("nvidia", version, "/usr/bin/nvidia-container-runtime"),), "PATH")
    return replace(cpu("haswell", **GPU_NODE), runtimes=installed if version else unknown("not looked for"))


@pytest.mark.parametrize(("version", "result"), [("1.17.4", "fail"), ("", "risk"), ("1.18.0", "ok")])
def test_capabilities_without_compute_keep_libcuda_out_of_the_legacy_mode(version: str, result: str) -> None:
    def answer(*capabilities: str) -> tuple[str, list[Finding]]:
        environment = ("NVIDIA_VISIBLE_DEVICES=all", *capabilities)
        return judged("nvidia", "RUN002", of_docker(version), config=ImageConfig(environment=environment))

    outcome_, found = answer("NVIDIA_DRIVER_CAPABILITIES=graphics,utility")
    assert outcome_ == result
    assert all("-e NVIDIA_DRIVER_CAPABILITIES=compute,utility" in each.remedy for each in found)
    for good in ((), ("NVIDIA_DRIVER_CAPABILITIES=",), ("NVIDIA_DRIVER_CAPABILITIES=compute,utility",)):
        assert answer(*good) == ("ok", [])


def test_images_of_nvidia_docker_1_get_the_driver_without_asking() -> None:
    legacy = ImageConfig(environment=("CUDA_VERSION=9.0.176",))
    assert judged("nvidia", "RUN002", config=legacy) == ("ok", [])
    assert judged("enroot", "RUN002", config=legacy)[0] == "fail"
    off = ImageConfig(environment=("CUDA_VERSION=9.0.176", "NVIDIA_VISIBLE_DEVICES=void"))
    assert judged("nvidia", "RUN002", config=off)[0] == "risk"


def test_a_relative_entrypoint_counts_where_it_is_started() -> None:
    config = ImageConfig(entrypoint=("./run",), working_directory="/app")
    files = context({"/app": CUDA}, cpu("haswell"), "apptainer", config=config)
    typed = replace(files, roots=Roots(command=("./run", "/bin/true")))
    assert outcome(check(typed), "RUN009") == "ok"
    relative = replace(files, roots=Roots(command=("./run", "bin/tool")))
    assert findings(check(relative), "RUN009")[0].subject == "bin/tool"
    assert outcome(check(replace(files, roots=Roots(command=("./run",)))), "RUN009") == "fail"
