//! The data folder: its layout, and the lock that lets only one process serve it.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use env::random::{Random as _, SystemRandom};
use registry::ControlStore;

/// Prefixes of the names in a data folder; `*.toml` and `lost+found` may be there as well.
const OWN_NAMES: [&str; 15] = [
    "admin-password",
    "agent",
    "clock",
    "config.path",
    "following",
    "holdfast",
    "journal",
    "keys",
    "lock",
    "lost+found",
    "registry.db",
    "restored",
    "rules",
    "series",
    "state.db",
];
/// Number of foreign names that an error lists.
const FOREIGN_TOLD: usize = 3;

/// Returns true if the path exists. A path that cannot be examined is an error, not absence.
pub fn is_there(path: &Path) -> anyhow::Result<bool> {
    path.try_exists().map_err(|e| match e.kind() {
        ErrorKind::PermissionDenied => anyhow::anyhow!(
            "{}: {e}; run this as root or as the user that the folder belongs to",
            path.display()
        ),
        _ => anyhow::Error::new(e).context(path.display().to_string()),
    })
}

/// Returns an error if an agent's folder is a server's data folder.
pub fn expect_no_server(agent: &Path) -> anyhow::Result<()> {
    let server = DataFolder::new(agent);
    if is_there(&server.registry_db())? || is_there(&server.state_db())? {
        bail!("{}: a server's data folder; name another one for the agent", agent.display());
    }
    Ok(())
}

/// A data folder's layout.
#[derive(Debug, Clone)]
pub struct DataFolder(PathBuf);

impl DataFolder {
    /// Returns the layout of a folder, which need not exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Returns the path of the folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the server's journal.
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// Returns the folders that are watched: if one is missing or its disk is full, the server
    /// accepts no records.
    pub fn watched(&self) -> Vec<PathBuf> {
        vec![self.0.clone(), self.journal()]
    }

    /// Returns the path of the database of the agents' reports.
    pub fn state_db(&self) -> PathBuf {
        self.0.join("state.db")
    }

    /// Returns the path of the registry's database.
    pub fn registry_db(&self) -> PathBuf {
        self.0.join("registry.db")
    }

    /// Returns the path of the detection rules.
    pub fn rules(&self) -> PathBuf {
        self.0.join("rules")
    }

    /// Returns the path of the CA and the keys (mode 0700).
    pub fn keys(&self) -> PathBuf {
        self.0.join("keys")
    }

    /// Creates the folder of the keys, readable by its owner only.
    pub fn make_keys(&self) -> anyhow::Result<()> {
        let keys = self.keys();
        fs::create_dir_all(&keys).with_context(|| keys.display().to_string())?;
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o700))
            .with_context(|| keys.display().to_string())
    }

    /// Creates the token that followers of the journal present, readable by its owner only, unless
    /// it exists.
    pub fn make_follower_token(&self) -> anyhow::Result<PathBuf> {
        self.make_secret("follower")
    }

    /// Creates a secret of that name among the keys unless it exists. Returns its file.
    fn make_secret(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.keys().join(name);
        if path.exists() {
            return Ok(path);
        }
        let mut secret = [0; 32];
        SystemRandom.fill_bytes(&mut secret).with_context(|| path.display().to_string())?;
        self.write_secret(&path, &hex::encode(secret))?;
        Ok(path)
    }

    /// Writes a secret, readable by its owner only. After a kill it is complete or absent.
    fn write_secret(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let what = || path.display().to_string();
        let new = path.with_extension("new");
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .with_context(what)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(what)?;
        let folder = path.parent().unwrap_or(&self.0);
        fs::rename(&new, path).and_then(|()| File::open(folder)?.sync_all()).with_context(what)
    }

    /// Returns the path of the guarded time.
    pub fn clock(&self) -> PathBuf {
        self.0.join("clock.json")
    }

    /// Returns the existing files that are written while a server runs.
    pub fn data_files(&self) -> Vec<PathBuf> {
        let wal = |database: PathBuf| [database.clone(), database.with_extension("db-wal")];
        let mut files = [wal(self.state_db()), wal(self.registry_db())].concat();
        let series = self.series();
        for folder in [self.journal(), series.join("log"), series.join("parts"), series] {
            let Ok(entries) = fs::read_dir(folder) else { continue };
            files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        }
        files.retain(|path| path.is_file() && !path.ends_with("lock"));
        files
    }

    /// Returns an error if a `holdfast series serve` has the series store open.
    pub fn expect_no_series(&self) -> anyhow::Result<()> {
        let path = self.series().join("lock");
        let Ok(lock) = File::options().write(true).open(&path) else { return Ok(()) };
        if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            bail!(
                "{}: the series store is in use; stop `holdfast series serve` first",
                path.display()
            );
        }
        Ok(())
    }

    /// Returns an error unless a server or a series store has run in it.
    pub fn expect_data(&self) -> anyhow::Result<()> {
        if is_there(&self.series())? {
            return Ok(());
        }
        self.expect_server()
    }

    /// Returns the path of the series store.
    pub fn series(&self) -> PathBuf {
        self.0.join("series")
    }

    /// Returns the path of the file with the first administrator's password.
    pub fn first_password(&self) -> PathBuf {
        self.0.join("admin-password")
    }

    /// Stores the first administrator's password, readable by its owner only. Returns its file.
    pub fn store_first_password(&self, password: &str) -> anyhow::Result<PathBuf> {
        let path = self.first_password();
        self.write_secret(&path, &format!("{password}\n"))?;
        Ok(path)
    }

    /// Returns the path of the file that names the configuration of the server.
    pub fn config_path(&self) -> PathBuf {
        self.0.join("config.path")
    }

    /// Records the configuration that the server was started with, so that backups include it.
    pub fn record_config(&self, file: &Path) -> anyhow::Result<()> {
        let file = file.canonicalize().with_context(|| file.display().to_string())?;
        let (path, bytes) = (self.config_path(), file.as_os_str().as_bytes());
        if fs::read(&path).is_ok_and(|recorded| recorded == bytes) {
            return Ok(());
        }
        fs::write(&path, bytes).with_context(|| path.display().to_string())
    }

    /// Returns the configuration that the server was started with last, if it was started with one.
    pub fn recorded_config(&self) -> Option<PathBuf> {
        fs::read(self.config_path()).ok().map(|bytes| PathBuf::from(OsString::from_vec(bytes)))
    }

    /// Returns the path of the configuration for `holdfast series serve`.
    pub fn series_toml(&self) -> PathBuf {
        self.0.join("series.toml")
    }

    /// Returns the token for the series store's ports on addresses other than loopback. Creates it,
    /// readable by its owner only, unless it exists.
    pub fn series_token(&self) -> anyhow::Result<ingest::Token> {
        let path = self.make_secret("series")?;
        let text = env::regular::read_text(&path).with_context(|| path.display().to_string())?;
        ingest::Token::new(&text)
            .with_context(|| format!("{}: not a token: one word of ASCII", path.display()))
    }

    /// Returns the path of the local agent's folder (`holdfast up`).
    pub fn agent(&self) -> PathBuf {
        self.0.join("agent")
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("holdfast.sock")
    }

    /// Returns the path of the marker for a state that was restored from a backup and continues
    /// without its old journal.
    pub fn restored_marker(&self) -> PathBuf {
        self.0.join("restored")
    }

    /// Creates the folder (0750) unless it exists. Refuses a folder that holds other files.
    pub fn make(&self) -> anyhow::Result<()> {
        if is_there(&self.0)? {
            return self.expect_fit();
        }
        let what = || format!("data folder {}: cannot be made", self.0.display());
        fs::create_dir_all(&self.0).with_context(what)?;
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o750)).with_context(what)
    }

    /// Creates the folder (0750) and takes its lock, which is held until the result is dropped.
    pub fn claim(&self) -> anyhow::Result<File> {
        self.make()?;
        for database in [self.state_db(), self.registry_db()] {
            expect_writable(&database)?;
        }
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
                    "data folder {}: in use by another holdfast; stop it or name another folder",
                    self.0.display()
                )
            }
            Err(TryLockError::Error(e)) => Err(e).with_context(|| path.display().to_string()),
        }
    }

    /// Returns an error unless it is a data folder; for commands that only read.
    pub fn expect(&self) -> anyhow::Result<()> {
        if is_there(&self.agent())? {
            return Ok(());
        }
        self.expect_server()
    }

    /// Returns an error unless a server has run in it.
    pub fn expect_server(&self) -> anyhow::Result<()> {
        if is_there(&self.registry_db())? {
            return Ok(());
        }
        bail!("{} is not a data folder of a server; name it with --data", self.0.display())
    }

    /// Returns an error if the registry's database is missing but data that depends on it exists.
    /// In a new folder, creates the database before anything else, so that data without it always
    /// means that it was lost.
    pub fn expect_registry(&self) -> anyhow::Result<()> {
        let database = self.registry_db();
        if is_there(&database)? && fs::metadata(&database)?.len() > 0 {
            return Ok(());
        }
        for beside in [self.state_db(), self.journal(), self.keys().join("ca.key")] {
            if is_there(&beside)? {
                bail!(
                    "{}: missing or empty, but {} is there: without it users, agents and their \
                     numbers are lost; move the data folder away and put the last backup in its \
                     place with `holdfast restore`, or begin with an empty folder",
                    database.display(),
                    beside.display()
                );
            }
        }
        let made = ControlStore::open(&database).map(drop);
        made.with_context(|| database.display().to_string())
    }

    /// Returns an error unless an existing folder is, or may become, a data folder.
    fn expect_fit(&self) -> anyhow::Result<()> {
        let folder = self.0.display();
        if !self.0.is_dir() {
            bail!("data folder {folder}: a file; name a folder");
        }
        for name in ["agent.json", "agent.db", "key.pem"] {
            if is_there(&self.0.join(name))? {
                bail!("{folder}: an agent's folder; name another one");
            }
        }
        for own in [self.registry_db(), self.state_db(), self.series()] {
            if is_there(&own)? {
                return Ok(());
            }
        }
        let mut foreign = Vec::new();
        for entry in fs::read_dir(&self.0).with_context(|| folder.to_string())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let is_toml = Path::new(&name).extension().is_some_and(|e| e == "toml");
            if !is_toml && !OWN_NAMES.iter().any(|own| name.starts_with(own)) {
                foreign.push(name);
            }
        }
        if foreign.is_empty() {
            return Ok(());
        }
        foreign.sort();
        foreign.truncate(FOREIGN_TOLD);
        let names = model::path::show_terminal(foreign.join(", ").as_bytes());
        bail!(
            "{folder}: holds files that are not Holdfast's ({names}); name a new or an empty folder"
        )
    }
}

/// Returns an error if the file exists and this user cannot write it.
fn expect_writable(path: &Path) -> anyhow::Result<()> {
    let Ok(found) = fs::metadata(path) else { return Ok(()) };
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(|e| {
        anyhow::anyhow!(
            "{}: {e}: its mode is {:04o} and its owner {}; make it writable for the user that runs \
             this",
            path.display(),
            found.permissions().mode() & 0o7777,
            found.uid(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_folder_lock_is_exclusive() {
        let dir = tempfile::tempdir().unwrap();
        let folder = DataFolder::new(dir.path().join("data"));
        let held = folder.claim().unwrap();
        let error = folder.claim().unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
        drop(held);
        folder.claim().unwrap();
    }

    #[test]
    fn claim_refuses_a_folder_with_foreign_files() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |expected: &str| {
            let error = DataFolder::new(dir.path()).claim().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!dir.path().join("lock").exists(), "something was made");
        };
        fs::write(dir.path().join("server.toml"), "").unwrap();
        fs::write(dir.path().join("thesis.txt"), "").unwrap();
        refused("thesis.txt");
        fs::rename(dir.path().join("thesis.txt"), dir.path().join("agent.db")).unwrap();
        refused("an agent's folder");
        fs::rename(dir.path().join("agent.db"), dir.path().join("state.db-wal")).unwrap();
        DataFolder::new(dir.path()).claim().unwrap();
        fs::write(dir.path().join("state.db"), "").unwrap();
        let error = expect_no_server(dir.path()).unwrap_err().to_string();
        assert!(error.contains("a server's data folder"), "{error}");
        fs::write(dir.path().join("core.4711"), "").unwrap();
        DataFolder::new(dir.path()).claim().expect("a data folder and another file");
    }

    #[test]
    fn expect_names_a_folder_that_is_not_a_data_folder() {
        let dir = tempfile::tempdir().unwrap();
        let error = DataFolder::new(dir.path()).expect().unwrap_err().to_string();
        assert!(error.contains("not a data folder"), "{error}");
    }
}
