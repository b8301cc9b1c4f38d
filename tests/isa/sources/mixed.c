#include <stdio.h>
#include <stdlib.h>
#include <string.h>
double m[64][64], x[64], y[64];
__attribute__((noinline)) void mv(void) {
    for (int i = 0; i < 64; i++) {
        double s = 0;
        for (int j = 0; j < 64; j++)
            s += m[i][j] * x[j];
        y[i] = s;
    }
}
__attribute__((noinline, target("avx512f"))) static void f5(void) {
    for (int i = 0; i < 64; i++)
        y[i] = y[i] * x[i] + 1;
}
int main(int n, char **v) {
    for (int i = 0; i < 64; i++) {
        x[i] = i * n;
        for (int j = 0; j < 64; j++)
            m[i][j] = i + j * n;
    }
    mv();
    if (__builtin_cpu_supports("avx512f"))
        f5();
    double s = 0;
    for (int i = 0; i < 64; i++)
        s += y[i];
    printf("%f\n", s);
    return 0;
}
