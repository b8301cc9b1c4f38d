#include <stdio.h>
static float a[512];
static int level = -1;
static int detect(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return 3;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 2;
    if (__builtin_cpu_supports("avx")) return 1;
    return 0;
}
#define K(n, t) __attribute__((noinline, target(t), optimize("O3"))) static void n(float k) { for (int i = 0; i < 512; i++) a[i] = a[i] * k + i; }
K(k3, "avx512f") K(k2, "avx2,fma") K(k1, "avx")
__attribute__((noinline)) static void k0(float k) { for (int i = 0; i < 512; i++) a[i] = a[i] * k + i; }
void run(float k) {
    if (level < 0) level = detect();
    switch (level) { case 3: k3(k); break; case 2: k2(k); break; case 1: k1(k); break; default: k0(k); }
}
int main(int n, char **v) { run(n); run(2 * n); printf("%f\n", a[7]); return 0; }
