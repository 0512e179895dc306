//! The suite that every [`StateStore`] passes, one function per promise. An engine's tests call
//! [`crate::state_conformance`] with a function that makes an empty store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test suite: a failure is a panic"
)]

mod changes;
mod documents;
mod lives;
mod records;

use model::document::NoNames;
use model::{
    AgentId, Applied, Change, ChangeKind, Dataset, EventBody, Fields, FileDocument, Incarnation,
    ItemKey, Kind, Observation, Overlay, Position, Record, SessionRecord, Write,
};

pub use changes::*;
pub use documents::*;
pub use lives::*;
pub use records::*;

use crate::{Reader, StateStore};

/// Generates a test for each promise: `state_conformance!(make)`, where `make()` returns an empty
/// store (anything that dereferences to one).
#[macro_export]
macro_rules! state_conformance {
    ($make:expr) => {
        $crate::state_conformance!($make;
            a_batch_stores_its_position_and_is_applied_once,
            a_lower_version_is_skipped_and_the_winner_named,
            a_document_may_change_its_path,
            an_unversioned_write_is_plain,
            the_same_session_again_changes_nothing,
            a_late_upsert_cannot_revive_a_deleted_document,
            a_clean_empties_one_dataset_alone,
            bodies_and_ids_that_are_none_are_skipped_with_a_reason,
            a_removed_agent_loses_documents_and_keeps_events,
            a_late_record_of_a_removed_agent_is_ignored,
            a_new_life_of_a_number_begins_empty,
            an_event_is_of_the_life_that_told_it,
            replayed_session_writes_nothing_and_reports_newer_versions,
            the_last_sessions_of_an_agent_stay_known,
            reused_session_id_with_other_content_is_another_session,
            a_session_of_long_ago_writes_nothing_and_is_told_so,
            what_local_callers_told_of_a_removed_number_stays_told,
            unregistered_number_restarts_after_removal_and_ends_no_life,
            an_agent_is_what_it_told_last_by_version,
            a_record_that_cannot_be_applied_is_set_aside_and_told,
            bytes_that_are_no_record_are_set_aside_once,
            the_last_session_is_remembered_per_agent,
            counters_are_kept,
            tombstones_go_after_their_time,
            documents_come_by_path_and_page_by_cursor,
            documents_sort_and_page_by_offset,
            conditions_select_what_they_say,
            a_text_in_a_query_is_never_sql,
            a_query_beyond_the_limits_is_refused,
            the_checksum_is_over_sorted_checksums,
            id_ranges_yield_their_documents_and_each_other_id_once,
            events_come_newest_first_and_once,
            pages_of_events_are_stable_while_new_ones_arrive,
            events_are_found_by_agent_path_kind_and_time,
            a_large_path_prefix_finds_the_same_as_a_small_one,
            events_since_a_number_are_those_that_arrived_later,
            old_events_are_dropped_and_told,
            events_beyond_the_size_are_dropped_oldest_first,
        );
    };
    ($make:expr; $($promise:ident,)*) => {
        $(#[test] fn $promise() { $crate::conformance::$promise(&*$make()); })*
    };
}

/// Returns a document of a file.
pub fn document(path: &str, version: u64, edit: impl FnOnce(&mut Observation)) -> Write {
    let key = ItemKey::of_path(path.as_bytes());
    let mut observation = Observation::empty(Kind::File);
    observation.size = path.len() as u64;
    edit(&mut observation);
    let body = FileDocument::new(&key, &observation, version, &NoNames);
    Write::Upsert {
        dataset: Dataset::fim_files(),
        id: key.document_id(),
        version,
        body: serde_json::to_vec(&body).unwrap(),
    }
}

/// Returns the removal of a file's document.
pub fn removal(path: &str, version: u64) -> Write {
    let id = ItemKey::of_path(path.as_bytes()).document_id();
    Write::Delete { dataset: Dataset::fim_files(), id, version }
}

/// Returns an event of a file.
pub fn event(id: &str, path: &str, kind: ChangeKind, found_at_us: u64) -> Write {
    let change = Change {
        key: ItemKey::of_path(path.as_bytes()),
        kind,
        before: Some(Observation::empty(Kind::File)),
        after: Some(Observation::empty(Kind::File)),
        fields: Fields::default(),
        found_at_us,
    };
    Write::Event { id: id.into(), body: EventBody::of_change(&change, &NoNames).to_json() }
}

/// Returns a session of an agent's first life.
pub fn session(agent: u32, received_at_us: u64, writes: Vec<Write>) -> Record {
    session_of_life(agent, 1, received_at_us, writes)
}

/// Returns a session of one of an agent's lives.
pub fn session_of_life(agent: u32, life: u64, received_at_us: u64, writes: Vec<Write>) -> Record {
    Record::Session(SessionRecord {
        agent: AgentId(agent),
        incarnation: Incarnation(life),
        received_at_us,
        session: format!("fim-{received_at_us}"),
        overlay: Overlay { agent_name: format!("agent-{agent}"), ..Overlay::default() },
        writes,
    })
}

/// Applies one record at the next position.
pub fn apply(store: &dyn StateStore, record: Record) -> Applied {
    let next = Position(store.applied().unwrap().0 + 1);
    let mut applied = store.apply(&[(next, record)]).unwrap();
    assert_eq!(applied.len(), 1);
    assert_eq!(store.applied().unwrap(), next);
    applied.remove(0)
}

/// Returns the paths of an agent's documents, in the order of a query without conditions.
pub fn paths(store: &dyn StateStore, agent: u32) -> Vec<String> {
    let mut query = crate::DocumentQuery::new(AgentId(agent), Dataset::fim_files());
    query.limit = crate::limits::PAGE_ITEMS_MAX;
    let page = store.documents(&Reader::server(), &query).unwrap();
    assert_eq!(page.total, page.items.len() as u64);
    page.items.iter().map(path_of).collect()
}

/// Returns the path in a document's body.
pub fn path_of(document: &crate::StoredDocument) -> String {
    serde_json::from_slice::<FileDocument>(&document.body).unwrap().file.path
}
