// The cells that cover a star with a hole.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  double lat, lng;
} LatLng;
typedef struct {
  int numVerts;
  LatLng *verts;
} GeoLoop;
typedef struct {
  GeoLoop geoloop;
  int numHoles;
  GeoLoop *holes;
} GeoPolygon;
uint32_t maxPolygonToCellsSize(const GeoPolygon *polygon, int resolution, uint32_t flags, int64_t *size);
uint32_t polygonToCells(const GeoPolygon *polygon, int resolution, uint32_t flags, uint64_t *cells);

int main(void) {
  static LatLng star[40], hole[6];
  for (int i = 0; i < 40; ++i) {
    const double radius = i % 2 ? 0.02 : 0.01;
    star[i] = (LatLng){0.7 + radius * sin(i * 2 * M_PI / 40), 0.2 + radius * cos(i * 2 * M_PI / 40)};
  }
  for (int i = 0; i < 6; ++i) hole[i] = (LatLng){0.7 + 0.005 * sin(i * M_PI / 3), 0.2 + 0.005 * cos(i * M_PI / 3)};
  GeoLoop holes[] = {{6, hole}};
  const GeoPolygon polygon = {{40, star}, 1, holes};
  int64_t size = 0;
  if (maxPolygonToCellsSize(&polygon, 7, 0, &size)) return 1;
  uint64_t *cells = calloc((size_t)size, sizeof *cells);
  if (!cells || polygonToCells(&polygon, 7, 0, cells)) return 1;
  uint64_t sum = 0, count = 0;
  for (int64_t i = 0; i < size; ++i) sum += cells[i], count += cells[i] != 0;
  printf("%llu cells, %llu\n", (unsigned long long)count, (unsigned long long)sum);
  free(cells);
  return 0;
}
