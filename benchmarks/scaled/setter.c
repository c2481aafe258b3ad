struct s { int a, b; };
static void set(struct s *p, int v) { p->a = v; p->b = 0; }
void f(struct s *p) {
  set(p + @, @);
}
