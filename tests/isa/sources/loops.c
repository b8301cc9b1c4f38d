#include <stdio.h>
float a[1000], b[1000];
int c[1000];
__attribute__((noinline)) void f(void) {
    for (int i = 0; i < 1000; i++) {
        a[i] = a[i] * b[i] + 1;
        c[i] += 3 * c[i];
    }
}
int main(int n, char **v) {
    for (int i = 0; i < 1000; i++)
        a[i] = b[i] = c[i] = i * n;
    f();
    printf("%f %d\n", a[5], c[n]);
    return 0;
}
