int g(int);
static int choose(int k, int x) {
  switch (k) {
  case 0: return g(x);
  case 1: return x + 1;
  case 2: return x * 3;
  default: return k;
  }
}
int f(int x) {
  int r = 0;
  r += choose(@ % 4, x);
  return r;
}
