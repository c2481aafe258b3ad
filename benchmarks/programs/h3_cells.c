// Points all over the globe to cells, and the cells' boundaries.
#include <stdint.h>
#include <stdio.h>

typedef struct {
  double lat, lng;
} LatLng;
typedef struct {
  int numVerts;
  LatLng verts[10];
} CellBoundary;
uint32_t latLngToCell(const LatLng *point, int resolution, uint64_t *cell);
uint32_t cellToBoundary(uint64_t cell, CellBoundary *boundary);

int main(void) {
  double sum = 0;
  uint64_t cells = 0;
  for (int i = 0; i < 4000; ++i) {
    const LatLng point = {-1.5 + 3.0 * (i % 61) / 61, -3.1 + 6.2 * (i % 97) / 97};
    uint64_t cell = 0;
    CellBoundary boundary;
    if (latLngToCell(&point, i % 16, &cell) || cellToBoundary(cell, &boundary)) return 1;
    cells ^= cell * 31;
    for (int j = 0; j < boundary.numVerts; ++j) sum += boundary.verts[j].lat + boundary.verts[j].lng;
  }
  printf("%llu %.6f\n", (unsigned long long)cells, sum);
  return 0;
}
