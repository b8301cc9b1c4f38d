// The mask of what the CPU can run is kept; the lowest bit of it is the index of a table of versions.
#include "kernels.h"
#include <stdlib.h>

enum { FOR_AVX2 = 1 << 1, FOR_SSSE3 = 1 << 2, FOR_ANY = 1 << 3 };
typedef int (*sum_t)(const int *, int);
static int first(const int *, int);
static const sum_t versions[] = {first, sum_avx2, sum_ssse3, sum_c};
static int64_t chosen = 1;

__attribute__((noinline)) static int64_t supported(void) {
    unsigned a, b, c, d, max;
    int64_t found = FOR_ANY;
    __cpuid(0, max, b, c, d);
    __cpuid(1, a, b, c, d);
    if (c & bit_SSSE3) found |= FOR_SSSE3;
    if (max >= 7 && (c & bit_AVX)) {
        __cpuid_count(7, 0, a, b, c, d);
        if (b & bit_AVX2) found |= FOR_AVX2;
    }
    const char *left_out = getenv("LEFT_OUT");
    if (left_out && (found & ~strtoll(left_out, 0, 0))) found &= ~strtoll(left_out, 0, 0);
    return found | FOR_ANY;
}

static inline int best(void) { return __builtin_ctzll(chosen != 1 ? chosen & ~1LL : 1); }

static int first(const int *p, int n) {
    chosen = supported() | 1;
    return versions[best()](p, n);
}

int main(void) {
    fill();
    printf("%d\n", versions[best()](numbers, 1024) + versions[best()](numbers, 512));
    return 0;
}
