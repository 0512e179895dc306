//! Consumers read a journal at their own pace; a checkpoint stores how far each has come.
//!
//! A checkpoint is a file of 24 bytes, replaced by rename; file and rename are persisted before
//! [`Consumer::checkpoint`] returns. A journal is trimmed only below the lowest checkpoint. A
//! journal that ends below the highest is rejected at open, because it lacks records already read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use env::files::{Access, Files};

use crate::bytes::{array, copy_at};
use crate::core::Core;
use crate::error::{AppendError, Damage, OpenError, ReadError};
use crate::folder::{Named, consumer_name, named};
use crate::options::CONSUMER_NAME_BYTES_MAX;
use crate::reader::JournalReader;
use crate::recover::refused;

const MAGIC: [u8; 8] = *b"hfconsum";
const CHECKPOINT_BYTES: usize = 24;

/// Checkpoints by consumer.
#[derive(Debug, Default)]
pub(crate) struct Pins(BTreeMap<String, u64>);

impl Pins {
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.0.values().copied().min()
    }

    pub(crate) fn into_all(self) -> Vec<(String, u64)> {
        self.0.into_iter().collect()
    }

    pub(crate) fn highest(&self) -> Option<(&str, u64)> {
        let highest = self.0.iter().max_by_key(|(_, position)| **position);
        highest.map(|(name, position)| (name.as_str(), *position))
    }
}

fn encode(position: u64) -> [u8; CHECKPOINT_BYTES] {
    let mut bytes = [0; CHECKPOINT_BYTES];
    copy_at(&mut bytes, 0, &MAGIC);
    copy_at(&mut bytes, 8, &position.to_le_bytes());
    let checksum = crc32c::crc32c(bytes.get(..16).unwrap_or_default());
    copy_at(&mut bytes, 16, &checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let position = array(bytes, 8).map(u64::from_le_bytes)?;
    (bytes == encode(position)).then_some(position)
}

/// Reads the checkpoints of a folder.
pub(crate) fn load(files: &dyn Files, dir: &Path, names: &[String]) -> Result<Pins, OpenError> {
    let mut pins = Pins::default();
    for name in names {
        let Named::Consumer(consumer) = named(name) else { continue };
        let path = dir.join(name);
        let open = files.open(&path, Access::READ);
        let file = open.map_err(refused(&path, "cannot open the checkpoint"))?;
        let mut bytes = vec![0; CHECKPOINT_BYTES + 1];
        let read = file.read_at(&mut bytes, 0);
        bytes.truncate(read.map_err(refused(&path, "cannot read the checkpoint"))?);
        let Some(position) = decode(&bytes) else {
            return Err(OpenError::Corrupt(Damage {
                file: path,
                block: 0,
                position: 0,
                what: "the checkpoint of a consumer is damaged".into(),
                records_lost_at_least: 0,
            }));
        };
        pins.0.insert(consumer, position);
    }
    Ok(pins)
}

/// Lowers every checkpoint above `last` to `last`. Returns them with the old positions.
pub(crate) fn lower(
    files: &dyn Files,
    dir: &Path,
    names: &[String],
    last: u64,
) -> Result<Vec<(String, u64)>, OpenError> {
    let mut lowered = load(files, dir, names)?.into_all();
    lowered.retain(|(_, position)| *position > last);
    for (name, _) in &lowered {
        let path = dir.join(consumer_name(name));
        write(files, dir, name, last).map_err(refused(&path, "cannot store the checkpoint"))?;
    }
    Ok(lowered)
}

fn write(files: &dyn Files, dir: &Path, name: &str, position: u64) -> std::io::Result<()> {
    let path = dir.join(consumer_name(name));
    let new = dir.join(format!("{}.new", consumer_name(name)));
    let file = files.open(&new, Access::CREATE)?;
    file.set_size(CHECKPOINT_BYTES as u64)?;
    file.write_all_at(&encode(position), 0)?;
    file.persist()?;
    files.rename(&new, &path)?;
    files.persist_dir(dir)
}

/// A named reader of the journal with a durable checkpoint, above which nothing is trimmed.
pub struct Consumer {
    core: Arc<Core>,
    name: String,
}

impl Consumer {
    /// Finds the consumer `name`, or adds it with a checkpoint just below the oldest record kept.
    pub(crate) fn open(core: &Arc<Core>, name: &str) -> Result<Self, AppendError> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > CONSUMER_NAME_BYTES_MAX || !name.chars().all(good) {
            return Err(AppendError::Io {
                path: name.into(),
                what: "not a name for a consumer",
                cause: format!("use 1 to {CONSUMER_NAME_BYTES_MAX} letters, digits, - and _"),
            });
        }
        let consumer = Self { core: Arc::clone(core), name: name.into() };
        let known = core.pins.lock().0.contains_key(name);
        if !known {
            consumer.store(core.beginning().saturating_sub(1))?;
        }
        Ok(consumer)
    }

    /// Returns the last position that was processed, 0 if there is none.
    pub fn position(&self) -> u64 {
        self.core.pins.lock().0.get(&self.name).copied().unwrap_or(0)
    }

    /// Reads the records after the checkpoint.
    ///
    /// # Errors
    /// See [`crate::Journal::read_from`].
    pub fn read(&self) -> Result<JournalReader, ReadError> {
        JournalReader::new(Arc::clone(&self.core), self.position() + 1)
    }

    /// Stores the checkpoint: everything up to `position` was processed. It survives a power cut.
    ///
    /// # Errors
    /// Returns an error if the position is not persisted yet, or an I/O operation fails.
    pub fn checkpoint(&self, position: u64) -> Result<(), AppendError> {
        if position > self.core.gate.persisted() {
            return Err(AppendError::Io {
                path: consumer_name(&self.name),
                what: "not a checkpoint",
                cause: format!("position {position} is not persisted yet"),
            });
        }
        self.store(position)
    }

    /// Removes this consumer. It no longer prevents any trim.
    ///
    /// # Errors
    /// Returns an error if an I/O operation fails.
    pub fn remove(self) -> Result<(), AppendError> {
        let path = self.core.dir.join(consumer_name(&self.name));
        let mut pins = self.core.pins.lock();
        let removed = self.core.files.remove(&path);
        removed
            .and_then(|()| self.core.files.persist_dir(&self.core.dir))
            .map_err(failed(&path, "cannot remove the checkpoint"))?;
        pins.0.remove(&self.name);
        Ok(())
    }

    fn store(&self, position: u64) -> Result<(), AppendError> {
        let core = &self.core;
        let path = core.dir.join(consumer_name(&self.name));
        let mut pins = core.pins.lock();
        let stored = write(&*core.files, &core.dir, &self.name, position);
        stored.map_err(failed(&path, "cannot store the checkpoint"))?;
        pins.0.insert(self.name.clone(), position);
        Ok(())
    }
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> AppendError {
    let path = path.display().to_string();
    move |e| AppendError::Io { path, what, cause: e.to_string() }
}
