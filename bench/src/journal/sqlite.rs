//! SQLite as a log (WAL, synchronous=FULL), with a transaction for each record or for all waiting
//! records.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::anyhow;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use crate::subject::Log;

fn open(folder: &Path) -> anyhow::Result<Connection> {
    let db = Connection::open(folder.join("log.db"))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.execute("CREATE TABLE log(position INTEGER PRIMARY KEY, record BLOB NOT NULL)", [])?;
    Ok(db)
}

const INSERT: &str = "INSERT INTO log(record) VALUES (?)";

/// A transaction for each record.
pub struct OneByOne(Mutex<Connection>);

impl OneByOne {
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self(Mutex::new(open(folder)?)))
    }
}

impl Log for OneByOne {
    fn append_record(&self, _: usize, record: &[u8]) -> anyhow::Result<()> {
        self.0.lock().prepare_cached(INSERT)?.execute([record])?;
        Ok(())
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.0.into_inner().close().map_err(|(_, e)| e.into())
    }
}

/// The writers that wait for one transaction.
#[derive(Default)]
struct Group {
    done: Condvar,
    result: OnceLock<Result<(), String>>,
}

#[derive(Default)]
struct State {
    records: Vec<Vec<u8>>,
    group: Arc<Group>,
    leading: bool,
}

/// A leader writes one transaction for all waiting writers; then one of the next group becomes
/// leader.
pub struct Grouped {
    db: Mutex<Connection>,
    state: Mutex<State>,
}

impl Grouped {
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self { db: Mutex::new(open(folder)?), state: Mutex::default() })
    }

    fn write(&self, records: &[Vec<u8>]) -> rusqlite::Result<()> {
        let mut db = self.db.lock();
        let transaction = db.transaction()?;
        for record in records {
            transaction.prepare_cached(INSERT)?.execute([record])?;
        }
        transaction.commit()
    }
}

impl Log for Grouped {
    fn append_record(&self, _: usize, record: &[u8]) -> anyhow::Result<()> {
        let mut state = self.state.lock();
        state.records.push(record.to_vec());
        let group = Arc::clone(&state.group);
        loop {
            if let Some(result) = group.result.get() {
                return result.clone().map_err(|e| anyhow!(e));
            }
            if state.leading {
                group.done.wait(&mut state);
                continue;
            }
            state.leading = true;
            let records = std::mem::take(&mut state.records);
            let led = std::mem::take(&mut state.group);
            drop(state);
            let result = self.write(&records).map_err(|e| e.to_string());
            state = self.state.lock();
            state.leading = false;
            let _ = led.result.set(result);
            led.done.notify_all();
            state.group.done.notify_one();
        }
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.db.into_inner().close().map_err(|(_, e)| e.into())
    }
}
