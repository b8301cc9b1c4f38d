"""Asking a driver library in a process of its own: right answers, and none from a library that hangs or dies."""

from pathlib import Path

import pytest

import imgcheck.host.ask_driver as ask_driver
from imgcheck.host import nvidia
from imgcheck.host.files import Root
from imgcheck.host.libraries import Libraries
from imgcheck.knowledge import Knowledge
from tests.tools import compile_c


def _library(body: str) -> str:
    source = f"#include <unistd.h>\n#include <stdlib.h>\nint cuDriverGetVersion(int *v) {{ {body} }}"
    return str(compile_c(source, "-shared", "-fPIC", out="libcuda.so.1"))


def test_version_is_what_the_library_says() -> None:
    assert ask_driver.ask(Root(), _library("*v = 9020; return 0;")).cuda == 9020


def test_stub_library_tells_nothing() -> None:
    assert ask_driver.ask(Root(), _library("*v = 9020; return 34;")).cuda == 0


def test_library_that_kills_its_process_does_not_kill_ours() -> None:
    assert ask_driver.ask(Root(), _library("abort();")) == ask_driver.Answer()


def test_library_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_driver, "_TIME_LIMIT", 0.5)
    late: list[str] = []
    library = _library("sleep(60); return 0;")
    assert ask_driver.ask(Root(late=late), library) == ask_driver.Answer()
    assert late == [library]


def test_captured_host_is_never_asked(tmp_path) -> None:
    assert ask_driver.ask(Root(tmp_path), _library("*v = 9020; return 0;")) == ask_driver.Answer()


# A stand-in for libnvidia-ml.so.1 with two GPUs, the first of them partitioned into three instances.
_NVML = r"""
#include <string.h>
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef long *Device;
static long devices[2] = {0, 1};
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Device *d) { *d = &devices[i]; return 0; }
int nvmlDeviceGetCudaComputeCapability(Device d, int *major, int *minor) { *major = 8; *minor = 0; return 0; }
int nvmlDeviceGetPciInfo_v3(Device d, Pci *pci) { memset(pci, 0, sizeof *pci); pci->id = 0x20b010de; return 0; }
int nvmlDeviceGetName(Device d, char *name, unsigned size) { strncpy(name, "NVIDIA A100-SXM4-40GB", size); return 0; }
int nvmlDeviceGetBrand(Device d, int *brand) { *brand = *d ? 2 : 13; return 0; }
int nvmlDeviceGetMigMode(Device d, unsigned *now, unsigned *later) { *now = *later = !*d; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(Device d, unsigned *n) { *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device d, unsigned i, Device *m) { *m = d; return i < 3 ? 0 : 6; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "535.104.05", size); return 0; }
"""


def _answer(monkeypatch: pytest.MonkeyPatch, instead: tuple[str, str] = ("", "")) -> ask_driver.Answer:
    """What is said where the stand-in has the second text of `instead` in place of the first."""
    assert instead[0] in _NVML
    library = compile_c(_NVML.replace(*instead), "-shared", "-fPIC", "-w", out="libnvidia-ml.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    return ask_driver.ask(Root(), _library("*v = 12020; return 0;"))


_HANDLE = "*d = &devices[i]; return "


def test_nvml_gives_an_entry_per_gpu_and_per_instance_of_a_partitioned_one(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _answer(monkeypatch)
    assert (answer.cuda, answer.driver) == (12020, "535.104.05")
    assert [(gpu.mig, gpu.compute_capability, gpu.pci_id) for gpu in answer.gpus] == [
        (True, "8.0", "10de:20b0"),
        (True, "8.0", "10de:20b0"),
        (True, "8.0", "10de:20b0"),
        (False, "8.0", "10de:20b0"),
    ]
    assert answer.gpus[3].name == "NVIDIA A100-SXM4-40GB"
    assert answer.gpus[3].brand == "tesla"


@pytest.mark.parametrize("error", [4, 15], ids=["no permission", "lost"])
def test_a_gpu_that_nvml_denies_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    answer = _answer(monkeypatch, (f"{_HANDLE}0;", f"{_HANDLE}i ? 0 : {error};"))
    assert answer.driver == "535.104.05"
    assert [gpu.mig for gpu in answer.gpus] == [False]


def test_a_gpu_that_is_lost_while_it_is_asked_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _answer(monkeypatch, ("*minor = 0; return 0;", "*minor = 0; return *d ? 0 : 15;"))
    assert [gpu.mig for gpu in answer.gpus] == [False]


def test_a_partitioned_gpu_without_instances_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [gpu.mig for gpu in _answer(monkeypatch, ("i < 3 ? 0 : 6", "6")).gpus] == [False]


@pytest.mark.parametrize("instead", [("*n = 2;", "*n = 0;"), (f"{_HANDLE}0;", f"{_HANDLE}4;")])
def test_where_nvml_shows_no_gpu_there_is_none_whatever_the_node_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, instead: tuple[str, str]
) -> None:
    answer = _answer(monkeypatch, instead)
    folder = tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: \t Tesla V100-PCIE-32GB\nBus Location: \t 0000:3b:00.0\n")
    root = Root(tmp_path)
    for said, state in ((answer, "absent"), (ask_driver.Answer(), "known")):
        monkeypatch.setattr(nvidia, "ask", lambda *_, said=said: said)
        assert nvidia.probe_nvidia(root, Knowledge(), Libraries(root, "x86_64")).gpus.state == state


def test_nvml_that_cannot_tell_of_gpus_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _answer(monkeypatch, ("*minor = 0; return 0;", "*minor = 0; return 3;"))
    assert (answer.driver, answer.gpus) == ("", ())
