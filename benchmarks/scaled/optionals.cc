#include <optional>
std::optional<int> g(int);
int f() {
  int r = 0;
  r += g(@).value_or(@);
  return r;
}
