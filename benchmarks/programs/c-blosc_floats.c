// A smooth array of floats and one of integers, shuffled and compressed by two codecs, and decompressed again.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int blosc_compress_ctx(int level, int shuffle, size_t type_size, size_t size, const void *from, void *to,
                       size_t capacity, const char *codec, size_t block_size, int threads);
int blosc_decompress_ctx(const void *from, void *to, size_t capacity, int threads);

int main(void) {
  enum { kNumbers = 1 << 18, kSize = kNumbers * 4 };
  float *floats = malloc(kSize);
  unsigned *integers = malloc(kSize);
  char *packed = malloc(kSize + 64), *again = malloc(kSize);
  for (int i = 0; i < kNumbers; ++i) {
    floats[i] = 100.0f + 0.001f * (float)(i % 5000) * (float)(i % 5000);
    integers[i] = (unsigned)i * 7 % 1000 + (unsigned)(i / 4096);
  }
  const char *const codecs[] = {"blosclz", "lz4"};
  for (int round = 0; round < 16; ++round) {
    for (int i = 0; i < 4; ++i) {
      const void *from = i % 2 ? (const void *)integers : (const void *)floats;
      const int size = blosc_compress_ctx(5, 1 + i % 2, 4, kSize, from, packed, kSize + 64, codecs[i / 2], 0, 1);
      if (size <= 0 || blosc_decompress_ctx(packed, again, kSize, 1) != kSize || memcmp(from, again, kSize)) return 1;
      if (!round) printf("%s %d\n", codecs[i / 2], size);
    }
  }
  return 0;
}
