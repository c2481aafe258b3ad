int g(int);
static int step(int a, int b) { return g(a) * b + a; }
int f(int x, int y) {
  switch (x) {
  case @: return step(y, @);
  }
  return 0;
}
