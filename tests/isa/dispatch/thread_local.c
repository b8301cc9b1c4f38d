#include <cpuid.h>
#include <stdio.h>
#include <immintrin.h>
enum { F_SSSE3 = 1, F_AVX2 = 2 };
static __thread unsigned flags = ~0u;
static void init(void) {
    if (flags != ~0u) return;
    unsigned a, b, c, d, f = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) { if (c & bit_SSSE3) f |= F_SSSE3; }
    if ((c & bit_OSXSAVE) && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2)) f |= F_AVX2;
    flags = f;
}
__attribute__((noinline, target("avx2"))) static int k2(const int *p, int n) {
    __m256i s = _mm256_setzero_si256();
    for (int i = 0; i + 8 <= n; i += 8) s = _mm256_add_epi32(s, _mm256_loadu_si256((const __m256i *)(p + i)));
    int t[8]; _mm256_storeu_si256((__m256i *)t, s); int r = 0; for (int i = 0; i < 8; i++) r += t[i]; return r;
}
__attribute__((noinline, target("ssse3"))) static int k1(const int *p, int n) {
    __m128i s = _mm_setzero_si128();
    for (int i = 0; i + 4 <= n; i += 4) s = _mm_add_epi32(s, _mm_abs_epi32(_mm_loadu_si128((const __m128i *)(p + i))));
    int t[4]; _mm_storeu_si128((__m128i *)t, s); return t[0] + t[1] + t[2] + t[3];
}
__attribute__((noinline)) static int k0(const int *p, int n) { int r = 0; for (int i = 0; i < n; i++) r += p[i]; return r; }
__attribute__((noinline)) int sum(const int *p, int n) { init(); if (flags & F_AVX2) return k2(p, n); if (flags & F_SSSE3) return k1(p, n); return k0(p, n); }
int main(void) { int v[1024]; for (int i = 0; i < 1024; i++) v[i] = i * 7 % 13; printf("%d\n", sum(v, 1024)); return 0; }
