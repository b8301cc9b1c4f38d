#include <cstdio>
#include <memory>
#include <vector>
struct Kernel {
    virtual float dot(const float *a, const float *b, int n) const {
        float s = 0;
        for (int i = 0; i < n; i++)
            s += a[i] * b[i];
        return s;
    }
    virtual ~Kernel() = default;
};
struct Wide : Kernel {
    __attribute__((target("avx2,fma"), optimize("O3,fast-math"))) float dot(const float *a, const float *b,
                                                                             int n) const override {
        float s = 0;
        for (int i = 0; i < n; i++)
            s += a[i] * b[i];
        return s;
    }
};
static std::unique_ptr<Kernel> choose() {
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return std::make_unique<Wide>();
    return std::make_unique<Kernel>();
}
int main(int n, char **) {
    std::vector<float> a(777, 1.5f * n), b(777, 2.0f);
    auto kernel = choose();
    std::printf("%f\n", kernel->dot(a.data(), b.data(), 777));
}
