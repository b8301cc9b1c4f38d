// A level that is kept once it is known, and made of the carry flag as clang does it (and GCC with other numbers).
#include "kernels.h"

static inline int level(void) {
    static int kept = -1;
    if (kept == -1) {
        unsigned found = __builtin_cpu_supports("avx2") != 0;
        int made;
        __asm__("cmp $1, %1\n\tmov $2, %0\n\tsbb $0, %0" : "=&r"(made) : "r"(found) : "cc");
        kept = made;
    }
    return kept;
}

int main(void) {
    fill();
    int sum = 0;
    for (int i = 0; i < 3; i++) sum += level() >= 2 ? sum_avx2(numbers, 1024) : sum_c(numbers, 1024);
    printf("%d\n", sum);
    return 0;
}
