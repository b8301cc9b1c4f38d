#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* AES by its instructions where the CPU has them, chosen once into a table of functions. */
#include <immintrin.h>
struct cipher {
    const char *name;
    void (*encrypt)(unsigned char *block, const unsigned char *key);
};
__attribute__((target("aes,sse4.1"))) static void hard(unsigned char *block, const unsigned char *key) {
    __m128i b = _mm_loadu_si128((void *)block), k = _mm_loadu_si128((void *)key);
    for (int i = 0; i < 9; i++)
        b = _mm_aesenc_si128(b, k);
    _mm_storeu_si128((void *)block, _mm_aesenclast_si128(b, _mm_insert_epi32(k, 7, 2)));
}
static void soft(unsigned char *block, const unsigned char *key) {
    for (int r = 0; r < 10; r++)
        for (int i = 0; i < 16; i++)
            block[i] = (block[i] ^ key[i]) * 5 + r;
}
static const struct cipher ciphers[] = {{"hard", hard}, {"soft", soft}};
static const struct cipher *chosen;
static const struct cipher *choose(void) {
    const char *wish = getenv("CIPHER");
    if (wish && !strcmp(wish, "soft"))
        return &ciphers[1];
    return &ciphers[__builtin_cpu_supports("aes") && __builtin_cpu_supports("sse4.1") ? 0 : 1];
}
int main(int n, char **v) {
    unsigned char block[16] = {0}, key[16];
    memset(key, n, sizeof key);
    if (!chosen)
        chosen = choose();
    chosen->encrypt(block, key);
    printf("%s %d\n", chosen->name, block[3]);
    return 0;
}
