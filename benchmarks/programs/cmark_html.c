// Markdown to HTML: paragraphs, lists, quotes, code, links and emphasis.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *cmark_markdown_to_html(const char *text, size_t length, int options);

int main(void) {
  static char text[1 << 18];
  size_t length = 0;
  for (int i = 0; length < sizeof text - 1024; ++i) {
    length += (size_t)sprintf(text + length,
                              "# Section %d\n\nA *paragraph* with **strong** words, `code %d`, a [link](http://x.org/%d \"t\") "
                              "and an auto<http://y.net>.\n\n> quoted &amp; _more_\n> text\n\n1. one\n2. two\n   - nested "
                              "*deep **deeper***\n\n```c\nint f%d(void);\n```\n\n* * *\n\n[ref%d]: /url%d 'title'\n\nSee [ref%d].\n\n",
                              i, i, i, i, i, i, i / 2);
  }
  char *html = cmark_markdown_to_html(text, length, 0);
  unsigned hash = 0;
  for (const char *p = html; *p; ++p) hash = hash * 31 + (unsigned char)*p;
  printf("%zu bytes, %u\n", strlen(html), hash);
  free(html);
  return 0;
}
