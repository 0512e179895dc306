//! The folder of rules: its files, and a cache of their names and contents.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use env::clock::Clock;
use parking_lot::Mutex;

use crate::error::{FolderError, RuleError};
use crate::limits::{FILES_MAX, KEPT_BYTES_MAX, NAME_BYTES_MAX, RULE_BYTES_MAX};
use crate::rule::Rule;
use crate::shipped::SHIPPED;

/// Suffix of a file that is being written.
const UNFINISHED: &str = ".new";

/// One file of the folder.
#[derive(Debug)]
pub struct RuleFile {
    pub name: String,
    /// Content of the file; only its beginning when it is larger than a rule may be.
    pub bytes: Vec<u8>,
    /// The rule, or the error in it.
    pub rule: Result<Rule, RuleError>,
}

/// Hits and misses of the cache since the folder was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FolderCounts {
    /// Requests answered from memory.
    pub hits: u64,
    /// Requests that had to read the folder or a file.
    pub misses: u64,
    pub file_reads: u64,
    /// Times the folder itself was read.
    pub folder_reads: u64,
}

#[derive(Default)]
struct FolderCache {
    /// Incremented by every write.
    generation: u64,
    names: Option<(Duration, Arc<Vec<String>>)>,
    files: HashMap<String, (Duration, Arc<RuleFile>)>,
    bytes: usize,
}

/// The rules files of a server.
pub struct RuleFolder {
    folder: PathBuf,
    ttl: Duration,
    clock: Arc<dyn Clock>,
    kept: Mutex<FolderCache>,
    /// Held during a write.
    writing: Mutex<()>,
    hits: AtomicU64,
    misses: AtomicU64,
    file_reads: AtomicU64,
    folder_reads: AtomicU64,
}

/// Returns true if a rules file may have this name: one plain name that ends in `.yml` or `.yaml`.
pub fn is_name(name: &str) -> bool {
    let stem = name.strip_suffix(".yml").or_else(|| name.strip_suffix(".yaml"));
    name.len() <= NAME_BYTES_MAX
        && stem.is_some_and(|stem| {
            stem.starts_with(|c: char| c.is_ascii_alphanumeric())
                && stem.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        })
}

impl RuleFolder {
    /// Opens the folder, or creates it with the shipped rules if it does not exist. What is read is
    /// cached for `ttl`; with zero nothing is cached.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(folder: &Path, ttl: Duration, clock: Arc<dyn Clock>) -> Result<Self, FolderError> {
        if !folder.exists() {
            ship(folder)?;
        }
        Ok(Self {
            folder: folder.to_owned(),
            ttl,
            clock,
            kept: Mutex::default(),
            writing: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            file_reads: AtomicU64::new(0),
            folder_reads: AtomicU64::new(0),
        })
    }

    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Returns the names of all rules files, sorted.
    ///
    /// # Errors
    /// `Io`.
    pub fn names(&self) -> Result<Arc<Vec<String>>, FolderError> {
        let now = self.clock.monotonic();
        let generation = {
            let kept = self.kept.lock();
            if let Some((at, names)) = &kept.names
                && self.is_fresh(*at, now)
            {
                self.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(Arc::clone(names));
            }
            kept.generation
        };
        self.misses.fetch_add(1, Ordering::Relaxed);
        let names = Arc::new(self.read_names()?);
        let mut kept = self.kept.lock();
        if kept.generation == generation && !self.ttl.is_zero() {
            kept.names = Some((now, Arc::clone(&names)));
        }
        Ok(names)
    }

    /// Returns one file; `None` if there is none of that name or the name is not valid.
    ///
    /// # Errors
    /// `Io`.
    pub fn file(&self, name: &str) -> Result<Option<Arc<RuleFile>>, FolderError> {
        if !is_name(name) {
            return Ok(None);
        }
        let now = self.clock.monotonic();
        let generation = {
            let kept = self.kept.lock();
            if let Some((at, file)) = kept.files.get(name)
                && self.is_fresh(*at, now)
            {
                self.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(Arc::clone(file)));
            }
            kept.generation
        };
        self.misses.fetch_add(1, Ordering::Relaxed);
        let Some(bytes) = self.read_file(name)? else { return Ok(None) };
        let rule = Rule::read(&bytes);
        let file = Arc::new(RuleFile { name: name.to_owned(), bytes, rule });
        let mut kept = self.kept.lock();
        if kept.generation == generation && !self.ttl.is_zero() {
            kept.cache_file(&file, now);
        }
        Ok(Some(file))
    }

    /// Returns every file, by name. A file that is deleted in the meantime is left out.
    ///
    /// # Errors
    /// `Io`.
    pub fn files(&self) -> Result<Vec<Arc<RuleFile>>, FolderError> {
        let names = self.names()?;
        names.iter().filter_map(|name| self.file(name).transpose()).collect()
    }

    /// Writes a rule; durable when it returns. Empties the cache.
    ///
    /// # Errors
    /// `Name`, `Invalid`, `Exists` unless it may be replaced, `SameId`, `Full`, `Io`: then nothing
    /// has changed.
    pub fn write_rule(&self, name: &str, bytes: &[u8], replace: bool) -> Result<(), FolderError> {
        check_name(name)?;
        let rule = Rule::read(bytes)
            .map_err(|cause| FolderError::Invalid { name: name.to_owned(), cause })?;
        let _order = self.writing.lock();
        let names = self.read_names()?;
        let there = names.iter().any(|own| own == name);
        if there && !replace {
            return Err(FolderError::Exists(name.to_owned()));
        }
        if !there && names.len() >= FILES_MAX {
            return Err(FolderError::Full);
        }
        if let Some(other) = self.ids()?.get(&rule.id).filter(|other| *other != name) {
            return Err(FolderError::SameId { id: rule.id, other: other.clone() });
        }
        let written = write(&self.folder, name, bytes);
        self.forget();
        written
    }

    /// Deletes a file; durable when it returns. Empties the cache.
    ///
    /// # Errors
    /// `Missing`, `Name`, `Io`.
    pub fn delete(&self, name: &str) -> Result<(), FolderError> {
        check_name(name)?;
        let _order = self.writing.lock();
        let path = self.folder.join(name);
        let removed = match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(FolderError::Missing(name.to_owned()));
            }
            other => other.and_then(|()| File::open(&self.folder)?.sync_all()),
        };
        self.forget();
        removed.map_err(FolderError::io(&path))
    }

    /// Returns the counts of cache hits and misses.
    pub fn counts(&self) -> FolderCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FolderCounts {
            hits: of(&self.hits),
            misses: of(&self.misses),
            file_reads: of(&self.file_reads),
            folder_reads: of(&self.folder_reads),
        }
    }

    fn is_fresh(&self, at: Duration, now: Duration) -> bool {
        now.saturating_sub(at) < self.ttl
    }

    fn forget(&self) {
        let mut kept = self.kept.lock();
        let generation = kept.generation + 1;
        *kept = FolderCache { generation, ..FolderCache::default() };
    }

    /// Returns the file of each rule's id.
    fn ids(&self) -> Result<BTreeMap<String, String>, FolderError> {
        let files = self.files()?;
        let id =
            |file: &Arc<RuleFile>| Some((file.rule.as_ref().ok()?.id.clone(), file.name.clone()));
        Ok(files.iter().filter_map(id).collect())
    }

    fn read_names(&self) -> Result<Vec<String>, FolderError> {
        self.folder_reads.fetch_add(1, Ordering::Relaxed);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(FolderError::io(&self.folder))? {
            let entry = entry.map_err(FolderError::io(&self.folder))?;
            let plain = entry.file_type().is_ok_and(|kind| kind.is_file());
            if let Some(name) = entry.file_name().to_str().filter(|name| plain && is_name(name)) {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        if names.len() > FILES_MAX {
            tracing::warn!(
                "{}: {} rules files, of which the first {FILES_MAX} are used",
                self.folder.display(),
                names.len()
            );
            names.truncate(FILES_MAX);
        }
        Ok(names)
    }

    /// Reads a file, up to one byte more than the largest rule; `None` if it is not a regular file.
    fn read_file(&self, name: &str) -> Result<Option<Vec<u8>>, FolderError> {
        self.file_reads.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(name);
        // Does not follow a symbolic link or wait for a pipe.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::ELOOP) => return Ok(None),
            Err(e) => return Err(FolderError::io(&path)(e)),
        };
        if !file.metadata().map_err(FolderError::io(&path))?.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.take(RULE_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(FolderError::io(&path))?;
        Ok(Some(bytes))
    }
}

impl FolderCache {
    /// Caches a file while there is room.
    fn cache_file(&mut self, file: &Arc<RuleFile>, now: Duration) {
        let old = self.files.remove(&file.name).map_or(0, |(_, old)| old.bytes.len());
        self.bytes -= old;
        if self.bytes + file.bytes.len() <= KEPT_BYTES_MAX {
            self.bytes += file.bytes.len();
            self.files.insert(file.name.clone(), (now, Arc::clone(file)));
        }
    }
}

fn check_name(name: &str) -> Result<(), FolderError> {
    if is_name(name) {
        return Ok(());
    }
    Err(FolderError::Name(name.chars().take(NAME_BYTES_MAX).collect()))
}

/// Writes a file atomically, also across a power cut.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
    let path = folder.join(name);
    let new = folder.join(format!(".{name}{UNFINISHED}"));
    let written = (|| {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(folder)?.sync_all()
    })();
    written.map_err(|cause| {
        let _ = fs::remove_file(&new);
        FolderError::Io { path, cause }
    })
}

/// Creates the folder with all shipped rules, or does not create it.
fn ship(folder: &Path) -> Result<(), FolderError> {
    let new = folder.with_extension("new");
    let made = (|| {
        if new.exists() {
            fs::remove_dir_all(&new)?;
        }
        fs::create_dir_all(&new)
    })();
    made.map_err(FolderError::io(&new))?;
    for (name, text) in SHIPPED {
        write(&new, name, text.as_bytes())?;
    }
    let parent = folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::rename(&new, folder)
        .and_then(|()| File::open(parent)?.sync_all())
        .map_err(FolderError::io(folder))
}
