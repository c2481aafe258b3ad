#include <functional>
#include <vector>
void f(std::vector<std::function<int(int)>> &v) {
  v.push_back([](int x) { return x + @; });
}
