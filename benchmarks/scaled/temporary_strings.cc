#include <string>
void use(const std::string &);
void f() {
  use(std::string("text number @"));
}
