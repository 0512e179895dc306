//! Key files: written atomically, mode 0600, persisted before they are used.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::RegistryError;

/// Mode of a file that holds a key.
const PRIVATE_MODE: u32 = 0o600;
/// Mode of a file that any user may read.
pub(crate) const PUBLIC_MODE: u32 = 0o644;

/// Reads a text file; `None` when it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, RegistryError> {
    match env::regular::read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(path, &e.to_string())),
    }
}

/// Reads a key file; refuses one that other users may read.
pub(crate) fn read_private(path: &Path) -> Result<Option<String>, RegistryError> {
    if let Ok(meta) = fs::metadata(path)
        && meta.permissions().mode() & 0o077 != 0
    {
        let mode = meta.permissions().mode() & 0o777;
        let why =
            format!("mode {mode:03o} lets others at the key: make it 600, or replace the key");
        return Err(failed(path, &why));
    }
    read(path)
}

/// Returns the SHA-256 of files, one that is missing counts as empty; hexadecimal.
pub(crate) fn digest(folder: &Path, names: &[&str]) -> Result<String, RegistryError> {
    let mut sum = Sha256::new();
    for name in names {
        let text = read(&folder.join(name))?.unwrap_or_default();
        sum.update((text.len() as u64).to_le_bytes());
        sum.update(text);
    }
    Ok(hex::encode(sum.finalize()))
}

/// Writes a key file through a temporary one, so that it is never incomplete.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), RegistryError> {
    write(path, text, PRIVATE_MODE)
}

/// Does the same as [`write_private`], with the given mode.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> Result<(), RegistryError> {
    try_write(path, text, mode).map_err(|e| failed(path, &e.to_string()))
}

fn try_write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let temporary = path.with_extension("new");
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

pub(crate) fn failed(path: &Path, cause: &str) -> RegistryError {
    RegistryError::File { path: path.to_owned(), cause: cause.to_owned() }
}
