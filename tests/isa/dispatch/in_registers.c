// Everything is inlined: flags stay in registers, and blocks that hardly run come at the end of the function.
#include "kernels.h"
#include <stdlib.h>

enum { F_SSSE3 = 1 << 5, F_AVX = 1 << 8, F_AVX2 = 1 << 15 };
struct work { unsigned cpu; int (*sum[2])(const int *, int); int *copy; };

static inline unsigned find(void) {
    unsigned found = 0, a, b, c, d, max, low = 0, high;
    __cpuid(0, max, b, c, d);
    if (!max) return 0;
    __cpuid(1, a, b, c, d);
    if (c & bit_SSSE3) found |= F_SSSE3;
    if (c & bit_OSXSAVE) {
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if ((low & 6) == 6 && (c & bit_AVX)) found |= F_AVX;
    }
    if (max >= 7) {
        __cpuid_count(7, 0, a, b, c, d);
        if ((low & 6) == 6 && (found & F_AVX) && (b & bit_AVX2)) found |= F_AVX2;
    }
    return found;
}

int main(void) {
    struct work *w = calloc(1, sizeof *w);
    if (!w) return 1;
    w->cpu = find();
    w->copy = malloc(sizeof numbers);
    if (!w->copy) return 1;
    w->sum[0] = w->sum[1] = sum_c;
    if (w->cpu & F_SSSE3) w->sum[0] = sum_ssse3;
    if (w->cpu & F_AVX2) w->sum[1] = sum_avx2;
    fill();
    memcpy(w->copy, numbers, sizeof numbers);
    int r = 0;
    for (int i = 0; i < 4; i++) r = r * 3 + w->sum[0](w->copy, 1024) + w->sum[1](numbers, 1024 - 8 * i);
    printf("%d\n", r);
    free(w->copy);
    free(w);
    return 0;
}
