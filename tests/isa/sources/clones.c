#include <stdio.h>
float a[1000], b[1000];
__attribute__((noinline, target_clones("default", "avx2", "avx512f"))) void f(void) {
    for (int i = 0; i < 1000; i++)
        a[i] = a[i] * b[i] + 1;
}
int main(int n, char **v) {
    for (int i = 0; i < 1000; i++)
        a[i] = b[i] = i * n;
    f();
    printf("%f\n", a[5]);
    return 0;
}
