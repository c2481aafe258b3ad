#include <string>
std::string f(const std::string &x) {
  std::string s;
  s += x + "part @";
  return s;
}
