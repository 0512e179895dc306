//! Logs of other projects.

#![cfg_attr(
    not(all(has_rocksdb, has_wiredtiger)),
    allow(dead_code, unused_imports, reason = "a peer that is a C library is not here")
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::anyhow;
use okaywal::{Entry, EntryId, LogManager, SegmentReader, WriteAheadLog};
use raft_engine::{Config, Engine, LogBatch, ReadableSize};

use crate::subject::Log;

const ERROR_BYTES: usize = 256;

/// Returns the error message of a C peer as an error.
fn peer_error(error: &[c_char; ERROR_BYTES]) -> anyhow::Error {
    // SAFETY: the peers terminate their message with a zero inside the buffer, which was all zeros.
    let text = unsafe { CStr::from_ptr(error.as_ptr()) };
    anyhow!("{}", text.to_string_lossy())
}

fn path(folder: &Path) -> anyhow::Result<CString> {
    Ok(CString::new(folder.as_os_str().as_bytes())?)
}

#[cfg(has_rocksdb)]
unsafe extern "C" {
    fn peer_rocksdb_open(
        folder: *const c_char,
        sync: c_int,
        error: *mut c_char,
        room: usize,
    ) -> *mut c_void;
    fn peer_rocksdb_put(
        peer: *mut c_void,
        record: *const u8,
        bytes: usize,
        error: *mut c_char,
        room: usize,
    ) -> c_int;
    fn peer_rocksdb_close(peer: *mut c_void);
}

#[cfg(has_rocksdb)]
struct RocksDb(*mut c_void);

// SAFETY: a RocksDB handle may be used from any thread.
#[cfg(has_rocksdb)]
unsafe impl Sync for RocksDb {}

#[cfg(has_rocksdb)]
impl Log for RocksDb {
    fn append_record(&self, _: usize, record: &[u8]) -> anyhow::Result<()> {
        let mut error = [0; ERROR_BYTES];
        // SAFETY: the handle is open; record and error are valid for the call.
        let code = unsafe {
            peer_rocksdb_put(self.0, record.as_ptr(), record.len(), error.as_mut_ptr(), ERROR_BYTES)
        };
        if code == 0 { Ok(()) } else { Err(peer_error(&error)) }
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        // SAFETY: closed once, and not used afterwards.
        unsafe { peer_rocksdb_close(self.0) };
        Ok(())
    }
}

#[cfg(has_rocksdb)]
pub fn rocksdb(folder: &Path) -> anyhow::Result<Box<dyn Log>> {
    let mut error = [0; ERROR_BYTES];
    // SAFETY: path and error are valid for the call.
    let peer =
        unsafe { peer_rocksdb_open(path(folder)?.as_ptr(), 1, error.as_mut_ptr(), ERROR_BYTES) };
    if peer.is_null() { Err(peer_error(&error)) } else { Ok(Box::new(RocksDb(peer))) }
}

#[cfg(not(has_rocksdb))]
pub fn rocksdb(_: &Path) -> anyhow::Result<Box<dyn Log>> {
    anyhow::bail!("librocksdb-dev is not installed")
}

#[cfg(has_wiredtiger)]
unsafe extern "C" {
    fn peer_wiredtiger_open(folder: *const c_char, error: *mut c_char, room: usize) -> *mut c_void;
    fn peer_wiredtiger_writer(
        connection: *mut c_void,
        error: *mut c_char,
        room: usize,
    ) -> *mut c_void;
    fn peer_wiredtiger_put(
        writer: *mut c_void,
        record: *const u8,
        bytes: usize,
        error: *mut c_char,
        room: usize,
    ) -> c_int;
    fn peer_wiredtiger_writer_close(writer: *mut c_void);
    fn peer_wiredtiger_close(connection: *mut c_void);
}

#[cfg(has_wiredtiger)]
struct WiredTiger {
    connection: *mut c_void,
    writers: Vec<*mut c_void>,
}

// SAFETY: each writer's session is used by one thread at a time, the thread with its number.
#[cfg(has_wiredtiger)]
unsafe impl Sync for WiredTiger {}

#[cfg(has_wiredtiger)]
impl Log for WiredTiger {
    fn append_record(&self, writer: usize, record: &[u8]) -> anyhow::Result<()> {
        let mut error = [0; ERROR_BYTES];
        // SAFETY: the writer is open; record and error are valid for the call.
        let code = unsafe {
            peer_wiredtiger_put(
                self.writers[writer],
                record.as_ptr(),
                record.len(),
                error.as_mut_ptr(),
                ERROR_BYTES,
            )
        };
        if code == 0 { Ok(()) } else { Err(peer_error(&error)) }
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        // SAFETY: closed once, writers first, and not used afterwards.
        unsafe {
            for writer in &self.writers {
                peer_wiredtiger_writer_close(*writer);
            }
            peer_wiredtiger_close(self.connection);
        }
        Ok(())
    }
}

#[cfg(has_wiredtiger)]
pub fn wiredtiger(folder: &Path, writers: usize) -> anyhow::Result<Box<dyn Log>> {
    let mut error = [0; ERROR_BYTES];
    // SAFETY: path and error are valid for the call.
    let connection =
        unsafe { peer_wiredtiger_open(path(folder)?.as_ptr(), error.as_mut_ptr(), ERROR_BYTES) };
    if connection.is_null() {
        return Err(peer_error(&error));
    }
    let mut peer = WiredTiger { connection, writers: Vec::new() };
    for _ in 0..writers {
        // SAFETY: the connection is open.
        let writer = unsafe { peer_wiredtiger_writer(connection, error.as_mut_ptr(), ERROR_BYTES) };
        if writer.is_null() {
            return Err(peer_error(&error));
        }
        peer.writers.push(writer);
    }
    Ok(Box::new(peer))
}

#[cfg(not(has_wiredtiger))]
pub fn wiredtiger(_: &Path, _: usize) -> anyhow::Result<Box<dyn Log>> {
    anyhow::bail!("it was not built")
}

struct RaftEngine(Engine);

impl Log for RaftEngine {
    fn append_record(&self, writer: usize, record: &[u8]) -> anyhow::Result<()> {
        let mut batch = LogBatch::default();
        let (key, value) = record.split_at(8);
        batch.put(writer as u64 + 1, key.to_vec(), value.to_vec())?;
        self.0.write(&mut batch, true)?;
        Ok(())
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Opens with the defaults, except that the payload is not compressed, because it is noise.
pub fn raft_engine(folder: &Path) -> anyhow::Result<Box<dyn Log>> {
    let config = Config {
        dir: folder.to_string_lossy().into_owned(),
        batch_compression_threshold: ReadableSize::kb(0),
        ..Config::default()
    };
    Ok(Box::new(RaftEngine(Engine::open(config)?)))
}

/// Entries are not needed again, so a checkpoint is done at once.
#[derive(Debug)]
struct Forget;

impl LogManager for Forget {
    fn recover(&mut self, _: &mut Entry<'_>) -> io::Result<()> {
        Ok(())
    }

    fn checkpoint_to(
        &mut self,
        _: EntryId,
        _: &mut SegmentReader,
        _: &WriteAheadLog,
    ) -> io::Result<()> {
        Ok(())
    }
}

struct OkayWal(WriteAheadLog);

impl Log for OkayWal {
    fn append_record(&self, _: usize, record: &[u8]) -> anyhow::Result<()> {
        let mut entry = self.0.begin_entry()?;
        entry.write_chunk(record)?;
        entry.commit()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        Ok(self.0.shutdown()?)
    }
}

pub fn okaywal(folder: &Path) -> anyhow::Result<Box<dyn Log>> {
    Ok(Box::new(OkayWal(WriteAheadLog::recover(folder, Forget)?)))
}
