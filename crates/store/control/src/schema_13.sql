-- The position of the last record of the journal whose rows are here. Without the row, no rows of this
-- database have been logged yet.
CREATE TABLE progress (
    id      INTEGER PRIMARY KEY CHECK (id = 0),
    applied INTEGER NOT NULL
);
-- Rows that were changed by reports since they were logged last: table, key as the capture encodes it,
-- set of columns.
CREATE TABLE unlogged (
    tab  TEXT NOT NULL,
    key  BLOB NOT NULL,
    mask INTEGER NOT NULL,
    PRIMARY KEY (tab, key)
) WITHOUT ROWID;
