//! Watch rules: the `[[watch]]` sections of the agent's configuration
//! (`docs/reference/rules.md`).

pub mod limits;
mod select;

use std::path::{Component, Path, PathBuf};

use observe::Algorithm;
use serde::{Deserialize, Serialize};

use crate::select::Patterns;
pub use crate::select::Selection;

/// Paths that [`Rules::default_system`] watches: what runs, what starts it, and who may log in. Those
/// that do not exist are watched from the moment they appear.
const SYSTEM_PATHS: &[&str] = &[
    "/boot",
    "/etc",
    "/root/.bash_login",
    "/root/.bash_logout",
    "/root/.bash_profile",
    "/root/.bashrc",
    "/root/.config/systemd",
    "/root/.profile",
    "/root/.ssh",
    "/root/.zshrc",
    "/usr/bin",
    "/usr/lib/systemd",
    "/usr/local/bin",
    "/usr/local/lib/systemd",
    "/usr/local/sbin",
    "/usr/local/share/ca-certificates",
    "/usr/sbin",
    "/var/spool/cron",
];
/// Further paths, whose place depends on the distribution: those that exist. They hold PAM's modules
/// and what every Python program imports.
const SYSTEM_PATHS_BY_DISTRIBUTION: &[&str] = &[
    "/usr/lib/aarch64-linux-gnu/security",
    "/usr/lib/x86_64-linux-gnu/security",
    "/usr/lib64/security",
    "/usr/lib/python3/dist-packages",
];

/// An attribute whose difference is reported as a change. A different kind of entry or error is
/// always reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Attribute {
    /// Bytes of content.
    Size,
    /// Digests of the content.
    Hash,
    Mode,
    Uid,
    Gid,
    Mtime,
    /// Inode change time.
    Ctime,
    Inode,
    Device,
    /// Target of a symbolic link.
    TargetPath,
    Xattrs,
    /// Number of hard links.
    Links,
    /// Flags such as immutable.
    Flags,
}

impl Attribute {
    /// All of them: the default.
    pub const ALL: [Self; 13] = [
        Self::Size,
        Self::Hash,
        Self::Mode,
        Self::Uid,
        Self::Gid,
        Self::Mtime,
        Self::Ctime,
        Self::Inode,
        Self::Device,
        Self::TargetPath,
        Self::Xattrs,
        Self::Links,
        Self::Flags,
    ];

    pub fn field(self) -> model::Field {
        match self {
            Self::Size => model::Field::Size,
            Self::Hash => model::Field::Hash,
            Self::Mode => model::Field::Mode,
            Self::Uid => model::Field::Uid,
            Self::Gid => model::Field::Gid,
            Self::Mtime => model::Field::Mtime,
            Self::Ctime => model::Field::Ctime,
            Self::Inode => model::Field::Inode,
            Self::Device => model::Field::Device,
            Self::TargetPath => model::Field::Target,
            Self::Xattrs => model::Field::Xattrs,
            Self::Links => model::Field::Links,
            Self::Flags => model::Field::Flags,
        }
    }
}

/// One watched path and how it is watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Absolute path of a directory or a single file.
    pub path: PathBuf,
    /// Number of levels below the path that are watched: 0 is the path alone, 1 adds its direct
    /// entries. All levels if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    /// Exclusions: gitignore patterns relative to the path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// If not empty, only entries that match one of these gitignore patterns are watched.
    /// Directories are always entered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restrict: Vec<String>,
    /// Size above which only attributes are observed and content is not read, bytes.
    #[serde(default = "default_hash_bytes_max")]
    pub hash_bytes_max: u64,
    /// Digests of the content. If empty, no content is read.
    #[serde(default = "default_hashes")]
    pub hashes: Vec<Algorithm>,
    /// Attributes whose difference is reported as a change.
    #[serde(default = "default_attributes")]
    pub attributes: Vec<Attribute>,
    /// True if extended attributes are read, which include POSIX ACLs and capabilities.
    #[serde(default = "default_true")]
    pub xattrs: bool,
    /// True if links are followed: files behind links are observed, and directories are entered.
    #[serde(default)]
    pub follow_symlinks: bool,
    /// True if file systems mounted below the path are not entered.
    #[serde(default)]
    pub one_file_system: bool,
    /// True if another file system at the path is accepted as the same root, so that differences
    /// become changes. Otherwise another file system is a gap.
    #[serde(default)]
    pub accept_device: bool,
    /// True if the path may be absent: that is no gap, and what appears there is reported as created.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// True if a path that became a directory, or ceased to be one, is watched as it is now.
    /// Otherwise that is a gap.
    #[serde(default)]
    pub accept_kind: bool,
    /// Number of days in which every unchanged file is read again once; 0 disables this.
    #[serde(default = "default_rehash_days")]
    pub rehash_days: u32,
    /// True if changes are detected as they happen, where the kernel can report them. Otherwise a
    /// scan finds them.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub realtime: bool,
    /// True if changes name the process and user that made them, where that is known.
    #[serde(default = "default_true", skip_serializing_if = "is_true")]
    pub attribution: bool,
    /// Free text for people; not interpreted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

fn default_hash_bytes_max() -> u64 {
    limits::HASH_BYTES_MAX_DEFAULT
}

fn default_hashes() -> Vec<Algorithm> {
    vec![Algorithm::Sha256]
}

fn default_attributes() -> Vec<Attribute> {
    Attribute::ALL.to_vec()
}

fn default_true() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_true(value: &bool) -> bool {
    *value
}

fn default_rehash_days() -> u32 {
    limits::REHASH_DAYS_DEFAULT
}

impl Watch {
    /// Returns a rule for `path` with default settings.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            max_depth: None,
            ignore: Vec::new(),
            restrict: Vec::new(),
            hash_bytes_max: default_hash_bytes_max(),
            hashes: default_hashes(),
            attributes: default_attributes(),
            xattrs: true,
            follow_symlinks: false,
            one_file_system: false,
            accept_device: false,
            optional: false,
            accept_kind: false,
            rehash_days: default_rehash_days(),
            realtime: true,
            attribution: true,
            tags: Vec::new(),
        }
    }
}

/// An error in the rules. The text names the key and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// A value of one rule is refused.
    #[error("watch[{index}].{key}: {problem}")]
    Value {
        /// Index of the `[[watch]]` section, from 0.
        index: usize,
        key: &'static str,
        /// Description of the problem and the remedy.
        problem: String,
    },
    #[error("watch: {0} paths are more than the {max}; watch a common parent instead", max = limits::WATCHES_MAX)]
    TooMany(usize),
}

/// All `[[watch]]` sections of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rules(pub Vec<Watch>);

impl Rules {
    /// Returns rules for these paths with default settings.
    pub fn of_paths<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self(paths.into_iter().map(Watch::new).collect())
    }

    /// Returns rules for the usual system paths, all of them optional.
    pub fn default_system() -> Self {
        let here = SYSTEM_PATHS_BY_DISTRIBUTION.iter().filter(|path| Path::new(path).exists());
        let watch = |path: &&str| Watch { optional: true, ..Watch::new(*path) };
        Self(SYSTEM_PATHS.iter().chain(here).map(watch).collect())
    }

    /// Checks every rule.
    ///
    /// # Errors
    /// Returns the first value that cannot be used, with its key and the remedy.
    pub fn validate(&self) -> Result<(), RulesError> {
        if self.0.len() > limits::WATCHES_MAX {
            return Err(RulesError::TooMany(self.0.len()));
        }
        for (index, watch) in self.0.iter().enumerate() {
            let refuse = |Refusal { key, problem }| RulesError::Value { index, key, problem };
            watch.check().map_err(refuse)?;
            let path = normal(&watch.path);
            let twin = self.0.iter().take(index).position(|earlier| normal(&earlier.path) == path);
            if let Some(twin) = twin {
                let problem = format!(
                    "{} is watched by watch[{twin}] already: join the two",
                    watch.path.display()
                );
                return Err(refuse(Refusal { key: "path", problem }));
            }
        }
        Ok(())
    }
}

/// Why a value of a rule is refused.
struct Refusal {
    key: &'static str,
    problem: String,
}

fn refuse<T>(key: &'static str, problem: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { key, problem: problem.into() })
}

impl Watch {
    fn check(&self) -> Result<(), Refusal> {
        let shown = self.path.display();
        if !self.path.is_absolute() {
            return refuse("path", format!("{shown:?} is not absolute: begin it with /"));
        }
        if self.path.components().any(|c| c == Component::ParentDir) {
            return refuse("path", format!("{shown} contains ..: write the path without it"));
        }
        if self.path.as_os_str().len() > model::limits::PATH_BYTES_MAX {
            let max = model::limits::PATH_BYTES_MAX;
            return refuse("path", format!("longer than {max} bytes: watch a parent instead"));
        }
        if self.max_depth.is_some_and(|d| d > limits::DEPTH_MAX) {
            let max = limits::DEPTH_MAX;
            return refuse("max_depth", format!("above {max}: leave it out to watch all levels"));
        }
        if self.rehash_days > limits::REHASH_DAYS_MAX {
            let max = limits::REHASH_DAYS_MAX;
            return refuse("rehash_days", format!("above {max}: 0 switches it off"));
        }
        if self.hash_bytes_max == 0 {
            return refuse("hash_bytes_max", "0 reads nothing: write hashes = [] instead");
        }
        check_patterns("ignore", &self.ignore)?;
        check_patterns("restrict", &self.restrict)
    }
}

fn check_patterns(key: &'static str, patterns: &[String]) -> Result<(), Refusal> {
    if patterns.len() > limits::PATTERNS_MAX {
        let max = limits::PATTERNS_MAX;
        return refuse(key, format!("more than {max} patterns: join them with wildcards"));
    }
    for pattern in patterns {
        Patterns::new(std::slice::from_ref(pattern))
            .or_else(|e| refuse(key, format!("{pattern:?} is not a gitignore pattern: {e}")))?;
    }
    Ok(())
}

/// Returns the path without `.` and without doubled or trailing slashes.
pub fn normal(path: &Path) -> PathBuf {
    path.components().filter(|c| *c != Component::CurDir).collect()
}
