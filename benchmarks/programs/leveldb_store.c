// A key-value store: filled, overwritten, compacted; then read in order and at random.
// Argument: an empty directory, which it leaves empty.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct leveldb_t leveldb_t;
typedef struct leveldb_options_t leveldb_options_t;
typedef struct leveldb_readoptions_t leveldb_readoptions_t;
typedef struct leveldb_writeoptions_t leveldb_writeoptions_t;
typedef struct leveldb_iterator_t leveldb_iterator_t;
leveldb_options_t *leveldb_options_create(void);
void leveldb_options_set_create_if_missing(leveldb_options_t *, unsigned char);
void leveldb_options_set_write_buffer_size(leveldb_options_t *, size_t);
void leveldb_options_set_compression(leveldb_options_t *, int);
leveldb_readoptions_t *leveldb_readoptions_create(void);
leveldb_writeoptions_t *leveldb_writeoptions_create(void);
leveldb_t *leveldb_open(const leveldb_options_t *, const char *, char **);
void leveldb_put(leveldb_t *, const leveldb_writeoptions_t *, const char *, size_t, const char *, size_t, char **);
char *leveldb_get(leveldb_t *, const leveldb_readoptions_t *, const char *, size_t, size_t *, char **);
void leveldb_compact_range(leveldb_t *, const char *, size_t, const char *, size_t);
leveldb_iterator_t *leveldb_create_iterator(leveldb_t *, const leveldb_readoptions_t *);
void leveldb_iter_seek_to_first(leveldb_iterator_t *);
unsigned char leveldb_iter_valid(const leveldb_iterator_t *);
void leveldb_iter_next(leveldb_iterator_t *);
const char *leveldb_iter_value(const leveldb_iterator_t *, size_t *);
void leveldb_iter_destroy(leveldb_iterator_t *);
void leveldb_close(leveldb_t *);
void leveldb_destroy_db(const leveldb_options_t *, const char *, char **);

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  char *error = NULL, key[32], value[128];
  leveldb_options_t *options = leveldb_options_create();
  leveldb_options_set_create_if_missing(options, 1);
  leveldb_options_set_write_buffer_size(options, 1 << 24);
  leveldb_options_set_compression(options, 0);
  leveldb_t *store = leveldb_open(options, argv[1], &error);
  if (error) return puts(error), 1;
  for (int i = 0; i < 6000; ++i) {
    const int k = (int)((unsigned)i * 2654435761u % 4000);
    const int length = sprintf(key, "key%08d", k);
    memset(value, 'a' + i % 26, sizeof value);
    leveldb_put(store, leveldb_writeoptions_create(), key, (size_t)length, value, sizeof value, &error);
    if (error) return puts(error), 1;
  }
  leveldb_compact_range(store, NULL, 0, NULL, 0);
  leveldb_readoptions_t *reading = leveldb_readoptions_create();
  unsigned sum = 0;
  leveldb_iterator_t *all = leveldb_create_iterator(store, reading);
  for (leveldb_iter_seek_to_first(all); leveldb_iter_valid(all); leveldb_iter_next(all)) {
    size_t length;
    sum = sum * 31 + (unsigned char)*leveldb_iter_value(all, &length);
  }
  leveldb_iter_destroy(all);
  for (int i = 0; i < 3000; ++i) {
    size_t length = 0;
    const int size = sprintf(key, "key%08d", i * 7 % 5000);
    char *found = leveldb_get(store, reading, key, (size_t)size, &length, &error);
    if (error) return puts(error), 1;
    sum = sum * 31 + (found ? (unsigned char)*found : 1u);
    free(found);
  }
  leveldb_close(store);
  leveldb_destroy_db(options, argv[1], &error);  // The next run finds an empty directory, too.
  if (error) return puts(error), 1;
  printf("%u\n", sum);
  return 0;
}
