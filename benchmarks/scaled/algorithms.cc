#include <algorithm>
#include <vector>
int f(std::vector<int> *v) {
  int r = 0;
  r += std::count_if(v[@].begin(), v[@].end(), [](int x) { return x > @; });
  return r;
}
