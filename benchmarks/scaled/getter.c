struct s { int a, b; };
static int get(const struct s *p) { return p->b; }
int g(int);
int f(struct s *p) {
  int r = 0;
  r += g(get(p + @));
  return r;
}
