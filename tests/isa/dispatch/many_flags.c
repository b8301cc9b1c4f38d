// A word of flags that is put together one by one, as FFmpeg does, which on the way may be one of many numbers.
#include "kernels.h"

enum { SSE3 = 0x40, SSSE3 = 0x80, SSE41 = 0x100, SSE42 = 0x200, AVX = 0x4000, AVX2 = 0x8000, FMA = 0x10000, BMI1 = 0x20000 };

__attribute__((noinline)) static int find(void) {
    unsigned a, b, c, d, max, low = 0, high;
    int flags = 0;
    __cpuid(0, max, b, c, d);
    __cpuid(1, a, b, c, d);
    if (c & 1) flags |= SSE3;
    if (c & 0x200) flags |= SSSE3;
    if (c & 0x80000) flags |= SSE41;
    if (c & 0x100000) flags |= SSE42;
    if (d & 1 << 26) flags |= 0x10;
    if ((c & 0x18000000) == 0x18000000) {
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if ((low & 6) == 6) {
            flags |= AVX;
            if (c & 0x1000) flags |= FMA;
        }
    }
    if (max >= 7) {
        __cpuid_count(7, 0, a, b, c, d);
        if ((flags & AVX) && (b & 0x20)) flags |= AVX2;
        if (b & 8) flags |= BMI1;
    }
    return flags;
}

__attribute__((noinline, target("fma"))) static int sum_fma(const int *p, int n) {
    __m128 s = _mm_setzero_ps();
    for (int i = 0; i + 4 <= n; i += 4)
        s = _mm_fmadd_ps(_mm_cvtepi32_ps(_mm_loadu_si128((const __m128i *)(p + i))), _mm_set1_ps(1), s);
    return (int)(s[0] + s[1] + s[2] + s[3]);
}

int main(void) {
    fill();
    int r, flags = find();
    if (flags & AVX2) r = sum_avx2(numbers, 1024);
    else if (flags & SSSE3) r = sum_ssse3(numbers, 1024);
    else r = sum_c(numbers, 1024);
    printf("%d %d\n", r, flags & FMA ? sum_fma(numbers, 1024) : 0);
    return 0;
}
