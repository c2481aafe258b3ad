// Guesses the encoding of texts in several of them.
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct uchardet *uchardet_t;
uchardet_t uchardet_new(void);
int uchardet_handle_data(uchardet_t detector, const char *data, size_t size);
void uchardet_data_end(uchardet_t detector);
void uchardet_reset(uchardet_t detector);
const char *uchardet_get_charset(uchardet_t detector);

static const char *const kTexts[] = {
    "Nous avons mang\xe9 \xe0 c\xf4t\xe9 de la for\xeat, o\xf9 l'\xe9t\xe9 a commenc\xe9. ",
    "Nous avons mang\xc3\xa9 \xc3\xa0 c\xc3\xb4t\xc3\xa9 de la for\xc3\xaat, o\xc3\xb9 l'\xc3\xa9t\xc3\xa9 a commenc\xc3\xa9. ",
    "\xcc\xfb \xef\xee\xe5\xeb\xe8 \xf0\xff\xe4\xee\xec \xf1 \xeb\xe5\xf1\xee\xec, \xe3\xe4\xe5 \xed\xe0\xf7\xe0\xeb\xee\xf1\xfc \xeb\xe5\xf2\xee. ",
    "\x8e\x84\x82\xcd\x90\x58\x82\xcc\x8b\xdf\x82\xad\x82\xc5\x90\x48\x82\xd7\x82\xbd\x81\x42",
    "Plain text without any accents at all, which is ASCII and nothing else. ",
};

int main(void) {
  static char text[1 << 15];
  uchardet_t detector = uchardet_new();
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 5; ++i) {
      const size_t size = strlen(kTexts[i]);
      size_t length = 0;
      for (; length + size <= sizeof text; length += size) memcpy(text + length, kTexts[i], size);
      uchardet_reset(detector);
      if (uchardet_handle_data(detector, text, length)) return 1;
      uchardet_data_end(detector);
      if (!round) printf("%s\n", uchardet_get_charset(detector));
    }
  }
  return 0;
}
