static const char *name(int x) {
  switch (x) {
  case @ * 3: return "name @";
  }
  return "none";
}
int p(const char *);
int f(int x) { return p(name(x)) + p(name(x + 1)); }
