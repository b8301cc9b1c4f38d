#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct cpu {
    int vendor;
    unsigned char sse42, avx, avx2, avx512;
};
static void fill(struct cpu *cpu) {
    unsigned a, b, c, d;
    memset(cpu, 0, sizeof *cpu);
    __cpuid(0, a, b, c, d);
    cpu->vendor = b;
    if (a < 7)
        return;
    __cpuid(1, a, b, c, d);
    cpu->sse42 = c >> 20 & 1;
    cpu->avx = c >> 28 & c >> 27 & 1;
    __cpuid_count(7, 0, a, b, c, d);
    cpu->avx2 = cpu->avx & b >> 5 & 1;
    cpu->avx512 = cpu->avx & b >> 16 & 1;
}
__attribute__((noinline, target("sse4.2"))) static unsigned crc_hw(const unsigned char *p, int n) {
    unsigned c = ~0u;
    while (n--)
        c = __builtin_ia32_crc32qi(c, *p++);
    return ~c;
}
__attribute__((noinline)) static unsigned crc_sw(const unsigned char *p, int n) {
    unsigned c = ~0u;
    while (n--) {
        c ^= *p++;
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (0x82f63b78 & -(c & 1));
    }
    return ~c;
}
__attribute__((noinline, target("avx2"), optimize("O3"))) static void add_wide(int *p, int n) {
    for (int i = 0; i < n; i++)
        p[i] += 3 * i;
}
__attribute__((noinline)) static void add(int *p, int n) {
    for (int i = 0; i < n; i++)
        p[i] += 3 * i;
}
int main(int n, char **v) {
    struct cpu *cpu = malloc(sizeof *cpu);
    static unsigned char text[999];
    static int numbers[999];
    fill(cpu);
    (cpu->avx2 ? add_wide : add)(numbers, 999);
    printf("%u %d\n", cpu->sse42 ? crc_hw(text, 999) : crc_sw(text, 999), numbers[7]);
    free(cpu);
    return 0;
}
