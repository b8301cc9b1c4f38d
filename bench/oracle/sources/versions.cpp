#include <cmath>
#include <cstdio>
#include <vector>
__attribute__((target("default"))) double norm(const std::vector<double> &v) {
    double s = 0;
    for (double x : v)
        s += x * x;
    return std::sqrt(s);
}
__attribute__((target("arch=haswell"))) double norm(const std::vector<double> &v) {
    double s = 0;
    for (double x : v)
        s += x * x;
    return std::sqrt(s);
}
__attribute__((target("arch=skylake-avx512"))) double norm(const std::vector<double> &v) {
    double s = 0;
    for (double x : v)
        s += x * x;
    return std::sqrt(s);
}
int main(int n, char **) {
    std::vector<double> v;
    for (int i = 0; i < 99 * n; i++)
        v.push_back(i / 3.0);
    std::printf("%f\n", norm(v));
}
