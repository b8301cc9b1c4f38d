"""A Grid Engine of one host on this machine: sge_qmaster and sge_execd of a directory and ports of their own."""

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.peers import as_unprivileged, daemons, free_port
from tests.tools import need, run

_PATIENCE = 90.0
_PROGRAMS = Path("/usr/lib/gridengine")
_SHARE = Path("/usr/share/gridengine")
_ABSENT = """load_thresholds suspend_thresholds ckpt_list pe_list prolog epilog starter_method suspend_method
    resume_method terminate_method owner_list user_lists xuser_lists subordinate_list complex_values projects
    xprojects calendar"""
_LIMITED = "rt cpu fsize data stack core rss vmem"
_QUEUE = (
    dict.fromkeys(_ABSENT.split(), "NONE")
    | {f"{kind}_{what}": "INFINITY" for what in _LIMITED.split() for kind in "sh"}
    | {
        "qname": "main.q", "hostlist": "@allhosts", "seq_no": "0", "nsuspend": "1", "suspend_interval": "00:05:00",
        "priority": "0", "min_cpu_interval": "00:05:00", "processors": "UNDEFINED", "qtype": "BATCH INTERACTIVE",
        "rerun": "FALSE", "slots": "2", "tmpdir": "/tmp", "shell": "/bin/sh", "shell_start_mode": "unix_behavior",
        "notify": "00:00:60", "initial_state": "default",
    }
)  # fmt: skip
"""Every attribute of a queue: `qconf -Aq` takes no file that leaves one out."""


@dataclass(frozen=True)
class Cluster:
    """A running cell; jobs are those of an ordinary user."""

    directory: Path
    environment: Mapping[str, str]

    def submit(self, script: Path, *options: str, **variables: str) -> str:
        """`qsub` a script with these variables; returns the job's number."""
        passed = [word for name, value in variables.items() for word in ("-v", f"{name}={value}")]
        # Else jobs would start in their user's home, and nobody's does not exist.
        output = ("-j", "y", "-o", str(self.directory / "jobs"), "-wd", str(self.directory / "jobs"), "-N", "job")
        command = _named(*as_unprivileged(need("qsub"), "-terse", *output, *passed, *options, script))
        done = subprocess.run(command, capture_output=True, text=True, env=dict(self.environment), cwd="/", timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def output(self, job: str) -> str:
        """What prolog and job have printed so far."""
        file = self.directory / "jobs" / f"job.o{job}"
        return file.read_text() if file.exists() else ""

    def reaches(self, job: str, state: str) -> str:
        """Waits until `qstat` shows the job in `state` ("Eqw"), "" once it is not there any more; its output then."""
        self._await(lambda: self._state(job) == state, f"job {job} in state {state!r}")
        return self.output(job)

    def says(self, job: str, text: str, times: int) -> None:
        """Waits until the job's output holds `text` so often."""
        self._await(lambda: self.output(job).count(text) >= times, f"{times} x {text!r} in the output of {job}")

    def queue_state(self) -> str:
        """The letters that `qstat -f` shows for the queue on this host: "" while it takes jobs, E after an error."""
        line = next(line for line in self._manage("qstat", "-f").splitlines() if line.startswith("main.q@"))
        return " ".join(line.split()[5:])

    def delete(self, job: str) -> None:
        self._manage("qdel", job)
        self.reaches(job, "")

    def set_prolog(self, prolog: Path) -> None:
        self._manage("qconf", "-rattr", "queue", "prolog", str(prolog), "main.q")

    def repair(self) -> None:
        """Clear the error state of the queue."""
        self._manage("qmod", "-cq", "main.q")

    def _state(self, job: str) -> str:
        lines = (line.split() for line in self._manage("qstat", "-u", "*").splitlines())
        return next((words[4] for words in lines if words and words[0] == job), "")

    def _manage(self, tool: str, *arguments: str) -> str:
        return run(*_named(need(tool), *arguments), env=dict(self.environment)).stdout

    def _await(self, ready, what: str) -> None:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            if ready():
                return
            time.sleep(0.2)
        logs = [path.read_text(errors="replace")[-2000:] for path in self.directory.rglob("messages")]
        raise AssertionError("\n".join([f"not seen: {what}", self._manage("qstat", "-f"), *logs]))


@contextmanager
def start_cluster(directory: Path) -> Iterator[Cluster]:
    """A cell in `directory`, which every user can enter, with one queue of two slots."""
    environment = _lay_out(directory)
    cluster = Cluster(directory, environment)
    # SGE_ND: they stay in the foreground.
    with daemons(directory, environment) as start:
        start("sge_qmaster", *_named(need("sge_qmaster")))
        cluster._await(lambda: _answers("qconf", "-sconf", environment=environment), "an answer of sge_qmaster")
        _add(directory, environment)
        start("sge_execd", *_named(need("sge_execd")))
        cluster._await(lambda: cluster.queue_state() == "", "a queue that takes jobs")
        yield cluster


def _lay_out(directory: Path) -> dict[str, str]:
    """The files that a cell begins with; returns the environment of its programs."""
    common, spool, jobs = directory / "default/common", directory / "default/spool", directory / "jobs"
    for made in (common, spool / "qmaster/job_scripts", jobs):
        made.mkdir(parents=True)
    jobs.chmod(0o777)
    (directory / "util").symlink_to(_SHARE / "util")
    for name in ("bin", "lib", "utilbin"):
        (directory / name).mkdir()
        (directory / name / "lx-amd64").symlink_to(_PROGRAMS)
    spooling = f"{common};{spool}/qmaster"
    settings = {
        "admin_user": "none", "default_domain": "none", "ignore_fqdn": "true", "spooling_method": "classic",
        "spooling_lib": "libspoolc", "spooling_params": spooling, "binary_path": str(_PROGRAMS),
        "qmaster_spool_dir": f"{spool}/qmaster", "security_mode": "none", "listener_threads": "2",
        "worker_threads": "2", "scheduler_threads": "1", "jvm_threads": "0",
    }  # fmt: skip
    (common / "bootstrap").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    (common / "act_qmaster").write_text("localhost\n")
    # 127.0.0.1 may have the machine's own name as well.
    (common / "host_aliases").write_text(f"localhost {socket.gethostname()}\n")
    environment = {
        "SGE_ROOT": str(directory), "SGE_CELL": "default", "SGE_ND": "1", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "SGE_QMASTER_PORT": str(free_port()), "SGE_EXECD_PORT": str(free_port()),
    }  # fmt: skip
    changes = {"execd_spool_dir": str(spool), "load_report_time": "00:00:01", "min_uid": "0", "min_gid": "0"}
    configuration = _changed((_SHARE / "default-configuration").read_text(), changes)
    (directory / "configuration").write_text(configuration)
    run(*_named(_PROGRAMS / "spoolinit", "classic", "libspoolc", spooling, "init"), env=environment)
    for what, value in {
        "configuration": directory / "configuration",
        "complexes": _SHARE / "util/resources/centry",
        "usersets": _SHARE / "util/resources/usersets",
        "managers": "root",
    }.items():
        run(*_named(_PROGRAMS / "spooldefaults", what, value), env=environment)
    return environment


def _named(*command: str | Path) -> tuple[str, ...]:
    """`command` on a machine named localhost: Grid Engine does nothing where a machine's name has no address."""
    words = (need("unshare"), "--uts", "sh", "-c", 'hostname localhost && exec "$@"', "sh")
    return (*words, *map(str, command))


def _add(directory: Path, environment: Mapping[str, str]) -> None:
    """Host, host group, queue, and a scheduler that does not wait, in a master that runs."""

    def qconf(*arguments: str | Path) -> str:
        return run(*_named(need("qconf"), *arguments), env=dict(environment)).stdout

    with suppress(AssertionError):  # where the master has made its own host one already
        qconf("-ah", "localhost")
    qconf("-as", "localhost")
    group, queue, scheduler = (directory / name for name in ("group", "queue", "scheduler"))
    group.write_text("group_name @allhosts\nhostlist localhost\n")
    qconf("-Ahgrp", group)
    queue.write_text("".join(f"{name} {value}\n" for name, value in _QUEUE.items()))
    qconf("-Aq", queue)
    hurry = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
    scheduler.write_text(_changed(qconf("-ssconf"), hurry))
    qconf("-Msconf", scheduler)


def _answers(*command: str, environment: Mapping[str, str]) -> bool:
    tool, *arguments = command
    return subprocess.run(_named(need(tool), *arguments), capture_output=True, env=dict(environment)).returncode == 0


def _changed(text: str, settings: Mapping[str, str]) -> str:
    lines = [line for line in text.splitlines() if line.split(maxsplit=1)[:1] and line.split()[0] not in settings]
    return "\n".join([*lines, *(f"{name} {value}" for name, value in settings.items()), ""])
