#include <stdio.h>
#include <stdbool.h>
#include <cpuid.h>
static struct { bool sse41, avx, avx2, avx512; } cpu;
static double d[256];
static void cpuid(unsigned leaf, unsigned sub, unsigned r[4]) { __cpuid_count(leaf, sub, r[0], r[1], r[2], r[3]); }
static unsigned long long xgetbv(void) { unsigned lo, hi; __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0)); return ((unsigned long long)hi << 32) | lo; }
static void init(void) {
    unsigned r[4];
    cpuid(0, 0, r);
    unsigned max = r[0];
    cpuid(1, 0, r);
    cpu.sse41 = r[2] & (1 << 19);
    bool os = (r[2] & (1 << 27)) && (xgetbv() & 6) == 6;
    cpu.avx = os && (r[2] & (1 << 28));
    if (max >= 7) {
        cpuid(7, 0, r);
        cpu.avx2 = cpu.avx && (r[1] & (1 << 5));
        cpu.avx512 = cpu.avx2 && (r[1] & (1 << 16)) && (xgetbv() & 0xe6) == 0xe6;
    }
}
__attribute__((noinline, target("avx2"), optimize("O3"))) static void w2(void) { for (int i = 0; i < 256; i++) d[i] = d[i] * 3 + i; }
__attribute__((noinline, target("avx512f"), optimize("O3"))) static void w5(void) { for (int i = 0; i < 256; i++) d[i] = d[i] * 3 + i; }
__attribute__((noinline)) static void w0(void) { for (int i = 0; i < 256; i++) d[i] = d[i] * 3 + i; }
int main(void) {
    init();
    if (cpu.avx512) w5(); else if (cpu.avx2) w2(); else w0();
    printf("%f %d\n", d[9], cpu.sse41);
    return 0;
}
