#include <variant>
using V = std::variant<int, double, const char *>;
int h(int);
int h(double);
int h(const char *);
int f(const V *p) {
  int r = 0;
  r += std::visit([](auto x) { return h(x) + @; }, p[@]);
  return r;
}
