//! Decodes what a read of a fanotify group returns: a sequence of notifications, each with the
//! records that name a directory, an entry in it and the changed object.
//!
//! Pure and without allocation: everything borrows from the buffer. The layout is the one of
//! `linux/fanotify.h`, version 3. Bytes that do not follow it end the sequence with an error.

use thiserror::Error;

/// Version of the layout.
const VERSION: u8 = 3;
/// Bytes before the first record of a notification.
const HEAD_BYTES: usize = 24;
/// Bytes of a record's type and length.
const RECORD_HEAD_BYTES: usize = 4;
/// Bytes of a handle before the file system's own part: its identifier, a length and a type.
pub const HANDLE_HEAD_BYTES: usize = 16;
/// Longest part of a handle that a file system defines.
pub const HANDLE_BYTES_MAX: usize = 128;

/// Record with the handle of the changed object.
const OBJECT: u8 = 1;
/// Record with a directory's handle and an entry's name.
const DIRECTORY_AND_NAME: u8 = 2;
/// Record with a directory's handle alone.
const DIRECTORY: u8 = 3;
/// Record with the place that an entry was moved from.
const OLD_NAME: u8 = 10;
/// Record with the place that an entry was moved to.
const NEW_NAME: u8 = 12;

/// Name by which the kernel reports a directory itself.
pub const ITSELF: &[u8] = b".";

/// Bytes that are no notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The layout of another kernel interface.
    #[error("notifications have version {0}, expected 3: watch by scan on this kernel")]
    Version(u8),
    /// A length that leads out of the buffer or of the notification.
    #[error("a notification is cut off or has a wrong length")]
    Length,
    /// A name without its terminating zero byte.
    #[error("the name in a notification has no end")]
    Name,
}

/// Identity of a directory or file: the file system's identifier, then the length, type and bytes
/// of the handle, exactly as in a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle<'a>(pub &'a [u8]);

/// An entry of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    pub directory: Handle<'a>,
    /// The entry's name; [`ITSELF`] for the directory.
    pub name: &'a [u8],
}

/// One notification of the kernel. Changes of one object that were made before a read are merged,
/// so the mask may have several bits and says nothing about their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notification<'a> {
    /// The `FAN_*` bits.
    pub mask: u64,
    /// Process that made the change; 0 if it is not reported.
    pub pid: u32,
    /// The changed entry; for a rename, the place it was moved from.
    pub entry: Option<Entry<'a>>,
    /// For a rename, the place it was moved to.
    pub moved_to: Option<Entry<'a>>,
    /// The changed object.
    pub object: Option<Handle<'a>>,
}

/// Returns the notifications in the bytes of one read.
pub fn decode(buffer: &[u8]) -> Notifications<'_> {
    Notifications { rest: buffer }
}

/// An iterator over the notifications of one read. Nothing follows an error.
#[derive(Debug, Clone)]
pub struct Notifications<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Notifications<'a> {
    type Item = Result<Notification<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let next = split(self.rest).and_then(|(head, rest)| {
            self.rest = rest;
            notification(head)
        });
        if next.is_err() {
            self.rest = &[];
        }
        Some(next)
    }
}

/// Splits off the first notification.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let length = u32_at(bytes, 0)? as usize;
    if length < HEAD_BYTES {
        return Err(DecodeError::Length);
    }
    bytes.split_at_checked(length).ok_or(DecodeError::Length)
}

fn notification(bytes: &[u8]) -> Result<Notification<'_>, DecodeError> {
    let version = *bytes.get(4).ok_or(DecodeError::Length)?;
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let head_bytes = usize::from(u16_at(bytes, 6)?);
    let mask = u64::from_ne_bytes(array(bytes, 8)?);
    let pid = i32::from_ne_bytes(array(bytes, 20)?);
    let pid = u32::try_from(pid).unwrap_or_default();
    let mut found = Notification { mask, pid, ..Notification::default() };
    if head_bytes < HEAD_BYTES {
        return Err(DecodeError::Length);
    }
    let mut records = bytes.get(head_bytes..).ok_or(DecodeError::Length)?;
    while !records.is_empty() {
        let length = usize::from(u16_at(records, 2)?);
        if length < RECORD_HEAD_BYTES {
            return Err(DecodeError::Length);
        }
        let (record, rest) = records.split_at_checked(length).ok_or(DecodeError::Length)?;
        add_record(&mut found, record)?;
        records = rest;
    }
    Ok(found)
}

/// Adds the content of a record. Records of other types are skipped.
fn add_record<'a>(found: &mut Notification<'a>, record: &'a [u8]) -> Result<(), DecodeError> {
    let kind = *record.first().ok_or(DecodeError::Length)?;
    if ![OBJECT, DIRECTORY_AND_NAME, DIRECTORY, OLD_NAME, NEW_NAME].contains(&kind) {
        return Ok(());
    }
    let content = record.get(RECORD_HEAD_BYTES..).ok_or(DecodeError::Length)?;
    let handle_bytes = u32_at(content, 8)? as usize;
    if handle_bytes > HANDLE_BYTES_MAX {
        return Err(DecodeError::Length);
    }
    let (handle, rest) =
        content.split_at_checked(HANDLE_HEAD_BYTES + handle_bytes).ok_or(DecodeError::Length)?;
    let directory = Handle(handle);
    match kind {
        OBJECT => found.object = Some(directory),
        DIRECTORY => found.entry = Some(Entry { directory, name: ITSELF }),
        NEW_NAME => found.moved_to = Some(Entry { directory, name: name(rest)? }),
        _ => found.entry = Some(Entry { directory, name: name(rest)? }),
    }
    Ok(())
}

/// Returns the bytes before the first zero byte.
fn name(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let end = bytes.iter().position(|b| *b == 0).ok_or(DecodeError::Name)?;
    match bytes.get(..end) {
        Some(name) if !name.is_empty() => Ok(name),
        _ => Err(DecodeError::Name),
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], DecodeError> {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or(DecodeError::Length)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, DecodeError> {
    array(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, DecodeError> {
    array(bytes, at).map(u32::from_ne_bytes)
}
