"""The ready prolog in a real Grid Engine: what becomes of the job, its output and the queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gridengine.cluster import Cluster, start_cluster
from tests.slurm.conftest import Site
from tests.tools import CHECKOUT

pytestmark = pytest.mark.slow

PROLOG = CHECKOUT / "integrations/sge/prolog.sh"
RAN = "the program has started"


@pytest.fixture(scope="module")
def cluster(site: Site) -> Iterator[Cluster]:
    with start_cluster(site.directory / "gridengine") as running:
        running.set_prolog(PROLOG)
        yield running


@pytest.fixture
def job(site: Site) -> Path:
    return site.script("job", f"echo {RAN}")


def test_a_job_that_needs_avx512_is_put_into_the_error_state_and_its_program_never_starts(cluster, site, job):
    submitted = cluster.submit(job, IMGCHECK=str(site.imgcheck("haswell")), IMGCHECK_IMAGE=str(site.image))
    said = cluster.reaches(submitted, "Eqw")
    assert f"imgcheck: incompatible: {site.image}" in said
    assert "you would see: Illegal instruction" in said
    assert RAN not in said
    assert cluster.queue_state() == ""
    cluster.delete(submitted)


def test_the_same_job_runs_on_a_node_with_avx512(cluster, site, job):
    submitted = cluster.submit(job, IMGCHECK=str(site.imgcheck("skylake_avx512")), IMGCHECK_IMAGE=str(site.image))
    compatible, ran = cluster.reaches(submitted, "").splitlines()
    assert compatible.startswith("imgcheck: compatible: ")
    assert ran == RAN


def test_a_job_is_tried_again_where_it_asks_for_that(cluster, site, job):
    asked = {"IMGCHECK": str(site.imgcheck("haswell")), "IMGCHECK_IMAGE": str(site.image)}
    submitted = cluster.submit(job, **asked, IMGCHECK_INCOMPATIBLE="requeue")
    cluster.says(submitted, "imgcheck: incompatible", times=2)
    assert RAN not in cluster.output(submitted)
    cluster.delete(submitted)
    assert cluster.queue_state() == ""


def test_a_job_whose_image_cannot_be_checked_runs_with_a_warning(cluster, site, job):
    submitted = cluster.submit(job, IMGCHECK=str(site.imgcheck("haswell")), IMGCHECK_IMAGE="/no/such.sif")
    said = cluster.reaches(submitted, "")
    assert "imgcheck: not checked: /no/such.sif" in said
    assert said.endswith(f"{RAN}\n")


def test_a_missing_imgcheck_closes_no_queue(cluster, site, job):
    submitted = cluster.submit(job, IMGCHECK="/no/such/imgcheck", IMGCHECK_IMAGE=str(site.image))
    assert cluster.reaches(submitted, "").endswith(f"{RAN}\n")
    assert cluster.queue_state() == ""


def test_any_other_status_of_a_prolog_does_close_the_queue(cluster, site, job):
    # What the ready file keeps from happening.
    cluster.set_prolog(site.script("careless-prolog", "exit 1"))
    try:
        submitted = cluster.submit(job)
        cluster.reaches(submitted, "qw")
        cluster._await(lambda: cluster.queue_state() == "E", "a queue in error")
        cluster.delete(submitted)
    finally:
        cluster.repair()
        cluster.set_prolog(PROLOG)
