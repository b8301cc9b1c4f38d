// Booleans of one byte lie side by side on the stack; compilers store several at a time.
#include "kernels.h"
#include <stdbool.h>

struct features { bool sse2, ssse3, popcnt, avx, avx2, bmi2; };

static inline void find(struct features *f) {
    unsigned a, b, c, d, max;
    memset(f, 0, sizeof *f);
    __cpuid(0, max, b, c, d);
    if (max < 1) return;
    __cpuid(1, a, b, c, d);
    f->sse2 = d >> 26 & 1;
    f->ssse3 = c >> 9 & 1;
    f->popcnt = c >> 23 & 1;
    f->avx = (c >> 27 & 1) && (c >> 28 & 1);
    if (max >= 7) {
        __cpuid_count(7, 0, a, b, c, d);
        f->avx2 = f->avx && (b >> 5 & 1);
        f->bmi2 = b >> 8 & 1;
    }
}

int main(void) {
    struct features f;
    int r = 0;
    find(&f);
    fill();
    for (int i = 0; i < 4; i++) {
        if (f.avx2) r += sum_avx2(numbers, 1024);
        else if (f.ssse3) r += sum_ssse3(numbers, 1024);
        else r += sum_c(numbers, 1024);
    }
    printf("%d\n", r);
    return 0;
}
