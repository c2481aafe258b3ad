int g(int);
struct S {
  int m@; int get@() const { return m@; } void set@(int v) { m@ = v; }
};
int f(S &s) {
  int r = 0;
  s.set@(g(@)); r += s.get@();
  return r;
}
