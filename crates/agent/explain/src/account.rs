//! Which tool accounts for a change, by its writers.

use std::path::Path;

use model::{Actor, Attribution, Change};

use crate::lineage::{self, Lineage, Tool};
use crate::own;

/// The folder of dpkg below the system's root.
pub(crate) const DATABASE: &str = "var/lib/dpkg";

/// The tool behind a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Account {
    /// No writer was notified: a scan found the change, or a check of a directory.
    Unnoticed,
    /// Every writer descends from a package manager.
    Packages(Run),
    /// Every writer descends from a tool of configuration management.
    Management(Tool),
    /// The writers are known, and at least one is another process.
    Other,
    /// At least one writer is not known.
    Unknown,
}

/// A run of a package manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) tool: Tool,
    /// True if every writer is dpkg, or runs for a script of a package.
    pub(crate) by_dpkg: bool,
    /// True if every writer is dpkg itself.
    pub(crate) is_dpkg: bool,
    /// True if a writer is a package manager only perhaps.
    pub(crate) doubtful: bool,
    /// The script of a package in whose run a writer made the change.
    pub(crate) script: Option<String>,
    /// True if every writer runs for a script of a package.
    pub(crate) is_scripted: bool,
    /// True if a writer is a helper of the package manager.
    pub(crate) has_helper: bool,
}

/// Returns the tool behind a change. `root` is that of the system.
pub(crate) fn of(change: &Change, root: &Path) -> Account {
    let Some(seen) = &change.seen else { return Account::Unnoticed };
    match (seen.actors.as_slice(), seen.more_actors) {
        ([], 0) => Account::Unnoticed,
        (actors, 0) => of_actors(actors, &change.key.path(), root),
        _ => Account::Unknown,
    }
}

/// Returns the tool behind what these writers made at a path.
pub(crate) fn of_actors(actors: &[Actor], path: &[u8], root: &Path) -> Account {
    if actors.iter().any(|actor| actor.attribution == Attribution::Uncertain) {
        return Account::Unknown;
    }
    let database = root.join(DATABASE);
    let lineage = |actor: &Actor| {
        let lineage = lineage::of(actor, &database);
        let elsewhere = |helper| !own::is_of_helper(path, root, helper);
        if lineage.helper.is_some_and(elsewhere) {
            return Lineage { management: lineage.management, ..Lineage::default() };
        }
        lineage
    };
    let lineages: Vec<Lineage> = actors.iter().map(lineage).collect();
    let first = |tool: fn(&Lineage) -> Option<&Tool>| {
        let all = lineages.iter().all(|lineage| tool(lineage).is_some());
        lineages.first().and_then(tool).filter(|_| all).cloned()
    };
    if let Some(tool) = first(|lineage| lineage.packages.as_ref()) {
        return Account::Packages(Run {
            tool,
            by_dpkg: lineages.iter().all(|lineage| lineage.by_dpkg),
            is_dpkg: lineages.iter().all(|lineage| lineage.is_dpkg),
            doubtful: lineages.iter().any(|lineage| lineage.doubtful),
            script: lineages.iter().find_map(|lineage| lineage.script.clone()),
            is_scripted: lineages.iter().all(|lineage| lineage.script.is_some()),
            has_helper: lineages.iter().any(|lineage| lineage.helper.is_some()),
        });
    }
    if let Some(tool) = first(|lineage| lineage.management.as_ref()) {
        return Account::Management(tool);
    }
    let is_known =
        |actor: &Actor| matches!(actor.attribution, Attribution::Exact | Attribution::Ambiguous);
    if actors.iter().all(is_known) { Account::Other } else { Account::Unknown }
}

/// Returns true if every writer descends from dpkg, or is dpkg perhaps: the changes that wait for
/// the end of its transaction. `database` is the folder of dpkg.
pub fn is_by_dpkg(actors: &[Actor], database: &Path) -> bool {
    !actors.is_empty() && actors.iter().all(|actor| lineage::of(actor, database).by_dpkg)
}
