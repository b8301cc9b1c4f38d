#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <random>
#include <unordered_map>
#include <vector>
struct Particle {
    std::array<float, 4> x{}, v{};
    float m = 1;
};
static void step(std::vector<Particle> &all, float dt) {
    for (auto &p : all)
        for (int k = 0; k < 4; k++)
            p.x[k] += p.v[k] * dt / p.m;
}
int main(int n, char **) {
    std::mt19937 random(n);
    std::uniform_real_distribution<float> unit(-1, 1);
    std::vector<Particle> all(300);
    for (auto &p : all)
        for (auto &v : p.v)
            v = unit(random);
    for (int i = 0; i < 20; i++)
        step(all, 0.1f);
    std::sort(all.begin(), all.end(), [](const Particle &a, const Particle &b) { return a.x[0] < b.x[0]; });
    std::unordered_map<int, int> cells;
    for (auto &p : all)
        cells[static_cast<int>(p.x[1] * 4)]++;
    std::function<double(double)> f = [&](double y) { return y * cells.size(); };
    std::printf("%f\n", f(all.front().x[0]));
}
