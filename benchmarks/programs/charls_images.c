// CharLS: JPEG-LS of grey and colour images, lossless and near lossless, encoded and decoded again.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Encoder Encoder;
typedef struct Decoder Decoder;
typedef struct {
  uint32_t width, height;
  int32_t bits, components;
} Frame;
Encoder *charls_jpegls_encoder_create(void);
void charls_jpegls_encoder_destroy(const Encoder *encoder);
int charls_jpegls_encoder_set_frame_info(Encoder *encoder, const Frame *frame);
int charls_jpegls_encoder_set_near_lossless(Encoder *encoder, int32_t near);
int charls_jpegls_encoder_set_interleave_mode(Encoder *encoder, int mode);
int charls_jpegls_encoder_set_destination_buffer(Encoder *encoder, void *buffer, size_t size);
int charls_jpegls_encoder_encode_from_buffer(Encoder *encoder, const void *buffer, size_t size, uint32_t stride);
int charls_jpegls_encoder_get_bytes_written(const Encoder *encoder, size_t *written);
Decoder *charls_jpegls_decoder_create(void);
void charls_jpegls_decoder_destroy(const Decoder *decoder);
int charls_jpegls_decoder_set_source_buffer(Decoder *decoder, const void *buffer, size_t size);
int charls_jpegls_decoder_read_header(Decoder *decoder);
int charls_jpegls_decoder_decode_to_buffer(const Decoder *decoder, void *buffer, size_t size, uint32_t stride);

enum { SIDE = 320, SIZE = SIDE * SIDE * 3 };
static uint8_t image[SIZE], coded[2 * SIZE], again[SIZE];

static int round_trip(int bits, int components, int mode, int near) {
  const size_t size = (size_t)SIDE * SIDE * (size_t)components * (bits > 8 ? 2 : 1);
  const Frame frame = {SIDE, SIDE, bits, components};
  size_t written = 0;
  Encoder *encoder = charls_jpegls_encoder_create();
  if (charls_jpegls_encoder_set_frame_info(encoder, &frame) || charls_jpegls_encoder_set_near_lossless(encoder, near) ||
      charls_jpegls_encoder_set_interleave_mode(encoder, mode) ||
      charls_jpegls_encoder_set_destination_buffer(encoder, coded, sizeof coded) ||
      charls_jpegls_encoder_encode_from_buffer(encoder, image, size, 0) ||
      charls_jpegls_encoder_get_bytes_written(encoder, &written))
    return puts("cannot be encoded"), 1;
  charls_jpegls_encoder_destroy(encoder);
  Decoder *decoder = charls_jpegls_decoder_create();
  if (charls_jpegls_decoder_set_source_buffer(decoder, coded, written) || charls_jpegls_decoder_read_header(decoder) ||
      charls_jpegls_decoder_decode_to_buffer(decoder, again, size, 0))
    return puts("cannot be decoded"), 1;
  charls_jpegls_decoder_destroy(decoder);
  unsigned hash = 0;
  int most = 0;
  for (size_t i = 0; i < written; ++i) hash = hash * 31 + coded[i];
  for (size_t i = 0; i < size; ++i) {
    const int difference = abs(image[i] - again[i]);
    if (difference > most) most = difference;
  }
  printf("%d bits, %d components, mode %d, near %d: ", bits, components, mode, near);
  printf("%zu bytes %u, differs by %d\n", written, hash, most);
  return most > near;
}

int main(void) {
  uint32_t state = 5;
  for (int i = 0; i < SIZE; ++i) {
    state = state * 1664525u + 1013904223u;
    const int x = i % (3 * SIDE), y = i / (3 * SIDE);
    // Less than 16 in every other byte: samples of 12 bits, too.
    image[i] = (uint8_t)(i % 2 ? (x / 90 + y / 40) % 16 : (x * 2 + y + (int)(state >> 30) * (y / 100)) % 256);
  }
  return round_trip(8, 1, 0, 0) || round_trip(8, 1, 0, 2) || round_trip(8, 3, 1, 0) || round_trip(8, 3, 2, 0) ||
         round_trip(12, 1, 0, 0);
}
