#include <cpuid.h>
#include <pthread.h>
#include <stdio.h>
static double data[512];
static int level;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void detect(void) {
    unsigned a, b, c, d;
    if (__get_cpuid_max(0, 0) < 7)
        return;
    __cpuid(1, a, b, c, d);
    if ((c & (bit_AVX | bit_FMA)) != (bit_AVX | bit_FMA))
        return;
    __cpuid_count(7, 0, a, b, c, d);
    if (b & bit_AVX2)
        level = b & bit_AVX512F ? 2 : 1;
}
__attribute__((noinline)) static double plain(double k) {
    double s = 0;
    for (int i = 0; i < 512; i++)
        s += data[i] * k;
    return s;
}
__attribute__((noinline, target("avx2,fma"), optimize("O3"))) static double wide(double k) {
    for (int i = 0; i < 512; i++)
        data[i] = data[i] * k + 1;
    return data[7];
}
__attribute__((noinline, target("avx512f"), optimize("O3"))) static double widest(double k) {
    for (int i = 0; i < 512; i++)
        data[i] = data[i] * k + 1;
    return data[9];
}
static double run(double k) {
    pthread_once(&once, detect);
    switch (level) {
    case 2:
        return widest(k);
    case 1:
        return wide(k);
    default:
        return plain(k);
    }
}
int main(int n, char **v) {
    for (int i = 0; i < 512; i++)
        data[i] = i * n;
    printf("%f\n", run(n) + run(2 * n));
    return 0;
}
