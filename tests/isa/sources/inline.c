#include <stdio.h>
#include <string.h>
int main(int n, char **v) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    if (__builtin_cpu_supports("avx")) {
        __asm__ volatile("vmovups %0,%%ymm0\n vaddps %%ymm0,%%ymm0,%%ymm0\n vmovups %%ymm0,%0\n vzeroupper"
                         : "+m"(x)::"xmm0", "memory");
    } else
        for (int i = 0; i < 8; i++)
            x[i] *= 2;
    for (int i = 0; i < 3; i++)
        printf("%f\n", x[i] * n);
    return 0;
}
