// A mask put together of single bits: compilers add what has no bit in common, with LEA and ADD.
#include "kernels.h"

static unsigned mask;
static int ready;

__attribute__((noinline, noipa)) static unsigned known(void) {
    if (!ready) {
        unsigned a, b, c, d, low = 0, high;
        __cpuid(1, a, b, c, d);
        unsigned ssse3 = c >> 9 & 1, avx = c >> 28 & 1;
        if (c & bit_OSXSAVE) __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        __cpuid_count(7, 0, a, b, c, d);
        mask = ssse3 | (avx & ((low & 6) == 6)) << 1 | (b >> 3 & 1) << 2 | (b >> 5 & 1) << 3;
        ready = 1;
    }
    return mask;
}

static int sum(const int *p, int n) {
    unsigned m = known();
    if ((m & 10) == 10) return sum_avx2(p, n);
    return m & 1 ? sum_ssse3(p, n) : sum_c(p, n);
}

int main(void) {
    fill();
    printf("%d\n", sum(numbers, 1024) + sum(numbers, 512));
    return 0;
}
