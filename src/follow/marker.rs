//! The mark of a folder that follows a server: whom, under which name, which store.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use env::random::{Random as _, SystemRandom};
use serde::{Deserialize, Serialize};

/// Bytes of the host's name in a follower's.
const HOST_BYTES_MAX: usize = 30;

/// What a folder that follows remembers. It stands in `following`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// The follower's name at the server.
    pub(crate) name: String,
    /// Where the server was last followed.
    pub(crate) from: String,
    /// Its copies of the server's files are complete. Until then everything in the folder is to be
    /// fetched anew.
    pub(crate) seeded: bool,
}

impl Marker {
    fn path(folder: &Path) -> PathBuf {
        folder.join("following")
    }

    /// Of a folder that follows for the first time.
    pub(crate) fn new(from: &str) -> anyhow::Result<Self> {
        let host: String = host::system::hostname()
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
            .take(HOST_BYTES_MAX)
            .collect();
        let number = SystemRandom.next_u64()? as u32;
        Ok(Self { name: format!("{host}-{number:08x}"), from: from.into(), seeded: false })
    }

    /// The mark of a folder, if it follows.
    pub(crate) fn load(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = Self::path(folder);
        let what = || format!("{}: not the mark of a follower; restore it", path.display());
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).with_context(what)?)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| path.display().to_string()),
        }
    }

    /// Store it through a power cut.
    pub(crate) fn store(&self, folder: &Path) -> anyhow::Result<()> {
        let path = Self::path(folder);
        let new = path.with_extension("new");
        let write = || -> anyhow::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            Ok(File::open(folder)?.sync_all()?)
        };
        write().with_context(|| path.display().to_string())
    }

    /// The folder follows nobody any more; survives a power cut.
    pub(crate) fn remove(folder: &Path) -> anyhow::Result<()> {
        let path = Self::path(folder);
        fs::remove_file(&path)
            .and_then(|()| File::open(folder)?.sync_all())
            .with_context(|| path.display().to_string())
    }
}
