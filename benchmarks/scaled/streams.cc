#include <ostream>
void f(std::ostream &o, int x) {
  o << "value @: " << x + @ << std::endl;
}
