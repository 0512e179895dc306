//! The dpkg status database: `var/lib/dpkg/status`, and the time of `info/NAME.list` next to it.
//!
//! The third word of a package's status decides whether it is installed. The first word, which says
//! what dpkg is to do with it, is ignored: a package on hold or selected for removal is installed.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use model::{PackageBody, path, timestamp};

use crate::deb822::{Fault, Stanza, Stanzas};
use crate::error::InventoryError;
use crate::limits::{
    ARCHITECTURE_BYTES_MAX, DATABASE_BYTES_MAX, NAME_BYTES_MAX, PACKAGES_MAX, TEXT_BYTES_MAX,
    VERSION_BYTES_MAX,
};

/// Path of the database below the root.
const DATABASE: &str = "var/lib/dpkg";
/// File of the database that lists the packages.
const STATUS: &str = "status";
/// The fields that are read.
const FIELDS: &[&str] = &[
    "Package",
    "Status",
    "Version",
    "Architecture",
    "Multi-Arch",
    "Maintainer",
    "Description",
    "Installed-Size",
    "Source",
    "Section",
    "Priority",
];
/// Unit of `Installed-Size`, bytes.
const SIZE_UNIT_BYTES: u64 = 1024;
const NANOS_PER_S: i64 = 1_000_000_000;
const MICROS_PER_S: u64 = 1_000_000;
/// Time after a write within which another write may leave the file's timestamps unchanged,
/// microseconds.
const RACY_US: u64 = 2 * MICROS_PER_S;

/// Identity of one state of the database file: device, inode, size and times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    text: String,
    changed_us: u64,
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        let times = [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())];
        let [mtime, ctime] = times.map(|(s, ns)| format!("{s}.{ns:09}"));
        let text = format!("{}:{}:{}:{mtime}:{ctime}", meta.dev(), meta.ino(), meta.len());
        let newest = u64::try_from(meta.ctime().max(meta.mtime())).unwrap_or(0);
        Self { text, changed_us: newest.saturating_mul(MICROS_PER_S) }
    }

    /// Returns the stamp as text, to be stored and compared.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if a database that was read at this time (microseconds since the epoch) is
    /// unchanged as long as it has this stamp.
    pub fn is_settled(&self, read_at_us: u64) -> bool {
        self.changed_us.saturating_add(RACY_US) <= read_at_us
    }
}

/// The installed packages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory {
    /// Installed packages by [`PackageBody::key`].
    pub packages: BTreeMap<String, PackageBody>,
    /// Packages that dpkg is changing at present, such as unpacked ones; `None` if the database has
    /// no version of it yet.
    pub moving: BTreeMap<String, Option<PackageBody>>,
}

impl Inventory {
    /// Lets packages in the middle of a change count as installed, with their state: no dpkg runs, so
    /// they stay as they are.
    pub fn settle(&mut self) {
        let moving = std::mem::take(&mut self.moving);
        for (key, package) in moving {
            match package {
                Some(package) => drop(self.packages.insert(key, package)),
                None => drop(self.moving.insert(key, None)),
            }
        }
    }
}

/// The dpkg database below a root.
#[derive(Debug, Clone)]
pub struct Dpkg {
    folder: PathBuf,
}

impl Dpkg {
    /// Returns the database of the system below `root`, usually `/`.
    pub fn new(root: &Path) -> Self {
        Self { folder: root.join(DATABASE) }
    }

    /// Returns the path of the file that lists the packages.
    pub fn path(&self) -> PathBuf {
        self.folder.join(STATUS)
    }

    /// Returns the identity of the database file as it is now.
    ///
    /// # Errors
    /// Returns [`InventoryError::Missing`] or [`InventoryError::Unreadable`].
    pub fn stamp(&self) -> Result<Stamp, InventoryError> {
        let meta = fs::metadata(self.path()).map_err(|e| self.failed(e))?;
        if !meta.is_file() {
            return Err(self.failed(io::Error::other("not a file")));
        }
        Ok(Stamp::of(&meta))
    }

    /// Reads the database. Returns the inventory and the stamp of the file that was read.
    ///
    /// # Errors
    /// Returns any [`InventoryError`]; then nothing is known about any package.
    pub fn read(&self) -> Result<(Inventory, Stamp), InventoryError> {
        // Check the file type first: opening a pipe would block.
        self.stamp()?;
        let file = File::open(self.path()).map_err(|e| self.failed(e))?;
        let meta = file.metadata().map_err(|e| self.failed(e))?;
        if meta.len() > DATABASE_BYTES_MAX {
            return Err(self.limit(0, "the database is too large", DATABASE_BYTES_MAX));
        }
        let opened = Stamp::of(&meta);
        let inventory = self.parse(&mut BufReader::new((&file).take(meta.len())))?;
        let read = Stamp::of(&file.metadata().map_err(|e| self.failed(e))?);
        if read != opened {
            return Err(InventoryError::Changing { path: self.path() });
        }
        Ok((inventory, opened))
    }

    fn parse(&self, input: &mut dyn io::BufRead) -> Result<Inventory, InventoryError> {
        let mut inventory = Inventory::default();
        let mut stanzas = Stanzas::new(input, FIELDS);
        let mut any = false;
        loop {
            let stanza = match stanzas.next_stanza() {
                Ok(Some(stanza)) => stanza,
                Ok(None) => break,
                Err(fault) => return Err(self.fault(stanzas.line(), fault)),
            };
            any = true;
            self.add_package(&mut inventory, &stanza)
                .map_err(|fault| self.fault(stanza.line, fault))?;
        }
        if !any {
            // A system with this database has at least the package dpkg.
            return Err(self.fault(1, Fault::Malformed("no package at all")));
        }
        Ok(inventory)
    }

    /// Adds a package: to `packages` if it is installed, to `moving` if dpkg is changing it. Other
    /// states are skipped.
    fn add_package(&self, inventory: &mut Inventory, stanza: &Stanza) -> Result<(), Fault> {
        let name = word(stanza, "Package", NAME_BYTES_MAX, is_name)?;
        let status = stanza.get("Status").ok_or(Fault::Malformed("a package without a status"))?;
        let state = status.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty()).nth(2);
        let state = state.ok_or(Fault::Malformed("a status of fewer than three words"))?;
        let moving = match state {
            b"installed" => false,
            b"not-installed" | b"config-files" => return Ok(()),
            b"half-installed" | b"unpacked" | b"half-configured" | b"triggers-awaited"
            | b"triggers-pending" => true,
            _ => return Err(Fault::Malformed("a status that dpkg does not know")),
        };
        if moving && stanza.get("Architecture").is_none() {
            // The installation was aborted before anything was unpacked.
            return Ok(());
        }
        let architecture = word(stanza, "Architecture", ARCHITECTURE_BYTES_MAX, is_name)?;
        if inventory.packages.len() + inventory.moving.len() >= PACKAGES_MAX {
            return Err(Fault::Limit("too many packages", PACKAGES_MAX as u64));
        }
        let key = format!("{name}:{architecture}");
        if inventory.packages.contains_key(&key) || inventory.moving.contains_key(&key) {
            return Err(Fault::Malformed("a package that is there already"));
        }
        if moving && stanza.get("Version").is_none() {
            inventory.moving.insert(key, None);
            return Ok(());
        }
        let version = word(stanza, "Version", VERSION_BYTES_MAX, is_version)?;
        let multiarch = text(stanza, "Multi-Arch");
        let body = PackageBody {
            installed: self.installed(&name, &architecture),
            vendor: text(stanza, "Maintainer"),
            description: text(stanza, "Description"),
            size: size(stanza),
            source: text(stanza, "Source"),
            category: text(stanza, "Section"),
            priority: text(stanza, "Priority"),
            kind: "deb".into(),
            multiarch,
            state: moving.then(|| String::from_utf8_lossy(state).into_owned()),
            name,
            version,
            architecture,
        };
        if moving {
            inventory.moving.insert(key, Some(body));
        } else {
            inventory.packages.insert(key, body);
        }
        Ok(())
    }

    /// Returns the time at which the package's list of files was written. Packages of several
    /// architectures have one list each.
    fn installed(&self, name: &str, architecture: &str) -> Option<String> {
        let info = self.folder.join("info");
        let own = fs::symlink_metadata(info.join(format!("{name}:{architecture}.list")));
        let meta = own.or_else(|_| fs::symlink_metadata(info.join(format!("{name}.list")))).ok()?;
        let ns = meta.mtime().checked_mul(NANOS_PER_S)?.checked_add(meta.mtime_nsec())?;
        Some(timestamp::nanos_text(ns))
    }

    fn failed(&self, source: io::Error) -> InventoryError {
        let path = self.path();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                InventoryError::Missing { path }
            }
            _ => InventoryError::Unreadable { path, source },
        }
    }

    fn limit(&self, line: u64, what: &'static str, max: u64) -> InventoryError {
        InventoryError::Limit { path: self.path(), line, what, max }
    }

    fn fault(&self, line: u64, fault: Fault) -> InventoryError {
        match fault {
            Fault::Io(source) => self.failed(source),
            Fault::Limit(what, max) => self.limit(line, what, max),
            Fault::Malformed(what) => {
                InventoryError::Malformed { path: self.path(), line, what: what.into() }
            }
        }
    }
}

/// Returns a required field, if it is short enough and `is_one` accepts it.
fn word(
    stanza: &Stanza,
    field: &'static str,
    bytes_max: usize,
    is_one: fn(&[u8]) -> bool,
) -> Result<String, Fault> {
    let Some(value) = stanza.get(field) else {
        return Err(Fault::Malformed(match field {
            "Package" => "a stanza without a package",
            "Version" => "an installed package without a version",
            _ => "an installed package without an architecture",
        }));
    };
    if value.len() > bytes_max {
        return Err(Fault::Limit("a name or version is too long", bytes_max as u64));
    }
    match std::str::from_utf8(value) {
        Ok(text) if is_one(value) => Ok(text.to_owned()),
        _ => Err(Fault::Malformed("a name, version or architecture with other characters")),
    }
}

/// Returns true for a name of letters, digits and `+-._` that begins with a letter or digit. The
/// name is used in a path, so `/` must not occur.
fn is_name(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_alphanumeric)
        && value.iter().all(|b| b.is_ascii_alphanumeric() || b"+-._".contains(b))
}

fn is_version(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|b| b.is_ascii_alphanumeric() || b".+-:~_".contains(b))
}

/// Returns an optional text for display: escaped, without control characters, and cut to
/// [`TEXT_BYTES_MAX`].
fn text(stanza: &Stanza, field: &str) -> Option<String> {
    let value = stanza.get(field)?;
    let shown = match std::str::from_utf8(value) {
        Ok(text) => text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or(text).into(),
        Err(_) => path::show(value.get(..TEXT_BYTES_MAX).unwrap_or(value)),
    };
    let text: String = shown.chars().filter(|c| !c.is_control()).collect();
    Some(text).filter(|t| !t.is_empty())
}

fn size(stanza: &Stanza) -> Option<u64> {
    let value = std::str::from_utf8(stanza.get("Installed-Size")?).ok()?;
    value.parse::<u64>().ok()?.checked_mul(SIZE_UNIT_BYTES)
}
