//! The data folder: what lies where, and that only one process serves it.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use env::random::{Random as _, SystemRandom};

/// A data folder's layout.
#[derive(Debug, Clone)]
pub(crate) struct DataFolder(PathBuf);

impl DataFolder {
    /// A folder, existing or not.
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The folder itself.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The server's journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// What agents tell.
    pub(crate) fn state_db(&self) -> PathBuf {
        self.0.join("state.db")
    }

    /// What people decide.
    pub(crate) fn registry_db(&self) -> PathBuf {
        self.0.join("registry.db")
    }

    /// The detection rules.
    pub(crate) fn rules(&self) -> PathBuf {
        self.0.join("rules")
    }

    /// The CA and the keys; 0700.
    pub(crate) fn keys(&self) -> PathBuf {
        self.0.join("keys")
    }

    /// Let the next start go on without the journal's missing records.
    pub(crate) fn mark_restored(&self) -> anyhow::Result<()> {
        let path = self.restored_marker();
        let what = || path.display().to_string();
        File::create(&path).and_then(|file| file.sync_all()).with_context(what)?;
        File::open(&self.0).and_then(|folder| folder.sync_all()).with_context(what)
    }

    /// Make the folder of the keys, readable by its owner alone.
    pub(crate) fn make_keys(&self) -> anyhow::Result<()> {
        let keys = self.keys();
        fs::create_dir_all(&keys).with_context(|| keys.display().to_string())?;
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o700))
            .with_context(|| keys.display().to_string())
    }

    /// Make the token that followers of the journal show, readable by its owner alone, unless
    /// there is one.
    pub(crate) fn make_follower_token(&self) -> anyhow::Result<PathBuf> {
        self.make_secret("follower")
    }

    /// Make a secret of that name among the keys, unless there is one; its file.
    fn make_secret(&self, name: &str) -> anyhow::Result<PathBuf> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.keys().join(name);
        let what = || path.display().to_string();
        if path.exists() {
            return Ok(path);
        }
        let mut secret = [0; 32];
        SystemRandom.fill(&mut secret).with_context(what)?;
        let text = hex::encode(secret);
        // Whole or not at all, also through a kill.
        let new = path.with_extension("new");
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .with_context(what)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(what)?;
        fs::rename(&new, &path)
            .and_then(|()| File::open(self.keys())?.sync_all())
            .with_context(what)?;
        Ok(path)
    }

    /// The series store.
    pub(crate) fn series(&self) -> PathBuf {
        self.0.join("series")
    }

    /// The configuration of a series store that runs alone.
    pub(crate) fn series_toml(&self) -> PathBuf {
        self.0.join("series.toml")
    }

    /// What callers of the series store's ports show where those are not on a loopback address;
    /// made, readable by its owner alone, unless it is there.
    pub(crate) fn series_token(&self) -> anyhow::Result<ingest::Token> {
        let path = self.make_secret("series")?;
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        ingest::Token::new(&text)
            .with_context(|| format!("{}: not a token: one word of ASCII", path.display()))
    }

    /// The local agent of `holdfast up`.
    pub(crate) fn agent(&self) -> PathBuf {
        self.0.join("agent")
    }

    /// Local callers.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("holdfast.sock")
    }

    /// Says that the state was restored from a backup and goes on without its old journal.
    pub(crate) fn restored_marker(&self) -> PathBuf {
        self.0.join("restored")
    }

    /// Make it (0750) and take its lock, which lasts as long as the result.
    pub(crate) fn claim(&self) -> anyhow::Result<File> {
        fs::create_dir_all(&self.0).with_context(|| format!("data folder {}", self.0.display()))?;
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o750))
            .with_context(|| format!("data folder {}", self.0.display()))?;
        let path = self.0.join("lock");
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                bail!(
                    "data folder {}: in use by another holdfast; stop it or take another --data",
                    self.0.display()
                )
            }
            Err(TryLockError::Error(e)) => Err(e).with_context(|| path.display().to_string()),
        }
    }

    /// That it is one, for commands that only look.
    pub(crate) fn expect(&self) -> anyhow::Result<&Self> {
        if self.registry_db().exists() || self.agent().exists() {
            return Ok(self);
        }
        bail!("{} is not a data folder; name it with --data", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_claimed_once() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DataFolder::new(dir.path().join("data"));
        let held = folder.claim().unwrap();
        let error = folder.claim().unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
        drop(held);
        folder.claim().unwrap();
    }

    #[test]
    fn a_folder_of_something_else_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = DataFolder::new(dir.path()).expect().unwrap_err().to_string();
        assert!(error.contains("not a data folder"), "{error}");
    }
}
