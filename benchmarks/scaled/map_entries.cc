#include <map>
void f(std::map<int, int> &m) {
  m[@] = @ * 2;
}
