int g(int);
template <class T> T clamp(T v, T a, T b) { return v < a ? a : v > b ? b : v; }
long f(int x) {
  long r = 0;
  r += clamp<long>(x, @, g(@));
  return r;
}
