//! Tables of `state.db` and the steps that made them (`docs/format/state-db.md`).

use std::path::Path;

use rusqlite::Connection;

use crate::error::{Context, StateError};

/// `PRAGMA application_id`: the ASCII bytes `HFst`.
pub(crate) const APPLICATION_ID: i64 = 0x4846_7374;

/// Numbered migrations; a database of version n has had the first n of them. Never edited once
/// released: a change is a new step.
const STEPS: &[&str] = &[
    STEP_1, STEP_2, STEP_3, STEP_4, STEP_5, STEP_6, STEP_7, STEP_8, STEP_9, STEP_10, STEP_11,
    STEP_12,
];

const STEP_1: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE progress (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  applied INTEGER NOT NULL,
  last_event INTEGER NOT NULL,
  tombstones INTEGER NOT NULL,
  quarantined INTEGER NOT NULL
) STRICT;
INSERT INTO progress VALUES (1, 0, 0, 0, 0);

CREATE TABLE agent (
  number INTEGER PRIMARY KEY,
  incarnation INTEGER,
  name TEXT NOT NULL,
  last_session TEXT,
  last_session_us INTEGER,
  events INTEGER NOT NULL
) STRICT;
CREATE TABLE removed (
  agent INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  PRIMARY KEY (agent, incarnation)
) STRICT, WITHOUT ROWID;

CREATE TABLE dataset (
  number INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  documents INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) STRICT;
CREATE TABLE collection (
  number INTEGER PRIMARY KEY,
  agent INTEGER NOT NULL,
  dataset INTEGER NOT NULL,
  documents INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  tombstones INTEGER NOT NULL,
  UNIQUE (agent, dataset)
) STRICT;

CREATE TABLE document (
  number INTEGER PRIMARY KEY,
  collection INTEGER NOT NULL,
  id ANY NOT NULL,
  version INTEGER NOT NULL,
  received_us INTEGER NOT NULL,
  checksum ANY NOT NULL,
  path TEXT NOT NULL,
  directory TEXT,
  name TEXT,
  kind TEXT,
  size INTEGER,
  mode TEXT,
  uid INTEGER,
  gid INTEGER,
  owner TEXT,
  grp TEXT,
  mtime_us INTEGER,
  inode INTEGER,
  md5 ANY,
  sha1 ANY,
  sha256 ANY,
  blake3 ANY,
  body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX document_id ON document (collection, id);
CREATE INDEX document_path ON document (collection, path);
CREATE TABLE tombstone (
  collection INTEGER NOT NULL,
  id ANY NOT NULL,
  version INTEGER NOT NULL,
  at_us INTEGER NOT NULL,
  PRIMARY KEY (collection, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstone_at ON tombstone (at_us);

CREATE TABLE event (
  number INTEGER PRIMARY KEY,
  agent INTEGER NOT NULL,
  id TEXT NOT NULL,
  received_us INTEGER NOT NULL,
  found_us INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  path TEXT NOT NULL,
  changed TEXT NOT NULL,
  body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX event_id ON event (agent, id);
CREATE INDEX event_kind ON event (kind, found_us);
CREATE INDEX event_agent_kind ON event (agent, kind, found_us);
CREATE INDEX event_path ON event (path, found_us);
CREATE TABLE event_kind_count (
  kind INTEGER PRIMARY KEY,
  events INTEGER NOT NULL,
  bytes INTEGER NOT NULL
) STRICT;
INSERT INTO event_kind_count VALUES (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0);

CREATE TABLE quarantine (
  position INTEGER PRIMARY KEY,
  agent INTEGER NOT NULL,
  at_us INTEGER NOT NULL,
  reason TEXT NOT NULL,
  record BLOB NOT NULL
) STRICT;
";

/// Life 0 of a number, which local callers use, never ends for good.
const STEP_2: &str = "
ALTER TABLE agent ADD COLUMN sessions BLOB NOT NULL DEFAULT x'';
ALTER TABLE agent ADD COLUMN overlay TEXT NOT NULL DEFAULT '';
ALTER TABLE agent ADD COLUMN metadata_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agent ADD COLUMN groups_version INTEGER NOT NULL DEFAULT 0;
DELETE FROM removed WHERE incarnation = 0;
";

/// Events stay when a life ends: `through` is its last event, `name` its last name.
const STEP_3: &str = "
ALTER TABLE removed ADD COLUMN through INTEGER NOT NULL DEFAULT 0;
ALTER TABLE removed ADD COLUMN name TEXT NOT NULL DEFAULT '';
UPDATE removed SET through = (SELECT last_event FROM progress), name = agent.name
  FROM agent WHERE agent.number = removed.agent AND agent.incarnation IS NULL;
";

/// Sessions are identified by content too. If `session_floor` is null, `sessions` has keys of the
/// old form.
const STEP_4: &str = "
ALTER TABLE agent ADD COLUMN session_floor INTEGER;
";

/// Events that open a gap, and those whose gap has ended.
const STEP_5: &str = "
INSERT OR IGNORE INTO event_kind_count VALUES (5, 0, 0), (6, 0, 0);
";

/// Moves, and the users and processes that made changes.
const STEP_6: &str = "
INSERT OR IGNORE INTO event_kind_count VALUES (7, 0, 0);
ALTER TABLE event ADD COLUMN moved_from TEXT;
ALTER TABLE event ADD COLUMN user TEXT;
ALTER TABLE event ADD COLUMN process TEXT;
CREATE INDEX event_moved_from ON event (moved_from, found_us) WHERE moved_from IS NOT NULL;
CREATE INDEX event_user ON event (user, found_us) WHERE user IS NOT NULL;
CREATE INDEX event_process ON event (process, found_us) WHERE process IS NOT NULL;
";

/// Causes of changes, and files that existed only between two checks. `event.kind` holds the cause as
/// well ([`super::kinds`]), so that existing rows are unexplained without being rewritten.
const STEP_7: &str = "
INSERT OR IGNORE INTO event_kind_count VALUES (8, 0, 0),
  (16, 0, 0), (17, 0, 0), (18, 0, 0), (23, 0, 0), (24, 0, 0),
  (32, 0, 0), (33, 0, 0), (34, 0, 0), (39, 0, 0), (40, 0, 0);
ALTER TABLE event ADD COLUMN cause INTEGER GENERATED ALWAYS AS (kind / 16) VIRTUAL;
ALTER TABLE event ADD COLUMN cause_id TEXT;
ALTER TABLE event ADD COLUMN cause_package TEXT;
CREATE INDEX event_cause_id ON event (cause_id, agent, found_us, kind, cause_package)
  WHERE cause_id IS NOT NULL;
";

/// The last report of each kind of each agent, and the version of its last description of itself
/// that named a dataset.
const STEP_8: &str = "
CREATE TABLE report (
  agent INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  at_us INTEGER NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (agent, kind)
) STRICT;
ALTER TABLE collection ADD COLUMN described_version INTEGER NOT NULL DEFAULT 0;
";

/// The events that opened a gap which has not ended. `gap` is the agent's id of it, and empty for the
/// absence of the agent, which the server reports.
const STEP_9: &str = "
CREATE TABLE open_gap (
  agent INTEGER NOT NULL,
  gap TEXT NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (agent, gap)
) STRICT, WITHOUT ROWID;
CREATE INDEX open_gap_absence ON open_gap (number) WHERE gap = '';
INSERT INTO open_gap SELECT agent, '', max(number) FROM event WHERE kind = 5 GROUP BY agent;
";

/// Programs that may have made a change, where `event.process` does not name the only one.
const STEP_10: &str = "
CREATE TABLE candidate (
  name TEXT NOT NULL,
  event_found_us INTEGER NOT NULL,
  event_number INTEGER NOT NULL,
  PRIMARY KEY (name, event_found_us, event_number)
) STRICT, WITHOUT ROWID;
CREATE INDEX candidate_event ON candidate (event_number);
";

/// The number of changes of each document. Rows are not rewritten: those before this step have none.
const STEP_11: &str = "
ALTER TABLE document ADD COLUMN changes INTEGER NOT NULL DEFAULT 0;
";

/// From this version on, every change comes from a record of the journal. The tables stay the same.
const STEP_12: &str = "";

/// Returns the newest version that this program knows.
pub(crate) fn version() -> i64 {
    STEPS.len() as i64
}

/// Migrates the database to the newest version. Returns true if it was empty before.
///
/// # Errors
/// Returns an error if it is newer than this program, belongs to something else, or a step fails.
pub(crate) fn migrate(db: &mut Connection, file: &Path) -> Result<bool, StateError> {
    let number = |name: &str| db.query_row(&format!("PRAGMA {name}"), [], |r| r.get::<_, i64>(0));
    let found = number("user_version").context("read the version of the state")?;
    let owner = number("application_id").context("read the owner of the state")?;
    let not_ours =
        |reason: &str| StateError::NotOurs { path: file.to_owned(), reason: reason.into() };
    if found > version() && owner == APPLICATION_ID {
        return Err(StateError::Newer { path: file.to_owned(), found, known: version() });
    }
    if found == 0 {
        let tables: i64 = db
            .query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))
            .context("read the tables of the state")?;
        if tables != 0 {
            return Err(not_ours("a database of another program"));
        }
    } else if owner != APPLICATION_ID {
        return Err(not_ours("not a state database"));
    }
    for (step, sql) in STEPS.iter().enumerate().skip(found.max(0) as usize) {
        let what = format!("migrate the state to version {}", step + 1);
        let tx = db.transaction().context(&what)?;
        tx.execute_batch(sql).context(&what)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID).context(&what)?;
        tx.pragma_update(None, "user_version", step as i64 + 1).context(&what)?;
        tx.commit().context(&what)?;
    }
    Ok(found == 0)
}
