#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>
struct Shape {
    virtual double area(double k) const = 0;
    virtual ~Shape() {}
};
struct Sq : Shape {
    double s;
    Sq(double s) : s(s) {}
    double area(double k) const override { return s * s * k; }
};
struct Ci : Shape {
    double r;
    Ci(double r) : r(r) {}
    double area(double k) const override { return r * r * 3.14 * k; }
};
int main(int n, char **v) {
    std::vector<Shape *> s;
    for (int i = 0; i < 100; i++) {
        if (i % 3)
            s.push_back(new Sq(i * n));
        else
            s.push_back(new Ci(i * n));
    }
    std::vector<double> a;
    for (auto p : s)
        a.push_back(p->area(n));
    std::sort(a.begin(), a.end());
    std::map<std::string, double> m;
    for (double d : a)
        m[std::to_string(d)] += d;
    double t = 0;
    std::thread th([&] {
        for (auto &k : m)
            t += k.second * n;
    });
    th.join();
    std::cout << t << "\n";
    return 0;
}
