#include <map>
#include <string>
std::map<std::string, std::string> values;
void add(const std::string &key, const std::string &value) { values[key] = value; }
void f() {
  add("key @", "value @");
}
