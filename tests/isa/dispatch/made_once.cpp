// What the CPU told in an object that a function makes when it is first asked for, whose flags are false until then.
#include "kernels.h"

struct Caps {
    bool ssse3, avx2;
    static const Caps &get() {
        static const Caps made = [] {
            Caps found{};
            unsigned a, b, c, d, low, high;
            if (__get_cpuid(1, &a, &b, &c, &d)) {
                found.ssse3 = c & bit_SSSE3;
                if (c & bit_OSXSAVE) {
                    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
                    __cpuid_count(7, 0, a, b, c, d);
                    found.avx2 = (b & bit_AVX2) && (low & 6) == 6;
                }
            }
            return found;
        }();
        return made;
    }
};

__attribute__((noinline)) static int sum(const int *p, int n) {
    if (Caps::get().avx2) return sum_avx2(p, n);
    if (Caps::get().ssse3) return sum_ssse3(p, n);
    return sum_c(p, n);
}

int main() {
    fill();
    printf("%d\n", sum(numbers, 1024));
    return 0;
}
