// Text made of few words, compressed at two qualities and decompressed again.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int BrotliEncoderCompress(int quality, int window, int mode, size_t size, const uint8_t *from, size_t *to_size,
                          uint8_t *to);
int BrotliDecoderDecompress(size_t size, const uint8_t *from, size_t *to_size, uint8_t *to);

static const char *const kWords[] = {"module", "inline", "callee", "register", "evict", "spill", "loop", "block"};

int main(void) {
  enum { kSize = 1 << 20 };
  char *text = malloc(kSize + 64);
  uint8_t *packed = malloc(2 * kSize), *again = malloc(kSize);
  unsigned state = 1;
  for (size_t length = 0; length < kSize;) {
    state = state * 1103515245 + 12345;
    length += (size_t)sprintf(text + length, "%s%u ", kWords[state >> 29], (state >> 16) % 300);
  }
  const int qualities[] = {3, 6};
  for (int i = 0; i < 2; ++i) {
    size_t size = 2 * kSize, again_size = kSize;
    if (!BrotliEncoderCompress(qualities[i], 18, 0, kSize, (const uint8_t *)text, &size, packed)) return 1;
    for (int j = 0; j < 8; ++j) {
      if (BrotliDecoderDecompress(size, packed, &again_size, again) != 1 || memcmp(text, again, kSize)) return 1;
    }
    printf("%d %zu\n", qualities[i], size);
  }
  return 0;
}
