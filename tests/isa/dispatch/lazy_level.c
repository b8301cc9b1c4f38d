// Roaring-like bitset operations; an ISA level is computed once and then switched on.
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum isa_level { ISA_UNKNOWN = 0, ISA_SCALAR, ISA_POPCNT, ISA_AVX2, ISA_AVX512 };

static enum isa_level g_level = ISA_UNKNOWN;

static enum isa_level detect_level(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return ISA_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt")) return ISA_AVX2;
    if (__builtin_cpu_supports("popcnt")) return ISA_POPCNT;
    return ISA_SCALAR;
}

static inline enum isa_level isa_level(void) {
    if (g_level == ISA_UNKNOWN) g_level = detect_level();
    return g_level;
}

static inline int popcount64_c(uint64_t x) {
    x -= (x >> 1) & 0x5555555555555555ull;
    x = (x & 0x3333333333333333ull) + ((x >> 2) & 0x3333333333333333ull);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full;
    return (int)((x * 0x0101010101010101ull) >> 56);
}

static uint64_t and_card_scalar(const uint64_t *a, const uint64_t *b, uint64_t *o, size_t n) {
    uint64_t s = 0;
    for (size_t i = 0; i < n; i++) { o[i] = a[i] & b[i]; s += popcount64_c(o[i]); }
    return s;
}

__attribute__((noinline, target("popcnt")))
static uint64_t and_card_popcnt(const uint64_t *a, const uint64_t *b, uint64_t *o, size_t n) {
    uint64_t s = 0;
    for (size_t i = 0; i < n; i++) { o[i] = a[i] & b[i]; s += (uint64_t)_mm_popcnt_u64(o[i]); }
    return s;
}

__attribute__((noinline, target("avx2,popcnt")))
static uint64_t and_card_avx2(const uint64_t *a, const uint64_t *b, uint64_t *o, size_t n) {
    const __m256i lut = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
                                         0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i low = _mm256_set1_epi8(15);
    __m256i acc = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        __m256i v = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(a + i)),
                                     _mm256_loadu_si256((const __m256i *)(b + i)));
        _mm256_storeu_si256((__m256i *)(o + i), v);
        __m256i lo = _mm256_shuffle_epi8(lut, _mm256_and_si256(v, low));
        __m256i hi = _mm256_shuffle_epi8(lut, _mm256_and_si256(_mm256_srli_epi16(v, 4), low));
        acc = _mm256_add_epi64(acc, _mm256_sad_epu8(_mm256_add_epi8(lo, hi), _mm256_setzero_si256()));
    }
    uint64_t t[4];
    _mm256_storeu_si256((__m256i *)t, acc);
    uint64_t s = t[0] + t[1] + t[2] + t[3];
    for (; i < n; i++) { o[i] = a[i] & b[i]; s += (uint64_t)_mm_popcnt_u64(o[i]); }
    return s;
}

__attribute__((noinline, target("avx512f,avx512bw")))
static uint64_t and_card_avx512(const uint64_t *a, const uint64_t *b, uint64_t *o, size_t n) {
    const __m512i lut = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m512i low = _mm512_set1_epi8(15);
    __m512i acc = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 8) {
        __mmask8 m = n - i >= 8 ? (__mmask8)0xff : (__mmask8)((1u << (n - i)) - 1);
        __m512i v = _mm512_and_si512(_mm512_maskz_loadu_epi64(m, a + i), _mm512_maskz_loadu_epi64(m, b + i));
        _mm512_mask_storeu_epi64(o + i, m, v);
        __m512i lo = _mm512_shuffle_epi8(lut, _mm512_and_si512(v, low));
        __m512i hi = _mm512_shuffle_epi8(lut, _mm512_and_si512(_mm512_srli_epi16(v, 4), low));
        acc = _mm512_add_epi64(acc, _mm512_sad_epu8(_mm512_add_epi8(lo, hi), _mm512_setzero_si512()));
    }
    return (uint64_t)_mm512_reduce_add_epi64(acc);
}

static uint64_t bitset_and_card(const uint64_t *a, const uint64_t *b, uint64_t *o, size_t n) {
    switch (isa_level()) {
    case ISA_AVX512: return and_card_avx512(a, b, o, n);
    case ISA_AVX2:   return and_card_avx2(a, b, o, n);
    case ISA_POPCNT: return and_card_popcnt(a, b, o, n);
    default:         return and_card_scalar(a, b, o, n);
    }
}

int main(void) {
    size_t n = 100003;
    uint64_t *a = (uint64_t *)malloc(8 * n), *b = (uint64_t *)malloc(8 * n), *o = (uint64_t *)malloc(8 * n);
    uint64_t s = 88172645463325252ull, sum = 0;
    for (size_t i = 0; i < n; i++) {
        s ^= s << 13; s ^= s >> 7; s ^= s << 17; a[i] = s;
        b[i] = s * 0x9e3779b97f4a7c15ull;
    }
    for (size_t r = 0; r < 10; r++) sum = sum * 31 + bitset_and_card(a + r, b, o, n - 2 * r);
    printf("%016llx\n", (unsigned long long)(sum ^ o[n / 2]));
    free(a); free(b); free(o);
    return 0;
}
