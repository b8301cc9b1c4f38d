"""Probing captured hosts and this machine: every fact known, absent or unknown, and nothing ever fails."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from imgcheck.documents import HostProfile, decode, encode
from imgcheck.host.files import Root
from imgcheck.host.libraries import Libraries
from imgcheck.host.probe import probe_host
from imgcheck.host.summary import summarise
from imgcheck.loader.glibc import LIBC
from tests.host.captures import captured
from tests.tools import compile_c


@pytest.fixture
def haswell(tmp_path: Path) -> Path:
    return captured("haswell-gtx980ti", tmp_path, libcuda="usr/lib64/libcuda.so.384.81", libc="lib64/libc-2.17.so")


def test_red_hat_node_with_four_geforces(haswell: Path) -> None:
    host = probe_host(str(haswell))
    assert host.name == "fat01"
    assert host.cpu.architecture.value == "x86_64"
    assert host.cpu.microarchitecture.value == "haswell"
    assert {"avx2", "fma", "bmi2", "lzcnt", "sse3"} <= set(host.cpu.features.value)
    assert "avx512f" not in host.cpu.features.value
    assert host.kernel.value == "3.10.0-862.el7.x86_64"
    assert host.glibc.value == "2.17"
    assert host.driver.kernel_module.value == host.driver.userland.value == "384.81"
    assert host.driver.cuda.value == "9.0"
    assert [(gpu.name, gpu.compute_capability, gpu.pci_id) for gpu in host.gpus.value] == [
        ("GeForce GTX 980 Ti", "5.2", "10de:17c8")
    ] * 4
    assert host.distribution.value == "Red Hat Enterprise Linux Server 7.5 (Maipo)"
    assert "4 x GeForce GTX 980 Ti (5.2), driver 384.81 (CUDA 9.0)" in summarise(host)


def test_cloud_node_with_k80(tmp_path: Path) -> None:
    root = captured("broadwell-k80", tmp_path, libcuda="usr/lib/x86_64-linux-gnu/libcuda.so.396.44")
    host = probe_host(str(root))
    assert host.cpu.microarchitecture.value == "broadwell"
    assert {"adx", "rdseed"} <= set(host.cpu.features.value)
    assert host.driver.userland.value == "396.44"
    assert host.driver.cuda.value == "9.2"
    assert [(gpu.name, gpu.compute_capability) for gpu in host.gpus.value] == [("Tesla K80", "3.7")]


def test_power8_node_is_recognised_by_its_cpu_line(tmp_path: Path) -> None:
    path = "usr/lib/powerpc64le-linux-gnu/libcuda.so.375.51"
    host = probe_host(str(captured("power8-p100", tmp_path, "ppc64le", libcuda=path)))
    assert host.cpu.architecture.value == "ppc64le"
    assert host.cpu.microarchitecture.value == "power8le"
    assert host.cpu.features.value == ("arch_2_07",)
    assert host.driver.kernel_module.value == host.driver.userland.value == "375.51"
    assert {gpu.compute_capability for gpu in host.gpus.value} == {"6.0"}
    assert len(host.gpus.value) == 4


def test_power_features_come_from_the_auxiliary_vector_where_there_is_one(tmp_path: Path) -> None:
    root = captured("power8-p100", tmp_path, "ppc64le")
    vector = b"".join(word.to_bytes(8, "little") for word in (16, 0xDC0065C2, 26, 0x80800000, 0, 0))
    (root / "proc/self").mkdir()
    (root / "proc/self/auxv").write_bytes(vector)
    assert probe_host(str(root)).cpu.features.value == ("arch_2_07", "arch_3_00")


@pytest.mark.parametrize("flags", ["flags\t\t:", "flags\t\t: "])
def test_a_list_of_features_that_is_empty_is_unknown(haswell: Path, flags: str) -> None:
    file = haswell / "proc/cpuinfo"
    lines = [flags if line.startswith("flags") else line for line in file.read_text().splitlines()]
    file.write_text("\n".join(lines))
    (haswell / "proc/sys/kernel").mkdir(parents=True, exist_ok=True)
    (haswell / "proc/sys/kernel/arch").write_text("x86_64\n")
    cpu = probe_host(str(haswell)).cpu
    assert cpu.architecture.value == "x86_64"
    assert cpu.features.unknown and cpu.microarchitecture.unknown


def test_open_kernel_module(tmp_path: Path) -> None:
    root = captured("zen2-a100", tmp_path, libcuda="usr/lib64/libcuda.so.535.104.05")
    host = probe_host(str(root))
    assert host.driver.kernel_module.value == "535.104.05"
    assert host.driver.cuda.value == "12.2"
    assert host.cpu.microarchitecture.value == "zen2"
    assert {(gpu.name, gpu.compute_capability) for gpu in host.gpus.value} == {("NVIDIA A100-SXM4-40GB", "8.0")}


def test_machine_without_nvidia_is_absent_not_unknown(tmp_path: Path) -> None:
    host = probe_host(str(captured("virtual-machine", tmp_path, libc="lib/x86_64-linux-gnu/libc-2.31.so")))
    assert host.gpus.absent
    assert host.driver.kernel_module.absent
    assert host.driver.userland.absent
    assert "no GPU, no driver" in summarise(host)


def test_gpu_without_loaded_driver_is_found_on_the_bus(haswell: Path) -> None:
    subprocess.run(["rm", "-r", str(haswell / "proc/driver/nvidia"), str(haswell / "sys/module/nvidia")], check=True)
    (haswell / "sys/module/e1000").mkdir()
    host = probe_host(str(haswell))
    assert host.driver.kernel_module.absent
    assert {gpu.compute_capability for gpu in host.gpus.value} == {"5.2"}


def test_windows_subsystem_is_unknown_not_absent(tmp_path: Path) -> None:
    root = captured("virtual-machine", tmp_path)
    (root / "dev").mkdir()
    (root / "dev/dxg").touch()
    host = probe_host(str(root))
    assert host.gpus.unknown
    assert host.driver.kernel_module.unknown


def test_updated_libraries_under_a_running_old_module_are_both_told(tmp_path: Path) -> None:
    root = captured("broadwell-k80", tmp_path, libcuda="usr/lib/x86_64-linux-gnu/libcuda.so.410.48")
    host = probe_host(str(root))
    assert (host.driver.kernel_module.value, host.driver.userland.value) == ("396.44", "410.48")
    assert "driver 396.44 with libraries of 410.48" in summarise(host)


def test_a_driver_of_a_branch_that_no_table_has_is_of_no_known_cuda(tmp_path: Path) -> None:
    host = probe_host(str(captured("broadwell-k80", tmp_path, libcuda="usr/lib64/libcuda.so.540.4.0")))
    assert host.driver.userland.value == "540.4.0"
    assert host.driver.cuda.unknown
    assert "12.2 at least and 12.3 at most" in host.driver.cuda.source


def test_library_for_another_machine_is_no_driver(tmp_path: Path) -> None:
    root = captured("broadwell-k80", tmp_path, "ppc64le", libcuda="usr/lib64/libcuda.so.396.44")
    assert probe_host(str(root)).driver.userland.absent


def test_empty_root_leaves_every_fact_unknown_with_a_reason(tmp_path: Path) -> None:
    host = probe_host(str(tmp_path))
    facts = [host.cpu.architecture, host.cpu.features, host.kernel, host.glibc, host.driver.kernel_module]
    facts += [host.driver.userland, host.driver.cuda, host.gpus, host.libraries, host.runtimes, host.distribution]
    assert all(fact.unknown and fact.source for fact in facts)


def test_garbage_in_every_file_raises_nothing(haswell: Path) -> None:
    for path in haswell.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(b"\xff\x00flags:\n::::\x7fELF" * 7)
    host = probe_host(str(haswell))
    assert host.driver.kernel_module.value != "384.81"


def test_links_of_a_capture_do_not_lead_out_of_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("PRETTY_NAME=outside\n")
    root = captured("virtual-machine", tmp_path)
    (root / "etc/os-release").unlink()
    (root / "etc/os-release").symlink_to(str(outside))
    (root / "etc/loop").symlink_to("/etc/loop")
    host = probe_host(str(root))
    assert host.distribution.unknown


def test_absolute_links_of_a_capture_are_followed_inside_it(tmp_path: Path) -> None:
    root = captured("virtual-machine", tmp_path)
    (root / "opt").mkdir()
    (root / "opt/release").write_text('PRETTY_NAME="inside"\n')
    (root / "etc/os-release").unlink()
    (root / "etc/os-release").symlink_to("/opt/release")
    assert probe_host(str(root)).distribution.value == "inside"


def test_musl_host_has_no_glibc(tmp_path: Path) -> None:
    root = captured("virtual-machine", tmp_path)
    (root / "lib").mkdir()
    (root / "lib/ld-musl-x86_64.so.1").touch()
    assert probe_host(str(root)).glibc.absent


def test_glibc_version_is_read_from_the_library_where_its_name_has_none(tmp_path: Path) -> None:
    root = captured("virtual-machine", tmp_path)
    (root / "lib64").mkdir(exist_ok=True)
    shutil.copy(Libraries(Root("/"), os.uname().machine).find(LIBC), root / "lib64" / LIBC)
    assert probe_host(str(root)).glibc.value == os.confstr("CS_GNU_LIBC_VERSION").split()[1]


def test_injectable_library_is_read_with_its_needs(tmp_path: Path) -> None:
    source = '#include <stdio.h>\nint cuInit(unsigned f){return puts("x");} int cuDriverGetVersion(int*v){return *v=0;}'
    built = compile_c(source, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", out="libcuda.so.396.44")
    root = captured("broadwell-k80", tmp_path)
    place = root / "usr/lib/x86_64-linux-gnu"
    place.mkdir(parents=True)
    (place / "libcuda.so.396.44").write_bytes(built.read_bytes())
    (place / "libcuda.so.1").symlink_to("libcuda.so.396.44")
    host = probe_host(str(root))
    (library,) = host.libraries.value
    assert (library.soname, library.version, library.machine) == ("libcuda.so.1", "396.44", "x86_64")
    assert library.functions == ("cuDriverGetVersion", "cuInit")
    assert "libc.so.6" in library.needed


def test_runtimes_are_found_by_their_programs(haswell: Path) -> None:
    place = haswell / "usr/bin"
    place.mkdir(parents=True)
    for program in ("docker", "nvidia-container-runtime", "apptainer"):
        (place / program).touch(mode=0o755)
    (place / "podman").touch(mode=0o644)
    found = {runtime.id: runtime.path for runtime in probe_host(str(haswell)).runtimes.value}
    assert set(found) == {"docker", "nvidia", "apptainer", "apptainer-nv"}
    assert found["apptainer-nv"] == "/usr/bin/apptainer"


@pytest.mark.parametrize("program, asked", [("docker", "20.10.5"), ("apptainer", "20.10.5"), ("podman", "")])
def test_versions_are_asked_where_an_answer_rests_on_them(
    program: str, asked: str, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / program).write_text("#!/bin/sh\necho version 20.10.5, build 1\n")
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    versions = {runtime.id: runtime.version for runtime in probe_host().runtimes.value}
    assert versions[program] == asked


def test_runtimes_that_inject_a_driver_are_left_out_where_there_is_none(tmp_path: Path) -> None:
    root = captured("virtual-machine", tmp_path, libc="lib64/libc-2.31.so")
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/apptainer").touch(mode=0o755)
    assert [runtime.id for runtime in probe_host(str(root)).runtimes.value] == ["apptainer"]


def test_this_machine_round_trips_through_json() -> None:
    host = probe_host()
    assert decode(encode(host), HostProfile, "probe") == host
    assert host.cpu.features.known
    assert host.kernel.value == os.uname().release


def test_this_machine_is_probed_in_a_tenth_of_a_second() -> None:
    probe_host()
    start = time.perf_counter()
    probe_host()
    assert time.perf_counter() - start < 0.5


def test_probing_without_a_driver_imports_no_numpy(tmp_path: Path) -> None:
    root = captured("virtual-machine", tmp_path)
    code = f"import sys, imgcheck.host.probe as p; p.probe_host({str(root)!r}); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("place", "name"), [("usr/lib/aarch64-linux-gnu/tegra", "aarch64"), ("usr/lib/wsl/lib", "x86_64")]
)
def test_libcuda_1_1_is_of_no_driver_1_1(place: str, name: str, tmp_path: Path) -> None:
    """So Jetson and WSL name it, whatever the driver."""
    root = captured("broadwell-k80", tmp_path, name, libcuda=f"{place}/libcuda.so.1.1")
    (root / "etc/ld.so.conf").write_text(f"/{place}\n")
    host = probe_host(str(root))
    assert not host.driver.userland.known
