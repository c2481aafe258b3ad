#include <stdexcept>
void f(int x) {
  if (x == @) throw std::runtime_error("error @");
}
