#include <vector>
void f(std::vector<int> &v) {
  v.push_back(@);
}
