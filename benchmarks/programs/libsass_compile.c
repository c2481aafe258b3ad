// A style sheet: nesting, mixins, loops, colours, arithmetic, inheritance.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Sass_Data_Context;
struct Sass_Context;
struct Sass_Data_Context *sass_make_data_context(char *source);
struct Sass_Context *sass_data_context_get_context(struct Sass_Data_Context *data);
int sass_compile_data_context(struct Sass_Data_Context *data);
const char *sass_context_get_output_string(struct Sass_Context *context);
const char *sass_context_get_error_message(struct Sass_Context *context);

static const char SHEET[] =
    "$base: #336699;\n"
    "@mixin box($w, $c: $base) { width: $w * 1px; color: lighten($c, 10%); &:hover { color: darken($c, 5%); } }\n"
    "@function ratio($a, $b) { @return percentage($a / $b); }\n"
    ".root { margin: 0 auto; .child > a { text-decoration: none; &.x { border: 1px solid mix(red, $base); } } }\n"
    "@for $i from 1 through 40 { .col-#{$i} { @include box($i * 10); width: ratio($i, 40); @extend .root; } }\n"
    "@each $n, $v in (a: 1, b: 2, c: 3) { .m-#{$n} { margin: #{$v}em; @media screen and (min-width: 10px) { top: 1px } } }\n";

int main(void) {
  char *source = malloc(sizeof SHEET);
  if (!source) return 1;
  memcpy(source, SHEET, sizeof SHEET);
  struct Sass_Data_Context *data = sass_make_data_context(source);
  const int status = sass_compile_data_context(data);
  struct Sass_Context *context = sass_data_context_get_context(data);
  if (status) return puts(sass_context_get_error_message(context)), 1;
  const char *output = sass_context_get_output_string(context);
  unsigned hash = 0;
  for (const char *p = output; *p; ++p) hash = hash * 31 + (unsigned char)*p;
  printf("%zu bytes, %u\n", strlen(output), hash);
  return 0;
}
