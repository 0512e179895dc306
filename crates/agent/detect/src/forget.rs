//! Drops items that no rule covers any more. No change is reported, since nothing happened on the
//! disk.

use model::path::is_at_or_below;
use model::path::join;
use model::{Baseline, BaselineItem, ItemKey, Op, Sink};

use crate::report::ScanError;
use crate::root::Root;
use crate::writer::Writer;

/// Drops the items at or below `path` (all items if it is `None`) that are not at or below a root.
/// Returns the number of dropped items.
pub(crate) fn forget(
    path: Option<&[u8]>,
    roots: &[Root],
    baseline: &mut dyn Baseline,
    sink: &mut dyn Sink,
    batch_ops: usize,
) -> Result<u64, ScanError> {
    let top = path.unwrap_or(b"/");
    let mut directories = baseline.directories_below(top).map_err(ScanError::Baseline)?;
    directories.push(top.to_vec());
    let parent = path.map(|p| ItemKey::of_path(p).directory);
    if let Some(parent) = &parent
        && parent != top
    {
        directories.push(parent.clone());
    }
    let watched = |path: &[u8]| roots.iter().any(|r| is_at_or_below(path, &r.path));
    let mut writer = Writer::new(sink, batch_ops);
    let mut items: Vec<BaselineItem> = Vec::new();
    let mut gone = 0;
    for directory in directories {
        if watched(&directory) {
            continue;
        }
        baseline.directory(&directory, &mut items).map_err(ScanError::Baseline)?;
        for item in items.drain(..) {
            let whole = join(&directory, &item.name);
            if is_at_or_below(&whole, top) && !watched(&whole) {
                let key = ItemKey::new(directory.clone(), item.name);
                writer.push(Op::Delete { key, change: None })?;
                gone += 1;
            }
        }
    }
    writer.flush()?;
    Ok(gone)
}
