// One function answers for every set of features, and its caller says for which (oneDNN's mayiuse).
#include "kernels.h"

enum kind { SSE41 = 1, SSSE3 = 2, AVX = 3, AVX2 = 7 };
static struct { unsigned one, seven, enabled, asked; } cpu;

__attribute__((noinline)) static void ask(void) {
    unsigned a, b, c, d, max, low = 0, high;
    __cpuid(0, max, b, c, d);
    __cpuid(1, a, b, c, d);
    if (c & bit_OSXSAVE) __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    cpu.one = c;
    cpu.enabled = low;
    if (max >= 7) {
        __cpuid_count(7, 0, a, b, c, d);
        cpu.seven = b;
    }
    cpu.asked = 1;
}

__attribute__((noinline)) static int may_use(enum kind kind) {
    if (!cpu.asked) ask();
    switch (kind) {
    case SSE41: return cpu.one >> 19 & 1;
    case SSSE3: return cpu.one >> 9 & 1;
    case AVX: return (cpu.one >> 28 & 1) && (cpu.enabled & 6) == 6;
    case AVX2: return (cpu.one >> 28 & 1) && (cpu.enabled & 6) == 6 && (cpu.seven >> 5 & 1);
    default: return 0;
    }
}

int main(void) {
    fill();
    int r;
    if (may_use(AVX2)) r = sum_avx2(numbers, 1024);
    else if (may_use(SSSE3)) r = sum_ssse3(numbers, 1024);
    else r = sum_c(numbers, 1024);
    printf("%d %d %d\n", r, may_use(SSE41), may_use(AVX));
    return 0;
}
