#include <stdint.h>
#include <stdio.h>
#include <immintrin.h>
typedef struct { uint32_t eax, ebx, ecx, edx; } regs;
static regs query(uint32_t leaf, uint32_t sub) { regs r; __asm__ volatile("cpuid" : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx) : "0"(leaf), "2"(sub)); return r; }
static int has_avx2(void) { return query(0, 0).eax >= 7 && (query(7, 0).ebx & (1u << 5)) != 0; }
static int has_popcnt(void) { return (query(1, 0).ecx >> 23) & 1; }
static int has_avx(void) { regs r = query(1, 0); return (r.ecx & (1u << 27)) && (r.ecx & (1u << 28)); }
__attribute__((noinline, target("avx2"))) static int k2(const int *p, int n) {
    __m256i s = _mm256_setzero_si256();
    for (int i = 0; i + 8 <= n; i += 8) s = _mm256_add_epi32(s, _mm256_loadu_si256((const __m256i *)(p + i)));
    int t[8]; _mm256_storeu_si256((__m256i *)t, s); int r = 0; for (int i = 0; i < 8; i++) r += t[i]; return r;
}
__attribute__((noinline, target("popcnt"))) static int k1(const int *p, int n) { int r = 0; for (int i = 0; i < n; i++) r += __builtin_popcount(p[i]) * 0 + p[i]; return r; }
__attribute__((noinline)) static int k0(const int *p, int n) { int r = 0; for (int i = 0; i < n; i++) r += p[i]; return r; }
typedef int (*fn)(const int *, int);
static fn pick(int avx2, int popcnt) { if (avx2) return k2; if (popcnt) return k1; return k0; }
static fn impl;
int main(void) { int v[1024]; for (int i = 0; i < 1024; i++) v[i] = i * 7 % 13; int a = has_avx2(), p = has_popcnt(), x = has_avx(); impl = pick(a, p); printf("%d\n", impl(v, 1024) + 0 * x); return 0; }
