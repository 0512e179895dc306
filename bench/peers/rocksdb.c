/* RocksDB as a log: puts into the write-ahead log, each synced or none. */
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct peer_rocksdb {
  rocksdb_t *db;
  rocksdb_options_t *options;
  rocksdb_writeoptions_t *write;
};

static void say(char *error, size_t room, char *why) {
  if (room > 0) snprintf(error, room, "%s", why);
  rocksdb_free(why);
}

/* The defaults, but a memtable large enough that none is written out while measuring. */
struct peer_rocksdb *peer_rocksdb_open(const char *folder, int sync, char *error, size_t room) {
  struct peer_rocksdb *peer = calloc(1, sizeof *peer);
  char *why = NULL;
  if (peer == NULL) return NULL;
  peer->options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(peer->options, 1);
  rocksdb_options_set_write_buffer_size(peer->options, (size_t)1 << 30);
  peer->write = rocksdb_writeoptions_create();
  rocksdb_writeoptions_set_sync(peer->write, sync != 0);
  peer->db = rocksdb_open(peer->options, folder, &why);
  if (why != NULL) {
    say(error, room, why);
    free(peer);
    return NULL;
  }
  return peer;
}

int peer_rocksdb_put(struct peer_rocksdb *peer, const char *record, size_t bytes, char *error,
                     size_t room) {
  char *why = NULL;
  rocksdb_put(peer->db, peer->write, record, 8, record + 8, bytes - 8, &why);
  if (why == NULL) return 0;
  say(error, room, why);
  return -1;
}

void peer_rocksdb_close(struct peer_rocksdb *peer) {
  rocksdb_close(peer->db);
  rocksdb_writeoptions_destroy(peer->write);
  rocksdb_options_destroy(peer->options);
  free(peer);
}
