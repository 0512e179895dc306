//! The suite that every [`StateStore`] passes, one function per promise. An engine's tests call
//! [`state_conformance`] with a function that makes an empty store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test suite: a failure is a panic"
)]

mod causes;
mod changes;
mod documents;
mod gaps;
mod lives;
mod records;

use model::document::NoNames;
use model::{
    AgentId, Applied, Change, ChangeKind, Dataset, EventBody, Fields, FileDocument, Incarnation,
    ItemKey, Kind, Observation, Overlay, Position, Record, SessionRecord, Write,
};

pub use causes::*;
pub use changes::*;
pub use documents::*;
pub use gaps::*;
pub use lives::*;
pub use records::*;

use state::{Reader, StateStore};

/// Generates a test for each promise: `state_conformance!(make)`, where `make()` returns an empty
/// store (anything that dereferences to one).
#[macro_export]
macro_rules! state_conformance {
    ($make:expr) => {
        $crate::state_conformance!($make;
            batch_stores_its_position_and_is_applied_once,
            stale_write_is_skipped_with_the_stored_version,
            document_update_can_change_its_path,
            unversioned_write_ignores_the_stored_version,
            repeated_writes_in_a_new_session_change_nothing,
            late_upsert_does_not_revive_a_deleted_document,
            clean_removes_documents_and_tombstones_of_one_dataset,
            invalid_bodies_and_ids_are_skipped_with_a_reason,
            removing_an_agent_drops_documents_and_keeps_events,
            late_record_of_removed_agent_is_refused,
            new_incarnation_starts_without_documents,
            event_belongs_to_the_incarnation_that_reported_it,
            replayed_session_writes_nothing_and_reports_newer_versions,
            last_sessions_of_an_agent_are_remembered,
            reused_session_id_with_other_content_is_another_session,
            outdated_session_writes_nothing_and_is_reported,
            removed_unregistered_sessions_are_not_reapplied,
            unregistered_number_restarts_after_removal_and_ends_no_life,
            agent_overlay_is_replaced_only_by_newer_versions,
            unappliable_record_is_quarantined_with_coverage_event,
            undecodable_record_is_quarantined_once,
            last_session_is_stored_per_agent,
            last_report_of_each_kind_is_stored_until_its_life_ends,
            description_raises_the_version_of_named_datasets,
            counters_match_stored_documents_and_events,
            retention_drops_expired_tombstones,
            documents_are_sorted_by_path_and_paged_by_cursor,
            documents_are_sorted_by_fields_and_paged_by_offset,
            document_conditions_select_matching_documents,
            query_text_is_never_run_as_sql,
            document_query_above_a_limit_is_refused,
            dataset_checksum_hashes_sorted_document_checksums,
            id_ranges_visit_matching_documents_and_other_ids_once,
            changes_are_newest_first_without_duplicates,
            change_pages_are_stable_while_events_arrive,
            changes_filter_by_agent_path_kind_and_time,
            changes_are_found_by_user_process_and_former_path,
            changes_are_selected_by_cause_and_counted,
            unexplained_changes_are_listed_first_on_stable_pages,
            collapsed_list_shows_the_newest_change_of_each_cause,
            collapsed_changes_are_those_that_the_query_selects,
            large_and_small_path_prefixes_return_equal_changes,
            changes_since_a_number_arrived_after_it,
            retention_drops_old_events_and_adds_coverage_event,
            size_retention_drops_oldest_events_first,
            gap_is_open_until_the_agent_has_reported_its_absence,
            event_of_an_ended_life_opens_no_gap,
            agent_cannot_open_a_gap_itself,
        );
    };
    ($make:expr; $($promise:ident,)*) => {
        $(#[test] fn $promise() { $crate::$promise(&*$make()); })*
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
        from: None,
        seen: None,
        cause: None,
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
    let mut query = state::DocumentQuery::new(AgentId(agent), Dataset::fim_files());
    query.limit = state::limits::PAGE_ITEMS_MAX;
    let page = store.documents(&Reader::server(), &query).unwrap();
    assert_eq!(page.total, page.items.len() as u64);
    page.items.iter().map(path_of).collect()
}

/// Returns the path in a document's body.
pub fn path_of(document: &state::StoredDocument) -> String {
    serde_json::from_slice::<FileDocument>(&document.body).unwrap().file.path
}
