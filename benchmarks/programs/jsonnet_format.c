// The formatter of jsonnet over a long source.
#include <stdio.h>
#include <string.h>

struct JsonnetVm;
struct JsonnetVm *jsonnet_make(void);
char *jsonnet_fmt_snippet(struct JsonnetVm *vm, const char *name, const char *snippet, int *error);

int main(void) {
  static char text[1 << 16];
  size_t length = (size_t)sprintf(text, "{\n");
  for (int i = 0; length < sizeof text - 1024; ++i) {
    length += (size_t)sprintf(text + length,
                              "  # field %d\n  \"f%d\"  :  [ %d,%d ,{a :1,b: \"two\"}], g%d(x,y = 2) :: if x>y then x*(y+%d) else\n"
                              "     [ z for z in std.range( 1,x ) if z%%2==0 ],\n",
                              i, i, i, i + 1, i, i);
  }
  strcpy(text + length, "}\n");
  int error = 0;
  const char *output = jsonnet_fmt_snippet(jsonnet_make(), "source", text, &error);
  unsigned hash = 0;
  for (const char *p = output; *p; ++p) hash = hash * 31 + (unsigned char)*p;
  printf("%zu bytes, %u\n", strlen(output), hash);
  if (error) puts(output);
  return error;
}
