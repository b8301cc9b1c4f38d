// A byte is -1 until the function that asks for it finds out what the CPU has.
#include "kernels.h"

static signed char state = -1;

static inline int has_avx2(void) {
    if (__builtin_expect(state < 0, 0)) {
        unsigned a, b, c, d, low, high;
        state = 0;
        if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_OSXSAVE)) {
            __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
            state = (low & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
        }
    }
    return state;
}

int main(void) {
    fill();
    printf("%d\n", has_avx2() ? sum_avx2(numbers, 1024) : sum_c(numbers, 1024));
    printf("%d\n", has_avx2() ? sum_avx2(numbers, 512) : sum_c(numbers, 512));
    return 0;
}
