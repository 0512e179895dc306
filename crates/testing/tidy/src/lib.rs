//! The project's rules that the compiler does not check: the direction of imports, the length of
//! files and crates, plain words, that ARCHITECTURE.md names every crate, that links resolve, and
//! that the commands and tests that documents name exist.
//!
//! This package has no dependency of the product, so that `make quick` runs it in seconds.
#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "a test that cannot go on fails"
)]

mod commands;
mod documents;
mod imports;
mod modules;
mod names;
mod sizes;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root of the tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().to_owned()
}
/// Returns every file that git tracks or would track.
fn files() -> Vec<PathBuf> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "git ls-files");
    String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .map(|l| root().join(l))
        .filter(|p| p.is_file())
        .collect()
}

fn crates() -> Vec<String> {
    let mut found: Vec<String> = files()
        .iter()
        .filter(|p| p.ends_with("Cargo.toml"))
        .filter_map(|p| p.parent()?.strip_prefix(root().join("crates")).ok().map(Path::to_owned))
        .map(|p| p.to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}

/// Returns the folders that hold a crate, including the program's `src`.
fn source_folders() -> Vec<(String, PathBuf)> {
    let mut found: Vec<_> = crates()
        .into_iter()
        .map(|name| (format!("crates/{name}"), root().join("crates").join(name).join("src")))
        .collect();
    found.push(("src".into(), root().join("src")));
    found
}
