"""Slurm's other places: why our Prolog never fails, PrologSlurmctld, and the batch script without a TaskProlog."""

import socket
from collections.abc import Iterator

import pytest

from imgcheck.host.kinds import unfold
from tests.installation import installed_tree
from tests.slurm.cluster import Cluster, start_cluster
from tests.slurm.conftest import SCRIPTS, Site
from tests.tools import need, run

pytestmark = pytest.mark.slow

RAN = "the program has started"


@pytest.fixture(scope="module")
def cluster(site: Site) -> Iterator[Cluster]:
    """A cluster with the ready PrologSlurmctld, whose node is described as a Haswell, and without a TaskProlog."""
    with start_cluster(site.directory / "other", PrologSlurmctld=_prolog(site, "hosts", node1="haswell")) as running:
        yield running
        running.cancel_all()


def _prolog(site: Site, folder: str, **cpus: str) -> str:
    """The ready PrologSlurmctld, with a file of each of these nodes."""
    hosts = site.directory / folder
    hosts.mkdir()
    for node, cpu in cpus.items():
        site.imgcheck(cpu)
        (hosts / f"{node}.json").write_bytes((site.directory / f"{cpu}.json").read_bytes())
    settings = f"export IMGCHECK={installed_tree()}/bin/imgcheck HOSTS={hosts}"
    return str(site.script(f"prolog-{folder}", settings, f"exec {SCRIPTS}/slurmctld_prolog.sh"))


def test_a_prolog_that_fails_drains_the_node_and_holds_the_job(site: Site):
    prolog = site.script("strict", "exit 42")
    with start_cluster(site.directory / "strict-cluster", Prolog=str(prolog)) as cluster:
        submitted = cluster.submit(site.script("job", f"echo {RAN}"))
        held = cluster.reaches(submitted, "PENDING", restarts=1)
        assert RAN not in held.output
        assert cluster.node_state() == "drained"


def test_prolog_slurmctld_sends_a_batch_job_back_to_the_queue(cluster: Cluster, site: Site):
    job = site.script("job", f"echo {RAN}")
    submitted = cluster.submit(job, f"--comment=imgcheck:{site.image}")
    again = cluster.reaches(submitted, "PENDING", "RUNNING", "CONFIGURING", restarts=1)
    cluster.user("scancel", submitted)
    assert RAN not in again.output
    assert cluster.finished(cluster.submit(job)).output == f"{RAN}\n"
    assert cluster.node_state() == "idle"


def test_a_job_of_several_nodes_runs_only_where_its_image_fits_all_of_them(site: Site):
    """Of three nodes the first is a Haswell, where the image's program dies."""
    skylake = "skylake_avx512"
    prolog = _prolog(site, "hosts-of-three", node1="haswell", node2=skylake, node3=skylake)
    job = site.script("job-of-two", f"srun echo {RAN}")
    with start_cluster(site.directory / "three", nodes=3, PrologSlurmctld=prolog) as cluster:
        options = ("--nodes=2", f"--comment=imgcheck:{site.image}")
        submitted = cluster.submit(job, *options, "--nodelist=node1,node3")
        again = cluster.reaches(submitted, "PENDING", "RUNNING", "CONFIGURING", restarts=1)
        cluster.user("scancel", submitted)
        assert RAN not in again.output
        fitting = cluster.finished(cluster.submit(job, *options, "--nodelist=node2,node3"))
        assert fitting.output == f"{RAN}\n{RAN}\n"
        assert fitting.restarts == 0
        assert cluster.node_state() == "idle"


def test_probes_of_a_job_tell_the_kinds_of_nodes(cluster: Cluster, site: Site):
    """`srun imgcheck probe -o DIR/%h.json`, then `imgcheck hosts DIR`: this machine is the only kind."""
    imgcheck, probes = installed_tree() / "bin/imgcheck", cluster.directory / "probes"
    probes.mkdir()
    probes.chmod(0o777)
    probed = cluster.finished(cluster.submit(site.script("collect", f"srun {imgcheck} probe -o {probes}/%h.json")))
    assert (probed.state, probed.exit_code) == ("COMPLETED", "0:0")
    assert [path.stem for path in probes.iterdir()] == [socket.gethostname().partition(".")[0]]
    assert "1 node: 1 kind" in run(imgcheck, "hosts", probes).stdout


def test_lists_of_nodes_are_expanded_as_slurm_does(cluster: Cluster):
    for names in ("node[01-03]", "a,b[1-2,9],c[08-10]", "rack[1-2]n[01-02,5]", "n[8-11,002]"):
        shown = run(need("scontrol"), "show", "hostnames", names, env=cluster.environment).stdout
        assert unfold(names) == shown.split()


@pytest.mark.parametrize(("cpu", "state"), [("haswell", "FAILED"), ("skylake_avx512", "COMPLETED")])
def test_the_batch_script_starts_nothing_where_the_image_cannot_run(cluster: Cluster, site: Site, cpu: str, state: str):
    environment = {"IMGCHECK": str(site.imgcheck(cpu)), "IMGCHECK_IMAGE": str(site.image)}
    ended = cluster.finished(cluster.submit(SCRIPTS / "batch.sh", arguments=("echo", RAN), **environment))
    assert ended.state == state
    assert (RAN in ended.output) == (state == "COMPLETED")
    assert ended.exit_code == ("42:0" if state == "FAILED" else "0:0")
    assert cluster.node_state() == "idle"
