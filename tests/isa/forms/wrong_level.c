#include <stdio.h>
static float x[320];
static int have;
__attribute__((noinline, target("avx512f"), optimize("O3"))) static void big(void) { for (int i = 0; i < 320; i++) x[i] = x[i] * 2 + i; }
__attribute__((noinline, target("avx"), optimize("O3"))) static void mid(void) { for (int i = 0; i < 320; i++) x[i] = x[i] * 2 + i; }
__attribute__((constructor)) static void probe(void) { __builtin_cpu_init(); have = __builtin_cpu_supports("avx2") ? 2 : __builtin_cpu_supports("sse4.1") ? 1 : 0; }
int main(void) { if (have == 2) big(); else if (have == 1) mid(); printf("%f\n", x[3]); return 0; }
