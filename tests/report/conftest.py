"""A report with everything in it, its image texts hostile."""

import pytest

from imgcheck.documents.report import Cell, CheckResult, Evidence, Finding, HostSummary, ImageSummary, Report

HOSTILE = "/opt/\x1b[31m[bold]<b>@all`|\u202e\uffffx"


@pytest.fixture
def report() -> Report:
    finding = Finding(
        rule="CPU001",
        severity="fail",
        title="An instruction the CPU lacks is required: AVX-512F",
        predicted_error="Illegal instruction (core dumped)",
        why="The program runs it before it asks the CPU.",
        remedy="Rebuild with -march=broadwell.",
        subject="avx512f",
        fingerprint="0123456789abcdef",
        evidence=(
            Evidence(HOSTILE, 1, "RUN make % install", "entry", (), "0x1000 main: vpaddd zmm0, zmm1, zmm2"),
            Evidence("/usr/lib/b.so", 0, "", "import", ("/app/run.py", "b\x1b[2J"), "0x2000"),
        ),
        sources=("https://example.org/isa",),
    )
    return Report(
        schema_version="1.0",
        verdict="incompatible",
        image=ImageSummary("app\x1b[2J:1", "linux/amd64", components=("TensorFlow 1.12.0",), command=("/bin/app",)),
        host=HostSummary("node1", "Broadwell"),
        runtime="docker",
        runtime_chosen_by="option",
        findings=(finding,),
        checks=(
            CheckResult("CPU001", "fail", "AVX-512F is missing"),
            CheckResult("KRN001", "ok", "Linux 3.10 is new enough"),
            CheckResult("GPU002", "unknown", "the driver's version is not known"),
            CheckResult("MPI001", "not-applicable", "no MPI"),
        ),
        cells=(
            Cell("node1", "docker", "incompatible", ("0123456789abcdef",), "CPU001 AVX-512F"),
            Cell("node1", "podman", "compatible"),
        ),
    )
