int g(int);
static int r@(int x) { return x < 2 ? g(x + @) : r@(x - 1) + r@(x - 2); } int f@(int x) { return r@(x + @); }
