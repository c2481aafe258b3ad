// LibYAML: parses a document of mappings, sequences, anchors and block scalars into events, and emits them again.
// The structures are declared with room to spare, and touched by the library only.
#include <stdio.h>
#include <string.h>

typedef union {
  char room[4096];
  long long aligned;
} Opaque;
typedef union {
  int type;
  char room[1024];
  long long aligned;
} Event;
enum { STREAM_END = 2 };
int yaml_parser_initialize(Opaque *parser);
void yaml_parser_set_input_string(Opaque *parser, const unsigned char *input, size_t size);
int yaml_parser_parse(Opaque *parser, Event *event);
void yaml_parser_delete(Opaque *parser);
int yaml_emitter_initialize(Opaque *emitter);
void yaml_emitter_set_output_string(Opaque *emitter, unsigned char *output, size_t size, size_t *written);
int yaml_emitter_emit(Opaque *emitter, Event *event);
void yaml_emitter_delete(Opaque *emitter);

int main(void) {
  static char text[1 << 20];
  static unsigned char output[1 << 21];
  static Opaque parser, emitter;
  size_t length = 0, written = 0;
  for (int i = 0; length < sizeof text - 1024; ++i)
    length += (size_t)sprintf(text + length,
                              "key %d: &a%d\n"
                              "  - {x: %d, \"quoted \\t\\u00e9\": 'it''s', list: [%d, -%d.5e3, ~, yes]}\n"
                              "  - |\n    block\n     scalar %d\n  - >-\n    folded\n    text\n"
                              "  # a comment\n  - *a%d\n  - !!str tagged\n",
                              i, i, i, i, i, i, i);
  if (!yaml_parser_initialize(&parser) || !yaml_emitter_initialize(&emitter)) return 1;
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
  yaml_emitter_set_output_string(&emitter, output, sizeof output, &written);
  unsigned events = 0, types = 0;
  for (int type = 0; type != STREAM_END; ++events) {
    Event event;
    if (!yaml_parser_parse(&parser, &event)) return puts("cannot be parsed"), 1;
    type = event.type;
    types = types * 31 + (unsigned)type;
    if (!yaml_emitter_emit(&emitter, &event)) return puts("cannot be emitted"), 1;
  }
  yaml_parser_delete(&parser);
  yaml_emitter_delete(&emitter);
  unsigned hash = 0;
  for (size_t i = 0; i < written; ++i) hash = hash * 31 + output[i];
  printf("%u events %u, %zu bytes %u\n", events, types, written, hash);
  return 0;
}
