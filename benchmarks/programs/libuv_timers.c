// Timers of a loop that start, stop and expire, names in Punycode, addresses, and UTF-16 of texts.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef struct uv_loop_s uv_loop_t;
typedef struct uv_handle_s uv_handle_t;
size_t uv_loop_size(void);
size_t uv_handle_size(int type);
int uv_loop_init(uv_loop_t *loop);
int uv_run(uv_loop_t *loop, int mode);
void uv_close(uv_handle_t *handle, void (*closed)(uv_handle_t *));
int uv_timer_init(uv_loop_t *loop, uv_handle_t *timer);
int uv_timer_start(uv_handle_t *timer, void (*expired)(uv_handle_t *), uint64_t timeout_ms, uint64_t repeat_ms);
int uv_timer_stop(uv_handle_t *timer);
int uv_timer_again(uv_handle_t *timer);
uint64_t uv_timer_get_repeat(const uv_handle_t *timer);
int uv_inet_ntop(int family, const void *address, char *text, size_t size);
int uv_inet_pton(int family, const char *text, void *address);
ssize_t uv__idna_toascii(const char *begin, const char *end, char *name, char *name_end);
ssize_t uv_wtf8_length_as_utf16(const char *text);
void uv_wtf8_to_utf16(const char *text, uint16_t *units, size_t count);
size_t uv_utf16_length_as_wtf8(const uint16_t *units, ssize_t count);
int uv_utf16_to_wtf8(const uint16_t *units, ssize_t count, char **text, size_t *length);

static unsigned state = 1, expired_count;

static unsigned draw(unsigned end) {
  state = state * 1103515245 + 12345;
  return (state >> 16) % end;
}

static void on_expired(uv_handle_t *timer) {
  (void)timer;
  ++expired_count;
}

static void timers(void) {
  enum { kTimer = 13, kTimers = 4000, kNoWait = 2 };
  uv_loop_t *loop = malloc(uv_loop_size());
  char *memory = malloc(kTimers * uv_handle_size(kTimer));
  uint64_t repeats = 0;
  if (uv_loop_init(loop) != 0) exit(1);
  for (int i = 0; i < kTimers; ++i) uv_timer_init(loop, (uv_handle_t *)(memory + i * uv_handle_size(kTimer)));
  for (int i = 0; i < 60 * kTimers; ++i) {
    uv_handle_t *timer = (uv_handle_t *)(memory + draw(kTimers) * uv_handle_size(kTimer));
    switch (draw(8)) {
      case 0: uv_timer_stop(timer); break;
      case 1: uv_timer_again(timer); break;
      default: uv_timer_start(timer, on_expired, 3600000 + draw(1000000), 3600000 + draw(1000)); break;
    }
    repeats += uv_timer_get_repeat(timer);
  }
  // Some expire at once, the others never.
  for (int round = 0; round < 20; ++round) {
    for (int i = round; i < kTimers; i += 2)
      uv_timer_start((uv_handle_t *)(memory + i * uv_handle_size(kTimer)), on_expired, 0, 0);
    uv_run(loop, kNoWait);
  }
  for (int i = 0; i < kTimers; ++i) uv_close((uv_handle_t *)(memory + i * uv_handle_size(kTimer)), NULL);
  uv_run(loop, kNoWait);
  printf("%u %llu\n", expired_count, (unsigned long long)repeats);
  free(memory);
  free(loop);
}

static void names(void) {
  static const char *const kParts[] = {"b\303\274cher", "example", "\346\227\245\346\234\254", ".", "\320\277\321\200\320\270", "-x", "\360\237\230\200", "ma\303\261ana"};
  uint32_t sum = 0;
  int ok = 0;
  for (int i = 0; i < 40000; ++i) {
    char text[256] = "a", name[512];
    for (int left = 2 + draw(6); left > 0; --left) strcat(text, kParts[draw(8)]);
    const ssize_t length = uv__idna_toascii(text, text + strlen(text), name, name + sizeof name);
    ok += length > 0;
    for (ssize_t j = 0; j < length; ++j) sum = sum * 31 + (unsigned char)name[j];
    const ssize_t count = uv_wtf8_length_as_utf16(text);
    uint16_t units[256];
    char *again = NULL;
    size_t size = 0;
    uv_wtf8_to_utf16(text, units, count);
    sum += uv_utf16_length_as_wtf8(units, count);
    if (uv_utf16_to_wtf8(units, count, &again, &size) == 0) sum = sum * 31 + (size == strlen(text) && !strcmp(again, text));
    free(again);
  }
  printf("%d %u\n", ok, sum);
}

static void addresses(void) {
  enum { kInet = 2, kInet6 = 10 };
  uint32_t sum = 0;
  int same = 0;
  for (int i = 0; i < 40000; ++i) {
    uint8_t address[16], again[16];
    char text[64];
    const int family = i % 4 == 0 ? kInet : kInet6;
    for (int j = 0; j < 16; ++j) address[j] = draw(3) ? draw(256) : 0;
    if (uv_inet_ntop(family, address, text, sizeof text) != 0) exit(1);
    if (uv_inet_pton(family, text, again) != 0) exit(1);
    same += memcmp(address, again, family == kInet ? 4 : 16) == 0;
    for (const char *c = text; *c; ++c) sum = sum * 31 + *c;
  }
  printf("%d %u\n", same, sum);
}

int main(void) {
  timers();
  names();
  addresses();
  return 0;
}
