// A mask of flags, where the highest leaf is asked for first; for size GCC keeps that for the mask of a CPU without any.
#include "kernels.h"

enum { SSSE3 = 1, POPCNT = 2, AVX = 4, AVX2 = 8 };
static int (*sum)(const int *, int);

__attribute__((noinline, noipa)) static unsigned flags(void) {
    unsigned a, b, c, d, f = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) {
        if (c & bit_SSSE3) f |= SSSE3;
        if (c & bit_POPCNT) f |= POPCNT;
        if ((c & bit_OSXSAVE) && (c & bit_AVX)) {
            f |= AVX;
            if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2)) f |= AVX2;
        }
    }
    return f;
}

int main(void) {
    unsigned f = flags();
    fill();
    sum = sum_c;
    if (f & SSSE3) sum = sum_ssse3;
    if (f & AVX2) sum = sum_avx2;
    printf("%d\n", sum(numbers, 1024) + sum(numbers, 512));
    return 0;
}
