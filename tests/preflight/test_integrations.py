"""The ready files for schedulers that are not at hand, called as those call them.

Slurm's run in a real cluster, in tests/slurm. An `imgcheck` that ends with a given status and words stands for ours,
whose statuses test_schedulers.py holds.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import CHECKOUT, pypi_directory

FILES = CHECKOUT / "integrations"
STRANGE = (1, 2, 3, 126, 127, 137)
"""What an imgcheck that is broken, missing or killed leaves behind."""


@pytest.fixture
def stand_in(tmp_path):
    """Makes an imgcheck that notes its arguments, says "because" and exits with a status."""

    def make(status: int) -> Path:
        program = tmp_path / "imgcheck"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/arguments\necho because\nexit {status}\n')
        program.chmod(0o755)
        return program

    return make


def _call(script: str, program: Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"IMGCHECK": str(program), "PATH": "/usr/bin:/bin", **environment}
    return subprocess.run([FILES / script], capture_output=True, text=True, env=variables, input=stdin, timeout=60)


PASSED_ON = {
    "lsf/pre_exec.sh": (99, 43),
    "sge/prolog.sh": (99, 100),
    "slurm/task_prolog.sh": (42, 43),
    "slurm/prolog.sh": (),
}


@pytest.mark.parametrize(("script", "passed_on"), PASSED_ON.items())
def test_scripts_pass_on_what_their_scheduler_understands_and_nothing_else(stand_in, script, passed_on):
    names = {"IMGCHECK_IMAGE": "/shared/app.sif", "SLURM_JOB_COMMENT": "imgcheck:/shared/app.sif"}
    for status in (0, 42, 43, 99, 100, *STRANGE):
        expected = status if status in passed_on else 0
        assert _call(script, stand_in(status), **names).returncode == expected, status
    assert _call(script, Path("/no/such/imgcheck"), **names).returncode == 0


def test_the_batch_script_asks_for_another_node_as_the_task_prolog_does(stand_in, tmp_path):
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n')
    srun.chmod(0o755)
    names = {"IMGCHECK_IMAGE": "/shared/app.sif", "SLURM_JOB_NUM_NODES": "1", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert _call("slurm/batch.sh", stand_in(43), IMGCHECK_INCOMPATIBLE="requeue", **names).returncode == 43
    assert (tmp_path / "arguments").read_text().splitlines()[-1:] == ["--incompatible=requeue"]
    assert _call("slurm/batch.sh", stand_in(42), **names).returncode == 42
    assert "--incompatible" not in (tmp_path / "arguments").read_text()


def test_a_node_without_imgcheck_hides_no_refusal_of_another_from_the_batch_script(stand_in, tmp_path):
    srun = tmp_path / "srun"
    srun.write_text(
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nworst=0\n'
        f"for imgcheck in {tmp_path}/imgcheck /no/such; do\n  (for word; do shift; "
        f'[ "$word" != {tmp_path}/imgcheck ] || word=$imgcheck; set -- "$@" "$word"; done; "$@")\n'
        "  status=$?; [ $status -le $worst ] || worst=$status\ndone\nexit $worst\n"
    )
    srun.chmod(0o755)
    names = {"IMGCHECK_IMAGE": "/shared/app.sif", "SLURM_JOB_NUM_NODES": "2", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    for status in (42, 43):
        assert _call("slurm/batch.sh", stand_in(status), **names).returncode == status


@pytest.mark.parametrize("script", PASSED_ON)
def test_scripts_leave_jobs_without_an_image_alone(stand_in, tmp_path, script):
    assert _call(script, stand_in(42)).returncode == 0
    assert not (tmp_path / "arguments").exists()


@pytest.fixture
def described(place):
    """Nodes of two kinds as `imgcheck probe -o %h.json` leaves them, and an imgcheck that counts its preflights."""
    hosts = place.directory / "hosts"
    hosts.mkdir()
    for number in (1, 2, 3):
        cpu = "haswell" if number == 3 else "skylake_avx512"
        shutil.copy(place.host(cpu), hosts / f"node0{number}.json")
    program = place.directory / "imgcheck"
    program.write_text(
        f'#!/bin/sh\necho "$1" >>{place.directory}/calls\ncd {CHECKOUT}\n'
        f'[ "$1" != preflight ] || set -- "$@" --cache {place.cache} --no-store --runtime apptainer\n'
        f'exec {sys.executable} -m imgcheck "$@"\n'
    )
    program.chmod(0o755)

    def call(nodes: str, image: Path | None = None) -> tuple[int, str, int]:
        """Exit status, words and the number of preflights of the PrologSlurmctld for a job on these nodes."""
        comment = f"imgcheck:{image or place.image()}"
        done = _call("slurm/slurmctld_prolog.sh", program, HOSTS=str(hosts), SLURM_JOB_NODELIST=nodes,
                     SLURM_JOB_COMMENT=comment)  # fmt: skip
        calls = (place.directory / "calls").read_text().split()
        (place.directory / "calls").unlink()
        return done.returncode, done.stdout, calls.count("preflight")

    return call


def test_slurmctld_holds_the_image_against_each_kind_among_the_nodes(described):
    status, said, preflights = described("node[01-02]")
    assert (status, preflights) == (0, 1)
    assert said.startswith("imgcheck: compatible: ")
    status, said, preflights = described("node[01-03]")
    assert (status, preflights) == (1, 2)
    assert "CPU001" in said
    assert described("node[03,02]")[0] == 1


def test_slurmctld_says_which_nodes_are_not_described(described, place):
    status, said, preflights = described("node[01,07]")
    assert (status, preflights) == (0, 1)
    assert f"no file in {place.directory}/hosts describes node07\n" in said
    status, said, preflights = described("node[07-09]")
    assert (status, preflights) == (0, 0)
    assert said.startswith(f"imgcheck: {place.directory}/hosts: no file describes node[07-09]\n")


def test_slurmctld_does_not_wait_for_a_fifo(described, place):
    os.mkfifo(place.directory / "fifo")
    status, said, _ = described("node01", place.directory / "fifo")
    assert status == 0
    assert f"not checked: {place.directory}/fifo: neither a file nor a directory" in said


@pytest.mark.parametrize("status", STRANGE)
def test_slurmctld_lets_jobs_run_where_imgcheck_is_broken(stand_in, status):
    names = {"SLURM_JOB_COMMENT": "imgcheck:/shared/app.sif", "SLURM_JOB_NODELIST": "node1"}
    assert _call("slurm/slurmctld_prolog.sh", stand_in(status), **names).stdout == "because\n"
    assert _call("slurm/slurmctld_prolog.sh", stand_in(status), **names).returncode == 0
    assert _call("slurm/slurmctld_prolog.sh", Path("/no/such/imgcheck"), **names).returncode == 0


def test_scripts_hand_over_runtime_and_requeue(stand_in, tmp_path):
    _call(
        "sge/prolog.sh",
        stand_in(0),
        IMGCHECK_IMAGE="/a b.sif",
        IMGCHECK_RUNTIME="docker",
        IMGCHECK_INCOMPATIBLE="requeue",
    )
    words = ["preflight", "/a b.sif", "--scheduler", "sge", "--runtime=docker", "--incompatible=requeue"]
    assert (tmp_path / "arguments").read_text().splitlines() == words


def test_lsf_posts_the_reason_to_the_job(stand_in, tmp_path):
    bpost = tmp_path / "bpost"
    bpost.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/posted\n')
    bpost.chmod(0o755)
    _call("lsf/pre_exec.sh", stand_in(99), LSB_CONTAINER_IMAGE="/x.sif", LSF_BINDIR=str(tmp_path), LSB_JOBID="7")
    assert (tmp_path / "posted").read_text().splitlines() == ["-d", "because", "7"]


def test_lsf_posts_nothing_to_a_job_that_fits(stand_in, tmp_path):
    (tmp_path / "bpost").write_text(f"#!/bin/sh\necho >{tmp_path}/posted\n")
    (tmp_path / "bpost").chmod(0o755)
    program = stand_in(0)
    program.write_text(program.read_text().replace("because", "'imgcheck: compatible: /x.sif on node'"))
    _call("lsf/pre_exec.sh", program, LSB_CONTAINER_IMAGE="/x.sif", LSF_BINDIR=str(tmp_path), LSB_JOBID="7")
    assert not (tmp_path / "posted").exists()


def test_lsf_does_not_wait_for_a_message_that_nobody_takes(stand_in, tmp_path):
    (tmp_path / "bpost").write_text("#!/bin/sh\nexec sleep 100\n")
    (tmp_path / "bpost").chmod(0o755)
    (tmp_path / "timeout").write_text('#!/bin/sh\nshift 3\nexec /usr/bin/timeout -s KILL 0.1 "$@"\n')
    (tmp_path / "timeout").chmod(0o755)
    names = {"LSB_CONTAINER_IMAGE": "/x.sif", "LSF_BINDIR": str(tmp_path), "LSB_JOBID": "7"}
    assert _call("lsf/pre_exec.sh", stand_in(99), PATH=f"{tmp_path}:/usr/bin:/bin", **names).returncode == 99


def test_lsf_application_lines_run_under_the_shell(stand_in, tmp_path):
    lines = (FILES / "lsf/lsb.applications").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("PRE_EXEC") and "powerai" in line]
    command = line.partition("=")[2].replace("/opt/imgcheck/lsf", str(FILES / "lsf"))
    variables = {"IMGCHECK": str(stand_in(99)), "PATH": "/bin:/usr/bin"}
    assert subprocess.run(["/bin/sh", "-c", command], env=variables, cwd="/tmp").returncode == 99
    assert "/shared/imgcheck/powerai-4.0.0.json" in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize("name", ["ContainerImage", "SingularityImage", "ImgcheckImage", "imgcheckimage"])
def test_condor_takes_the_image_from_the_job_ad(stand_in, tmp_path, name):
    ad = f'ClusterId = 7\n{name} = "/shared/app.sif"\nImgcheckIncompatible = "requeue"\n'
    done = _call("htcondor/prepare_job.sh", stand_in(0), stdin=ad)
    assert (done.returncode, done.stdout) == (0, "because\n")
    words = ["preflight", "/shared/app.sif", "--scheduler", "htcondor", "--incompatible=requeue"]
    assert (tmp_path / "arguments").read_text().splitlines() == words


def test_condor_strings_are_read_as_the_old_syntax_has_them(stand_in, tmp_path):
    ad = r'CONTAINERIMAGE = "/shared/a \"new\" b\c.sif"' + "\nImgcheckImage = undefined\n"
    _call("htcondor/prepare_job.sh", stand_in(0), stdin=ad)
    assert r'/shared/a "new" b\c.sif' in (tmp_path / "arguments").read_text().splitlines()


@pytest.mark.parametrize("image", ["docker://app:1", "--rules=/x", ""])
def test_condor_leaves_other_jobs_alone(stand_in, tmp_path, image):
    ad = f'ContainerImage = "{image}"\n' if image else "ClusterId = 7\n"
    done = _call("htcondor/prepare_job.sh", stand_in(0), stdin=ad)
    assert (done.returncode, done.stdout) == (0, "")
    assert not (tmp_path / "arguments").exists()


@pytest.mark.parametrize(
    ("status", "calls"),
    [
        (0, ["accept"]),
        (42, ["delete", "reject because"]),
        (43, ["reject because"]),
        *((n, ["accept"]) for n in STRANGE),
    ],
)
def test_pbs_hook(stand_in, tmp_path, status, calls):
    assert _hook(tmp_path, {"IMGCHECK_IMAGE": "/shared/app.sif"}, stand_in(status)) == calls


@pytest.mark.parametrize("image", ["--rules=/home/user/site", "-x", "--", "app.sif", "registry/app:1"])
def test_the_pbs_hook_hands_root_no_option_of_the_users(tmp_path, stand_in, image):
    assert _hook(tmp_path, {"IMGCHECK_IMAGE": image}, stand_in(42)) == ["accept"]
    assert not (tmp_path / "arguments").exists()
    variables = {"IMGCHECK_IMAGE": "/app.sif", "IMGCHECK_RUNTIME": image, "IMGCHECK_INCOMPATIBLE": image}
    _hook(tmp_path, variables, stand_in(42))
    words = (tmp_path / "arguments").read_text().splitlines()
    assert words[-2:] == [f"--runtime={image}", f"--incompatible={image}"]


@pytest.mark.parametrize("script", ["lsf/pre_exec.sh", "sge/prolog.sh", "slurm/task_prolog.sh"])
def test_an_image_that_looks_like_an_option_is_handed_to_nobody(stand_in, tmp_path, script):
    assert _call(script, stand_in(0), IMGCHECK_IMAGE="--rules=/home/user/site").returncode == 0
    assert not (tmp_path / "arguments").exists()
    _call(script, stand_in(0), IMGCHECK_IMAGE="/app.sif", IMGCHECK_RUNTIME="--rules=/home/user/site")
    assert (tmp_path / "arguments").read_text().splitlines()[-1] == "--runtime=--rules=/home/user/site"


def test_pbs_hook_accepts_where_imgcheck_is_missing_or_not_asked(tmp_path, stand_in):
    assert _hook(tmp_path, {"IMGCHECK_IMAGE": "/shared/app.sif"}, Path("/no/such")) == ["accept"]
    assert _hook(tmp_path, {}, stand_in(42)) == ["accept"]
    assert not (tmp_path / "arguments").exists()


def _hook(directory: Path, variables: dict[str, str], program: Path) -> list[str]:
    """What the hook calls of the module that PBS gives it."""
    (directory / "pbs.py").write_text(
        f"""
class Event:
    class job:
        Variable_List = {variables!r}
        delete = staticmethod(lambda: print("delete"))
    reject = staticmethod(lambda said: print("reject", said))
    accept = staticmethod(lambda: print("accept"))
event = Event
"""
    )
    hook = (FILES / "pbs/hook.py").read_text().replace("/opt/imgcheck/bin/imgcheck", str(program))
    done = subprocess.run([sys.executable, "-c", hook], capture_output=True, text=True, cwd=directory,
                          env=os.environ | {"PYTHONPATH": str(directory)})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_kubernetes_job_is_valid_and_knows_our_exit_codes():
    needed = ("kubernetes-validate==1.34.1", "PyYAML==6.0.2", "jsonschema==4.23.0", "referencing==0.35.1",
              "attrs==24.2.0", "rpds-py==0.20.0", "jsonschema-specifications==2024.10.1", "packaging==24.1",
              "typing_extensions==4.12.2", "importlib_resources==6.4.5")  # fmt: skip
    path = os.pathsep.join(str(pypi_directory(requirement)) for requirement in needed)
    code = """
import json, sys, yaml, kubernetes_validate
job = yaml.safe_load(open(sys.argv[1]))
kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
print(json.dumps(job))
"""
    done = subprocess.run([sys.executable, "-S", "-c", code, FILES / "kubernetes/job.yaml"], capture_output=True,
                          text=True, env=os.environ | {"PYTHONPATH": path})  # fmt: skip
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["spec"]
    rules = {rule["action"]: rule["onExitCodes"] for rule in job["podFailurePolicy"]["rules"]}
    assert {action: rule["values"] for action, rule in rules.items()} == {"FailJob": [42], "Ignore": [43]}
    (init,) = job["template"]["spec"]["initContainers"]
    assert {rule["containerName"] for rule in rules.values()} == {init["name"]}
    assert "kubernetes" in init["command"]
