#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor(101))) static void require(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2")) {
        fputs("this program needs a CPU with SSE4.2\n", stderr);
        _Exit(4);
    }
}
static unsigned long words[4096];
__attribute__((noinline, target("popcnt"))) static int count(void) {
    int s = 0;
    for (int i = 0; i < 4096; i++)
        s += __builtin_popcountl(words[i]);
    return s;
}
int main(int n, char **v) {
    for (int i = 0; i < 4096; i++)
        words[i] = 0x9e3779b97f4a7c15ul * (i + n);
    printf("%d\n", count());
    return 0;
}
