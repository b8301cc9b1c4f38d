#include <stdio.h>
static float a[1000];
__attribute__((target("avx512f"), optimize("O3"))) static float sum512(void) {
    float s = 0;
    for (int i = 0; i < 1000; i++)
        s += a[i] * a[i];
    for (int i = 0; i < 1000; i++)
        a[i] += s;
    return s;
}
__attribute__((target("avx"), optimize("O3"))) static float sum256(void) {
    float s = 0;
    for (int i = 0; i < 1000; i++)
        s += a[i] * a[i];
    for (int i = 0; i < 1000; i++)
        a[i] += s;
    return s;
}
static float sum(void) {
    float s = 0;
    for (int i = 0; i < 1000; i++)
        s += a[i] * a[i];
    return s;
}
static float (*resolve(void))(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return sum512;
    return __builtin_cpu_supports("avx") ? sum256 : sum;
}
float best(void) __attribute__((ifunc("resolve")));
int main(int n, char **v) {
    for (int i = 0; i < 1000; i++)
        a[i] = n + i;
    printf("%f\n", best());
    return 0;
}
