"""Every exit status of every preset, from a real check: it is given on its outcome and on no other."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from imgcheck.knowledge import Knowledge
from imgcheck.knowledge.schedulers import schedulers
from tests.tools import CHECKOUT

OUTCOMES = ("compatible", "incompatible", "elsewhere", "undecided", "unchecked")

STATUS = {
    "none": (0, 1, 1, 3, 2),
    "slurm-task": (0, 42, 43, 0, 0),
    "slurm-batch": (0, 42, 43, 0, 0),
    "slurm-prolog": (0, 0, 0, 0, 0),
    "slurmctld": (0, 42, 43, 0, 0),
    "lsf": (0, 99, 43, 0, 0),
    "pbs": (0, 42, 43, 0, 0),
    "sge": (0, 100, 99, 0, 0),
    "htcondor": (0, 0, 0, 0, 0),
    "kubernetes": (0, 42, 43, 0, 0),
}
HOOK_STATUS = dict(zip(OUTCOMES, (0, 42, 300, 0, 0), strict=True))
CASES = [(name, outcome) for name in STATUS for outcome in OUTCOMES]


def _run(place, outcome: str, *arguments: object) -> int:
    """A preflight that ends with `outcome`."""
    cpu = "skylake_avx512" if outcome == "compatible" else "haswell"
    image = place.image(answer="unknown" if outcome == "undecided" else "required")
    if outcome == "unchecked":
        image.unlink()
        (place.directory / "app.sif.imgcheck.json").unlink()
    more = ("--incompatible", "requeue") if outcome == "elsewhere" else ()
    return place.preflight(image, "--host", place.host(cpu), "--runtime", "apptainer", *more, *arguments)


def test_every_preset_is_tested():
    assert set(schedulers(Knowledge())) == set(STATUS)


@pytest.mark.parametrize(("name", "outcome"), CASES)
def test_exit_status(place, capsys, name, outcome):
    expected = STATUS[name][OUTCOMES.index(outcome)]
    assert _run(place, outcome, "--scheduler", name) == expected
    said = capsys.readouterr()
    word = {"elsewhere": "incompatible", "unchecked": "not checked"}.get(outcome, outcome)
    assert f"imgcheck: {word}: {place.directory}/app.sif" in said.out + said.err
    if name == "htcondor":
        assert f"HookStatusCode = {HOOK_STATUS[outcome]}\n" in said.out


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_task_prolog_says_nothing_but_print_lines_on_standard_output(place, capsys, outcome):
    _run(place, outcome, "--scheduler", "slurm-task")
    said = capsys.readouterr()
    assert said.out
    assert all(line.startswith("print ") for line in said.out.splitlines())
    assert said.err == ""


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_condor_hook_prints_attributes_alone(place, capsys, outcome):
    _run(place, outcome, "--scheduler", "htcondor")
    lines = capsys.readouterr().out.splitlines()
    assert all(re.fullmatch(r'HookStatusCode = \d+|HookStatusMessage = "(?:[^"\\]|\\.)*"', line) for line in lines)
    assert (len(lines) == 2) == (outcome in ("incompatible", "elsewhere"))


def test_kubernetes_gets_the_reason_where_the_kubelet_looks(place, monkeypatch):
    log = place.directory / "termination-log"
    site = _site(place, f'message_file = "{log}"')
    log.write_text("")
    assert _run(place, "incompatible", "--scheduler", "kubernetes", "--rules", site) == 42
    assert "CPU001 The CPU lacks AVX-512F" in log.read_text()


def test_a_missing_termination_log_is_not_made(place):
    log = place.directory / "termination-log"
    assert (
        _run(place, "incompatible", "--scheduler", "kubernetes", "--rules", _site(place, f'message_file = "{log}"'))
        == 42
    )
    assert not log.exists()


@pytest.mark.parametrize("other", ["link", "fifo"])
def test_what_is_no_file_of_its_own_gets_no_message(place, other):
    log, target = place.directory / "termination-log", place.directory / "target"
    target.write_text("precious")
    log.symlink_to(target) if other == "link" else os.mkfifo(log)
    site = _site(place, f'message_file = "{log}"')
    assert _run(place, "incompatible", "--scheduler", "kubernetes", "--rules", site) == 42
    assert target.read_text() == "precious"


@pytest.mark.parametrize(
    "words", [("--rules={}",), ("app.sif", "--runtime", "--rules={}"), ("app.sif", "--", "x", "--rules={}")]
)
def test_rules_that_the_parser_does_not_take_choose_no_preset(place, words):
    log = place.directory / "passwd"
    log.write_text("precious")
    preset = _site(place, f'message_file = "{log}"') / "schedulers/kubernetes.toml"
    preset.write_text(preset.read_text().replace("[scheduler.unchecked]\nexit = 0", "[scheduler.unchecked]\nexit = 7"))
    image, *rest = [word.format(preset.parent.parent) for word in words]
    assert place.preflight("--scheduler", "kubernetes", "--timeout", "60", image, *rest) == 0
    assert log.read_text() == "precious"


def test_a_site_may_let_unchecked_jobs_fail(place, capsys):
    site = place.directory / "site"
    (site / "schedulers").mkdir(parents=True)
    text = (CHECKOUT / "rules/schedulers/sge.toml").read_text()
    head, _, unchecked = text.partition("[scheduler.unchecked]\nexit = 0")
    (site / "schedulers/sge.toml").write_text(f"{head}[scheduler.unchecked]\nexit = 100{unchecked}")
    assert _run(place, "unchecked", "--scheduler", "sge", "--rules", site) == 100
    assert "goes on" not in capsys.readouterr().out


def test_of_several_presets_and_sites_those_that_the_parser_takes_answer_for_trouble(place, capsys):
    strict, other = place.directory / "strict", place.directory / "other"
    for site, status in ((strict, 7), (other, 9)):
        (site / "schedulers").mkdir(parents=True)
        preset = "sge" if site is strict else "lsf"
        text = (CHECKOUT / f"rules/schedulers/{preset}.toml").read_text()
        (site / f"schedulers/{preset}.toml").write_text(re.sub(r"(unchecked\]\nexit = )0", rf"\g<1>{status}", text))
    rules = ("--rules", other, "--rules", strict)
    assert place.preflight(place.image(), "--scheduler", "lsf", "--scheduler", "sge", *rules, "--no-such-option") == 7
    assert place.preflight(place.image(), "--scheduler", "sge", "--scheduler", "lsf", *rules, "--no-such-option") == 9


def _site(place, line: str):
    site = place.directory / "site"
    (site / "schedulers").mkdir(parents=True)
    text = (CHECKOUT / "rules/schedulers/kubernetes.toml").read_text()
    (site / "schedulers/kubernetes.toml").write_text(text.replace('message_file = "/dev/termination-log"', line))
    return site


@pytest.mark.parametrize("name", [name for name in STATUS if name != "none"])
@pytest.mark.parametrize("wrong", [("--no-such-option",), ("--timeout", "never"), ("--timeout", "0"), ("--",)])
def test_a_mistyped_option_neither_drains_a_node_nor_stops_a_job(place, capsys, name, wrong):
    assert place.preflight(place.image(), "--scheduler", name, *wrong) == 0
    assert "not checked" in "".join(capsys.readouterr())


def test_a_mistyped_scheduler_stops_nothing(place, capsys):
    assert place.preflight(place.image(), "--scheduler", "slrum-task") == 0
    assert "--scheduler slrum-task: unknown" in capsys.readouterr().err


@pytest.mark.parametrize("empty", [["--scheduler", ""], ["--scheduler="], ["--scheduler"], ["--scheduler", "--", "a"]])
def test_a_scheduler_without_a_name_stops_nothing(place, capsys, empty):
    assert place.preflight(place.image(), *empty) == 0
    assert "not checked: --scheduler has no value" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--schedular", "--shceduler", "--schedulers"])
def test_a_slip_in_the_word_scheduler_stops_nothing(place, capsys, option):
    assert place.preflight(place.image(), option, "slurm-task") == 0
    assert "not checked" in "".join(capsys.readouterr())
    assert place.preflight(place.image(), option, "") == 0
    assert place.preflight(place.image(), option, "none") == 2


def test_a_defect_of_ours_stops_nothing(place, monkeypatch, capsys):
    monkeypatch.setattr("imgcheck.check.run.check", lambda *_, **__: 1 / 0)
    assert _run(place, "incompatible", "--scheduler", "sge") == 0
    assert "not checked: internal error: ZeroDivisionError" in capsys.readouterr().out


def test_by_hand_a_mistyped_option_is_exit_2(place, capsys):
    assert place.preflight(place.image(), "--no-such-option") == 2
    assert place.preflight(place.image(), "--runtime", "dokcer") == 2
    assert "--runtime dokcer: unknown" in capsys.readouterr().err


@pytest.mark.parametrize(("scheduler", "status"), [("none", 2), ("slurm-task", 0), ("slurm-prolog", 0), ("sge", 0)])
def test_a_working_directory_that_is_gone_stops_nothing(place, scheduler, status):
    done = _process(place, scheduler, before="mkdir gone && cd gone && rmdir ../gone")
    assert done.returncode == status
    assert "the working directory: No such file or directory" in done.stdout + done.stderr


@pytest.mark.parametrize(("scheduler", "status"), [("none", 1), ("slurm-task", 42), ("slurm-prolog", 0), ("sge", 100)])
@pytest.mark.parametrize("behind", [">/dev/full 2>&1", "2>&1 | :", ">&- 2>&-"])
def test_output_that_nobody_takes_changes_no_status(place, scheduler, status, behind):
    done = _process(place, scheduler, behind=behind)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def _process(place, scheduler: str, before: str = "true", behind: str = "") -> subprocess.CompletedProcess[str]:
    """A preflight of an image that does not fit, in a process of its own."""
    words = [sys.executable, "-m", "imgcheck", "preflight", place.image(), "--host", place.host(), "--no-store"]
    command = shlex.join(map(str, [*words, f"--cache={place.cache}", f"--scheduler={scheduler}"]))
    script = f"set -o pipefail; {before}; {command} {behind}"
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    return subprocess.run(
        ["bash", "-c", script], cwd=place.directory, env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("number", ["0", "1"])
def test_only_the_first_task_of_a_node_speaks(place, monkeypatch, capsys, number):
    monkeypatch.setenv("SLURM_LOCALID", number)
    assert _run(place, "incompatible", "--scheduler", "slurm-task") == 42
    assert bool(capsys.readouterr().out) == (number == "0")


def test_the_page_tells_what_each_preset_does():
    page = (CHECKOUT / "docs/preflight.md").read_text()
    for preset in schedulers(Knowledge()).values():
        for outcome in OUTCOMES:
            row = preset.row(outcome)
            assert f"| {row.exit} | {row.job} | {row.node} |" in page, (preset.id, outcome)
