//! The marker of a folder that follows a server: the server, the follower's name and the store.

use std::fs::{self, File};
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use env::random::{Random as _, SystemRandom};
use serde::{Deserialize, Serialize};

use super::error::FollowError;

/// Maximum bytes of the host's name in a follower's name.
const HOST_BYTES_MAX: usize = 30;

/// The marker of a folder that follows, stored in the file `following`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The follower's name at the server.
    pub name: String,
    /// Address at which the server was last followed.
    pub from: String,
    /// The copies of the server's files are complete. Until then everything in the folder is fetched
    /// again.
    pub seeded: bool,
    /// Version of the protocol by which they were fetched: below the present one, they lack decisions.
    #[serde(default)]
    pub version: u32,
    /// The setting `keys` of the server when its keys were last fetched.
    #[serde(default)]
    pub keys: Option<String>,
}

impl Marker {
    fn path(folder: &Path) -> PathBuf {
        folder.join("following")
    }

    /// Returns the marker of a folder that follows for the first time, on a host of this name.
    pub(super) fn new(from: &str, host: &str) -> Result<Self, FollowError> {
        let host: String = host
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
            .take(HOST_BYTES_MAX)
            .collect();
        let number = SystemRandom.next_u64().map_err(FollowError::Random)? as u32;
        let name = format!("{host}-{number:08x}");
        Ok(Self { name, from: from.into(), seeded: false, version: 0, keys: None })
    }

    /// Loads the marker of a folder; `None` if it does not follow.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or parsed.
    pub fn load(folder: &Path) -> Result<Option<Self>, FollowError> {
        let path = Self::path(folder);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|cause| FollowError::Marker { path, cause }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(FollowError::File { path, cause }),
        }
    }

    /// Stores the marker durably.
    pub(super) fn store(&self, folder: &Path) -> Result<(), FollowError> {
        let path = Self::path(folder);
        let new = path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(FollowError::file(&path))
    }

    /// Removes the marker, so that the folder no longer follows; survives a power cut.
    pub(super) fn remove(folder: &Path) -> Result<(), FollowError> {
        let path = Self::path(folder);
        fs::remove_file(&path)
            .and_then(|()| File::open(folder)?.sync_all())
            .map_err(FollowError::file(&path))
    }
}
