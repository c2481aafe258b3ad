// Messages hashed, encrypted and authenticated, and points multiplied.
#include <stddef.h>
#include <stdio.h>
#include <string.h>

int crypto_generichash(unsigned char *out, size_t out_size, const unsigned char *in, unsigned long long size,
                       const unsigned char *key, size_t key_size);
int crypto_hash_sha512(unsigned char *out, const unsigned char *in, unsigned long long size);
int crypto_aead_chacha20poly1305_encrypt(unsigned char *out, unsigned long long *out_size, const unsigned char *in,
                                         unsigned long long size, const unsigned char *extra,
                                         unsigned long long extra_size, const unsigned char *secret,
                                         const unsigned char *nonce, const unsigned char *key);
int crypto_scalarmult_base(unsigned char *point, const unsigned char *scalar);
int sodium_init(void);

int main(void) {
  static unsigned char message[1 << 16], sealed[(1 << 16) + 16];
  unsigned char digest[64] = {0}, key[32], nonce[8] = {0}, point[32] = {0};
  unsigned sum = 0;
  if (sodium_init() < 0) return 1;
  for (size_t i = 0; i < sizeof message; ++i) message[i] = (unsigned char)(i * i >> 3);
  memset(key, 7, sizeof key);
  for (int round = 0; round < 400; ++round) {
    unsigned long long size = 0;
    message[round] ^= (unsigned char)round;
    crypto_generichash(digest, 32, message, sizeof message, key, sizeof key);
    crypto_hash_sha512(digest, message, sizeof message / 2);
    crypto_aead_chacha20poly1305_encrypt(sealed, &size, message, sizeof message, key, sizeof key, NULL, nonce, digest);
    for (size_t i = 0; i < 64; ++i) sum = sum * 31 + (digest[i] ^ sealed[size - 1 - i]);
  }
  for (int round = 0; round < 800; ++round) {
    key[round % 32] ^= point[0] ^ (unsigned char)round;
    if (crypto_scalarmult_base(point, key)) return 1;
  }
  printf("%u %02x%02x%02x%02x\n", sum, point[0], point[1], point[2], point[3]);
  return 0;
}
