//! Index of dpkg's lists: to which package a path belongs, and the digest of its content. It has
//! only packages that changed recently, or that `dpkg.log` names for a change.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::limits;
use crate::links::Links;
use crate::log::Stamp;
use crate::status::{self, Md5};

/// A path of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Name of the package.
    pub(crate) package: String,
    /// `None` for what is no regular file, and if the package has no digest of it.
    pub(crate) md5: Option<Md5>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    package: u32,
    md5: Option<Md5>,
}

/// The index.
#[derive(Debug)]
pub(crate) struct Lists {
    root: PathBuf,
    folder: PathBuf,
    links: Links,
    /// The folder of the last inserted path, and the same without links.
    last_folder: Option<(Vec<u8>, Vec<u8>)>,
    hasher: RandomState,
    entries: HashMap<u64, Entry>,
    /// Names of the packages in the index.
    packages: Vec<String>,
    /// Files that were read, with the state they had.
    read: HashMap<PathBuf, Option<Stamp>>,
    /// Diverted paths: the new path, and the package whose files stay.
    diversions: HashMap<Vec<u8>, (Vec<u8>, String)>,
    /// True if the configuration files of every package in the index were read.
    has_conffiles: bool,
    /// State of `info` when its recent lists were looked up, and their names.
    recent: Option<(Stamp, Vec<String>)>,
    full: bool,
}

impl Lists {
    /// Returns an empty index of the system below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        Self {
            folder: root.join("var/lib/dpkg"),
            links: Links::new(&root),
            root,
            last_folder: None,
            hasher: RandomState::new(),
            entries: HashMap::new(),
            packages: Vec::new(),
            read: HashMap::new(),
            diversions: HashMap::new(),
            has_conffiles: false,
            recent: None,
            full: false,
        }
    }

    /// Drops everything that was read.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(&self.root);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packages.is_empty()
    }

    /// Returns the packages whose list was written within [`limits::RECENT`], as `NAME` or
    /// `NAME:ARCHITECTURE`.
    pub(crate) fn recent(&mut self) -> Vec<String> {
        let info = self.folder.join("info");
        let Some(stamp) = Stamp::of(&info) else { return Vec::new() };
        if !is_younger(&info, limits::RECENT) {
            return Vec::new();
        }
        // Another list may be written within the resolution of the folder's time.
        let is_settled = !is_younger(&info, Duration::from_secs(2));
        match &self.recent {
            Some((known, recent)) if *known == stamp && is_settled => recent.clone(),
            _ => {
                let recent = recent_lists(&info);
                self.recent = Some((stamp, recent.clone()));
                recent
            }
        }
    }

    /// Reads the lists of these packages, and those of the package that is being unpacked, as far
    /// as they changed since they were read.
    pub(crate) fn load(&mut self, packages: impl IntoIterator<Item = String>) {
        self.last_folder = None;
        self.load_diversions();
        let info = self.folder.join("info");
        for package in packages {
            let name = package.split(':').next().unwrap_or_default();
            let list = info.join(format!("{package}.list"));
            let stem = if list.exists() { package.as_str() } else { name };
            self.load_file(name, &info.join(format!("{stem}.list")), Form::Paths);
            self.load_file(name, &info.join(format!("{stem}.md5sums")), Form::Digests);
        }
        let new = self.folder.join("tmp.ci");
        if self.is_changed(&new.join("control")) {
            let mut package = String::new();
            status::read(&new.join("control"), &|name| !name.is_empty(), &mut |stanza| {
                package = stanza.name;
            });
            if !package.is_empty() {
                self.load_file(&package, &new.join("md5sums"), Form::Digests);
            }
        }
    }

    /// Reads the digests of the configuration files of the packages in the index, if there are new
    /// ones. Call it for files without a digest.
    pub(crate) fn load_conffiles(&mut self) {
        let mut files = vec![self.folder.join("status")];
        if let Ok(names) = fs::read_dir(self.folder.join("updates")) {
            files.extend(names.flatten().map(|entry| entry.path()).take(limits::UPDATES_MAX));
        }
        let changed = files.iter().filter(|file| self.is_changed(file)).count() > 0;
        if !changed && self.has_conffiles {
            return;
        }
        self.has_conffiles = true;
        let mut found = Vec::new();
        for file in files {
            let is_wanted = |name: &str| self.packages.iter().any(|package| package == name);
            status::read(&file, &is_wanted, &mut |stanza| found.push(stanza));
        }
        for stanza in found {
            for (path, md5) in stanza.conffiles {
                self.insert(&stanza.name, path, Some(md5));
            }
        }
    }

    /// Returns the version that the status database has of a package.
    pub(crate) fn version(&self, package: &str) -> Option<String> {
        let mut version = None;
        let file = self.folder.join("status");
        status::read(&file, &|name| name == package, &mut |stanza| version = Some(stanza.version));
        version
    }

    /// Returns the package of an absolute path.
    pub(crate) fn find(&self, path: &[u8]) -> Option<Member> {
        if self.entries.is_empty() {
            return None;
        }
        let root = self.root.as_os_str().as_bytes();
        let below = if root == b"/" { path } else { path.strip_prefix(root)? };
        let (folder, name) = split(below)?;
        let hash = self.hash(&self.links.resolve(folder), name);
        let Entry { package, md5 } = *self.entries.get(&hash)?;
        let package = self.packages.get(package as usize)?.clone();
        Some(Member { package, md5 })
    }

    fn load_file(&mut self, package: &str, file: &Path, form: Form) {
        if !self.is_changed(file) {
            return;
        }
        let Some(text) = read_file(file) else { return };
        self.has_conffiles = false;
        for line in text.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let found = match form {
                Form::Paths => Some((line.to_vec(), None)),
                Form::Digests => status::md5sum(line).map(|(path, md5)| (path, Some(md5))),
            };
            if let Some((path, md5)) = found {
                self.insert(package, path, md5);
            }
        }
    }

    fn insert(&mut self, package: &str, path: Vec<u8>, md5: Option<Md5>) {
        let path = match self.diversions.get(&path) {
            Some((to, keeper)) if keeper != package => to.clone(),
            _ => path,
        };
        let Some((folder, name)) = split(&path) else { return };
        let known = self.last_folder.take_if(|(known, _)| *known == folder);
        let known = known.unwrap_or_else(|| (folder.to_vec(), self.links.resolve(folder)));
        let hash = self.hash(&known.1, name);
        self.last_folder = Some(known);
        let Some(number) = self.number(package) else { return };
        let is_full = self.entries.len() >= limits::ENTRIES_MAX;
        if is_full && !self.entries.contains_key(&hash) {
            return self.note_full();
        }
        let entry = self.entries.entry(hash).or_insert(Entry { package: number, md5 });
        // A list says less than digests, and several packages may have one directory.
        if md5.is_some() {
            *entry = Entry { package: number, md5 };
        }
    }

    /// Returns the number of a package, which is added if it is not known.
    fn number(&mut self, package: &str) -> Option<u32> {
        // A list is inserted as a whole, so the package is usually the last one.
        let known = self.packages.iter().rposition(|known| known == package);
        let number = match known {
            Some(number) => number,
            None if self.packages.len() >= limits::PACKAGES_MAX => {
                self.note_full();
                return None;
            }
            None => {
                self.packages.push(package.to_owned());
                self.packages.len() - 1
            }
        };
        u32::try_from(number).ok()
    }

    fn note_full(&mut self) {
        if !std::mem::replace(&mut self.full, true) {
            tracing::warn!("more files of packages changed at once than can be explained");
        }
    }

    /// Returns true if a file has another state than when this was last asked.
    fn is_changed(&mut self, file: &Path) -> bool {
        let stamp = Stamp::of(file);
        stamp != self.read.insert(file.to_owned(), stamp).flatten()
    }

    /// Returns the key of a path in the index. The folder has no links on its path.
    fn hash(&self, folder: &[u8], name: &[u8]) -> u64 {
        self.hasher.hash_one((folder, name))
    }

    fn load_diversions(&mut self) {
        let file = self.folder.join("diversions");
        if !self.is_changed(&file) {
            return;
        }
        self.diversions.clear();
        let text = read_file(&file).unwrap_or_default();
        let mut lines = text.split(|b| *b == b'\n');
        while let (Some(from), Some(to), Some(package)) = (lines.next(), lines.next(), lines.next())
            && self.diversions.len() < limits::DIVERSIONS_MAX
        {
            let keeper = String::from_utf8_lossy(package).into_owned();
            self.diversions.insert(from.to_vec(), (to.to_vec(), keeper));
        }
    }
}

/// Form of a list.
#[derive(Debug, Clone, Copy)]
enum Form {
    Paths,
    Digests,
}

/// Splits a path into its folder and its name, without the slash between them.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|byte| *byte == b'/')?;
    Some((path.get(..at)?, path.get(at + 1..)?))
}

fn recent_lists(info: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(info) else { return Vec::new() };
    let mut recent = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_suffix(".list"));
        if let Some(name) = name
            && is_younger(&entry.path(), limits::RECENT)
            && recent.len() < limits::PACKAGES_MAX
        {
            recent.push(name.to_owned());
        }
    }
    recent
}

fn is_younger(path: &Path, age: Duration) -> bool {
    let written = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    // A time in the future means that the clock was set back.
    written.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|passed| passed <= age))
}

/// Reads a file of limited size.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || meta.len() > limits::LIST_BYTES_MAX {
        return None;
    }
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    file.take(limits::LIST_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, lchown, symlink};

    use super::*;

    #[test]
    fn files_below_links_of_root_are_members() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path);
        fs::create_dir_all(at("data/opt/tool/deep")).unwrap();
        fs::create_dir_all(at("var/lib/dpkg/info")).unwrap();
        symlink("/data/opt", at("opt")).unwrap();
        symlink("../../opt/./tool/deep", at("data/opt/tool/link")).unwrap();
        symlink("circle", at("circle")).unwrap();
        let list = "/opt\n/opt/tool\n/opt/tool/link\n/opt/tool/link/a\n/opt/tool/b\n/circle/c\n";
        fs::write(at("var/lib/dpkg/info/tool.list"), list).unwrap();
        let is_member = |path: &str| {
            let mut lists = Lists::new(&root);
            lists.load(["tool".to_owned()]);
            lists.find(at(path).as_os_str().as_bytes()).is_some()
        };
        for path in ["data/opt/tool/deep/a", "data/opt/tool/link", "data/opt/tool/b", "opt/tool/b"]
        {
            assert!(is_member(path), "{path}");
        }
        assert!(!is_member("data/opt/b") && !is_member("tool/b"));
        if fs::symlink_metadata(at("opt")).unwrap().uid() == 0 {
            lchown(at("opt"), Some(1), None).unwrap();
            assert!(!is_member("data/opt/tool/b"), "a link of another user");
        }
    }
}
