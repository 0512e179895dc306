/* WiredTiger as a log: inserts, each its own transaction, synced by fsync. */
#include <stdio.h>
#include <stdlib.h>
#include <wiredtiger.h>

struct peer_writer {
  WT_SESSION *session;
  WT_CURSOR *cursor;
};

static int say(char *error, size_t room, int code) {
  if (code != 0 && room > 0) snprintf(error, room, "%s", wiredtiger_strerror(code));
  return code;
}

WT_CONNECTION *peer_wiredtiger_open(const char *folder, char *error, size_t room) {
  WT_CONNECTION *connection = NULL;
  WT_SESSION *session = NULL;
  int code = wiredtiger_open(folder, NULL,
                             "create,cache_size=1GB,log=(enabled=true,file_max=64MB),"
                             "transaction_sync=(enabled=true,method=fsync)",
                             &connection);
  if (code == 0) code = connection->open_session(connection, NULL, NULL, &session);
  if (code == 0) code = session->create(session, "table:log", "key_format=u,value_format=u");
  if (code == 0) code = session->close(session, NULL);
  return say(error, room, code) == 0 ? connection : NULL;
}

/* One for each writing thread. */
struct peer_writer *peer_wiredtiger_writer(WT_CONNECTION *connection, char *error, size_t room) {
  struct peer_writer *writer = calloc(1, sizeof *writer);
  if (writer == NULL) return NULL;
  int code = connection->open_session(connection, NULL, NULL, &writer->session);
  if (code == 0)
    code = writer->session->open_cursor(writer->session, "table:log", NULL, NULL, &writer->cursor);
  if (say(error, room, code) == 0) return writer;
  free(writer);
  return NULL;
}

int peer_wiredtiger_put(struct peer_writer *writer, const char *record, size_t bytes, char *error,
                        size_t room) {
  WT_ITEM key = {.data = record, .size = 8};
  WT_ITEM value = {.data = record + 8, .size = bytes - 8};
  writer->cursor->set_key(writer->cursor, &key);
  writer->cursor->set_value(writer->cursor, &value);
  return say(error, room, writer->cursor->insert(writer->cursor));
}

void peer_wiredtiger_writer_close(struct peer_writer *writer) {
  writer->session->close(writer->session, NULL);
  free(writer);
}

void peer_wiredtiger_close(WT_CONNECTION *connection) { connection->close(connection, NULL); }
