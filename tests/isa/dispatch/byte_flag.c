// A byte that is 255 until the CPU has been asked, and that each user looks at: as Rust's crate cpufeatures keeps it.
#include "kernels.h"

static unsigned char storage = 255;

__attribute__((noinline)) static unsigned char ask(void) {
    unsigned a, b, c, d, low, high, known, ebx;
    __cpuid(1, a, b, c, d);
    __cpuid_count(7, 0, a, ebx, known, d);
    int saved = 0;
    if ((~c & 0x0c000000) == 0) {
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        saved = (~low & 6) == 0;
    }
    unsigned char told = saved & (ebx >> 5) & (c >> 28) & 1;
    __atomic_store_n(&storage, told, __ATOMIC_RELAXED);
    return told;
}

__attribute__((noinline)) static int sum(const int *p, int n) {
    return __atomic_load_n(&storage, __ATOMIC_RELAXED) == 1 ? sum_avx2(p, n) : sum_c(p, n);
}

int main(void) {
    if (__atomic_load_n(&storage, __ATOMIC_RELAXED) == 255) ask();
    fill();
    printf("%d\n", sum(numbers, 1024) + sum(numbers, 512));
    return 0;
}
