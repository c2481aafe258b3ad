// ISA-L: deflates data at each level and inflates it; checksums, and parity of a RAID.
// The structures are declared up to the fields in use, with room for the others.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  uint8_t *next_in;
  uint32_t avail_in, total_in;
  uint8_t *next_out;
  uint32_t avail_out, total_out;
  void *tables;
  uint32_t level, level_buffer_size;
  uint8_t *level_buffer;
  uint16_t end_of_stream, flush, gzip_flag, history_bits;
  uint8_t room[1 << 18];
} Stream;
typedef struct {
  uint8_t *next_out;
  uint32_t avail_out, total_out;
  uint8_t *next_in;
  uint64_t read_in;
  uint32_t avail_in;
  uint8_t room[1 << 18];
} State;
void isal_deflate_init(Stream *stream);
int isal_deflate(Stream *stream);
void isal_inflate_init(State *state);
int isal_inflate(State *state);
uint32_t crc32_gzip_refl(uint32_t start, const uint8_t *data, uint64_t length);
uint64_t crc64_ecma_norm(uint64_t start, const uint8_t *data, uint64_t length);
int pq_gen(int vectors, int length, void **arrays);

enum { SIZE = 1500000, DISKS = 6, BLOCK = 4096 };

int main(void) {
  static uint8_t data[SIZE], packed[SIZE * 2], again[SIZE], levels[1 << 21];
  static Stream stream;
  static State state;
  uint32_t random = 3;
  for (size_t i = 0; i < SIZE; ++i) {
    random = random * 1664525u + 1013904223u;
    if (i > 3000 && (i >> 7) % 5) data[i] = data[i - 1 - (i >> 7) * 31 % 2999];
    else data[i] = (uint8_t)("and the of to a in"[(random >> 20) % 18]);
  }
  for (uint32_t level = 0; level <= 3; ++level) {
    isal_deflate_init(&stream);
    stream.next_in = data, stream.avail_in = SIZE, stream.end_of_stream = 1;
    stream.next_out = packed, stream.avail_out = sizeof packed;
    stream.level = level, stream.level_buffer = levels, stream.level_buffer_size = level ? sizeof levels : 0;
    if (isal_deflate(&stream)) return puts("cannot be deflated"), 1;
    isal_inflate_init(&state);
    state.next_in = packed, state.avail_in = stream.total_out;
    state.next_out = again, state.avail_out = SIZE;
    memset(again, 0, sizeof again);
    if (isal_inflate(&state) || memcmp(again, data, SIZE) != 0) return puts("differs"), 1;
    printf("level %u: %u bytes, %08x\n", level, stream.total_out, crc32_gzip_refl(0, packed, stream.total_out));
  }
  void *disks[DISKS];
  for (int i = 0; i < DISKS; ++i) disks[i] = data + i * BLOCK;
  if (pq_gen(DISKS, BLOCK, disks)) return puts("no parity"), 1;
  printf("%016llx\n", (unsigned long long)crc64_ecma_norm(0, data, SIZE));
  return 0;
}
