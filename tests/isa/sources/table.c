#include <cpuid.h>
#include <stdio.h>
float a[1000], b[1000];
__attribute__((noinline, target("avx2,fma"))) static void f2(void) {
    for (int i = 0; i < 1000; i++)
        a[i] = a[i] * b[i] + 1;
}
__attribute__((noinline, target("sse4.1"))) static void f1(void) {
    for (int i = 0; i < 1000; i++)
        a[i] = __builtin_floorf(a[i] * b[i]) + 1;
}
__attribute__((noinline)) static void f0(void) {
    for (int i = 0; i < 1000; i++)
        a[i] = a[i] * b[i] + 1;
}
static int flags;
static void (*fn)(void);
struct k {
    int need;
    void (*f)(void);
};
static const struct k table[] = {{4, f2}, {2, f1}, {0, f0}};
static void detect(void) {
    unsigned x, y, c, d;
    __cpuid(1, x, y, c, d);
    if (c & bit_SSE4_1)
        flags |= 2;
    if ((c & bit_OSXSAVE) && (c & bit_AVX)) {
        __cpuid_count(7, 0, x, y, c, d);
        if (y & bit_AVX2)
            flags |= 4;
    }
}
__attribute__((constructor)) static void init(void) {
    detect();
    for (int i = 0; i < 3; i++)
        if ((flags & table[i].need) == table[i].need) {
            fn = table[i].f;
            break;
        }
}
int main(int n, char **v) {
    for (int i = 0; i < 1000; i++)
        a[i] = b[i] = i * n;
    fn();
    printf("%f\n", a[5]);
    return 0;
}
