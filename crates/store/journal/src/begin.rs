//! A journal that begins at a position other than 1: for a copy that follows another journal and
//! keeps its positions.

use std::path::Path;
use std::sync::Arc;

use env::files::{Files, RealFiles};
use parking_lot::RwLock;

use crate::core::lock;
use crate::error::OpenError;
use crate::folder::Catalog;
use crate::options::{BLOCK_BYTES, IoPath, Layout, Options};
use crate::pool::{Pool, WriteError};
use crate::recover::{examine, refused};
use crate::writer::{Setup, Writer};

/// Size of the segment that only records where the journal begins, in bytes.
const SEGMENT_BYTES: u64 = BLOCK_BYTES as u64 * 4;

/// Creates an empty journal in `dir` whose first record will have `position`. The result survives a
/// power cut. [`crate::Journal::open`] opens it afterwards.
///
/// # Errors
/// Returns an error if `dir` holds a journal already, `position` is 0, or an I/O operation fails.
pub fn begin_at(dir: &Path, position: u64) -> Result<(), OpenError> {
    begin_at_with(&(Arc::new(RealFiles) as Arc<dyn Files>), dir, position)
}

/// Does the same as [`begin_at`], on the given `files`.
///
/// # Errors
/// See [`begin_at`].
pub fn begin_at_with(files: &Arc<dyn Files>, dir: &Path, position: u64) -> Result<(), OpenError> {
    if position == 0 {
        let (name, min, max) = ("position", 1, u64::MAX);
        return Err(OpenError::Option { name, value: position, min, max });
    }
    files.create_dir(dir).map_err(refused(dir, "cannot create the folder"))?;
    let _lock = lock(&**files, dir)?;
    let mut found = examine(&**files, dir, false)?;
    if !found.segments.is_empty() || found.damage.is_some() {
        let text = "it holds a journal already; name an empty folder";
        let exists = std::io::Error::new(std::io::ErrorKind::AlreadyExists, text);
        return Err(refused(dir, "cannot begin a journal")(exists));
    }
    found.next_position = position;
    let options = Options {
        layout: Layout::Packed,
        segment_bytes: SEGMENT_BYTES,
        io: IoPath::Fdatasync,
        fill_ahead_bytes: BLOCK_BYTES as u64,
        spares: 0,
        background: false,
        files: Arc::clone(files),
        ..Options::default()
    };
    let catalog = Arc::new(RwLock::new(Catalog {
        segments: std::collections::VecDeque::new(),
        ring: std::collections::VecDeque::new(),
    }));
    let io = IoPath::Fdatasync;
    let pool = Arc::new(Pool::new(&options, dir.to_owned(), io, found.spares.clone()));
    let setup = Setup { options, dir: dir.to_owned(), io, catalog, pool };
    let mut writer = Writer::new(setup, crate::core::new_journal(dir), &found);
    let begun = writer.roll(0).and_then(|()| writer.close());
    begun.map(|_| ()).map_err(|e| {
        let why = match e {
            WriteError::Refused(e) => e.to_string(),
            WriteError::Fatal(why) => why,
        };
        refused(dir, "cannot begin the journal")(std::io::Error::other(why))
    })
}
