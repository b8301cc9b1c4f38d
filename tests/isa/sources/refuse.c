#include <stdio.h>
#include <stdlib.h>
float a[1000], b[1000];
__attribute__((noinline, target("avx2,fma"))) static void f2(void) {
    for (int i = 0; i < 1000; i++)
        a[i] = a[i] * b[i] + 1;
}
int main(int n, char **v) {
    if (!__builtin_cpu_supports("avx2")) {
        fputs("needs AVX2\n", stderr);
        return 3;
    }
    for (int i = 0; i < 1000; i++)
        a[i] = b[i] = i * n;
    f2();
    printf("%f\n", a[5]);
    return 0;
}
