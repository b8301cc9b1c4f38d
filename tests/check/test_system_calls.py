"""KRN002, KRN003 and LIB004: what C library, kernel, runtime and loader must agree on."""

import subprocess
from pathlib import Path

import pytest

from imgcheck.check import kernel, libraries
from imgcheck.check.context import Answers, Context
from imgcheck.documents.facts import CodeFacts, Linkage, Verneed
from imgcheck.documents.host import Fact, HostProfile, InstalledRuntime, known, unknown
from imgcheck.host.probe import probe_host
from imgcheck.loader.closure import Closure
from imgcheck.loader.model import close
from imgcheck.loader.roots import find_roots
from tests.check.contexts import KNOWLEDGE, context, findings, outcome
from tests.loader.builder import Root
from tests.loader.walk import profile_of
from tests.tools import need

_LIBC = "/lib/libc.so.6"
_UNKNOWN: Fact = Fact()


def _with_glibc(version: str, host: HostProfile, runtime: str = "docker", **files: Linkage) -> Context:
    libc = Linkage(64, "x86_64", soname="libc.so.6", verdef=("GLIBC_2.2.5", f"GLIBC_{version}"))
    linkages = {_LIBC: libc, **{f"/opt/{name}": linkage for name, linkage in files.items()}}
    made = context({path: CodeFacts(1, linkage) for path, linkage in linkages.items()}, host, runtime)
    closure = Closure(reaches=made.closure.reaches, libcs=frozenset({_LIBC}))
    return Context(made.image, host, made.runtime, KNOWLEDGE, closure)


def _host(docker: str = "", vsyscall: Fact = _UNKNOWN) -> HostProfile:
    runtimes = known((InstalledRuntime("docker", docker, "/usr/bin/docker"),), "PATH")
    return HostProfile("1.0", "node", runtimes=runtimes, vsyscall=vsyscall)


@pytest.mark.parametrize(
    ("docker", "glibc", "refused"),
    [("20.10.9", "2.34", ["clone3"]), ("19.03.15", "2.34", ["clone3", "faccessat2"]),
     ("19.03.15", "2.33", ["faccessat2"]),
     ("20.10.10", "2.36", []), ("19.03.15", "2.31", [])],
)  # fmt: skip
def test_an_old_dockers_filter_refuses_what_a_new_glibc_calls(docker: str, glibc: str, refused: list[str]) -> None:
    answers = kernel.check(_with_glibc(glibc, _host(docker)))
    assert [finding.subject for finding in findings(answers, "KRN002")] == refused
    assert outcome(answers, "KRN002") == ("risk" if refused else "ok")


@pytest.mark.parametrize("runtime", ["nvidia", "nvidia-docker1", "lsf-docker"])
def test_what_starts_containers_by_docker_has_its_filter(runtime: str) -> None:
    docker = InstalledRuntime("docker", "19.03.15", "/usr/bin/docker")
    toolkit = InstalledRuntime("nvidia", "1.11.0", "/usr/bin/nvidia-container-runtime")
    host = HostProfile("1.0", "node", runtimes=known((docker, toolkit), "PATH"))
    answers = kernel.check(_with_glibc("2.34", host, runtime))
    assert [finding.subject for finding in findings(answers, "KRN002")] == ["clone3", "faccessat2"]


def test_a_filter_whose_runtime_tells_no_version_is_not_judged() -> None:
    assert outcome(kernel.check(_with_glibc("2.36", _host())), "KRN002") == "not-applicable"
    assert outcome(kernel.check(_with_glibc("2.36", _host("19.03"), "apptainer")), "KRN002") == "not-applicable"


def test_an_old_glibc_needs_the_vsyscall_page() -> None:
    answers = kernel.check(_with_glibc("2.12", _host(vsyscall=known(False, "test"))))
    (finding,) = findings(answers, "KRN003")
    assert (finding.severity, finding.predicted_error) == ("fail", "Segmentation fault")
    assert outcome(kernel.check(_with_glibc("2.12", _host(vsyscall=known(True, "test")))), "KRN003") == "ok"
    assert outcome(kernel.check(_with_glibc("2.12", _host(vsyscall=unknown()))), "KRN003") == "unknown"


def test_a_newer_glibc_does_without_it() -> None:
    answers = kernel.check(_with_glibc("2.17", _host(vsyscall=known(False, "test"))))
    assert outcome(answers, "KRN003") == "not-applicable"


def test_the_probe_sees_whether_this_kernel_maps_the_page() -> None:
    assert probe_host().vsyscall.value == ("[vsyscall]" in Path("/proc/self/maps").read_text())


# LIB004

_PACKED = Linkage(64, "x86_64", flags=("relr",), needed=("libc.so.6",))
_REFUSED = (
    "/opt/packed: error while loading shared libraries: /opt/packed: DT_RELR without GLIBC_ABI_DT_RELR dependency"
)
_NEEDING = (Verneed("libc.so.6", ("GLIBC_2.2.5",)),)


def _packed(glibc: str, linkage: Linkage) -> Answers:
    return libraries.check(_with_glibc(glibc, _host(), packed=linkage))


def test_an_old_glibc_leaves_packed_relocations_out() -> None:
    (finding,) = findings(_packed("2.31", _PACKED), "LIB004")
    assert finding.predicted_error == "Segmentation fault"
    assert outcome(_packed("2.36", _PACKED), "LIB004") == "ok"


def test_a_file_that_declares_them_is_left_to_its_symbol_versions() -> None:
    declared = Linkage(64, "x86_64", flags=("relr",), verneed=(Verneed("libc.so.6", ("GLIBC_ABI_DT_RELR",)),))
    assert outcome(_packed("2.31", declared), "LIB004") == "not-applicable"


def test_a_new_glibc_refuses_a_file_that_needs_its_versions_yet_does_not_declare_them() -> None:
    linkage = Linkage(64, "x86_64", flags=("relr",), needed=("libc.so.6",), verneed=_NEEDING)
    (finding,) = findings(_packed("2.36", linkage), "LIB004")
    assert finding.predicted_error == _REFUSED


def _hash(name: str) -> int:
    """The System V hash of a name, by which ld.so compares versions."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value


def test_the_real_loader_refuses_it_in_the_predicted_words(tmp_path: Path) -> None:
    need("gcc")
    root = Root(tmp_path / "root")
    code = '#include <stdio.h>\nstatic int x; int *table[] = {&x, &x, &x}; int main(void){puts("");return !table[1];}'
    root.program("/bin/app", flags=["-Wl,-z,pack-relative-relocs"], code=code)
    app = root.at("/bin/app")
    data, node, other = app.read_bytes(), b"GLIBC_ABI_DT_RELR", b"GLIBC_2.2.5"
    assert node in data
    data = data.replace(node, other.ljust(len(node), b"\0"))
    app.write_bytes(
        data.replace(_hash(node.decode()).to_bytes(4, "little"), _hash(other.decode()).to_bytes(4, "little"))
    )
    image = profile_of(root.path, command=("/bin/app",))
    closure = close(image, find_roots(image))
    answers = libraries.check(Context(image, _host(), KNOWLEDGE.runtimes["docker"], KNOWLEDGE, closure))
    (finding,) = findings(answers, "LIB004")
    done = subprocess.run([need("chroot"), str(root.path), "/bin/app"], capture_output=True, text=True)
    assert done.stderr.strip() == finding.predicted_error
