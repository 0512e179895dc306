//! Causes of files that existed for a moment. They have no content, so that the writer decides.

use std::path::Path;

use model::{Cause, Detection, ItemKey};

use crate::account::{self, Account};
use crate::{doors, explainer, own};

/// Returns the cause of a file that was created and removed before it was compared; `None` if
/// nothing explains it. dpkg itself accounts only for its temporary files and its database. `root`
/// is the system's root.
pub fn transient_cause(key: &ItemKey, seen: &Detection, root: &Path) -> Option<Cause> {
    if seen.more_actors > 0 {
        return None;
    }
    let path = key.path();
    let is_own =
        |by_dpkg| explainer::is_temporary_name(&key.name) || own::is_of_tool(&path, root, by_dpkg);
    let (tool, is_dpkg) = match account::of_actors(&seen.actors, &path, root) {
        Account::Packages(run)
            if !run.doubtful && (run.script.is_some() || is_own(run.by_dpkg)) =>
        {
            (run.tool, run.is_dpkg)
        }
        Account::Management(tool) => (tool, false),
        _ => return None,
    };
    let attention = !is_dpkg && doors::is_door(&path, root);
    Some(Cause { attention, ..explainer::deployment(&tool, &explainer::run_of(&tool)) })
}
