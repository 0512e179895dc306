//! The numbers in `event.kind`: the kind of an event plus [`CAUSE_STEP`] times the cause of a change.
//! The indices and counters over kinds serve causes too.

use model::CauseKind;

use crate::query::EventKind;

/// Distance between the numbers of one kind with successive causes.
pub(super) const CAUSE_STEP: i64 = 16;

/// All causes, in the order of their numbers.
pub(super) const CAUSES: [CauseKind; 3] =
    [CauseKind::Unexplained, CauseKind::Package, CauseKind::Deployment];

/// Returns the number of a kind in the database, without a cause.
pub(super) fn kind_number(kind: EventKind) -> i64 {
    match kind {
        EventKind::Created => 0,
        EventKind::Modified => 1,
        EventKind::Deleted => 2,
        EventKind::Coverage => 3,
        EventKind::Other => 4,
        EventKind::OpenGap => 5,
        EventKind::EndedGap => 6,
        EventKind::Moved => 7,
        EventKind::Transient => 8,
    }
}

/// Returns the kind with a number.
pub(super) fn kind_of(number: i64) -> EventKind {
    let of_number = |kind: &EventKind| kind_number(*kind) == number % CAUSE_STEP;
    EventKind::ALL.into_iter().find(of_number).unwrap_or(EventKind::Other)
}

fn cause_number(cause: CauseKind) -> i64 {
    match cause {
        CauseKind::Unexplained => 0,
        CauseKind::Package => 1,
        CauseKind::Deployment => 2,
    }
}

/// Returns the cause with a number.
pub(super) fn cause_of(number: i64) -> CauseKind {
    let of_number = |cause: &CauseKind| cause_number(*cause) == number / CAUSE_STEP;
    CAUSES.into_iter().find(of_number).unwrap_or_default()
}

/// Returns the number of a kind with a cause. Only changes have one.
pub(super) fn number(kind: EventKind, cause: CauseKind) -> i64 {
    let cause = if EventKind::CHANGES.contains(&kind) { cause } else { CauseKind::Unexplained };
    kind_number(kind) + CAUSE_STEP * cause_number(cause)
}

/// Returns the numbers of all events with one of these kinds and one of these causes.
pub(super) fn numbers(kinds: &[EventKind], causes: &[CauseKind]) -> Vec<i64> {
    let each = kinds.iter().flat_map(|kind| causes.iter().map(|cause| (*kind, *cause)));
    let exists = |(kind, cause): &(EventKind, CauseKind)| cause_of(number(*kind, *cause)) == *cause;
    let mut numbers: Vec<i64> = each.filter(exists).map(|(k, c)| number(k, c)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
