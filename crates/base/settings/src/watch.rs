//! One watched path, as `docs/reference/rules.md` describes it. Only fields that a group sets are
//! present.

use ignore::gitignore::GitignoreBuilder;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits;
use crate::span::within;

/// A digest of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "each is the digest of its name")]
pub enum HashAlgorithm {
    Sha256,
    Sha1,
    Md5,
    Blake3,
}

/// An attribute whose difference is a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words of docs/reference/rules.md")]
pub enum WatchedAttribute {
    Size,
    Hash,
    Mode,
    Uid,
    Gid,
    Mtime,
    Ctime,
    Inode,
    Device,
    TargetPath,
    Xattrs,
    Links,
    Flags,
}

impl WatchedAttribute {
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
}

/// One watched path. An absent field has the agent's default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchSettings {
    /// Absolute, without `..`, doubled or trailing slashes.
    #[serde(deserialize_with = "path")]
    pub path: String,
    /// Levels below the path.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "depth")]
    pub max_depth: Option<u32>,
    /// gitignore patterns of ignored entries.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "patterns")]
    pub ignore: Option<Vec<String>>,
    /// gitignore patterns; if present, only matching entries are watched.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "patterns")]
    pub restrict: Option<Vec<String>>,
    /// Content above this size is not read, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "size")]
    pub hash_bytes_max: Option<u64>,
    /// Digests of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hashes: Option<Vec<HashAlgorithm>>,
    /// Attributes whose difference is a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<Vec<WatchedAttribute>>,
    /// Read extended attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xattrs: Option<bool>,
    /// Observe the targets of symbolic links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_symlinks: Option<bool>,
    /// Do not enter file systems mounted below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_file_system: Option<bool>,
    /// Treat another file system at the path as the same root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_device: Option<bool>,
    /// The path may be absent; what appears there is reported as created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    /// Watch a path that became a directory, or ceased to be one, as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_kind: Option<bool>,
    /// Days in which unchanged content is read again.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "days")]
    pub rehash_days: Option<u32>,
    /// Detect changes as they happen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realtime: Option<bool>,
    /// Name the process and user that made a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribution: Option<bool>,
    /// Labels for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
}

impl WatchSettings {
    /// Returns the bytes of the path, patterns and tags.
    pub(crate) fn bytes(&self) -> usize {
        let lists = [&self.ignore, &self.restrict, &self.tags];
        let texts = lists.into_iter().flatten().flatten();
        texts.map(String::len).sum::<usize>() + self.path.len()
    }

    /// Returns the number of patterns.
    pub(crate) fn patterns(&self) -> usize {
        [&self.ignore, &self.restrict].into_iter().flatten().map(Vec::len).sum()
    }
}

/// Returns the path in normal form; the error is the reason why it cannot be watched.
pub(crate) fn normal(path: &str) -> Result<String, String> {
    if !path.starts_with('/') {
        return Err(format!("{path:?} is not absolute: begin it with /"));
    }
    if path.contains('\0') {
        return Err(format!("{path:?} contains a NUL"));
    }
    let mut kept = String::with_capacity(path.len());
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            return Err(format!("{path} contains ..: write the path without it"));
        }
        kept.push('/');
        kept.push_str(part);
    }
    if kept.is_empty() {
        kept.push('/');
    }
    if kept.len() > limits::PATH_BYTES_MAX {
        return Err(format!("a path of {} bytes: at most {}", kept.len(), limits::PATH_BYTES_MAX));
    }
    Ok(kept)
}

fn path<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    normal(&String::deserialize(from)?).map_err(D::Error::custom)
}

fn depth<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    within(u32::deserialize(from)?, &0, &limits::DEPTH_MAX).map(Some)
}

fn days<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    within(u32::deserialize(from)?, &0, &limits::REHASH_DAYS_MAX).map(Some)
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    within(u64::deserialize(from)?, &1, &limits::BYTES_MAX).map(Some)
}

fn patterns<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    let patterns = Vec::<String>::deserialize(from)?;
    if patterns.len() > limits::PATTERNS_MAX {
        let text = format!("more than {} patterns: join them", limits::PATTERNS_MAX);
        return Err(D::Error::custom(text));
    }
    patterns.iter().try_for_each(|p| pattern(p)).map_err(D::Error::custom)?;
    Ok(Some(patterns))
}

/// Checks that a text is a pattern; the error is the reason why not.
pub(crate) fn pattern(pattern: &str) -> Result<(), String> {
    if pattern.len() > limits::PATH_BYTES_MAX {
        return Err(format!("a pattern of {} bytes", pattern.len()));
    }
    let mut builder = GitignoreBuilder::new("");
    // git matches nothing with an unclosed class; this library would take it literally.
    builder.allow_unclosed_class(false);
    let read = builder.add_line(None, pattern).map(drop).and_then(|()| builder.build().map(drop));
    read.map_err(|e| format!("{pattern:?} is not a gitignore pattern: {e}"))
}

/// Checks that every path occurs once, and that there are not too many.
pub(crate) fn check(watches: &[WatchSettings]) -> Result<(), String> {
    if watches.len() > limits::WATCHES_MAX {
        return Err(format!(
            "{} watched paths are more than {}: watch a common parent instead",
            watches.len(),
            limits::WATCHES_MAX
        ));
    }
    let mut seen = std::collections::HashSet::new();
    match watches.iter().find(|watch| !seen.insert(&watch.path)) {
        Some(twin) => Err(format!("{} is watched twice: join the two", twin.path)),
        None => Ok(()),
    }
}

pub(crate) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<WatchSettings>, D::Error> {
    let watches = Vec::<WatchSettings>::deserialize(from)?;
    check(&watches).map_err(D::Error::custom)?;
    Ok(watches)
}
