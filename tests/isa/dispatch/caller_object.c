// A function fills an object of its caller, which calls others before it asks that.
#include "kernels.h"

struct caps { _Bool avx2, avx, ssse3; };

__attribute__((noinline, noipa)) static void find(struct caps *f) {
    unsigned a, b, c, d, max, low, high;
    f->ssse3 = f->avx = f->avx2 = 0;
    __cpuid(0, max, b, c, d);
    __cpuid(1, a, b, c, d);
    f->ssse3 = !!(c & bit_SSSE3);
    if (!(c & bit_OSXSAVE)) return;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    f->avx = (low & 6) == 6 && (c & bit_AVX);
    if (max < 7) return;
    __cpuid_count(7, 0, a, b, c, d);
    f->avx2 = f->avx && (b & bit_AVX2);
}

int main(void) {
    struct caps f;
    find(&f);
    fill();
    puts("filled");
    int sum = f.avx2 ? sum_avx2(numbers, 1024) : f.ssse3 ? sum_ssse3(numbers, 1024) : sum_c(numbers, 1024);
    printf("%d\n", sum);
    return 0;
}
