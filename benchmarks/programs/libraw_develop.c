// LibRaw: develops a sensor's data by several methods of interpolation.
#include <stdio.h>
#include <stdlib.h>

typedef struct Raw Raw;
typedef struct {
  int type;
  unsigned short height, width, colors, bits;
  unsigned data_size;
  unsigned char data[1];
} Image;
Raw *libraw_init(unsigned flags);
int libraw_open_bayer(Raw *raw, unsigned char *data, unsigned length, unsigned short width, unsigned short height,
                      unsigned short left, unsigned short top, unsigned short right, unsigned short bottom,
                      unsigned char flags, unsigned char pattern, unsigned unused_bits, unsigned other_flags,
                      unsigned black);
int libraw_unpack(Raw *raw);
int libraw_dcraw_process(Raw *raw);
Image *libraw_dcraw_make_mem_image(Raw *raw, int *error);
void libraw_dcraw_clear_mem(Image *image);
void libraw_set_demosaic(Raw *raw, int method);
void libraw_set_output_bps(Raw *raw, int bits);
void libraw_close(Raw *raw);

enum { WIDTH = 240, HEIGHT = 180, RGGB = 0x94 };

int main(void) {
  static unsigned short sensor[WIDTH * HEIGHT];
  unsigned state = 11;
  for (int y = 0; y < HEIGHT; ++y)
    for (int x = 0; x < WIDTH; ++x) {
      state = state * 1664525u + 1013904223u;
      const int edge = (x / 24 + y / 30) % 2 ? 9000 : 2500;
      sensor[y * WIDTH + x] = (unsigned short)(256 + edge + x * 8 + y * 12 * (1 + (x + y) % 2) + (int)(state >> 25));
    }
  // Bilinear, VNG, PPG, AHD, DCB, DHT, AAHD.
  static const int methods[] = {0, 1, 2, 3, 4, 11, 12};
  for (size_t i = 0; i < sizeof methods / sizeof *methods; ++i) {
    int error = 0;
    Raw *raw = libraw_init(0);
    unsigned char *data = (unsigned char *)sensor;
    if (!raw || libraw_open_bayer(raw, data, sizeof sensor, WIDTH, HEIGHT, 0, 0, 0, 0, 0, RGGB, 0, 0, 256))
      return puts("cannot be opened"), 1;
    libraw_set_demosaic(raw, methods[i]);
    libraw_set_output_bps(raw, i % 2 ? 16 : 8);
    if (libraw_unpack(raw) || libraw_dcraw_process(raw)) return puts("cannot be developed"), 1;
    Image *image = libraw_dcraw_make_mem_image(raw, &error);
    if (!image) return puts("no image"), 1;
    unsigned hash = 0;
    for (unsigned k = 0; k < image->data_size; ++k) hash = hash * 31 + image->data[k];
    printf("method %d: %u x %u x %u, ", methods[i], image->width, image->height, image->colors);
    printf("%u bits, %u\n", image->bits, hash);
    libraw_dcraw_clear_mem(image);
    libraw_close(raw);
  }
  return 0;
}
