#include <string>
#include <vector>
struct P {
  std::string a;
  int b;
  P(const char *x, int y) : a(x), b(y) {}
};
void f(std::vector<P> &v) {
  v.emplace_back("s@", @);
}
