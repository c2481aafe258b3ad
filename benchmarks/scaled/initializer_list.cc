#include <string>
#include <vector>
std::vector<std::string> f() {
  return {
    "item @",
  };
}
