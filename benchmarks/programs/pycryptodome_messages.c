// PyCryptodome's primitives: hashes, ciphers in their modes, a stream cipher with its authenticator, a curve.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct State State;
int SHA256_init(State **state);
int SHA256_update(State *state, const uint8_t *data, size_t length);
int SHA256_digest(const State *state, uint8_t *digest, size_t size);
int SHA256_destroy(State *state);
int ripemd160_init(State **state);
int ripemd160_update(State *state, const uint8_t *data, size_t length);
int ripemd160_digest(const State *state, uint8_t *digest);
int ripemd160_destroy(State *state);
int AES_start_operation(const uint8_t *key, size_t size, State **cipher);
int DES3_start_operation(const uint8_t *key, size_t size, State **cipher);
int CBC_start_operation(State *cipher, const uint8_t *start, size_t size, State **mode);
int CBC_encrypt(State *mode, const uint8_t *in, uint8_t *out, size_t length);
int CBC_decrypt(State *mode, const uint8_t *in, uint8_t *out, size_t length);
int CBC_stop_operation(State *mode);
int chacha20_init(State **state, const uint8_t *key, size_t key_size, const uint8_t *nonce, size_t nonce_size);
int chacha20_encrypt(State *state, const uint8_t *in, uint8_t *out, size_t length);
int chacha20_destroy(State *state);
int poly1305_init(State **state, const uint8_t *r, size_t r_size, const uint8_t *s, size_t s_size);
int poly1305_update(State *state, const uint8_t *data, size_t length);
int poly1305_digest(const State *state, uint8_t *digest, size_t size);
int poly1305_destroy(State *state);
int curve25519_new_point(State **point, const uint8_t x[32], size_t size, const void *context);
int curve25519_scalar(State *point, const uint8_t *scalar, size_t size, uint64_t seed);
int curve25519_get_x(uint8_t *x, size_t size, const State *point);
void curve25519_free_point(State *point);

enum { SIZE = 1 << 18 };
static uint8_t data[SIZE], sealed[SIZE], opened[SIZE];

static void show(const char *name, const uint8_t *bytes, size_t size) {
  printf("%s ", name);
  for (size_t i = 0; i < size; ++i) printf("%02x", bytes[i]);
  puts("");
}

static int modes(const char *name, int (*start)(const uint8_t *, size_t, State **), const uint8_t *key, size_t key_size,
                 size_t block_size) {
  State *mode = NULL;
  for (int decrypt = 0; decrypt < 2; ++decrypt) {
    State *cipher = NULL;
    if (start(key, key_size, &cipher) || CBC_start_operation(cipher, key, block_size, &mode)) return 1;
    if (decrypt ? CBC_decrypt(mode, sealed, opened, SIZE) : CBC_encrypt(mode, data, sealed, SIZE)) return 1;
    CBC_stop_operation(mode);
  }
  show(name, sealed + SIZE - block_size, block_size);
  return memcmp(data, opened, SIZE) != 0;
}

int main(void) {
  uint8_t key[32], digest[64];
  State *state = NULL;
  for (size_t i = 0; i < sizeof key; ++i) key[i] = (uint8_t)(i * 37 + 11);
  for (size_t i = 0; i < SIZE; ++i) data[i] = (uint8_t)(i * 2654435761u >> 19);
  if (SHA256_init(&state) || SHA256_update(state, data, SIZE) || SHA256_digest(state, digest, 32)) return 1;
  SHA256_destroy(state);
  show("sha256", digest, 32);
  if (ripemd160_init(&state) || ripemd160_update(state, data, SIZE) || ripemd160_digest(state, digest)) return 1;
  ripemd160_destroy(state);
  show("ripemd160", digest, 20);
  if (modes("aes", AES_start_operation, key, 32, 16) || modes("des3", DES3_start_operation, key, 24, 8))
    return puts("differs"), 1;
  if (chacha20_init(&state, key, 32, key, 12) || chacha20_encrypt(state, data, sealed, SIZE)) return 1;
  chacha20_destroy(state);
  if (poly1305_init(&state, key, 16, key + 16, 16) || poly1305_update(state, sealed, SIZE) ||
      poly1305_digest(state, digest, 16))
    return 1;
  poly1305_destroy(state);
  show("chacha20-poly1305", digest, 16);
  const uint8_t base[32] = {9};
  if (curve25519_new_point(&state, base, 32, NULL)) return 1;
  for (int i = 0; i < 40; ++i)
    if (curve25519_scalar(state, key, 32, (uint64_t)i)) return 1;
  curve25519_get_x(digest, 32, state);
  curve25519_free_point(state);
  show("curve25519", digest, 32);
  return 0;
}
