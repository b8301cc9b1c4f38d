// The level goes by a name, which is compared wherever a version is chosen.
#include "kernels.h"

static const char *level;

__attribute__((noinline)) static const char *found(void) {
    unsigned a, b, c, d, max;
    __cpuid(0, max, b, c, d);
    __cpuid(1, a, b, c, d);
    if (!(c & bit_SSSE3)) return "generic";
    if (!(c & bit_AVX) || max < 7) return "core2";
    __cpuid_count(7, 0, a, b, c, d);
    return b & bit_AVX2 ? "haswell" : "sandybridge";
}

__attribute__((noinline)) static int sum(const int *p, int n) {
    if (!level) level = found();
    if (strcmp(level, "haswell") == 0) return sum_avx2(p, n);
    if (strcmp(level, "core2") == 0 || strcmp(level, "sandybridge") == 0) return sum_ssse3(p, n);
    return sum_c(p, n);
}

int main(void) {
    fill();
    int first = sum(numbers, 1024);
    printf("%s %d\n", level, first + sum(numbers, 512));
    return 0;
}
