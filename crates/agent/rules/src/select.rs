//! Selects the entries of a rule by gitignore patterns, relative to the root.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// A compiled list of gitignore patterns.
#[derive(Debug, Clone)]
pub(crate) struct Patterns(Gitignore);

impl Patterns {
    pub(crate) fn new(patterns: &[String]) -> Result<Self, ignore::Error> {
        // Paths are handed over relative to the root, so the matcher's own root is empty.
        let mut builder = GitignoreBuilder::new("");
        // git matches nothing with an unclosed class; this library would take it literally.
        builder.allow_unclosed_class(false);
        for pattern in patterns {
            builder.add_line(None, pattern)?;
        }
        Ok(Self(builder.build()?))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The selection of one rule.
#[derive(Debug, Clone)]
pub struct Selection {
    ignore: Patterns,
    restrict: Patterns,
}

impl Selection {
    /// Compiles both lists.
    ///
    /// # Errors
    /// Returns an error if a pattern is not one of gitignore.
    pub fn new(ignore: &[String], restrict: &[String]) -> Result<Self, ignore::Error> {
        Ok(Self { ignore: Patterns::new(ignore)?, restrict: Patterns::new(restrict)? })
    }

    /// Returns true if every entry is selected. Callers then skip building the relative path.
    pub fn takes_all(&self) -> bool {
        self.ignore.is_empty() && self.restrict.is_empty()
    }

    /// Returns true if the entry is watched. `relative` is its path below the root. An ignored
    /// directory is not entered, so this is never called for entries below it.
    pub fn matches_entry(&self, relative: &[u8], directory: bool) -> bool {
        let path = Path::new(OsStr::from_bytes(relative));
        if self.ignore.0.matched(path, directory).is_ignore() {
            return false;
        }
        directory
            || self.restrict.is_empty()
            || self.restrict.0.matched_path_or_any_parents(path, false).is_ignore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ignore: &[&str], restrict: &[&str]) -> Selection {
        let own = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        Selection::new(&own(ignore), &own(restrict)).unwrap()
    }

    #[test]
    fn ignore_patterns_exclude_and_negated_ones_include() {
        let s = of(&["*.swp", "/cache/", "!keep.swp"], &[]);
        assert!(!s.matches_entry(b"a/b.swp", false));
        assert!(s.matches_entry(b"a/keep.swp", false));
        assert!(!s.matches_entry(b"cache", true));
        assert!(s.matches_entry(b"a/cache", true));
        assert!(s.matches_entry(b"cache", false), "only a directory of that name");
    }

    #[test]
    fn restrict_selects_matches_and_entries_below_them() {
        let s = of(&[], &["*.conf", "/ssl/"]);
        assert!(s.matches_entry(b"a/x.conf", false));
        assert!(s.matches_entry(b"ssl/deep/key.pem", false));
        assert!(!s.matches_entry(b"x.txt", false));
        assert!(s.matches_entry(b"any", true), "directories are always entered");
    }

    #[test]
    fn patterns_match_non_utf8_names() {
        let s = of(&["*.tmp"], &[]);
        assert!(!s.matches_entry(b"\xff\xfe.tmp", false));
        assert!(s.matches_entry(b"\xff\xfe.txt", false));
    }
}
