"""Extension modules of Python: what runs when one is imported, which no call in the file leads to."""

import subprocess
from pathlib import Path

import pytest

from tests.isa.programs import MODELS, analyse, predicted
from tests.tools import compile_c, need

# Without Python's headers: the layouts of PyModuleDef and its slots belong to the stable ABI.
SOURCE = """
#include <cpuid.h>
static float x[64];
__attribute__((noinline)) static int wide(void *module) {
    for (int i = 0; i < 64; i += 8)
        __asm__ volatile("vmovups (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vmovups %%ymm1, (%0); vzeroupper"
                         : : "r"(x + i) : "memory", "xmm1");
    return 0;
}
__attribute__((noinline)) static int plain(void *module) { x[3] += 1; return 0; }
int asked(void) { return __builtin_cpu_supports("avx2") ? wide(0) : plain(0); }
struct slot { int id; void *value; } static slots[] = {SLOTS, {0, 0}};
struct def {
    long references; void *type, *init; long index; void *copy; const char *name, *doc; long size;
    void *methods; struct slot *slots; void *traverse, *clear, *free;
} static def = {1, 0, 0, 0, 0, "module", 0, 0, 0, slots, 0, 0, 0};
void *PyModuleDef_Init(struct def *);
void *PyInit_module(void) { return PyModuleDef_Init(&def); }
"""
METHODS = """
static float x[64];
void *PyLong_FromLong(long);
__attribute__((noinline)) static void *wide(void *self, void *given) {
    for (int i = 0; i < 64; i += 8)
        __asm__ volatile("vmovups (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vmovups %%ymm1, (%0); vzeroupper"
                         : : "r"(x + i) : "memory", "xmm1");
    return PyLong_FromLong(0);
}
__attribute__((noinline)) static void *plain(void *self, void *given) { x[3] += 1; return PyLong_FromLong(0); }
static void *asked(void *self, void *given) {
    return __builtin_cpu_supports("avx2") ? wide(self, given) : plain(self, given);
}
static void *careful(void *self, void *given) { x[5] += 1; return asked(self, given); }
static void *careless(void *self, void *given) { x[5] += 1; return wide(self, given); }
struct method { const char *name; void *function; int flags; const char *doc; };
static struct method methods[] = {{"other", asked, 4, 0}, {"offered", OFFERED, FLAGS, 0}, {0, 0, 0, 0}};
struct def {
    long references; void *type, *init; long index; void *copy; const char *name, *doc; long size;
    struct method *methods; void *slots, *traverse, *clear, *free;
} static def = {1, 0, 0, 0, 0, "module", 0, -1, methods, 0, 0, 0, 0};
void *PyModule_Create2(struct def *, int);
void *PyInit_module(void) { return PyModule_Create2(&def, 1013); }
"""


def module(slots: str, *flags: str) -> Path:
    return compile_c(SOURCE.replace("SLOTS", slots), "-shared", "-fPIC", *flags, out="module.so")


def offering(function: str, flags: int, *options: str) -> Path:
    source = METHODS.replace("OFFERED", function).replace("FLAGS", str(flags))
    return compile_c(source, "-shared", "-fPIC", *options, out="module.so")


def imported(path: Path, model: str, then: str = "") -> str:
    command = (
        need("qemu-x86_64"),
        "-cpu",
        model,
        need("python3"),
        "-ISc",
        f"import sys; sys.path = [sys.argv[1]] + sys.path; import module; {then}",
    )
    status = subprocess.run([*command, path.parent], capture_output=True).returncode
    return {0: "runs", -4: "dies", 132: "dies"}[status]


@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-s")])
@pytest.mark.parametrize(
    ("slots", "ending"), [("{2, wide}", "dies"), ("{2, plain}, {2, wide}", "dies"), ("{2, plain}", "runs")]
)
def test_what_its_slots_name_runs_at_import(slots: str, ending: str, flags: tuple[str, ...]) -> None:
    path = module(slots, *flags)
    assert imported(path, "Nehalem") == ending
    found = analyse(path)
    told = [(use.feature, use.answer, use.reason) for use in found.uses]
    assert predicted(found, MODELS["Nehalem"]) == ending, told
    assert predicted(found, MODELS["Haswell"]) == "runs" == imported(path, "Haswell"), told


@pytest.mark.parametrize("slots", ["{2, wide}, {3, (void *)2}, {4, (void *)1}", "{7, wide}, {0, 0}, {2, wide}"])
def test_only_slots_that_name_functions_count(slots: str) -> None:
    answers = {use.feature: use.answer for use in analyse(module(slots, "-O2")).uses}
    assert answers["avx"] == ("required" if slots.startswith("{2") else "dispatched")


def test_a_list_without_an_end_is_none() -> None:
    path = module(", ".join(["{2, wide}"] * 40), "-O2")
    assert {use.feature: use.answer for use in analyse(path).uses}["avx"] == "dispatched"


@pytest.mark.parametrize("options", [("-O0",), ("-O2", "-s")])
@pytest.mark.parametrize(("function", "ending"), [("careless", "dies"), ("careful", "runs"), ("plain", "runs")])
def test_what_its_methods_name_is_called_by_python(function: str, ending: str, options: tuple[str, ...]) -> None:
    path = offering(function, 4, *options)
    assert imported(path, "Nehalem") == "runs"
    assert imported(path, "Nehalem", "module.offered()") == ending
    told = [(use.feature, use.answer, use.reason) for use in analyse(path).uses]
    assert (predicted(analyse(path), MODELS["Nehalem"]) == "runs") == (ending == "runs"), told


def test_what_has_no_flags_of_a_method_is_none() -> None:
    """Structures that look alike hold numbers of their own."""
    assert predicted(analyse(offering("careless", 0, "-O2")), MODELS["Nehalem"]) == "runs"
