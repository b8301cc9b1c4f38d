"""A Slurm cluster on this machine: munged, slurmctld and a slurmd per node, with a directory and ports of their own."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.peers import as_unprivileged, daemons, free_port
from tests.tools import need, run

_FINISHED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
_PATIENCE = 60.0


@dataclass(frozen=True)
class Job:
    id: str
    state: str
    exit_code: str
    restarts: int
    reason: str
    output: str


@dataclass(frozen=True)
class Cluster:
    """A running cluster; its commands are run as an ordinary user."""

    directory: Path
    environment: Mapping[str, str]

    def submit(self, script: Path, *options: str, arguments: tuple[str, ...] = (), **environment: str) -> str:
        """`sbatch` a script; returns the job's number."""
        output = self.directory / "jobs" / "%j.out"
        command = ("sbatch", "--parsable", f"--output={output}", f"--chdir={output.parent}", *options)
        return self.user(*command, str(script), *arguments, **environment).stdout.strip()

    def finished(self, job: str) -> Job:
        """The job when it has ended."""
        return self.reaches(job, *_FINISHED)

    def reaches(self, job: str, *states: str, restarts: int = 0) -> Job:
        """The job when it is in one of `states` after this many restarts."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            now = self.job(job)
            if now.state in states and now.restarts >= restarts:
                return now
            time.sleep(0.2)
        raise AssertionError(f"job {job} does not reach {states}: {now}\n{self._logs()}")

    def job(self, job: str) -> Job:
        text = run(need("scontrol"), "show", "job", job, env=self.environment).stdout
        fields = dict(word.split("=", 1) for word in text.split() if "=" in word)
        output = self.directory / "jobs" / f"{job}.out"
        said = output.read_text() if output.exists() else ""
        return Job(job, fields["JobState"], fields["ExitCode"], int(fields["Restarts"]), fields["Reason"], said)

    def node_state(self) -> str:
        """State of the node when no job is left on it: "idle" unless it was drained."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            state = run(need("sinfo"), "--noheader", "--format=%T", env=self.environment).stdout.strip()
            if state not in ("allocated", "completing", "mixed", "draining"):
                break
            time.sleep(0.2)
        return state

    def user(self, tool: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A Slurm command as an ordinary user; a failure is the caller's to judge."""
        variables = {**self.environment, **environment}
        command = as_unprivileged(need(tool), *arguments)
        return subprocess.run(command, capture_output=True, text=True, env=variables, cwd="/", timeout=120)

    def cancel_all(self) -> None:
        run(need("scancel"), "--partition=main", env=self.environment)

    def _logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.directory.glob("slurm*.log"))


@contextmanager
def start_cluster(directory: Path, nodes: int = 1, **settings: str) -> Iterator[Cluster]:
    """A cluster in `directory`, which every user can enter, with these further lines of slurm.conf.

    Its nodes are called node1, node2, ...; all of them are this machine.
    """
    names = [f"node{number}" for number in range(1, nodes + 1)]
    jobs = directory / "jobs"
    jobs.mkdir(parents=True)
    jobs.chmod(0o777)
    configuration = directory / "slurm.conf"
    configuration.write_text(_configuration(directory, names, settings))
    (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    environment = {"SLURM_CONF": str(configuration), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    key = directory / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    with daemons(directory, environment) as start:
        start("munged", need("munged"), "--foreground", "--force", f"--key-file={key}",
              f"--socket={directory}/munge.socket", f"--pid-file={directory}/munged.pid",
              f"--log-file={directory}/munged.log", f"--seed-file={directory}/munged.seed")  # fmt: skip
        _await((directory / "munge.socket").exists, directory)
        start("slurmctld", need("slurmctld"), "-D", "-c")
        for name in names:
            start(f"slurmd-{name}", need("slurmd"), "-D", "-N", name, "-c")
        cluster = Cluster(directory, environment)
        _await(
            lambda: cluster.user("sinfo", "--noheader", "--format=%D %T").stdout.strip() == f"{nodes} idle", directory
        )
        yield cluster


def _configuration(directory: Path, names: list[str], settings: Mapping[str, str]) -> str:
    host = socket.gethostname().partition(".")[0]
    lines = {
        "ClusterName": "test",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": str(free_port()),
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthInfo": f"socket={directory}/munge.socket",
        "StateSaveLocation": f"{directory}/state",
        "SlurmdSpoolDir": f"{directory}/spool-%n",
        "SlurmctldPidFile": f"{directory}/slurmctld.pid",
        "SlurmdPidFile": f"{directory}/slurmd-%n.pid",
        "SlurmctldLogFile": f"{directory}/slurmctld.log",
        "SlurmdLogFile": f"{directory}/slurmd-%n.log",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "SelectType": "select/linear",
        "MpiDefault": "none",
        "ReturnToService": "2",
        "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0",
        "MinJobAge": "300",
        **settings,
    }
    for folder in ("state", *(f"spool-{name}" for name in names)):
        (directory / folder).mkdir()
    place = f"NodeHostname={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN"
    nodes = [f"NodeName={name} Port={free_port()} {place}" for name in names]
    partition = f"PartitionName=main Nodes={','.join(names)} Default=YES MaxTime=INFINITE State=UP"
    return "\n".join([*(f"{name}={value}" for name, value in lines.items()), *nodes, partition, ""])


def _await(ready, directory: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        if ready():
            return
        time.sleep(0.1)
    logs = [path.read_text(errors="replace")[-2000:] for path in (*directory.glob("*.out"), *directory.glob("*.log"))]
    raise AssertionError("the cluster does not come up:\n" + "\n".join(logs))
