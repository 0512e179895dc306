//! Recognizes moves among the operations of targeted checks, by inode: the old name was in the
//! baseline and is gone, the new name was not in the baseline, and both are the same inode.
//!
//! A file system gives the number of a deleted inode to the next new one. So the modification time
//! and the content must be equal too, which a rename leaves as they are. The baseline's time of a
//! directory may be older than its last entry: for a directory, one entry that moved along is also
//! enough.
//!
//! A moved directory is one change. What lies below it gets its new documents without events of its
//! own, unless it differs.

use std::collections::HashMap;

use model::{Change, ChangeKind, Field, Fields, ItemKey, Kind, Observation, Op};

use model::path::is_at_or_below;

/// Device, inode and kind: equal for two observations of the same file.
type Identity = (u64, u64, Kind);

fn identity(o: &Observation) -> Identity {
    (o.device, o.inode, o.kind)
}

/// Indexes of the operations that delete and create an inode. More than one of a kind means several
/// links, and it is not known which one was moved.
#[derive(Default)]
struct Pair {
    deleted: Vec<usize>,
    created: Vec<usize>,
}

/// A recognized move.
struct Move {
    deleted: usize,
    created: usize,
    from: ItemKey,
    to: ItemKey,
    directory: bool,
    /// True if its time and content are unchanged too.
    same: bool,
}

/// Replaces pairs of a deletion and a creation by moves.
pub(crate) fn recognize(batch: &mut [Op]) {
    let mut pairs: HashMap<Identity, Pair> = HashMap::new();
    for (index, op) in batch.iter().enumerate() {
        match change(op) {
            Some(Change { kind: ChangeKind::Deleted, before: Some(before), .. }) => {
                pairs.entry(identity(before)).or_default().deleted.push(index);
            }
            Some(Change { kind: ChangeKind::Created, after: Some(after), .. }) => {
                pairs.entry(identity(after)).or_default().created.push(index);
            }
            _ => {}
        }
    }
    let mut moves: Vec<Move> = pairs.into_values().filter_map(|p| as_move(&p, batch)).collect();
    // A directory comes before what lies below it.
    moves.sort_unstable_by_key(|m| m.from.path());
    let proven: Vec<bool> = (0..moves.len()).map(|at| is_proven(&moves, at)).collect();
    let mut above: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (m, _) in moves.into_iter().zip(proven).filter(|(_, proven)| *proven) {
        let (from, to) = (m.from.path(), m.to.path());
        above.retain(|(old, _)| from.starts_with(old));
        let holder = above.iter().rev().find(|(old, _)| is_at_or_below(&from, old));
        let went_along = holder.is_some_and(|(old, new)| went_along(&from, &to, old, new));
        if m.directory {
            above.push((from, to));
        }
        set_move(batch, m, went_along);
    }
}

fn change(op: &Op) -> Option<&Change> {
    match op {
        Op::Put { change, .. } | Op::Delete { change, .. } => change.as_deref(),
        Op::Touch { .. } | Op::Coverage(_) => None,
    }
}

/// Returns true if an item moved from `from` to `to` because its directory moved from `old` to
/// `new`.
fn went_along(from: &[u8], to: &[u8], old: &[u8], new: &[u8]) -> bool {
    is_at_or_below(from, old)
        && is_at_or_below(to, new)
        && from.get(old.len()..) == to.get(new.len()..)
}

/// Returns true if a pair is a move, and not an inode number that was used again. `moves` is sorted
/// by the old path.
fn is_proven(moves: &[Move], at: usize) -> bool {
    let Some(m) = moves.get(at) else { return false };
    let (old, new) = (m.from.path(), m.to.path());
    // Names such as `old-1` are sorted between `old` and what lies below it.
    let next = moves.iter().skip(at + 1).take_while(|m| m.from.path().starts_with(&old));
    m.same
        || m.directory
            && next.into_iter().any(|below| {
                below.same && went_along(&below.from.path(), &below.to.path(), &old, &new)
            })
}

/// Returns true if nothing contradicts that the inode is the same file.
fn is_same(before: &Observation, after: &Observation) -> bool {
    before.mtime_ns == after.mtime_ns && !before.difference(after).contains(Field::Hash)
}

fn as_move(pair: &Pair, batch: &[Op]) -> Option<Move> {
    let ([deleted], [created]) = (&*pair.deleted, &*pair.created) else { return None };
    let from = change(batch.get(*deleted)?)?;
    let to = change(batch.get(*created)?)?;
    let (before, after) = (from.before.as_ref()?, to.after.as_ref()?);
    Some(Move {
        deleted: *deleted,
        created: *created,
        from: from.key.clone(),
        to: to.key.clone(),
        directory: after.kind == Kind::Directory,
        same: is_same(before, after),
    })
}

/// Makes the creation a move and silences the deletion. What went along with its directory and is
/// otherwise the same gets no event.
fn set_move(batch: &mut [Op], m: Move, went_along: bool) {
    let deleted = match batch.get_mut(m.deleted) {
        Some(Op::Delete { change, .. }) => change.take(),
        _ => None,
    };
    let Some(before) = deleted.and_then(|change| change.before) else { return };
    let Some(Op::Put { change: slot, .. }) = batch.get_mut(m.created) else { return };
    let Some(change) = slot else { return };
    // A rename sets the ctime.
    let mut fields = Fields::default();
    let after = change.after.as_ref();
    let differing = after.map(|after| before.difference(after)).unwrap_or_default();
    differing.iter().filter(|field| *field != Field::Ctime).for_each(|field| fields.insert(field));
    if went_along && fields.is_empty() {
        *slot = None;
        return;
    }
    change.kind = ChangeKind::Moved;
    change.fields = fields;
    change.before = Some(before);
    change.from = Some(m.from);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(inode: u64, kind: Kind) -> Observation {
        Observation { inode, ..Observation::empty(kind) }
    }

    fn op(path: &[u8], kind: ChangeKind, o: Observation) -> Op {
        let key = ItemKey::of_path(path);
        let deleted = kind == ChangeKind::Deleted;
        let change = Some(Box::new(Change {
            key: key.clone(),
            kind,
            before: deleted.then(|| o.clone()),
            after: (!deleted).then(|| o.clone()),
            from: None,
            fields: Fields::default(),
            found_at_us: 1,
            seen: None,
            cause: None,
        }));
        if deleted { Op::Delete { key, change } } else { Op::Put { key, observation: o, change } }
    }

    fn kinds(batch: &[Op]) -> Vec<Option<ChangeKind>> {
        batch.iter().map(|op| change(op).map(|c| c.kind)).collect()
    }

    #[test]
    fn same_inode_under_a_new_name_is_a_move() {
        let mut batch = vec![
            op(b"/a/new", ChangeKind::Created, observation(7, Kind::File)),
            op(b"/a/old", ChangeKind::Deleted, observation(7, Kind::File)),
            op(b"/a/other", ChangeKind::Deleted, observation(8, Kind::File)),
        ];
        recognize(&mut batch);
        assert_eq!(kinds(&batch), [Some(ChangeKind::Moved), None, Some(ChangeKind::Deleted)]);
        assert_eq!(change(&batch[0]).unwrap().from, Some(ItemKey::of_path(b"/a/old")));
    }

    #[test]
    fn moved_directory_is_one_event() {
        let mut changed = observation(3, Kind::File);
        changed.mode = 0o600;
        let mut batch = vec![
            op(b"/new", ChangeKind::Created, observation(1, Kind::Directory)),
            op(b"/new/same", ChangeKind::Created, observation(2, Kind::File)),
            op(b"/new/differs", ChangeKind::Created, changed),
            op(b"/new/renamed", ChangeKind::Created, observation(4, Kind::File)),
            op(b"/old", ChangeKind::Deleted, observation(1, Kind::Directory)),
            op(b"/old/same", ChangeKind::Deleted, observation(2, Kind::File)),
            op(b"/old/differs", ChangeKind::Deleted, observation(3, Kind::File)),
            op(b"/old/name", ChangeKind::Deleted, observation(4, Kind::File)),
        ];
        recognize(&mut batch);
        let moved = Some(ChangeKind::Moved);
        assert_eq!(kinds(&batch), [moved, None, moved, moved, None, None, None, None]);
    }

    #[test]
    fn reused_inode_number_is_no_move() {
        for kind in [Kind::File, Kind::Directory] {
            let mut new = observation(7, kind);
            new.mtime_ns = 5;
            let mut batch = vec![
                op(b"/a/new", ChangeKind::Created, new),
                op(b"/a/old", ChangeKind::Deleted, observation(7, kind)),
            ];
            recognize(&mut batch);
            assert_eq!(kinds(&batch), [Some(ChangeKind::Created), Some(ChangeKind::Deleted)]);
        }
    }

    #[test]
    fn entry_that_moved_along_proves_the_move_of_its_directory() {
        let mut newer = observation(1, Kind::Directory);
        newer.mtime_ns = 5;
        let mut batch = vec![
            op(b"/new", ChangeKind::Created, newer),
            op(b"/new/x", ChangeKind::Created, observation(2, Kind::File)),
            op(b"/old", ChangeKind::Deleted, observation(1, Kind::Directory)),
            op(b"/old/x", ChangeKind::Deleted, observation(2, Kind::File)),
        ];
        recognize(&mut batch);
        assert_eq!(kinds(&batch), [Some(ChangeKind::Moved), None, None, None]);
    }

    #[test]
    fn names_like_that_of_a_moved_directory_hide_nothing_in_it() {
        let mut newer = observation(1, Kind::Directory);
        newer.mtime_ns = 5;
        let mut batch = vec![
            op(b"/new", ChangeKind::Created, newer),
            op(b"/new-1", ChangeKind::Created, observation(3, Kind::Directory)),
            op(b"/new/x", ChangeKind::Created, observation(2, Kind::File)),
            op(b"/old", ChangeKind::Deleted, observation(1, Kind::Directory)),
            op(b"/old-1", ChangeKind::Deleted, observation(3, Kind::Directory)),
            op(b"/old/x", ChangeKind::Deleted, observation(2, Kind::File)),
        ];
        recognize(&mut batch);
        let moved = Some(ChangeKind::Moved);
        assert_eq!(kinds(&batch), [moved, moved, None, None, None, None]);
    }

    #[test]
    fn several_links_of_one_inode_are_no_move() {
        let mut batch = vec![
            op(b"/a/new", ChangeKind::Created, observation(7, Kind::File)),
            op(b"/a/old", ChangeKind::Deleted, observation(7, Kind::File)),
            op(b"/a/older", ChangeKind::Deleted, observation(7, Kind::File)),
        ];
        recognize(&mut batch);
        assert!(kinds(&batch).iter().all(|kind| *kind != Some(ChangeKind::Moved)));
    }
}
