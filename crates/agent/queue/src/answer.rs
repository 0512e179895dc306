//! Applies the server's answer to the items of a session.

use model::SkipReason;

use crate::lease::{Lease, LeasedItem};
use crate::place::ItemPlace;
use crate::transition::{ItemMarks, LiftOutcome, acknowledge, restamp};
use crate::txn::Txn;

/// An item of a lease that the server did not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    /// Its index in [`crate::Lease::items`].
    pub index: usize,
    /// The reason of the server.
    pub reason: SkipReason,
    /// With [`SkipReason::Stale`], the version that the server holds.
    pub version: u64,
}

/// Changes made by an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AckOutcome {
    /// Number of rows of deleted items that were removed.
    pub removed: u64,
    /// Number of items that will be sent again with a version above the server's.
    pub restamped: u64,
    /// Number of items that are not sent again until they change.
    pub exceptions: u64,
}

/// Gives the row a new version, so that it is sent again.
pub(crate) fn stamp(
    txn: &mut Txn<'_>,
    place: ItemPlace<'_>,
    row: ItemMarks,
) -> rusqlite::Result<()> {
    let row = restamp(row, txn.tick());
    txn.conn
        .prepare_cached(
            "UPDATE item SET seen = ?4, known = ?5 \
             WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
        )?
        .execute((
            place.dataset,
            place.directory,
            place.name,
            row.version as i64,
            row.server_may_have,
        ))?;
    txn.touch(place, row.version, 0);
    Ok(())
}

/// Applies an accepted session: removes the rows of acknowledged deletes, and handles each skipped
/// item. Other items need no write, because the dataset's watermark covers them.
pub(crate) fn apply_answer(
    txn: &mut Txn<'_>,
    id: i64,
    lease: &Lease,
    skipped: &[Skip],
) -> rusqlite::Result<AckOutcome> {
    let mut outcome = AckOutcome::default();
    let mut skips = skipped.to_vec();
    skips.sort_by_key(|skip| skip.index);
    skips.dedup_by_key(|skip| skip.index);
    let mut skips = skips.into_iter().peekable();
    for (index, (directory, item)) in lease.placed().enumerate() {
        let place = ItemPlace { dataset: id, directory, name: item.key.name };
        match skips.next_if(|skip| skip.index == index) {
            Some(skip) => refuse(txn, place, &item, skip, &mut outcome)?,
            None if item.gone => {
                if let Some(row) = txn.row(place)?
                    && acknowledge(row, item.seen).is_none()
                {
                    txn.remove(place)?;
                    outcome.removed += 1;
                }
            }
            None => {}
        }
    }
    if outcome != AckOutcome::default() {
        // The row with the highest version may have been removed, so the clock is stored.
        crate::schema::set_meta(txn.conn, crate::schema::META_CLOCK, txn.clock.last() as i64)?;
    }
    Ok(outcome)
}

/// Handles an item that the server skipped. A stale item gets a version above the server's. A
/// refused delete removes the row. Any other refusal is stored as an exception until the item
/// changes.
fn refuse(
    txn: &mut Txn<'_>,
    place: ItemPlace<'_>,
    item: &LeasedItem<'_>,
    skip: Skip,
    outcome: &mut AckOutcome,
) -> rusqlite::Result<()> {
    let Some(row) = txn.row(place)? else { return Ok(()) };
    if skip.reason == SkipReason::Stale && txn.clock.lift(skip.version) == LiftOutcome::Done {
        if row.version == item.seen || row.version <= skip.version {
            stamp(txn, place, row)?;
            outcome.restamped += 1;
        }
        return Ok(());
    }
    if row.version != item.seen {
        // It changed after it was sent, and will be sent again anyway.
        return Ok(());
    }
    if row.deleted {
        // A server that refuses the delete holds no document of this item.
        txn.clear_exception(place)?;
        txn.remove(place)?;
        outcome.removed += 1;
        return Ok(());
    }
    let known = txn
        .conn
        .prepare_cached(
            "DELETE FROM exception WHERE dataset = ?1 AND directory = ?2 AND name = ?3",
        )?
        .execute(place.params())?;
    let reason = reason_name(skip.reason);
    txn.conn.prepare_cached("INSERT INTO exception VALUES(?1, ?2, ?3, ?4, ?5)")?.execute((
        place.dataset,
        place.directory,
        place.name,
        item.seen as i64,
        reason,
    ))?;
    *txn.delta.exceptions.entry(place.dataset).or_default() += 1 - known as i64;
    outcome.exceptions += 1;
    Ok(())
}

const REASONS: [(SkipReason, &str); 5] = [
    (SkipReason::Stale, "stale"),
    (SkipReason::Index, "index"),
    (SkipReason::Id, "id"),
    (SkipReason::Json, "json"),
    (SkipReason::TooLarge, "too_large"),
];

fn reason_name(reason: SkipReason) -> &'static str {
    REASONS.iter().find(|(known, _)| *known == reason).map_or("other", |(_, name)| name)
}

/// Returns the reason for a stored name. A name that a later version stored is taken for a refused
/// body.
pub(crate) fn reason_of(name: &str) -> SkipReason {
    REASONS.iter().find(|(_, known)| *known == name).map_or(SkipReason::Json, |(reason, _)| *reason)
}
