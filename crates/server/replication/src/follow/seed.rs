//! Receives the copies that a new follower needs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use reqwest::Method;

use super::client::{Client, RequestFailure, lost};
use super::error::FollowError;
use super::folder::FollowerFolder;
use crate::protocol::HEADER_VERSION;
use crate::seed_source::Part;
use crate::wire::{Decoder, Frame};

/// Folder in which a seed is assembled until it is complete.
const INCOMING: &str = "incoming";

/// Returns true if a file of this name may be written: only the files of a server's data folder may
/// be.
fn is_expected(name: &str) -> bool {
    match name.split_once('/') {
        None => name == "state.db" || name == "registry.db",
        Some((folder, file)) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
            folder == "keys" && !file.starts_with('.') && file.chars().all(plain)
        }
    }
}

/// Fetches a part into `folder`; each file is written atomically. `before_publishing` is called when all
/// files are here, before any gets its final name. Returns the version of the server's protocol.
pub(super) async fn fetch(
    client: &Client,
    follower: &str,
    part: Part,
    folder: &Path,
    before_publishing: impl FnOnce() -> Result<(), FollowError>,
) -> Result<u32, RequestFailure> {
    let incoming = folder.join(INCOMING);
    clear(&incoming)?;
    let name = match part {
        Part::All => "all",
        Part::Keys => "keys",
    };
    let query = [("follower", follower), ("part", name)];
    let mut answer = client.send_checked(Method::POST, "/journal/follow/seed", &query).await?;
    let version = answer.headers().get(HEADER_VERSION).and_then(|value| value.to_str().ok());
    let version = version.and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut decoder = Decoder::default();
    let mut receiver = Receiver::new(&incoming)?;
    while let Some(chunk) = answer.chunk().await.map_err(lost)? {
        decoder.push(&chunk);
        while let Some(frame) =
            decoder.next_frame().map_err(|e| RequestFailure::Lost(e.to_string()))?
        {
            if receiver.accept_frame(frame)? == Received::All {
                before_publishing()?;
                receiver.publish_files(folder)?;
                return Ok(version);
            }
        }
    }
    Err(RequestFailure::Lost("the server broke a seed off; its log says why".into()))
}

fn clear(dir: &Path) -> Result<(), FollowError> {
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(FollowError::file(dir))?;
    }
    Ok(())
}

fn create_private(dir: &Path) -> Result<(), FollowError> {
    fs::DirBuilder::new().mode(0o700).create(dir).map_err(FollowError::file(dir))
}

fn format_error(why: impl Into<String>) -> FollowError {
    FollowError::Format(why.into())
}

/// The files received so far.
struct Receiver {
    incoming: PathBuf,
    names: BTreeSet<String>,
    open: Option<OpenFile>,
}

/// The file being written.
struct OpenFile {
    file: File,
    written_bytes: u64,
    size_bytes: u64,
}

/// The content of a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Received {
    Part,
    /// The last frame of the seed.
    All,
}

impl Receiver {
    fn new(incoming: &Path) -> Result<Self, FollowError> {
        for folder in [incoming, &incoming.join("keys")] {
            create_private(folder)?;
        }
        Ok(Self { incoming: incoming.to_owned(), names: BTreeSet::new(), open: None })
    }

    /// Writes the content of a frame into the incoming folder. After an error the seed is invalid
    /// and must be fetched again from the beginning.
    fn accept_frame(&mut self, frame: Frame) -> Result<Received, FollowError> {
        match frame {
            Frame::File { size, name } => {
                self.finish()?;
                if !is_expected(&name) {
                    return Err(format_error(format!(
                        "the server sent the file {name:?}, which is not expected"
                    )));
                }
                let path = self.incoming.join(&name);
                let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
                let file = file.map_err(FollowError::file(&path))?;
                self.open = Some(OpenFile { file, written_bytes: 0, size_bytes: size });
                self.names.insert(name);
                Ok(Received::Part)
            }
            Frame::Piece { offset, bytes } => {
                let Some(open) = self.open.as_mut().filter(|o| o.written_bytes == offset) else {
                    return Err(format_error("the server sent the pieces of a file out of order"));
                };
                open.file.write_all(&bytes).map_err(FollowError::Seed)?;
                open.written_bytes += bytes.len() as u64;
                Ok(Received::Part)
            }
            Frame::End { files } => {
                self.finish()?;
                if files != self.names.len() as u64 {
                    let sent = self.names.len();
                    return Err(format_error(format!(
                        "the server sent {sent} files instead of {files}"
                    )));
                }
                Ok(Received::All)
            }
            Frame::Record { .. } | Frame::Status { .. } => {
                Err(format_error("the server sent records instead of a seed"))
            }
        }
    }

    /// Completes and syncs the open file, if any; fails if bytes are missing.
    fn finish(&mut self) -> Result<(), FollowError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let (written, size) = (open.written_bytes, open.size_bytes);
        if written != size {
            let why = format!("the server sent {written} bytes of a file of {size}");
            return Err(FollowError::Format(why));
        }
        open.file.sync_all().map_err(FollowError::Seed)
    }

    /// Moves every file to its final name.
    fn publish_files(&self, folder: &Path) -> Result<(), FollowError> {
        let keys = folder.join("keys");
        if self.names.iter().any(|n| n.starts_with("keys/")) && !keys.exists() {
            create_private(&keys)?;
        }
        for name in &self.names {
            let target = folder.join(name);
            fs::rename(self.incoming.join(name), &target).map_err(FollowError::file(&target))?;
        }
        for folder in [folder, &keys] {
            if folder.exists() {
                let synced = File::open(folder).and_then(|folder| folder.sync_all());
                synced.map_err(FollowError::file(folder))?;
            }
        }
        clear(&self.incoming)
    }
}

/// Removes an earlier copy, which the one in `incoming/` replaces.
pub(super) fn wipe(folder: &FollowerFolder) -> Result<(), FollowError> {
    for dir in [&folder.keys, &folder.journal] {
        clear(dir)?;
    }
    for base in [&folder.state_db, &folder.registry_db] {
        for suffix in ["", "-wal", "-shm"] {
            let mut path = base.clone().into_os_string();
            path.push(suffix);
            match fs::remove_file(&path) {
                Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                    return Err(FollowError::File { path: path.into(), cause });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_accepts_only_files_of_a_server_folder() {
        for good in ["state.db", "registry.db", "keys/ca.pem", "keys/follower"] {
            assert!(is_expected(good), "{good}");
        }
        for bad in [
            "",
            "lock",
            "../state.db",
            "keys/../lock",
            "keys/.x",
            "keys/a/b",
            "/etc/passwd",
            "keys",
        ] {
            assert!(!is_expected(bad), "{bad}");
        }
    }
}
