#include <stdint.h>
#include <stdio.h>
uint64_t f(uint64_t x, int n) {
    return __builtin_popcountll(x) + (x >> n) + (x & ~(uint64_t)n) + __builtin_ctzll(x) + (x & (x - 1));
}
int main(int n, char **v) {
    uint64_t s = 0;
    for (int i = 1; i < 1000; i++)
        s += f(i * 0x9E3779B97F4A7C15ull, n);
    printf("%llu\n", (unsigned long long)s);
    return 0;
}
