"""The ready TaskProlog and Prolog in a real Slurm: what becomes of the job, its output and the node."""

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, start_cluster
from tests.slurm.conftest import SCRIPTS, Site

pytestmark = pytest.mark.slow

RAN = "the program has started"


@pytest.fixture(scope="module")
def cluster(site: Site) -> Iterator[Cluster]:
    prolog = site.script("prolog", f"export IMGCHECK={site.imgcheck('haswell')}", f"exec {SCRIPTS}/prolog.sh")
    settings = {"TaskProlog": f"{SCRIPTS}/task_prolog.sh", "Prolog": str(prolog), "RequeueExit": "43"}
    with start_cluster(site.directory / "task", **settings) as running:
        yield running
        running.cancel_all()


@pytest.fixture
def job(site: Site):
    return site.script("job", f"echo {RAN}")


def test_a_job_that_needs_avx512_is_stopped_on_a_haswell_node_before_its_program_starts(cluster, site, job):
    submitted = cluster.submit(job, IMGCHECK=str(site.imgcheck("haswell")), IMGCHECK_IMAGE=str(site.image))
    ended = cluster.finished(submitted)
    assert (ended.state, ended.exit_code) == ("FAILED", "42:0")
    assert RAN not in ended.output
    assert f"imgcheck: incompatible: {site.image}" in ended.output
    assert "CPU001 The CPU lacks AVX-512F" in ended.output
    assert "you would see: Illegal instruction" in ended.output
    assert "way out: Run it on a node whose CPU has AVX-512F" in ended.output
    assert cluster.node_state() == "idle"


def test_a_sif_without_a_profile_is_read_by_the_task_prolog(cluster, site, job):
    submitted = cluster.submit(job, IMGCHECK=str(site.imgcheck("haswell")), IMGCHECK_IMAGE=str(site.unprofiled))
    ended = cluster.finished(submitted)
    assert (ended.state, ended.exit_code) == ("FAILED", "42:0")
    assert "CPU001" in ended.output
    assert RAN not in ended.output


def test_the_same_job_runs_on_a_node_with_avx512(cluster, site, job):
    submitted = cluster.submit(job, IMGCHECK=str(site.imgcheck("skylake_avx512")), IMGCHECK_IMAGE=str(site.image))
    ended = cluster.finished(submitted)
    assert ended.state == "COMPLETED"
    compatible, ran = ended.output.splitlines()
    assert compatible.startswith("imgcheck: compatible: ")
    assert ran == RAN
    assert cluster.node_state() == "idle"


def test_a_job_whose_image_cannot_be_checked_runs_with_a_warning(cluster, site, job):
    submitted = cluster.submit(job, IMGCHECK=str(site.imgcheck("haswell")), IMGCHECK_IMAGE="/no/such.sif")
    ended = cluster.finished(submitted)
    assert ended.state == "COMPLETED"
    assert "imgcheck: not checked: /no/such.sif" in ended.output
    assert "the job goes on unchecked" in ended.output
    assert ended.output.endswith(f"{RAN}\n")


def test_a_missing_imgcheck_costs_no_job(cluster, site, job):
    submitted = cluster.submit(job, IMGCHECK="/no/such/imgcheck", IMGCHECK_IMAGE=str(site.image))
    ended = cluster.finished(submitted)
    assert (ended.state, ended.output) == ("COMPLETED", f"{RAN}\n")


def test_a_job_without_an_image_is_left_alone(cluster, site, job):
    ended = cluster.finished(cluster.submit(job, IMGCHECK=str(site.imgcheck("haswell"))))
    assert (ended.state, ended.output) == ("COMPLETED", f"{RAN}\n")


def test_only_one_task_of_a_node_speaks(cluster, site):
    step = site.script("step", f"srun --overlap --ntasks=2 echo {RAN}")
    submitted = cluster.submit(
        step, "--ntasks=2", IMGCHECK=str(site.imgcheck("skylake_avx512")), IMGCHECK_IMAGE=str(site.image)
    )
    ended = cluster.finished(submitted)
    assert ended.output.count(RAN) == 2
    assert ended.output.count("imgcheck: compatible") == 2, "one line of the batch script, one of the step"


def test_with_requeue_exit_the_job_tries_again(cluster, site, job):
    environment = {"IMGCHECK": str(site.imgcheck("haswell")), "IMGCHECK_IMAGE": str(site.image)}
    submitted = cluster.submit(job, "--requeue", IMGCHECK_INCOMPATIBLE="requeue", **environment)
    try:
        again = cluster.reaches(submitted, "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", restarts=1)
        assert RAN not in again.output
    finally:
        cluster.user("scancel", submitted)
    assert cluster.node_state() == "idle"


def test_the_prolog_never_drains_a_healthy_node(cluster, site, job):
    ended = cluster.finished(cluster.submit(job, f"--comment=imgcheck:{site.image}"))
    assert (ended.state, ended.output) == ("COMPLETED", f"{RAN}\n")
    assert cluster.node_state() == "idle"
