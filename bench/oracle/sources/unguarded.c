#include <immintrin.h>
#include <stdio.h>
/* Asks for one extension and uses another: dies where the second is missing. */
static float a[64];
__attribute__((noinline, target("avx2,fma"))) static void fused(void) {
    __m256 k = _mm256_set1_ps(1.5f);
    for (int i = 0; i < 64; i += 8)
        _mm256_storeu_ps(a + i, _mm256_fmadd_ps(_mm256_loadu_ps(a + i), k, k));
}
int main(int n, char **v) {
    for (int i = 0; i < 64; i++)
        a[i] = i * n;
    if (__builtin_cpu_supports("sse4.2"))
        fused();
    printf("%f\n", a[9]);
    return 0;
}
