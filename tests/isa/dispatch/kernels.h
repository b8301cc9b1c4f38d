// One sum in three versions: for any CPU, for SSSE3 and for AVX2.
#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) static int sum_c(const int *p, int n) {
    int r = 0;
    for (int i = 0; i < n; i++) r += p[i];
    return r;
}

__attribute__((noinline, target("ssse3"))) static int sum_ssse3(const int *p, int n) {
    __m128i s = _mm_setzero_si128();
    for (int i = 0; i + 4 <= n; i += 4) s = _mm_add_epi32(s, _mm_loadu_si128((const __m128i *)(p + i)));
    s = _mm_hadd_epi32(s, s);
    return _mm_cvtsi128_si32(_mm_hadd_epi32(s, s));
}

__attribute__((noinline, target("avx2"))) static int sum_avx2(const int *p, int n) {
    __m256i s = _mm256_setzero_si256();
    for (int i = 0; i + 8 <= n; i += 8) s = _mm256_add_epi32(s, _mm256_loadu_si256((const __m256i *)(p + i)));
    int t[8], r = 0;
    _mm256_storeu_si256((__m256i *)t, s);
    for (int i = 0; i < 8; i++) r += t[i];
    return r;
}

static int numbers[1024];

__attribute__((noinline, noipa)) static void fill(void) {
    for (int i = 0; i < 1024; i++) numbers[i] = i * 7 % 13;
}
