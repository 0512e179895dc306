//! A write-ahead log over bytes: group commit, verified recovery, a meter.

mod error;
mod meter;
mod options;

use std::path::Path;

pub use error::{AppendError, Damage, OpenError, ReadError};
pub use meter::{Cut, Outcome, Recovery, Stats, TrimOutcome};
pub use options::*;

/// A journal, open for writing. Cheap to clone.
#[derive(Clone)]
pub struct Journal {}

/// Reads persisted records in order.
pub struct Reader {}

impl Iterator for Reader {
    type Item = Result<(u64, Vec<u8>), ReadError>;
    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}

#[expect(missing_docs, clippy::missing_errors_doc, clippy::todo, clippy::unused_self)]
impl Journal {
    pub fn open(_dir: &Path, _options: Options) -> Result<(Self, Recovery), OpenError> {
        todo!()
    }
    pub fn append(&self, _record: &[u8], _d: Durability) -> Result<Outcome, AppendError> {
        todo!()
    }
    pub fn append_all(&self, _records: &[&[u8]], _d: Durability) -> Result<Outcome, AppendError> {
        todo!()
    }
    pub async fn append_async(
        &self,
        _records: Vec<Vec<u8>>,
        _d: Durability,
    ) -> Result<Outcome, AppendError> {
        std::future::ready(()).await;
        todo!()
    }
    pub fn read_from(&self, _position: u64) -> Result<Reader, ReadError> {
        todo!()
    }
    pub fn first_position(&self) -> u64 {
        todo!()
    }
    pub fn persisted_position(&self) -> u64 {
        todo!()
    }
    pub fn trim(&self, _below: u64) -> Result<TrimOutcome, AppendError> {
        todo!()
    }
    pub fn stats(&self) -> Stats {
        todo!()
    }
    pub fn close(self) -> Result<(), AppendError> {
        todo!()
    }
}
