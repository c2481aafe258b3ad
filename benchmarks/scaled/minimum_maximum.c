static inline int maximum(int a, int b) { return a > b ? a : b; }
static inline int minimum(int a, int b) { return a < b ? a : b; }
int g(int);
int f(int x) {
  int r = x;
  r = maximum(minimum(r, g(@)), @);
  return r;
}
