#include <stdio.h>
#include <string.h>
static int n[400];
static int first(int k);
static int (*impl)(int) = first;
__attribute__((noinline, target("avx2"), optimize("O3"))) static int wide(int k) { int s = 0; for (int i = 0; i < 400; i++) { n[i] += k * i; s ^= n[i]; } return s; }
__attribute__((noinline)) static int narrow(int k) { int s = 0; for (int i = 0; i < 400; i++) { n[i] += k * i; s ^= n[i]; } return s; }
static int first(int k) { impl = __builtin_cpu_supports("avx2") ? wide : narrow; return impl(k); }
int main(int c, char **v) { printf("%d\n", impl(c) + impl(3)); return 0; }
