//! The copies that a follower begins with: made on the server, taken here.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use replication::wire::{Decoder, Frame};
use replication::{Part, SeedSource};
use reqwest::Method;
use state::StateStore;

use super::client::{Client, Trouble};
use crate::backup;
use crate::folder::DataFolder;

/// Where a seed is put together until it is complete.
const INCOMING: &str = "incoming";

/// Copies of a server's own files.
pub(crate) struct ServerFiles {
    pub(crate) folder: DataFolder,
    pub(crate) state: Arc<dyn StateStore>,
}

impl SeedSource for ServerFiles {
    fn copy(&self, part: Part, to: &Path) -> Result<Vec<String>, String> {
        self.copy_to(part, &DataFolder::new(to)).map_err(|e| format!("{e:#}"))
    }
}

impl ServerFiles {
    fn copy_to(&self, part: Part, to: &DataFolder) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        if part == Part::All {
            self.state.backup_to(&to.state_db()).context("state")?;
            names.push("state.db".to_owned());
            backup::copy_folder(&self.folder.keys(), &to.keys())?;
            for entry in fs::read_dir(to.keys())? {
                names.push(format!("keys/{}", entry?.file_name().to_string_lossy()));
            }
        }
        // After the state: an agent that the state knows is registered.
        backup::copy_database(&self.folder.registry_db(), &to.registry_db())?;
        names.push("registry.db".to_owned());
        Ok(names)
    }
}

/// Whether a name may be written: the files of a server's data folder and nothing beside.
fn is_expected(name: &str) -> bool {
    match name.split_once('/') {
        None => name == "state.db" || name == "registry.db",
        Some((folder, file)) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
            folder == "keys" && !file.starts_with('.') && file.chars().all(plain)
        }
    }
}

/// Fetch a part into `folder`, each file whole or not at all.
pub(crate) async fn fetch(
    client: &Client,
    follower: &str,
    part: Part,
    folder: &Path,
) -> Result<(), Trouble> {
    let incoming = folder.join(INCOMING);
    clear(&incoming)?;
    let name = match part {
        Part::All => "all",
        Part::Registry => "registry",
    };
    let query = [("follower", follower), ("part", name)];
    let mut answer = client.ask(Method::POST, "/journal/follow/seed", &query).await?;
    let mut decoder = Decoder::default();
    let mut receiver = Receiver::new(&incoming)?;
    while let Some(chunk) = answer.chunk().await? {
        decoder.push(&chunk);
        while let Some(frame) = decoder.take().map_err(|e| Trouble::Lost(e.to_string()))? {
            if receiver.take(frame)? {
                receiver.place(folder)?;
                return Ok(());
            }
        }
    }
    Err(Trouble::Lost("the server broke a seed off; its log says why".into()))
}

fn clear(incoming: &Path) -> anyhow::Result<()> {
    if incoming.exists() {
        fs::remove_dir_all(incoming).with_context(|| incoming.display().to_string())?;
    }
    Ok(())
}

/// Files as they come.
struct Receiver {
    incoming: PathBuf,
    names: BTreeSet<String>,
    /// The file being written, its length so far and in the end.
    open: Option<(File, u64, u64)>,
}

impl Receiver {
    fn new(incoming: &Path) -> anyhow::Result<Self> {
        for folder in [incoming, &incoming.join("keys")] {
            let made = fs::DirBuilder::new().mode(0o700).create(folder);
            made.with_context(|| folder.display().to_string())?;
        }
        Ok(Self { incoming: incoming.to_owned(), names: BTreeSet::new(), open: None })
    }

    /// Take a frame; whether it was the last.
    fn take(&mut self, frame: Frame) -> anyhow::Result<bool> {
        match frame {
            Frame::File { size, name } => {
                self.finish()?;
                if !is_expected(&name) {
                    bail!("the server sent the file {name:?}, which is not expected");
                }
                let path = self.incoming.join(&name);
                let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
                self.open = Some((file.with_context(|| path.display().to_string())?, 0, size));
                self.names.insert(name);
                Ok(false)
            }
            Frame::Piece { offset, bytes } => {
                let Some((file, length, _)) = self.open.as_mut().filter(|o| o.1 == offset) else {
                    bail!("the server sent a piece of a file out of its turn");
                };
                file.write_all(&bytes).context("seed")?;
                *length += bytes.len() as u64;
                Ok(false)
            }
            Frame::End { files } => {
                self.finish()?;
                if files != self.names.len() as u64 {
                    bail!("the server sent {} files instead of {files}", self.names.len());
                }
                Ok(true)
            }
            Frame::Record { .. } | Frame::Status { .. } => {
                bail!("the server sent records instead of a seed")
            }
        }
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let Some((file, length, size)) = self.open.take() else { return Ok(()) };
        if length != size {
            return Err(anyhow!("the server sent {length} bytes of a file of {size}"));
        }
        file.sync_all().context("seed")
    }

    /// Put every file in its place.
    fn place(&self, folder: &Path) -> anyhow::Result<()> {
        let keys = folder.join("keys");
        if self.names.iter().any(|n| n.starts_with("keys/")) && !keys.exists() {
            let made = fs::DirBuilder::new().mode(0o700).create(&keys);
            made.with_context(|| keys.display().to_string())?;
        }
        for name in &self.names {
            let target = folder.join(name);
            fs::rename(self.incoming.join(name), &target)
                .with_context(|| target.display().to_string())?;
        }
        for folder in [folder, &keys] {
            if folder.exists() {
                File::open(folder)?.sync_all().with_context(|| folder.display().to_string())?;
            }
        }
        clear(&self.incoming)
    }
}

/// Remove what an unfinished seed left, so that it can be fetched anew.
pub(crate) fn wipe(folder: &DataFolder) -> anyhow::Result<()> {
    clear(&folder.path().join(INCOMING))?;
    for dir in [folder.keys(), folder.journal()] {
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
    }
    for base in [folder.state_db(), folder.registry_db()] {
        for suffix in ["", "-wal", "-shm"] {
            let mut path = base.clone().into_os_string();
            path.push(suffix);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(e).with_context(|| PathBuf::from(&path).display().to_string());
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
    fn only_a_servers_own_files_are_taken() {
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
