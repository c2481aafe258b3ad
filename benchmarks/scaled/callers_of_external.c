int g(int);
int small(int a) { return a > 3 ? g(a) * 7 : g(a + 1); }
int f@(int x) { return small(x + @); }
