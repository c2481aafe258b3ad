#include <string>
#include <vector>
void f(std::vector<std::string> &v) {
  v.push_back("s@");
}
