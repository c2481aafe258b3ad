// Text made of few words, compressed at three levels and decompressed again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t ZSTD_compressBound(size_t size);
size_t ZSTD_compress(void *to, size_t capacity, const void *from, size_t size, int level);
size_t ZSTD_decompress(void *to, size_t capacity, const void *from, size_t size);

static const char *const kWords[] = {"module", "inline", "callee", "register", "evict", "spill", "loop", "block"};

int main(void) {
  enum { kSize = 1 << 20 };
  char *text = malloc(kSize + 64), *again = malloc(kSize);
  unsigned state = 1;
  for (size_t length = 0; length < kSize;) {
    state = state * 1103515245 + 12345;
    length += (size_t)sprintf(text + length, "%s%u ", kWords[state >> 29], (state >> 16) % 300);
  }
  const size_t capacity = ZSTD_compressBound(kSize);
  char *packed = malloc(capacity);
  const int levels[] = {1, 5, 9};
  for (int i = 0; i < 3; ++i) {
    const size_t size = ZSTD_compress(packed, capacity, text, kSize, levels[i]);
    for (int j = 0; j < 4; ++j) {
      if (ZSTD_decompress(again, kSize, packed, size) != kSize || memcmp(text, again, kSize)) return 1;
    }
    printf("%d %zu\n", levels[i], size);
  }
  return 0;
}
