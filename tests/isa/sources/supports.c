#include <stdio.h>
float a[1000], b[1000];
__attribute__((noinline, target("avx2,fma"))) static void f2(void) {
    for (int i = 0; i < 1000; i++)
        a[i] = a[i] * b[i] + 1;
}
__attribute__((noinline, target("avx512f"))) static void f5(void) {
    for (int i = 0; i < 1000; i++)
        a[i] = a[i] * b[i] + 1;
}
__attribute__((noinline)) static void f0(void) {
    for (int i = 0; i < 1000; i++)
        a[i] = a[i] * b[i] + 1;
}
int main(int n, char **v) {
    for (int i = 0; i < 1000; i++)
        a[i] = b[i] = i * n;
    if (__builtin_cpu_supports("avx512f"))
        f5();
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        f2();
    else
        f0();
    printf("%f\n", a[5]);
    return 0;
}
