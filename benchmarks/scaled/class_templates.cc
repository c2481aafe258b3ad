int g(int);
template <int N> struct T {
  int v;
  int get() const { return g(v + N); }
  void set(int x) { v = x * N; }
};
int f(int x) {
  int r = 0;
  { T<@> t; t.set(x); r += t.get(); }
  return r;
}
