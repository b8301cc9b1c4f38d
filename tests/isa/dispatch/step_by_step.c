// A level whose steps are compared one after the other, by a function that also looks how many leaves there are.
#include "kernels.h"

__attribute__((noinline)) static int level(void) {
    unsigned a, b, c, d, low, high;
    __cpuid(1, a, b, c, d);
    if (!(c >> 9 & 1)) return 0;
    if (!(c >> 20 & 1)) return 1;
    if ((c >> 27 & 3) != 3) return 2;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6 || __get_cpuid_max(0, 0) < 7) return 2;
    __cpuid_count(7, 0, a, b, c, d);
    return b >> 5 & 1 ? 3 : 2;
}

static int (*sum)(const int *, int), (*other)(const int *, int);

static void init(void) {
    int found = level();
    sum = sum_c;
    other = sum_c;
    if (found >= 1) other = sum_ssse3;
    if (found >= 2) sum = sum_ssse3;
    if (found >= 3) sum = sum_avx2;
}

int main(void) {
    fill();
    init();
    printf("%d %d\n", sum(numbers, 1024), other(numbers, 1024));
    return 0;
}
