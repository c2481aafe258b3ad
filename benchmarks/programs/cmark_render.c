// Markdown parsed once, then written as CommonMark and as LaTeX, wrapped at 72 columns.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cmark_node cmark_node;
cmark_node *cmark_parse_document(const char *text, size_t length, int options);
char *cmark_render_commonmark(cmark_node *root, int options, int width);
char *cmark_render_latex(cmark_node *root, int options, int width);

static unsigned hash(const char *text) {
  unsigned value = 0;
  for (; *text; ++text) value = value * 31 + (unsigned char)*text;
  return value;
}

int main(void) {
  static char text[1 << 17];
  size_t length = 0;
  for (int i = 0; length < sizeof text - 1024; ++i) {
    length += (size_t)sprintf(text + length,
                              "%d. Item with some *longer* text that has to be wrapped somewhere, since it does not fit %d\n\n"
                              "   ![image](/i%d.png) and `verbatim`, 100%% \\# \\_ {braces} ~tilde~ ^caret^\n\n",
                              i % 9 + 1, i, i);
  }
  cmark_node *root = cmark_parse_document(text, length, 0);
  printf("%u %u\n", hash(cmark_render_commonmark(root, 0, 72)), hash(cmark_render_latex(root, 0, 72)));
  return 0;
}
