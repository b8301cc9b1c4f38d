// One of several types of object in a std::variant: which one it is, a table of jumps decides, or comparisons.
#include "kernels.h"
#include <variant>

struct Plain { int of(const int *p, int n) const { return sum_c(p, n); } };
struct Narrow { int of(const int *p, int n) const { return sum_ssse3(p, n); } };
struct Wide { int of(const int *p, int n) const { return sum_avx2(p, n); } };
struct Twice { int of(const int *p, int n) const { return sum_avx2(p, n / 2) + sum_avx2(p + n / 2, n / 2); } };
using Any = std::variant<Plain, Narrow, Twice, Wide>;

__attribute__((noinline)) static Any choose() {
    if (__builtin_cpu_supports("bmi2") && __builtin_cpu_supports("avx2")) return Wide{};
    if (__builtin_cpu_supports("avx2")) return Twice{};
    if (__builtin_cpu_supports("ssse3")) return Narrow{};
    return Plain{};
}

int main() {
    const Any sum = choose();
    fill();
    int total = 0;
    for (int round = 1; round < 4; round++)
        total += std::visit([round](const auto &one) { return one.of(numbers, 256 * round); }, sum);
    printf("%d\n", total);
    return 0;
}
