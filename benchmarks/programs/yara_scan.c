// Compiles rules of several kinds, and scans a buffer of text and bytes with them.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct YR_COMPILER YR_COMPILER;
typedef struct YR_RULES YR_RULES;
typedef struct {
  int32_t flags, num_atoms;
  uint32_t required_strings, unused;
  const char *identifier;
} YR_RULE;
typedef int (*YR_CALLBACK_FUNC)(void *context, int message, void *data, void *user);
int yr_initialize(void);
int yr_compiler_create(YR_COMPILER **compiler);
int yr_compiler_add_string(YR_COMPILER *compiler, const char *source, const char *space);
int yr_compiler_get_rules(YR_COMPILER *compiler, YR_RULES **rules);
void yr_compiler_destroy(YR_COMPILER *compiler);
int yr_rules_scan_mem(YR_RULES *rules, const uint8_t *buffer, size_t size, int flags, YR_CALLBACK_FUNC callback,
                      void *user, int timeout);
int yr_rules_destroy(YR_RULES *rules);
// Of OpenSSL, which is never called; but yara needs their addresses.
char ASN1_ANY_it, ASN1_BIT_STRING_it, ASN1_BMPSTRING_it, ASN1_IA5STRING_it, ASN1_OBJECT_it, ASN1_OCTET_STRING_it, X509_free;

static const char kRules[] =
    "import \"math\"\n"
    "rule words { strings: $a = \"packet\" nocase $b = \"mirror\" wide ascii $c = \"lantern\" fullword xor(1-31)\n"
    "  condition: #a > 20 and ($b or $c) and @a[2] > @a[1] }\n"
    "rule encoded { strings: $a = \"the secret garden\" base64 $b = \"orchard\" private condition: $a or $b }\n"
    "rule bytes { strings: $a = { 7f 45 ?? 46 [2-6] 01 (02 | 03 ?4) 10 } $b = { 50 4b ~03 04 [4] ff }\n"
    "  condition: any of them }\n"
    "rule patterns { strings: $a = /user[0-9]{2,4}@[a-z]+\\.(com|org|net)/ nocase\n"
    "  $b = /(GET|PUT) \\/[a-z\\/]{3,20}\\?id=\\d+/ $c = /rot[^ ]{1,9}ing/ wide ascii\n"
    "  condition: for all of them : (# >= 1) }\n"
    "rule header { condition: uint16(0) == 0x5a4d or uint32be(4) > 0x20000000 }\n"
    "rule loop { strings: $a = \"river\" condition:\n"
    "  for any i in (1..#a) : (uint8(@a[i] + 5) == 0x20 and uint8(@a[i] - 1) == 0x20) }\n"
    "rule entropy { condition: math.entropy(0, filesize) > 4.0 and math.mean(0, filesize) < 127.5 and\n"
    "  math.serial_correlation(0, 4096) < 1.0 and for any i in (0..9) : (math.deviation(i * 1000, 1000, 64.0) > 20.0) }\n";

static const char *const kTexts[] = {
    "packet",  "Packet ", "mirror", "lantern",         "river ",   " river ",      "garden", "user",   "user123@mail.org",
    "orchard", "GET /",   "index",  "GET /a/b/c?id=7", "rotating", "rot and ring", "the",    "secret", "\177E1F00\1\2\20"};

static int on_message(void *context, int message, void *data, void *user) {
  enum { kMatching = 1, kNotMatching = 2 };
  uint32_t *sum = user;
  (void)context;
  if (message != kMatching && message != kNotMatching) return 0;
  for (const char *c = ((YR_RULE *)data)->identifier; *c; ++c) *sum = *sum * 31 + (unsigned char)*c;
  *sum = *sum * 31 + message;
  return 0;
}

int main(void) {
  enum { kSize = 1 << 20, kTextCount = sizeof kTexts / sizeof *kTexts };
  uint8_t *buffer = malloc(kSize + 64);
  uint32_t state = 1, sum = 0;
  for (int size = 0; size < kSize;) {
    state = state * 1103515245 + 12345;
    if (state >> 28 == 0) {
      for (int i = 0; i < 32; ++i) buffer[size++] = state * (i + 1) >> 13;
    } else {
      const char *text = kTexts[(state >> 16) % kTextCount];
      memcpy(buffer + size, text, strlen(text));
      size += strlen(text);
      buffer[size++] = (state >> 26) % 4 ? ' ' : 'a' + (state >> 8) % 26;
    }
  }
  if (yr_initialize() != 0) return 1;
  for (int round = 0; round < 4; ++round) {
    YR_COMPILER *compiler;
    YR_RULES *rules;
    char space[16];
    if (yr_compiler_create(&compiler) != 0) return 1;
    for (int i = 0; i < 6; ++i) {
      snprintf(space, sizeof space, "space%d", i);
      if (yr_compiler_add_string(compiler, kRules, space) != 0) return 1;
    }
    if (yr_compiler_get_rules(compiler, &rules) != 0) return 1;
    if (yr_rules_scan_mem(rules, buffer + round, kSize / 8, 0, on_message, &sum, 0) != 0) return 1;
    printf("%u\n", sum);
    yr_rules_destroy(rules);
    yr_compiler_destroy(compiler);
  }
  return 0;
}
