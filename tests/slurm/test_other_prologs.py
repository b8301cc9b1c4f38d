"""Slurm's other places: why our Prolog never fails, PrologSlurmctld, and the batch script without a TaskProlog."""

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
    hosts = site.directory / "hosts"
    hosts.mkdir()
    site.imgcheck("haswell")
    (hosts / "node1.json").write_bytes((site.directory / "haswell.json").read_bytes())
    settings = f"export IMGCHECK={installed_tree()}/bin/imgcheck HOSTS={hosts}"
    prolog = site.script("slurmctld-prolog", settings, f"exec {SCRIPTS}/slurmctld_prolog.sh")
    with start_cluster(site.directory / "other", PrologSlurmctld=str(prolog)) as running:
        yield running
        running.cancel_all()


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
