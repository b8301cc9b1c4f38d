#include <stdint.h>
#include <stdio.h>
#include <immintrin.h>
static void cpuid(uint32_t leaf, uint32_t sub, uint32_t out[4]) {
    __asm__ volatile("cpuid" : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3]) : "a"(leaf), "c"(sub));
}
static uint64_t xgetbv(void) { uint32_t a, d; __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0)); return ((uint64_t)d << 32) | a; }
struct features { int sse41, avx, avx2, fma; };
static void detect(struct features *f) {
    uint32_t r[4];
    f->sse41 = f->avx = f->avx2 = f->fma = 0;
    cpuid(0, 0, r);
    uint32_t max = r[0];
    if (max < 1) return;
    cpuid(1, 0, r);
    f->sse41 = (r[2] >> 19) & 1;
    int osxsave = (r[2] >> 27) & 1, avx = (r[2] >> 28) & 1, fma = (r[2] >> 12) & 1;
    if (osxsave && avx && (xgetbv() & 6) == 6) {
        f->avx = 1; f->fma = fma;
        if (max >= 7) { cpuid(7, 0, r); f->avx2 = (r[1] >> 5) & 1; }
    }
}
__attribute__((noinline, target("avx2"))) static int k_avx2(const int *p, int n) {
    __m256i s = _mm256_setzero_si256();
    for (int i = 0; i + 8 <= n; i += 8) s = _mm256_add_epi32(s, _mm256_loadu_si256((const __m256i *)(p + i)));
    int t[8]; _mm256_storeu_si256((__m256i *)t, s); int r = 0; for (int i = 0; i < 8; i++) r += t[i]; return r;
}
__attribute__((noinline, target("sse4.1"))) static int k_sse(const int *p, int n) {
    __m128i s = _mm_setzero_si128();
    for (int i = 0; i + 4 <= n; i += 4) s = _mm_add_epi32(s, _mm_mullo_epi32(_mm_loadu_si128((const __m128i *)(p + i)), _mm_set1_epi32(1)));
    int t[4]; _mm_storeu_si128((__m128i *)t, s); return t[0] + t[1] + t[2] + t[3];
}
__attribute__((noinline)) static int k_c(const int *p, int n) { int r = 0; for (int i = 0; i < n; i++) r += p[i]; return r; }
int main(void) {
    int v[1024]; for (int i = 0; i < 1024; i++) v[i] = i * 7 % 13;
    struct features f; detect(&f);
    int r = f.avx2 ? k_avx2(v, 1024) : f.sse41 ? k_sse(v, 1024) : k_c(v, 1024);
    printf("%d\n", r); return 0;
}
