"""From a reference in a registry to the verdict, on Debian with TensorFlow GPU wheels of 2018."""

from pathlib import Path

import pytest

from imgcheck.documents import Report, decode
from tests.end_to_end.command import imgcheck
from tests.end_to_end.hosts import describe
from tests.end_to_end.real_image import tensorflow_layout
from tests.peers import Registry

pytestmark = pytest.mark.slow

NAME = "qnib/cv-nccl92-tf-dev"
MISSING = {
    "libcublas.so.9.0", "libcudart.so.9.0", "libcudnn.so.7", "libcufft.so.9.0", "libcurand.so.9.0",
    "libcusolver.so.9.0",
}  # fmt: skip


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return describe(tmp_path_factory.mktemp("hosts"))


@pytest.fixture(scope="module")
def pushed(registry: Registry) -> str:
    return registry.push(tensorflow_layout("1.12.0"), NAME)


@pytest.fixture(scope="module")
def complete(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of the 1.12.0 image that has the CUDA libraries."""
    return _profile(
        registry.push(tensorflow_layout("1.12.0", with_cuda_libraries=True), f"{NAME}:cuda"), tmp_path_factory
    )


@pytest.fixture(scope="module")
def older(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of the 1.5.0 image that has the CUDA libraries."""
    return _profile(
        registry.push(tensorflow_layout("1.5.0", with_cuda_libraries=True), f"{NAME}:1.5.0"), tmp_path_factory
    )


def _profile(reference: str, directories: pytest.TempPathFactory) -> Path:
    profile = directories.mktemp("profile") / "image.json"
    done = imgcheck("profile", reference, "--plain-http", "-o", profile)
    assert done.returncode == 0, done.stderr
    return profile


def _report(image: str | Path, host: Path, *options: str) -> tuple[int, Report]:
    done = imgcheck("image", image, "--host-probe", host, "-o", "json", *options)
    assert done.stdout, done.stderr
    return done.returncode, decode(done.stdout.encode(), Report, "report")


def _subjects(report: Report, rule: str, severity: str) -> set[str]:
    return {f.subject for f in report.findings if (f.rule, f.severity) == (rule, severity)}


def _outcome(report: Report, rule: str) -> str:
    return next(check.outcome for check in report.checks if check.rule == rule)


def _severities(report: Report) -> set[str]:
    return {finding.severity for finding in report.findings}


def test_tensorflow_1_12_from_the_registry_needs_avx_and_names_the_missing_cuda_libraries(
    pushed: str, hosts: dict[str, Path]
) -> None:
    status, report = _report(pushed, hosts["nehalem"], "--plain-http")
    assert (status, report.verdict) == (1, "incompatible")
    assert "avx" in _subjects(report, "CPU001", "fail")
    assert _subjects(report, "LIB001", "fail") >= MISSING
    (finding,) = (f for f in report.findings if f.rule == "CPU001" and f.subject == "avx")
    assert "Illegal instruction" in finding.predicted_error
    shown = next(e for e in finding.evidence if e.path.endswith("/_pywrap_tensorflow_internal.so"))
    assert shown.history == "RUN pip install tensorflow-gpu==1.12.0"
    assert shown.layer == 1


@pytest.mark.parametrize("host", ["v100", "k80"])
def test_machine_code_of_the_wheel_fits_volta_and_kepler(complete: Path, hosts: dict[str, Path], host: str) -> None:
    status, report = _report(complete, hosts[host])
    assert status == 0
    assert not _severities(report) & {"fail", "risk"}
    assert {_outcome(report, rule) for rule in ("CPU001", "GPU002", "GPU003", "LIB001", "LIB002")} == {"ok"}
    assert {finding.rule for finding in report.findings if finding.severity == "degraded"} == {"CPU004"}


def test_the_wheel_requires_no_more_than_avx(complete: Path, tmp_path: Path) -> None:
    """It was compiled for AVX; what its BoringSSL has for BMI2 is chosen behind tests."""
    host = tmp_path / "sandybridge.json"
    assert imgcheck("probe", "--cpu", "sandybridge", "-o", host).returncode == 0
    _, report = _report(complete, host)
    assert _outcome(report, "CPU001") == "ok"


def test_ampere_compiles_ptx_at_the_first_start(complete: Path, hosts: dict[str, Path]) -> None:
    status, report = _report(complete, hosts["a100"])
    assert (status, report.verdict) == (0, "degraded")
    assert _subjects(report, "GPU004", "degraded")
    assert not _severities(report) & {"fail", "risk"}


def test_driver_375_is_too_old_for_cuda_9_under_every_runtime(complete: Path, hosts: dict[str, Path]) -> None:
    status, report = _report(complete, hosts["k80-old-driver"])
    assert (status, report.verdict) == (1, "incompatible")
    _, report = _report(complete, hosts["k80-old-driver"], "--runtime", "apptainer-nv")
    (finding,) = (f for f in report.findings if f.rule == "GPU002" and f.severity == "fail")
    assert "CUDA driver version is insufficient for CUDA runtime version" in finding.predicted_error
    assert "384.81" in finding.remedy


def test_tensorflow_1_5_needs_no_avx(older: Path, hosts: dict[str, Path]) -> None:
    status, report = _report(older, hosts["nehalem"])
    assert status == 0
    assert _outcome(report, "CPU001") == "ok"
    assert not _severities(report) & {"fail", "risk"}


def test_image_with_the_cuda_libraries_misses_none(complete: Path, hosts: dict[str, Path]) -> None:
    _, report = _report(complete, hosts["v100"])
    assert not _subjects(report, "LIB001", "fail")
    assert _outcome(report, "GPU015") == "ok"
