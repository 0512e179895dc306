//! The statements of one transaction of records, with their parameters and results.

use rusqlite::{CachedStatement, Connection, params};

use columns::Columns;
use sqlite::Packed;

const FIND: &str = "SELECT number, version, length(body), path = ?3 FROM document
    WHERE collection = ?1 AND id = ?2";
const SAME: &str = "SELECT body = ?2 FROM document WHERE number = ?1";
const INSERT: &str = "INSERT INTO document (collection, id, version, received_us, checksum, path,
    directory, name, kind, size, mode, uid, gid, owner, grp, mtime_us, inode, md5, sha1, sha256,
    blake3, body, changes)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
    ?20, ?21, ?22, ?23)";
/// Takes the document's number as `?1` in place of its collection, and leaves the path out, because
/// setting it would write its index.
const UPDATE: &str = "UPDATE document SET version = ?3, received_us = ?4, checksum = ?5,
    directory = ?7, name = ?8, kind = ?9, size = ?10, mode = ?11, uid = ?12, gid = ?13,
    owner = ?14, grp = ?15, mtime_us = ?16, inode = ?17, md5 = ?18, sha1 = ?19, sha256 = ?20,
    blake3 = ?21, body = ?22, changes = changes + (?23 AND checksum <> ?5) WHERE number = ?1";
const MOVE: &str = "UPDATE document SET path = ?2 WHERE number = ?1";
const DELETE: &str = "DELETE FROM document WHERE number = ?1";
const FIND_TOMBSTONE: &str = "SELECT version FROM tombstone WHERE collection = ?1 AND id = ?2";
const PUT_TOMBSTONE: &str = "INSERT INTO tombstone (collection, id, version, at_us)
    VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (collection, id) DO UPDATE SET version = excluded.version, at_us = excluded.at_us";
const DROP_TOMBSTONE: &str = "DELETE FROM tombstone WHERE collection = ?1 AND id = ?2";
const INSERT_EVENT: &str = "INSERT INTO event
    (number, agent, id, received_us, found_us, kind, path, changed, body, moved_from, user, process,
    cause_id, cause_package)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
    ON CONFLICT (agent, id) DO NOTHING";

const INSERT_CANDIDATE: &str =
    "INSERT INTO candidate (name, event_found_us, event_number) VALUES (?1, ?2, ?3)";

/// The statements of one transaction, prepared once.
pub(super) struct Statements<'c> {
    pub(super) find: CachedStatement<'c>,
    pub(super) same: CachedStatement<'c>,
    pub(super) insert: CachedStatement<'c>,
    pub(super) update: CachedStatement<'c>,
    pub(super) rename: CachedStatement<'c>,
    pub(super) delete: CachedStatement<'c>,
    pub(super) find_tombstone: CachedStatement<'c>,
    pub(super) put_tombstone: CachedStatement<'c>,
    pub(super) drop_tombstone: CachedStatement<'c>,
    pub(super) insert_event: CachedStatement<'c>,
    pub(super) insert_candidate: CachedStatement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn prepare(db: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            find: db.prepare_cached(FIND)?,
            same: db.prepare_cached(SAME)?,
            insert: db.prepare_cached(INSERT)?,
            update: db.prepare_cached(UPDATE)?,
            rename: db.prepare_cached(MOVE)?,
            delete: db.prepare_cached(DELETE)?,
            find_tombstone: db.prepare_cached(FIND_TOMBSTONE)?,
            put_tombstone: db.prepare_cached(PUT_TOMBSTONE)?,
            drop_tombstone: db.prepare_cached(DROP_TOMBSTONE)?,
            insert_event: db.prepare_cached(INSERT_EVENT)?,
            insert_candidate: db.prepare_cached(INSERT_CANDIDATE)?,
        })
    }
}

/// A document as returned by [`FIND`].
pub(super) struct Found {
    pub(super) number: i64,
    pub(super) version: u64,
    pub(super) bytes: i64,
    /// True if the document has the requested path.
    pub(super) same_path: bool,
}

/// One document to be written.
pub(super) struct Put<'a> {
    pub(super) id: &'a str,
    pub(super) packed_id: Packed<'a>,
    pub(super) version: u64,
    pub(super) body: &'a [u8],
    pub(super) received_us: u64,
}

/// `number` is the collection's for an insert and the document's for an update. `is_newer` is true if
/// the document replaces one with a lower version.
pub(super) fn store(
    statement: &mut CachedStatement<'_>,
    number: i64,
    put: &Put<'_>,
    columns: &Columns<'_>,
    is_newer: bool,
) -> rusqlite::Result<()> {
    let [md5, sha1, sha256, blake3] = columns.hashes().map(|h| h.map(Packed::new));
    statement.execute(params![
        number,
        put.packed_id,
        put.version as i64,
        put.received_us as i64,
        Packed::new(columns.checksum()),
        columns.path(),
        columns.directory(),
        columns.name(),
        columns.kind(),
        columns.size(),
        columns.mode(),
        columns.uid(),
        columns.gid(),
        columns.owner(),
        columns.group(),
        columns.mtime_us(),
        columns.inode(),
        md5,
        sha1,
        sha256,
        blake3,
        put.body,
        is_newer,
    ])?;
    Ok(())
}
