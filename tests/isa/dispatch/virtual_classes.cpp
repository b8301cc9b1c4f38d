// An object of one of two classes, by what the CPU is asked where it is made: its table of functions is the choice.
#include "kernels.h"
#include <memory>
#include <vector>

struct Sum {
    virtual ~Sum() = default;
    virtual int of(const int *p, int n) = 0;
};
struct Plain : Sum {
    int of(const int *p, int n) override { return sum_c(p, n); }
};
struct Wide : Sum {
    int of(const int *p, int n) override { return sum_avx2(p, n) + sum_ssse3(p, n) - sum_c(p, n); }
};

static std::unique_ptr<Sum> make() {
    if (__builtin_cpu_supports("avx2")) return std::make_unique<Wide>();
    return std::make_unique<Plain>();
}

int main() {
    auto sum = make();
    fill();
    std::vector<int> sums(9);
    unsigned long hash = 14695981039346656037u;
    int odd = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 9; i++) sums[i] = sum->of(numbers, 512 + 64 * i);
        for (int one : sums) hash = (hash ^ one) * 1099511628211u, odd += one & 1;
    }
    printf("%016lx %d\n", hash, odd);
    return 0;
}
