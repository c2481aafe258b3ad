// Zopfli: text and binary data, as deflate, zlib and gzip streams.
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  int verbose, verbose_more, numiterations, blocksplitting, blocksplittinglast, blocksplittingmax;
} ZopfliOptions;
typedef enum { GZIP, ZLIB, DEFLATE } ZopfliFormat;
void ZopfliInitOptions(ZopfliOptions *options);
void ZopfliCompress(const ZopfliOptions *options, ZopfliFormat format, const unsigned char *in, size_t in_size,
                    unsigned char **out, size_t *out_size);

int main(void) {
  static unsigned char data[4000];
  size_t length = 0;
  unsigned state = 1;
  for (; length < sizeof data / 2; state = state * 1664525u + 1013904223u)
    length += (size_t)sprintf((char *)data + length, "item %u: %u of %u; ", state % 97, (state >> 8) % 31, state >> 28);
  for (; length < sizeof data; ++length) {
    state = state * 1664525u + 1013904223u;
    data[length] = (unsigned char)((length & 64) ? state >> 24 : length >> 3);
  }
  ZopfliOptions options;
  ZopfliInitOptions(&options);
  options.numiterations = 2;
  for (int format = GZIP; format <= DEFLATE; ++format) {
    unsigned char *out = NULL;
    size_t size = 0;
    ZopfliCompress(&options, (ZopfliFormat)format, data, sizeof data, &out, &size);
    unsigned hash = 0;
    for (size_t i = 0; i < size; ++i) hash = hash * 31 + out[i];
    printf("%zu bytes, %u\n", size, hash);
    free(out);
  }
  return 0;
}
