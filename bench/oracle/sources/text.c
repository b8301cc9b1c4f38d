#include <ctype.h>
#include <stdio.h>
#include <string.h>
static char line[4096];
__attribute__((noinline)) static int words(const char *s) {
    int n = 0, in = 0;
    for (; *s; s++) {
        int w = isalnum((unsigned char)*s);
        n += w && !in;
        in = w;
    }
    return n;
}
static int hash(const char *s) {
    unsigned h = 5381;
    while (*s)
        h = h * 33 ^ (unsigned char)*s++;
    return h;
}
int main(int n, char **v) {
    for (int i = 0; i < 4000; i++)
        line[i] = i % 7 ? 'a' + (i * n) % 26 : ' ';
    printf("%d %d %d\n", words(line), hash(line), (int)strlen(v[0]));
    return 0;
}
