// c-ares: builds DNS messages with records of several types, writes them, and parses what it has written.

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct Message Message;
typedef struct Record Record;

enum { OK = 0, ANSWER = 1, IN = 1, A = 1, CNAME = 5, MX = 15, FIELD = 100 };

int ares_dns_record_create(Message **, unsigned short id, unsigned short flags, int opcode, int rcode);
int ares_dns_record_query_add(Message *, const char *name, int type, int class);
int ares_dns_record_rr_add(Record **, Message *, int section, const char *name, int type, int class, unsigned seconds);
int ares_dns_rr_set_addr(Record *, int key, const uint32_t *address);
int ares_dns_rr_set_str(Record *, int key, const char *);
int ares_dns_rr_set_u16(Record *, int key, unsigned short);
int ares_dns_write(const Message *, unsigned char **, size_t *);
int ares_dns_parse(const unsigned char *, size_t, unsigned flags, Message **);
size_t ares_dns_record_rr_cnt(const Message *, int section);
const Record *ares_dns_record_rr_get_const(const Message *, int section, size_t);
const char *ares_dns_rr_get_name(const Record *);
unsigned ares_dns_rr_get_ttl(const Record *);
void ares_dns_record_destroy(Message *);
void ares_free_string(void *);

static int add(Message *message, int number) {
  static const int types[] = {A, CNAME, MX};
  static const char *const hosts[] = {"www", "mail", "a-much-longer-name", "x.y.z"};
  char name[80], target[80];
  snprintf(name, sizeof name, "%s.d%d.example.org", hosts[number % 4], number % 7);
  snprintf(target, sizeof target, "%s.t%d.example.com", hosts[number % 3], number % 5);
  const int type = types[number % 3];
  Record *record;
  if (ares_dns_record_rr_add(&record, message, ANSWER, name, type, IN, 60u + (unsigned)number))
    return 1;
  if (type == A) {
    const uint32_t address = 0x0a000001u + (uint32_t)number;
    return ares_dns_rr_set_addr(record, A * FIELD + 1, &address);
  }
  if (type == CNAME)
    return ares_dns_rr_set_str(record, CNAME * FIELD + 1, target);
  return ares_dns_rr_set_u16(record, MX * FIELD + 1, 10) || ares_dns_rr_set_str(record, MX * FIELD + 2, target);
}

int main(void) {
  unsigned checksum = 0;
  size_t bytes = 0, records = 0;
  for (int round = 0; round < 400; round++) {
    Message *message, *parsed;
    unsigned char *written;
    size_t size;
    if (ares_dns_record_create(&message, (unsigned short)round, 0, 0, 0) ||
        ares_dns_record_query_add(message, "www.d1.example.org", A, IN))
      return 1;
    for (int number = 0; number < 40; number++)
      if (add(message, number + round))
        return 2;
    if (ares_dns_write(message, &written, &size) || ares_dns_parse(written, size, 0, &parsed))
      return 3;
    for (size_t index = 0; index < ares_dns_record_rr_cnt(parsed, ANSWER); index++, records++) {
      const Record *record = ares_dns_record_rr_get_const(parsed, ANSWER, index);
      checksum = checksum * 31 + ares_dns_rr_get_ttl(record) + (unsigned)strlen(ares_dns_rr_get_name(record));
    }
    for (size_t place = 0; place < size; place++)
      checksum = checksum * 33 ^ written[place];
    bytes += size;
    ares_free_string(written);
    ares_dns_record_destroy(message);
    ares_dns_record_destroy(parsed);
  }
  printf("%zu records in %zu bytes: %08x\n", records, bytes, checksum);
}
