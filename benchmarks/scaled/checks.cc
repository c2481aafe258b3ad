#include <sstream>
#include <string>
void fail(const std::string &);
template <class A, class B> void check(const A &a, const B &b, const char *text) {
  if (!(a == b)) {
    std::ostringstream s;
    s << text << a << b;
    fail(s.str());
  }
}
int g(int);
void f() {
  check(g(@), @, "g(@)");
}
