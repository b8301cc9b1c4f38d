"""LIB001 to LIB003 and KRN001: when they fire, when they do not, and that their texts are the real loader's."""

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from imgcheck.check import kernel, libraries
from imgcheck.check.context import Answers, Context
from imgcheck.documents.facts import Verneed
from imgcheck.documents.host import Cpu, Driver, Fact, HostLibrary, HostProfile, absent, known, unknown
from imgcheck.documents.image import ImageProfile
from imgcheck.documents.report import Finding
from imgcheck.knowledge import Knowledge
from imgcheck.loader.model import close
from imgcheck.loader.roots import find_roots
from tests.loader.builder import Root
from tests.loader.roots import debian
from tests.loader.walk import closure_under, profile_of
from tests.tools import need

KNOWLEDGE = Knowledge()
CALLS_X = "void f_libx_so_1(void); int main(void){f_libx_so_1(); return 0;}"
DRIVER = Driver(kernel_module=known("550.54.14", "test"), userland=known("550.54.14", "test"))


@pytest.fixture
def root(tmp_path: Path) -> Root:
    need("gcc")
    return Root(tmp_path / "root")


def host(**facts: Fact) -> HostProfile:
    return HostProfile(schema_version="1.0", name="node", **facts)


def judged(
    image: ImageProfile,
    machine: HostProfile,
    runtime: str = "docker",
    command: tuple[str, ...] = (),
    check=libraries.check,
) -> Answers:
    described = KNOWLEDGE.runtimes[runtime]
    roots = find_roots(image, command or None)
    closure = closure_under(image, machine, described, roots)
    return check(Context(image, machine, described, KNOWLEDGE, closure, roots=roots))


def outcome(answers: Answers, rule: str) -> str:
    return next(result.outcome for result in answers.checks if result.rule == rule)


def only(answers: Answers, rule: str) -> Finding:
    (finding,) = [finding for finding in answers if finding.rule == rule]
    return finding


def stderr_of(root: Root, program: str) -> str:
    done = subprocess.run([need("chroot"), str(root.path), program], capture_output=True, text=True, check=False)
    assert done.returncode
    return done.stderr.strip()


def test_a_missing_library_is_told_in_the_loaders_words(root: Root) -> None:
    root.library("/tmp/libx.so.1")
    root.program("/usr/bin/app", ["/tmp/libx.so.1"])
    root.at("/tmp/libx.so.1").unlink()
    finding = only(judged(profile_of(root.path), host()), "LIB001")
    assert finding.severity == "fail"
    assert finding.predicted_error == stderr_of(root, "/usr/bin/app")
    assert "/usr/lib" in finding.evidence[0].data["searched"]


def test_a_program_with_a_soname_is_a_program_where_it_is_the_command(root: Root) -> None:
    root.library("/tmp/libx.so.1")
    root.program("/usr/bin/app", ["/tmp/libx.so.1"], ["-Wl,-soname,app.so"])
    root.at("/tmp/libx.so.1").unlink()
    finding = only(judged(profile_of(root.path, command=("/usr/bin/app",)), host()), "LIB001")
    assert (finding.severity, finding.predicted_error) == ("fail", stderr_of(root, "/usr/bin/app"))


def test_a_library_outside_the_search_is_missing_and_its_place_is_told(root: Root) -> None:
    root.library("/opt/deep/libx.so.1")
    root.program("/usr/bin/app", ["/opt/deep/libx.so.1"])
    finding = only(judged(profile_of(root.path), host()), "LIB001")
    assert "/opt/deep" in finding.remedy
    with_path = profile_of(root.path, ("LD_LIBRARY_PATH=/opt/deep",))
    assert outcome(judged(with_path, host()), "LIB001") == "ok"


@pytest.mark.parametrize(
    ("file", "command", "expected"),
    [
        ("/usr/lib/libx.so.1", "main", "unknown"),
        ("/usr/lib/libx.so.1.2.3", "main", "unknown"),
        ("/usr/lib/libx.so.1", "true", "ok"),  # main is not what runs
        ("/usr/lib/liby.so.1", "main", "fail"),
        ("/usr/lib/libx.so.12", "main", "fail"),
        ("/srv/libx.so.1", "main", "fail"),  # where it is not sought
        ("/usr/lib", "main", "unknown"),  # a directory that cannot be listed
        ("/usr", "main", "unknown"),
        ("/usr/li", "main", "fail"),
        ("/opt/usr/lib/libx.so.1", "main", "fail"),
    ],
)
def test_a_library_that_could_not_be_read_is_not_called_missing(
    root: Root, file: str, command: str, expected: str
) -> None:
    root.library("/usr/lib/libx.so.1")
    root.program("/usr/bin/main", ["/usr/lib/libx.so.1"])
    root.program("/usr/bin/true")
    root.at("/usr/lib/libx.so.1").unlink()
    (root.at("/etc/ld.so.cache")).unlink(missing_ok=True)
    image = msgspec.structs.replace(profile_of(root.path), unreadable={file: "Permission denied"})
    answers = judged(image, host(), command=(command,))
    assert outcome(answers, "LIB001") == expected
    assert bool(list(answers)) == (expected == "fail")


def test_a_missing_version_is_told_in_the_loaders_words(root: Root) -> None:
    root.library("/opt/new/libx.so.1", versions=["X_1", "X_2"])
    root.program("/usr/bin/app", ["/opt/new/libx.so.1"], ["-Wl,--enable-new-dtags,-rpath,/opt/old"], CALLS_X)
    root.library("/opt/old/libx.so.1", versions=["X_1"])
    answers = judged(profile_of(root.path), host())
    finding = only(answers, "LIB002")
    assert finding.predicted_error == stderr_of(root, "/usr/bin/app")
    assert "ends at X_1" in finding.why
    assert outcome(answers, "LIB001") == "ok"


def test_a_c_library_of_another_release_than_the_loader_does_not_start(root: Root) -> None:
    """The same one in another place does."""
    root.program("/usr/bin/app")
    root.at("/opt/same").mkdir(parents=True)
    shutil.copy2(root.at("/lib/x86_64-linux-gnu/libc.so.6"), root.at("/opt/same"))
    assert outcome(judged(profile_of(root.path, ("LD_LIBRARY_PATH=/opt/same",)), host()), "LIB002") == "ok"
    newer = "/opt/newer/libc.so.6"
    root.write("/opt/newer.map", "GLIBC_2.2.5 { f; }; GLIBC_2.34 { __libc_start_main; }; GLIBC_2.41 { h; };")
    script = f"-Wl,--version-script={root.at('/opt/newer.map')}"
    flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libc.so.6", script]
    root.program(newer, flags=flags, code="void f(void){} void __libc_start_main(void){} void h(void){}")
    answers = judged(profile_of(root.path, ("LD_LIBRARY_PATH=/opt/newer",), ("/usr/bin/app",)), host())
    finding = next(each for each in answers if each.subject == "ld-linux-x86-64.so.2")
    assert (finding.rule, finding.severity, finding.evidence[0].path) == ("LIB002", "fail", newer)
    assert "another release" in finding.why
    real = [need("chroot"), str(root.path), "/usr/bin/env", "LD_LIBRARY_PATH=/opt/newer", "/usr/bin/app"]
    assert subprocess.run(real, capture_output=True, check=False).returncode


def test_a_c_library_of_another_release_in_the_place_of_the_loaders_own_does_not_start_either(root: Root) -> None:
    root.program("/usr/bin/app")
    image = profile_of(root.path, command=("/usr/bin/app",))
    assert outcome(judged(image, host()), "LIB002") == "ok"
    other = debian("sid").path / "usr/lib/x86_64-linux-gnu/libc.so.6"
    shutil.copy2(other, root.at("/lib/x86_64-linux-gnu/libc.so.6"))
    finding = only(judged(profile_of(root.path, command=("/usr/bin/app",)), host()), "LIB002")
    assert finding.subject == "ld-linux-x86-64.so.2"
    assert stderr_of(root, "/usr/bin/app")


def test_a_bundle_with_a_loader_and_a_c_library_of_its_own_starts(root: Root) -> None:
    """It is compared with the C library beside it, and not with that of its default directories."""
    for name in ("/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"):
        root.at("/opt/app").mkdir(parents=True, exist_ok=True)
        shutil.copy2(root.at(name), root.at("/opt/app"))
    root.program("/usr/bin/app", flags=["-Wl,--dynamic-linker=/opt/app/ld-linux-x86-64.so.2,-rpath,/opt/app"])
    script = root.at("/opt/older.map")
    root.write("/opt/older.map", "GLIBC_2.2.5 { f; }; GLIBC_2.34 { __libc_start_main; };")
    flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={script}"]
    root.at("/lib/x86_64-linux-gnu/libc.so.6").unlink()
    code = "void f(void){} void __libc_start_main(void){}"
    root.program("/lib/x86_64-linux-gnu/libc.so.6", flags=flags, code=code)
    answers = judged(profile_of(root.path, command=("/usr/bin/app",)), host())
    assert not [each for each in answers if each.subject == "ld-linux-x86-64.so.2"]
    by_hand = profile_of(root.path, ("LD_LIBRARY_PATH=/opt/app",), ("/lib64/ld-linux-x86-64.so.2", "/usr/bin/app"))
    assert outcome(judged(by_hand, host()), "LIB001") == "ok"


def test_a_missing_interpreter_is_told_as_the_kernel_tells_it(root: Root) -> None:
    root.program("/usr/bin/app", flags=["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"])
    finding = only(judged(profile_of(root.path), host()), "LIB001")
    assert finding.predicted_error == "exec /usr/bin/app: no such file or directory"


@pytest.mark.parametrize(("path", "severity"), [("/usr/bin/ncu", "fail"), ("/opt/ncu/target/linux-x86/helper", "risk")])
def test_a_tool_for_other_machines_that_lies_aside_does_not_make_an_image_fail(
    root: Root, path: str, severity: str
) -> None:
    """NVIDIA's profilers bring helpers for 32-bit and Arm targets, and Android's tools likewise."""
    root.program("/usr/bin/app")
    root.program(path, flags=["-Wl,--dynamic-linker=/lib/ld-linux.so.2"])
    assert only(judged(profile_of(root.path), host()), "LIB001").severity == severity


def test_what_is_for_other_machines_and_no_module_is_not_said_to_miss_anything(root: Root) -> None:
    """QEMU brings firmware for many machines, and Go's library files for its tests."""
    root.program("/usr/bin/app")
    root.program("/usr/share/qemu/firmware.img", flags=["-Wl,--dynamic-linker=/lib/ld64.so.1"])
    node = host(cpu=Cpu(architecture=known("x86_64", "test")))
    assert only(judged(profile_of(root.path), node), "LIB001").severity == "risk"
    with root.at("/usr/share/qemu/firmware.img").open("r+b") as file:
        file.seek(18)  # e_machine
        file.write((22).to_bytes(2, "little"))  # EM_S390
    assert outcome(judged(profile_of(root.path), node), "LIB001") == "ok"


def test_an_interpreter_without_an_execute_bit_is_told_as_the_kernel_tells_it(root: Root) -> None:
    root.program("/usr/bin/app")
    root.at("/lib64/ld-linux-x86-64.so.2").chmod(0o644)
    finding = only(judged(profile_of(root.path, command=("/usr/bin/app",)), host()), "LIB001")
    assert (finding.severity, finding.predicted_error) == ("fail", "exec /usr/bin/app: permission denied")
    with pytest.raises(PermissionError):
        subprocess.run(["/usr/bin/app"], preexec_fn=lambda: os.chroot(root.path), check=False)


def test_the_drivers_libraries_are_never_missing_from_an_image(root: Root) -> None:
    root.library("/tmp/libcuda.so.1", soname="libcuda.so.1")
    root.program("/usr/bin/app", ["/tmp/libcuda.so.1"])
    root.at("/tmp/libcuda.so.1").unlink()
    image = profile_of(root.path)
    assert [problem.needed for problem in close(image).problems] == ["libcuda.so.1"]
    assert outcome(judged(image, host()), "LIB001") == "ok"


def test_what_the_command_does_not_reach_is_a_risk_in_path_and_information_elsewhere(root: Root) -> None:
    root.library("/tmp/libx.so.1")
    root.program("/usr/bin/main")
    root.program("/usr/bin/other", ["/tmp/libx.so.1"])
    root.at("/tmp/libx.so.1").unlink()
    assert only(judged(profile_of(root.path), host(), command=("main",)), "LIB001").severity == "risk"
    root.at("/opt").mkdir()
    shutil.move(root.at("/usr/bin/other"), root.at("/opt/other"))
    answers = judged(profile_of(root.path), host(), command=("main",))
    assert only(answers, "LIB001").severity == "info"
    assert outcome(answers, "LIB001") == "ok"


@pytest.mark.parametrize(
    ("module", "severity"),
    [
        ("/usr/lib/python3/site-packages/pkg/core.so", "fail"),
        ("/usr/lib/python3/site-packages/pkg/contrib/extra/wrap.so", "info"),
        ("/usr/lib/python3.11/lib-dynload/_tkinter.so", "info"),
        ("/usr/lib/python3.11/lib-dynload/_ssl.so", "fail"),
    ],
)
def test_a_python_module_fails_unless_its_package_works_without_it(root: Root, module: str, severity: str) -> None:
    root.library("/tmp/libx.so.1")
    entry = ["-Wl,--defsym=PyInit_m=0x1000", "-Wl,--export-dynamic"]
    root.library("/usr/lib/python3/site-packages/pkg/base.so", flags=entry)
    root.library(module, ["/tmp/libx.so.1"], entry)
    root.at("/tmp/libx.so.1").unlink()
    finding = only(judged(profile_of(root.path), host()), "LIB001")
    assert finding.severity == severity
    assert finding.predicted_error.startswith("ImportError: libx.so.1: cannot open shared object file")


@pytest.mark.parametrize(
    ("loading", "missing", "severity"),
    [
        ("atari/atari.so", (), "risk"),
        ("procgen/base.so", (), "fail"),
        ("base.so", (), "info"),
        (None, (), "fail"),
        ("atari/atari.so", ("minigrid/minigrid.so",), "fail"),
    ],
)
def test_one_sub_package_of_several_is_a_risk(
    root: Root, loading: str | None, missing: tuple[str, ...], severity: str
) -> None:
    """Envpool 0.8 has one for each kind of game, and `import envpool` works without the Qt that procgen needs."""
    entry, package = ["-Wl,--defsym=PyInit_m=0x1000"], "/usr/lib/python3/site-packages/envpool"
    root.library("/tmp/libx.so.1")
    for module in ("procgen/procgen.so", *missing):
        root.library(f"{package}/{module}", ["/tmp/libx.so.1"], entry)
    if loading:
        root.library(f"{package}/{loading}", flags=entry)
    root.at("/tmp/libx.so.1").unlink()
    assert only(judged(profile_of(root.path), host()), "LIB001").severity == severity


@pytest.mark.parametrize(("others_load", "severity"), [(True, "info"), (False, "fail")])
def test_one_variant_of_a_module_that_loads_suffices(root: Root, others_load: bool, severity: str) -> None:
    entry, package = ["-Wl,--defsym=PyInit_m=0x1000"], "/usr/lib/python3/site-packages/pkg"
    second = "/usr/lib/liby.so.1" if others_load else "/tmp/liby.so.1"
    for variant, library in (("first", "/tmp/libx.so.1"), ("second", second)):
        root.library(library)
        root.library(f"{package}/core.{variant}.cpython-311-x86_64-linux-gnu.so", [library], entry)
    shutil.rmtree(root.at("/tmp"))
    answers = judged(profile_of(root.path), host())
    assert {each.subject: each.severity for each in answers if each.rule == "LIB001"}["libx.so.1"] == severity


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("core.cpython-311-x86_64-linux-musl.so", "info"),
        ("core.cpython-311-aarch64-linux-gnu.so", "info"),
        ("core.abi3.so", "fail"),  # of this Python, which takes it first
        ("core.cpython-311-x86_64-linux-gnu.so", "fail"),
        ("more.cpython-311-x86_64-linux-musl.so", "fail"),
    ],
)
def test_a_module_for_another_platform_is_not_sought_where_one_for_this_is_there(
    root: Root, name: str, severity: str
) -> None:
    entry, package = ["-Wl,--defsym=PyInit_m=0x1000"], "/usr/lib/python3/site-packages/pkg"
    root.library("/tmp/libx.so.1")
    root.library(f"{package}/core.cpython-311-x86_64-linux-gnu.so", [], entry)
    root.library(f"{package}/{name}", ["/tmp/libx.so.1"], entry)
    shutil.rmtree(root.at("/tmp"))
    assert only(judged(profile_of(root.path), host()), "LIB001").severity == severity


@pytest.mark.parametrize(
    ("name", "searched", "expected"),
    [
        ("libgfortran-040039e1.so.5.0.0", "$ORIGIN/../one.libs", "fail"),
        ("libgfortran-040039e1.so.5.0.0", "$ORIGIN", "ok"),
        ("libgfortran.so.5", "$ORIGIN/../one.libs", "ok"),
    ],
)
def test_what_auditwheel_put_beside_a_package_is_not_another_ones(
    root: Root, name: str, searched: str, expected: str
) -> None:
    entry, packages = ["-Wl,--defsym=PyInit_m=0x1000"], "/usr/lib/python3/site-packages"
    root.library(f"{packages}/other.libs/{name}")
    rpath = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{searched}"]
    root.library(f"{packages}/one/core.so", [f"{packages}/other.libs/{name}"], [*entry, *rpath])
    assert outcome(judged(profile_of(root.path), host()), "LIB001") == expected


@pytest.mark.parametrize(("libc", "expected"), [("/lib/x86_64-linux-gnu/libc.so.6", "risk"), ("/tmp/libc.so", "ok")])
def test_an_addon_of_node_for_this_system_is_told_to_miss_its_library(root: Root, libc: str, expected: str) -> None:
    """As sharp does without libvips; those for Android and musl lie beside it in many packages."""
    root.program("/usr/bin/node")
    root.library("/tmp/libvips.so.42")
    root.library("/tmp/libc.so")
    root.library("/app/node_modules/sharp/sharp.node", ["/tmp/libvips.so.42", libc], soname="")
    shutil.rmtree(root.at("/tmp"))
    assert outcome(judged(profile_of(root.path), host()), "LIB001") == expected


def test_a_library_that_several_modules_load_stops_their_package_though_others_do_not_need_it(root: Root) -> None:
    """As numpy.libs' OpenBLAS does for numpy.core and numpy.linalg without libgfortran; numpy.fft has no use for it."""
    entry, packages = ["-Wl,--defsym=PyInit_m=0x1000"], "/usr/lib/python3/site-packages"
    root.library("/tmp/libgfortran.so.5")
    root.library(f"{packages}/numpy.libs/libblas.so", ["/tmp/libgfortran.so.5"])
    rpath = [*entry, "-Wl,-rpath,$ORIGIN/../../numpy.libs"]
    for module in ("core", "linalg"):
        root.library(f"{packages}/numpy/{module}/_{module}.so", [f"{packages}/numpy.libs/libblas.so"], rpath)
    root.library(f"{packages}/numpy/fft/_fft.so", [], entry)
    root.library(f"{packages}/numpy/_top/_top.so", [], entry)
    shutil.rmtree(root.at("/tmp"))
    assert outcome(judged(profile_of(root.path), host()), "LIB001") == "fail"


def test_a_variant_whose_library_its_package_loads_suffices_too(root: Root) -> None:
    entry, packages = ["-Wl,--defsym=PyInit_m=0x1000"], "/opt/env/lib/python3.11/site-packages"
    for variant, library in (("mpich", "/tmp/libx.so.1"), ("openmpi", "/opt/env/lib/liby.so.1")):
        root.library(library)
        root.library(f"{packages}/mpi4py/MPI.{variant}.cpython-311-x86_64-linux-gnu.so", [library], entry)
    shutil.rmtree(root.at("/tmp"))
    answers = judged(profile_of(root.path), host())
    assert outcome(answers, "LIB001") == "ok"
    assert only(answers, "LIB001").severity == "info"


@pytest.mark.parametrize(
    ("prefix", "package", "expected"),
    [
        ("/opt/env", "mpi4py", "ok"),
        ("/usr/local", "mpi4py", "ok"),
        ("/opt/env", "pkg", "risk"),
        ("/usr/local", "pkg", "fail"),  # of what was put there without ldconfig
    ],
)
def test_what_wheels_put_into_their_prefix_is_there_for_who_is_known_to_load_it(
    root: Root, prefix: str, package: str, expected: str
) -> None:
    root.library(f"{prefix}/lib/libx.so.1")
    entry = ["-Wl,--defsym=PyInit_m=0x1000"]
    root.library(f"{prefix}/lib/python3.11/site-packages/{package}/core.so", [f"{prefix}/lib/libx.so.1"], entry)
    assert outcome(judged(profile_of(root.path), host()), "LIB001") == expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [("/usr/lib/python3/site-packages/nvidia/cublas/lib", "ok"), ("/usr/local/cuda/lib64", "fail")],
)
def test_a_module_may_count_on_what_packages_preload_and_on_no_other_place(
    root: Root, place: str, expected: str
) -> None:
    root.library(f"{place}/libcublas.so.12")
    entry = ["-Wl,--defsym=PyInit_m=0x1000"]
    root.library("/usr/lib/python3/site-packages/pkg/core.so", [f"{place}/libcublas.so.12"], entry)
    answers = judged(profile_of(root.path), host())
    assert outcome(answers, "LIB001") == expected


# Injection ---------------------------------------------------------------------------------------------------------


def libcuda(*needs: Verneed) -> HostLibrary:
    return HostLibrary("/usr/lib64/libcuda.so.550.54.14", "libcuda.so.1", version="550.54.14", verneed=needs)


def gpu_image(root: Root) -> ImageProfile:
    root.library("/tmp/libcuda.so.1", soname="libcuda.so.1")
    root.program("/usr/bin/app", ["/tmp/libcuda.so.1"])
    root.at("/tmp/libcuda.so.1").unlink()
    return profile_of(root.path)


NO_GPU = host(gpus=known((), "test"), driver=Driver(kernel_module=absent("test"), userland=absent("test")))


def test_a_command_linked_with_the_driver_does_not_start_where_there_is_none(root: Root) -> None:
    image = gpu_image(root)
    finding = only(judged(image, NO_GPU, "apptainer-nv", ("/usr/bin/app",)), "LIB001")
    assert (finding.severity, finding.predicted_error) == ("fail", stderr_of(root, "/usr/bin/app"))
    with_driver = host(driver=DRIVER, libraries=known((libcuda(),), "test"))
    assert outcome(judged(image, with_driver, "apptainer-nv", ("/usr/bin/app",)), "LIB001") == "ok"
    assert outcome(judged(image, host(), "apptainer-nv", ("/usr/bin/app",)), "LIB001") == "ok"


def test_what_a_script_starts_on_a_condition_may_be_for_nodes_with_a_gpu(root: Root) -> None:
    gpu_image(root)
    root.program("/usr/bin/other")
    root.program("/usr/bin/sh")
    image = profile_of(root.path)
    branch = "if [ -e /dev/nvidia0 ]; then exec app; else exec other; fi"
    for line, expected in ((branch, "ok"), ("exec app", "fail"), ("app || true; exec other", "ok")):
        assert outcome(judged(image, NO_GPU, "docker", ("/usr/bin/sh", "-c", line)), "LIB001") == expected


def test_tools_for_a_gpu_beside_the_command_are_for_those_who_have_one(root: Root) -> None:
    image = gpu_image(root)
    root.program("/usr/bin/other")
    assert outcome(judged(profile_of(root.path), NO_GPU, "docker", ("/usr/bin/other",)), "LIB001") == "ok"
    assert outcome(judged(image, NO_GPU, "docker", ("/bin/absent",)), "LIB001") == "ok"


def test_a_runtime_that_brings_no_driver_leaves_its_libraries_missing(root: Root) -> None:
    root.library("/tmp/libnvidia-ml.so.1", soname="libnvidia-ml.so.1")
    root.program("/usr/bin/app", ["/tmp/libnvidia-ml.so.1"])
    root.at("/tmp/libnvidia-ml.so.1").unlink()
    image, machine = profile_of(root.path, command=("/usr/bin/app",)), host(driver=DRIVER)
    assert outcome(judged(image, machine, "docker"), "LIB001") == "fail"
    assert outcome(judged(image, machine, "nvidia"), "LIB001") == "ok"


@pytest.mark.parametrize(("others", "expected"), [((), "risk"), (("_plain",), "ok")])
def test_modules_that_need_the_driver_beside_modules_that_do_not(
    root: Root, others: tuple[str, ...], expected: str
) -> None:
    code = "void PyInit__{0}(void) {{}}"
    root.library("/tmp/libcuda.so.1", soname="libcuda.so.1")
    root.program("/usr/bin/python3.11")
    package = "/usr/lib/python3/dist-packages/pkg"
    flags = ["-shared", "-fPIC"]
    root.program(f"{package}/_gpu.so", ["/tmp/libcuda.so.1"], flags, code.format("gpu"))
    for name in others:
        root.program(f"{package}/{name}.so", flags=flags, code=code.format(name))
    root.at("/tmp/libcuda.so.1").unlink()
    image = profile_of(root.path, command=("/usr/bin/python3.11",))
    assert outcome(judged(image, NO_GPU, "docker"), "LIB001") == expected


def test_a_library_of_the_system_that_needs_the_driver_stops_the_package_that_loads_it(root: Root) -> None:
    root.library("/tmp/libcuda.so.1", soname="libcuda.so.1")
    root.library("/usr/lib/libgpu.so", ["/tmp/libcuda.so.1"])
    root.program("/usr/bin/python3.11")
    flags, code = ["-shared", "-fPIC"], "void PyInit__{0}(void) {{}}"
    root.program("/usr/lib/python3.11/lib-dynload/_io.so", flags=flags, code=code.format("io"))
    root.program("/usr/lib/python3/dist-packages/pkg/_gpu.so", ["/usr/lib/libgpu.so"], flags, code.format("gpu"))
    root.at("/tmp/libcuda.so.1").unlink()
    image = profile_of(root.path, command=("/usr/bin/python3.11",))
    assert outcome(judged(image, NO_GPU, "docker"), "LIB001") == "risk"


def test_an_injected_library_that_needs_a_newer_glibc_fails_where_it_is_injected(root: Root) -> None:
    image = gpu_image(root)
    newer = host(driver=DRIVER, libraries=known((libcuda(Verneed("libc.so.6", ("GLIBC_2.99",))),), "test"))
    answers = judged(image, newer, "apptainer-nv")
    assert outcome(answers, "LIB003") == "fail"
    expected = "libc.so.6: version `GLIBC_2.99' not found (required by /.singularity.d/libs/libcuda.so.550.54.14)"
    assert expected in only(answers, "LIB003").predicted_error
    assert outcome(judged(image, newer, "apptainer"), "LIB003") == "not-applicable"


def test_an_injected_library_that_finds_its_versions_is_fine(root: Root) -> None:
    fitting = host(driver=DRIVER, libraries=known((libcuda(Verneed("libc.so.6", ("GLIBC_2.2.5",))),), "test"))
    answers = judged(gpu_image(root), fitting, "apptainer-nv")
    assert outcome(answers, "LIB003") == "ok"


@pytest.mark.parametrize(
    ("glibc", "expected"),
    [(known("2.17", "--glibc"), "ok"), (known("2.99", "--glibc"), "risk"), (unknown(), "unknown")],
)
def test_a_described_hosts_glibc_bounds_what_its_libraries_need(root: Root, glibc: Fact, expected: str) -> None:
    described = host(driver=DRIVER, glibc=glibc)
    assert outcome(judged(gpu_image(root), described, "apptainer-nv"), "LIB003") == expected


def test_a_host_without_a_driver_injects_nothing(root: Root) -> None:
    bare = host(driver=Driver(userland=absent("test"), kernel_module=absent("test")))
    assert outcome(judged(gpu_image(root), bare, "apptainer-nv"), "LIB003") == "not-applicable"


def test_what_is_injected_for_an_image_without_a_need_of_it_does_not_matter(root: Root) -> None:
    """Sites start everything with --nv; the driver's libraries load each other, and the program none of them."""
    root.program("/usr/bin/app")
    compiler = HostLibrary("/usr/lib64/libnvidia-ptxjitcompiler.so.1", "libnvidia-ptxjitcompiler.so.1",
                           needed=("libcuda.so.1", "libabsent.so.1"))  # fmt: skip
    machine = host(driver=DRIVER, libraries=known((libcuda(), compiler), "test"))
    assert outcome(judged(profile_of(root.path), machine, "apptainer-nv"), "LIB003") == "not-applicable"
    assert outcome(judged(gpu_image(root), machine, "apptainer-nv"), "LIB003") == "risk"


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("/usr/bin/app", "Error loading shared library libgone.so: No such file or directory (needed by /usr/bin/app)"),
        (
            "/usr/lib/python3.11/site-packages/core.so",
            "ImportError: Error loading shared library libgone.so: No such file or directory "
            "(needed by /usr/lib/python3.11/site-packages/core.so)",
        ),
    ],
)
def test_musl_says_it_in_its_own_words(root: Root, file: str, says: str) -> None:
    for each in ("/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/env"):
        root.at(each).unlink()
    library = ["-nostdlib", "-Wl,-e,main", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]
    root.library("/lib/ld-musl-x86_64.so.1", soname="libc.musl-x86_64.so.1")
    root.library("/usr/lib/libgone.so")
    root.program("/usr/bin/python3.11", flags=library)
    if file.endswith(".so"):
        module = ["-shared", "-fPIC", "-nostdlib"]
        root.program(file, ["/usr/lib/libgone.so"], flags=module, code="void *PyInit_core(void) { return 0; }")
    else:
        root.program(file, ["/usr/lib/libgone.so"], flags=library)
    root.at("/usr/lib/libgone.so").unlink()
    command = ("/usr/bin/python3.11", "-c", "import core") if file.endswith(".so") else (file,)
    finding = only(judged(profile_of(root.path), host(), command=command), "LIB001")
    assert finding.predicted_error == says


def test_musl_cannot_load_the_drivers_libraries(root: Root) -> None:
    shutil.copy2(root.at("/lib64/ld-linux-x86-64.so.2"), root.at("/lib/ld-musl-x86_64.so.1"))
    for glibc in ("/usr/bin/env", "/lib/x86_64-linux-gnu/libc.so.6"):
        root.at(glibc).unlink()
    root.library("/tmp/libcuda.so.1", soname="libcuda.so.1")
    flags = ["-nostdlib", "-Wl,-e,main", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]
    root.program("/usr/bin/app", ["/tmp/libcuda.so.1"], flags)
    root.at("/tmp/libcuda.so.1").unlink()
    described = host(driver=DRIVER, glibc=known("2.17", "test"))
    finding = only(judged(profile_of(root.path), described, "apptainer-nv"), "LIB003")
    assert (finding.severity, finding.subject) == ("fail", "musl")


@pytest.mark.parametrize("runtime", ["apptainer-nv", "nvidia", "udocker-nvidia"])
def test_a_tree_without_a_program_opens_what_the_runtime_injects(root: Root, runtime: str) -> None:
    """An unpacked wheel, or a virtual environment whose Python lies outside."""
    root.library("/tmp/libcuda.so.1", soname="libcuda.so.1")
    root.library("/venv/lib/python3.11/site-packages/pkg/libgpu.so", ["/tmp/libcuda.so.1"])
    for path in ("/tmp/libcuda.so.1", "/usr/bin/env", "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"):
        root.at(path).unlink()
    image = profile_of(root.path)
    machine = host(driver=DRIVER, libraries=known((libcuda(),), "test"))
    opened = closure_under(image, machine, KNOWLEDGE.runtimes[runtime], find_roots(image)).opens
    assert opened["libcuda.so.1"].endswith(("libcuda.so.550.54.14", "libcuda.so.1"))


def test_injection_order_decides_between_the_images_libcuda_and_the_hosts(root: Root) -> None:
    root.library("/opt/own/libcuda.so.1", soname="libcuda.so.1")
    root.program("/usr/bin/app", ["/opt/own/libcuda.so.1"])
    image = profile_of(root.path, ("LD_LIBRARY_PATH=/opt/own",))
    machine = host(driver=DRIVER, libraries=known((libcuda(),), "test"))
    runtimes = KNOWLEDGE.runtimes
    last = msgspec.structs.replace(runtimes["apptainer-nv"], order="ld-library-path-last")
    first = msgspec.structs.replace(runtimes["apptainer-nv"], order="ld-library-path-first")
    assert closure_under(image, machine, last).opens["libcuda.so.1"] == "/opt/own/libcuda.so.1"
    injected = "/.singularity.d/libs/libcuda.so.550.54.14"
    assert closure_under(image, machine, first).opens["libcuda.so.1"] == injected
    assert closure_under(image, machine, first).injected == {injected}


# Kernel ------------------------------------------------------------------------------------------------------------

_NOTE = (
    '__asm__(".section .note.ABI-tag,\\"a\\",@note\\n.align 4\\n.long 4,16,1\\n.asciz \\"GNU\\"\\n'
    '.long 0,9,1,0\\n.previous\\n");'
)


def kernel_image(root: Root, libc: str) -> ImageProfile:
    """A program with a library that asks for Linux 9.1.0; `libc` is the file name of its C library."""
    real = root.at(f"/lib/x86_64-linux-gnu/{libc}")
    if libc != "libc.so.6":
        root.at("/lib/x86_64-linux-gnu/libc.so.6").rename(real)
        root.link("/lib/x86_64-linux-gnu/libc.so.6", libc)
    root.write("/note.h", _NOTE)
    root.library("/usr/lib/libQt5Core.so.5", flags=["-include", str(root.at("/note.h"))])
    root.program("/usr/bin/app", ["/usr/lib/libQt5Core.so.5"])
    return profile_of(root.path)


def test_an_old_glibc_passes_over_a_library_that_asks_for_a_newer_kernel(root: Root) -> None:
    image = kernel_image(root, "libc-2.31.so")
    finding = only(judged(image, host(kernel=known("5.14.0", "test")), check=kernel.check), "KRN001")
    assert (finding.severity, finding.subject) == ("fail", "libQt5Core.so.5")
    assert finding.predicted_error == (
        "/usr/bin/app: error while loading shared libraries: libQt5Core.so.5: cannot open shared object file: "
        "No such file or directory"
    )


def test_a_glibc_that_checks_nothing_loads_it_all_the_same(root: Root) -> None:
    image = kernel_image(root, "libc.so.6")
    answers = judged(image, host(kernel=known("5.14.0", "test")), check=kernel.check)
    assert only(answers, "KRN001").severity == "info"
    assert outcome(answers, "KRN001") == "ok"


def test_a_newer_kernel_is_fine_and_an_unknown_one_is_not_known_to_be(root: Root) -> None:
    image = kernel_image(root, "libc-2.31.so")
    assert outcome(judged(image, host(kernel=known("9.1.0", "test")), check=kernel.check), "KRN001") == "ok"
    assert outcome(judged(image, host(), check=kernel.check), "KRN001") == "unknown"


def test_a_libc_that_asks_for_more_than_the_kernel_stops_at_once(root: Root) -> None:
    image = profile_of(root.path)
    record = next(record for record in image.files if record.path.endswith("libc.so.6"))
    linkage = msgspec.structs.replace(image.facts(record).linkage, abi="linux 4.18.0", verdef=("GLIBC_2.28",))
    objects = image.objects | {record.object: msgspec.structs.replace(image.facts(record), linkage=linkage)}
    image = msgspec.structs.replace(image, objects=objects)
    finding = only(judged(image, host(kernel=known("3.10.0-957.el7", "test")), check=kernel.check), "KRN001")
    assert (finding.severity, finding.predicted_error) == ("fail", "FATAL: kernel too old")
    assert outcome(judged(image, host(kernel=known("4.18.0-80", "test")), check=kernel.check), "KRN001") == "ok"
