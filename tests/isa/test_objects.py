"""Objects that keep what the CPU told, and through which programs ask: as C++ has them, beside QEMU's CPU models."""

import pytest

from tests.isa.programs import MODELS, analyse, observed, predicted
from tests.tools import compile_c

SINGLETON = """
#include <cpuid.h>
#include <cstdio>
#include <cstring>
static float x[64];
__attribute__((noinline)) static void use() {
    for (int i = 0; i < 64; i += 8)
        __asm__ volatile("vmovups (%0), %%ymm1; vpaddd %%ymm1, %%ymm1, %%ymm1; vmovups %%ymm1, (%0); vzeroupper"
                         : : "r"(x + i) : "memory", "xmm1");
}
struct features {
    unsigned sse4_2 : 1, avx : 1, avx2 : 1, fma : 1;
    features() {
        std::memset(this, 0, sizeof *this);
        unsigned a, b, c, d, low, high;
        __cpuid(0, a, b, c, d);
        if (a < 7) return;
        __cpuid(1, a, b, c, d);
        sse4_2 = c >> 20 & 1;
        if (!(c & bit_OSXSAVE)) return;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if ((low & 6) != 6) return;
        avx = c >> 28 & 1;
        fma = c >> 12 & 1;
        __cpuid_count(7, 0, a, b, c, d);
        avx2 = b >> 5 & 1;
    }
};
__attribute__((noinline)) static const features &host() { static const features kept; return kept; }
int main() { if (host().TESTED) use(); std::printf("%f\\n", x[7]); }
"""


@pytest.mark.parametrize("flags", [("-O2", "-s"), ("-O3",), ("-O1", "-no-pie", "-s")], ids=" ".join)
@pytest.mark.parametrize("tested", ["avx2", "sse4_2"])
def test_a_static_object_that_a_function_gives_out(tested: str, flags: tuple[str, ...]) -> None:
    path = compile_c(SINGLETON, *flags, f"-DTESTED={tested}", compiler="g++", language="c++")
    for model in ("Nehalem", "SandyBridge", "Haswell"):
        assert (model, predicted(analyse(path), MODELS[model])) == (model, observed(path, "qemu-x86_64", model))
