#include <mutex>
std::mutex m[1000];
int g(int);
int f() {
  int r = 0;
  { std::lock_guard<std::mutex> l(m[@]); r += g(@); }
  return r;
}
