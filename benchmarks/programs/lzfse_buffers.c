// LZFSE: compresses buffers, decompresses and compares them. Small ones take LZVN.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t lzfse_encode_buffer(uint8_t *out, size_t out_size, const uint8_t *in, size_t in_size, void *scratch);
size_t lzfse_decode_buffer(uint8_t *out, size_t out_size, const uint8_t *in, size_t in_size, void *scratch);

int main(void) {
  static uint8_t data[1 << 20], packed[(1 << 20) + 4096], again[(1 << 20) + 1];
  uint32_t state = 7;
  for (size_t i = 0; i < sizeof data; ++i) {
    state = state * 1664525u + 1013904223u;
    // Copies of what was before, some text, some noise.
    if ((i >> 9) % 3 && i > 5000) data[i] = data[i - 1 - (i >> 9) * 7 % 4999];
    else data[i] = (i >> 11) & 1 ? (uint8_t)(state >> 24) : (uint8_t)("etaoin shrdlu"[(state >> 16) % 13]);
  }
  for (size_t size = 100; size <= sizeof data; size = size * 5 / 2 + 1) {
    const size_t length = lzfse_encode_buffer(packed, sizeof packed, data, size, NULL);
    uint32_t hash = 0;
    for (size_t i = 0; i < length; ++i) hash = hash * 31 + packed[i];
    const size_t back = lzfse_decode_buffer(again, size + 1, packed, length, NULL);
    if (back != size || memcmp(again, data, size) != 0) return puts("differs"), 1;
    printf("%zu to %zu bytes, %u\n", size, length, hash);
  }
  return 0;
}
