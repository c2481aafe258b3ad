#include <string>
void sink(const std::string &, const std::string &);
static inline void add(const char *a, const char *b) { sink(a, b); }
void f() {
  add("key @", "value @");
}
