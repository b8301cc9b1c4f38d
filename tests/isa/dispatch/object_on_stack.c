// What the CPU told is a member of an object on the stack, which functions get a pointer to.
#include "kernels.h"

struct work { int level, length; const int *numbers; long total; };
enum { ANY, SSE2, SSSE3, AVX, AVX2 };

__attribute__((noinline)) static int level(void) {
    unsigned a, b, c, d, max;
    __cpuid(0, max, b, c, d);
    __cpuid(1, a, b, c, d);
    if (!(d & bit_SSE2)) return ANY;
    if (!(c & bit_SSSE3)) return SSE2;
    if (!(c & bit_AVX)) return SSSE3;
    if (max < 7) return AVX;
    __cpuid_count(7, 0, a, b, c, d);
    return b & bit_AVX2 ? AVX2 : AVX;
}

__attribute__((noinline)) static void run(struct work *w) {
    if (w->level >= AVX2) w->total += sum_avx2(w->numbers, w->length);
    else if (w->level >= SSSE3) w->total += sum_ssse3(w->numbers, w->length);
    else w->total += sum_c(w->numbers, w->length);
}

int main(void) {
    struct work w = {level(), 1024, numbers, 0};
    fill();
    run(&w);
    w.length = 512;
    run(&w);
    printf("%ld\n", w.total);
    return 0;
}
