// What the CPU told in a register that calls may change, over several of them: compilers see that these callees do not.
#include "kernels.h"

__attribute__((noinline)) static int spread(int v) { return v * 3 + 1; }

int main(void) {
    int r = 0, far = 0;
    fill();
    __builtin_cpu_init();
    for (int k = 0; k < 9; k++) r += __builtin_cpu_supports("ssse3") ? sum_ssse3(numbers, 512) : sum_c(numbers, 512);
    far = spread(r) + spread(r + numbers[5]);
    for (int k = 0; k < 9; k++) r += __builtin_cpu_supports("avx2") ? sum_avx2(numbers, 1024 - 8 * k) : spread(r);
    printf("%d %d\n", r, far);
    return 0;
}
