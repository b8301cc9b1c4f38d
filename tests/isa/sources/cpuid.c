#include <cpuid.h>
#include <stdio.h>
float a[1000], b[1000];
__attribute__((noinline, target("avx2,fma"))) static void f2(void) {
    for (int i = 0; i < 1000; i++)
        a[i] = a[i] * b[i] + 1;
}
__attribute__((noinline)) static void f0(void) {
    for (int i = 0; i < 1000; i++)
        a[i] = a[i] * b[i] + 1;
}
static int have(void) {
    unsigned x, y, c, d;
    if (!__get_cpuid(1, &x, &y, &c, &d))
        return 0;
    if (!(c & bit_OSXSAVE))
        return 0;
    unsigned lo, hi;
    __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    if ((lo & 6) != 6)
        return 0;
    if (!__get_cpuid_count(7, 0, &x, &y, &c, &d))
        return 0;
    return (y & bit_AVX2) != 0;
}
int main(int n, char **v) {
    for (int i = 0; i < 1000; i++)
        a[i] = b[i] = i * n;
    int h = have();
    if (h)
        f2();
    else
        f0();
    printf("%f %d\n", a[5], h);
    return 0;
}
