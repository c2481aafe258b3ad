// Minimizers of a long sequence of nucleotides.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  uint64_t x, y;
} mm128_t;
typedef struct {
  size_t n, m;
  mm128_t *a;
} mm128_v;
void mm_sketch(void *pool, const char *sequence, int length, int window, int k, uint32_t id, int homopolymers,
               mm128_v *minimizers);
void radix_sort_128x(mm128_t *begin, mm128_t *end);

int main(void) {
  enum { kLength = 1 << 20 };
  char *sequence = malloc(kLength);
  unsigned state = 1;
  for (int i = 0; i < kLength; ++i) {
    state = state * 1103515245 + 12345;
    sequence[i] = "ACGT"[state >> 30];
  }
  uint64_t sum = 0;
  for (int homopolymers = 0; homopolymers < 2; ++homopolymers) {
    for (int window = 5; window <= 15; window += 5) {
      mm128_v minimizers = {0, 0, NULL};
      mm_sketch(NULL, sequence, kLength, window, 15, 0, homopolymers, &minimizers);
      radix_sort_128x(minimizers.a, minimizers.a + minimizers.n);
      for (size_t i = 0; i < minimizers.n; i += 100) sum = sum * 31 + minimizers.a[i].x + minimizers.a[i].y;
      printf("%d %zu\n", window, minimizers.n);
      free(minimizers.a);
    }
  }
  printf("%llu\n", (unsigned long long)sum);
  return 0;
}
