int printf(const char *, ...);
static void message(const char *file, int line, const char *text) { printf("%s:%d: %s\n", file, line, text); }
void f(int x) {
  if (x == @) message("file", @, "message @");
}
