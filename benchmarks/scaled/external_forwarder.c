int g(int, int);
int forward(int a, int b) { return g(a, b); }
int f(int x) {
  int r = 0;
  r ^= forward(x, @);
  return r;
}
