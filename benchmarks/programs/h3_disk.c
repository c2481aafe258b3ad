// All cells within 40 steps of some cells.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  double lat, lng;
} LatLng;
uint32_t latLngToCell(const LatLng *point, int resolution, uint64_t *cell);
uint32_t gridDisk(uint64_t origin, int k, uint64_t *out);

enum { STEPS = 40, CELLS = 1 + 3 * STEPS * (STEPS + 1) };

int main(void) {
  static uint64_t disk[CELLS];
  uint64_t sum = 0;
  for (int i = 0; i < 12; ++i) {
    const LatLng point = {-1.2 + 0.2 * i, -2.0 + 0.4 * i};
    uint64_t cell = 0;
    memset(disk, 0, sizeof disk);
    if (latLngToCell(&point, 5 + i % 4, &cell) || gridDisk(cell, STEPS, disk)) return 1;
    for (int j = 0; j < CELLS; ++j) sum += disk[j];
  }
  printf("%llu\n", (unsigned long long)sum);
  return 0;
}
