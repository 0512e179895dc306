//! Resolves rules to roots: the real path of each, and the part of the tree that each one covers.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::ItemKey;
use model::path::is_at_or_below;
use rules::{RulesError, Selection, Watch, normal};

use crate::merge::Mask;

/// A compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) watch: Watch,
    pub(crate) selection: Selection,
    pub(crate) mask: Mask,
}

impl Rule {
    pub(crate) fn new(index: usize, watch: &Watch) -> Result<Arc<Self>, RulesError> {
        let selection = Selection::new(&watch.ignore, &watch.restrict)
            .map_err(|e| RulesError::Value { index, key: "ignore", problem: e.to_string() })?;
        let mask = Mask::new(&watch.attributes);
        Ok(Arc::new(Self { watch: watch.clone(), selection, mask }))
    }
}

/// A root of one scan.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) rule: Arc<Rule>,
    /// Resolved path, from which keys are built.
    pub(crate) path: Vec<u8>,
    /// True if this root is a link at the rule's path, which is observed as an item and not
    /// entered.
    pub(crate) link: bool,
    /// True if the path could not be resolved because a link is broken.
    pub(crate) unresolved: bool,
    /// Roots below this one, whose items it does not scan; sorted.
    pub(crate) nested: Vec<ItemKey>,
}

impl Root {
    /// Returns true if another root covers this entry.
    pub(crate) fn excludes(&self, directory: &[u8], name: &[u8]) -> bool {
        self.nested.iter().any(|n| n.directory == directory && n.name == name)
    }

    /// Returns true if another root answers for this whole directory.
    pub(crate) fn excludes_below(&self, directory: &[u8]) -> bool {
        self.nested.iter().any(|n| is_at_or_below(directory, &n.path()))
    }
}

/// Finds the roots. A path that two rules lead to belongs to the first; of nested roots the deeper
/// one answers for what lies below it.
pub(crate) fn resolve(rules: &[Arc<Rule>]) -> Vec<Root> {
    let mut roots: Vec<Root> = Vec::new();
    for rule in rules {
        let lexical = normal(&rule.watch.path);
        let RealPath { path: real, resolved } = real_path(&lexical);
        if let Some(link) = link_item(&lexical)
            && link != real
        {
            add(&mut roots, rule, &link, true, true);
        }
        add(&mut roots, rule, &real, false, resolved);
    }
    let keys: Vec<ItemKey> = roots.iter().map(|r| ItemKey::of_path(&r.path)).collect();
    for root in &mut roots {
        let own = ItemKey::of_path(&root.path);
        root.nested = keys
            .iter()
            .filter(|k| **k != own && is_at_or_below(&k.path(), &root.path))
            .cloned()
            .collect();
        root.nested.sort_unstable();
    }
    roots
}

fn add(roots: &mut Vec<Root>, rule: &Arc<Rule>, path: &Path, link: bool, resolved: bool) {
    let path = path.as_os_str().as_bytes().to_vec();
    if let Some(first) = roots.iter().find(|r| r.path == path) {
        tracing::warn!(
            "{}: lies where {} lies and is watched by that rule",
            rule.watch.path.display(),
            first.rule.watch.path.display(),
        );
        return;
    }
    let (rule, nested) = (Arc::clone(rule), Vec::new());
    roots.push(Root { rule, path, link, unresolved: !resolved, nested });
}

/// A path with its links resolved.
struct RealPath {
    path: PathBuf,
    /// False if a link is broken; then `path` is the path as given.
    resolved: bool,
}

/// Resolves the links of a path. A part that does not exist yet is appended to its nearest existing
/// parent.
fn real_path(path: &Path) -> RealPath {
    let mut rest = PathBuf::new();
    for parent in path.ancestors() {
        if let Ok(real) = parent.canonicalize() {
            let real = if rest.as_os_str().is_empty() { real } else { real.join(rest) };
            return RealPath { path: real, resolved: true };
        }
        if parent.is_symlink() {
            return RealPath { path: path.to_path_buf(), resolved: false };
        }
        if let Some(name) = parent.file_name() {
            rest =
                if rest.as_os_str().is_empty() { name.into() } else { Path::new(name).join(rest) };
        }
    }
    RealPath { path: path.to_path_buf(), resolved: true }
}

/// Returns the path, with its parent resolved, if it is a link itself.
fn link_item(path: &Path) -> Option<PathBuf> {
    if !path.is_symlink() {
        return None;
    }
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}
