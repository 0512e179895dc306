//! The suite that every [`ControlStore`] passes, one function per promise. An engine's tests call
//! [`crate::control_conformance`] with a function that makes an empty store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test suite: a failure is a panic"
)]

mod agents;
mod audit;
mod commands;
mod enrolment;
mod groups;
mod lists;
mod users;

use std::sync::Arc;

use model::{AgentId, Incarnation, Permitted};
use sqlite::Reader;

pub use agents::*;
pub use audit::*;
pub use commands::*;
pub use enrolment::*;
pub use groups::*;
pub use lists::*;
pub use users::*;

use crate::{AgentQuery, ControlStore, NewAgent, WriteContext};

/// Makes a test of each promise: `control_conformance!(make)`, where `make()` returns an empty
/// store (anything that dereferences to one).
#[macro_export]
macro_rules! control_conformance {
    ($make:expr) => {
        $crate::control_conformance!($make;
            agent_numbers_ascend_and_are_not_reused,
            freed_number_is_given_once_on_request,
            adding_agents_is_all_or_nothing,
            names_that_differ_only_in_case_are_duplicates,
            replacing_agent_takes_a_freed_number,
            reinserted_agent_keeps_groups_and_incarnation,
            try_replace_agents_changes_nothing,
            server_agent_is_not_counted_or_removable,
            rows_of_another_incarnation_are_skipped,
            last_scan_keeps_times_that_are_not_reported,
            watch_reports_are_selected_by_state_and_permission,
            control_image_contains_all_rows_kept_in_memory,
            enrolment_token_registers_at_most_its_uses,
            refused_enrolment_does_not_use_the_token,
            enrolment_tokens_end_by_revocation_and_expiry,
            unused_enrolment_is_found_by_its_own_or_a_valid_token,
            used_or_revoked_enrolment_is_not_found,
            renewal_deletes_superseded_unused_certificates,
            removing_agents_revokes_their_certificates,
            agent_groups_are_ordered_and_default_when_empty,
            deleting_a_group_removes_it_from_its_agents,
            group_configuration_is_deleted_with_its_group,
            fleet_counters_follow_every_change,
            newest_agent_may_have_a_lower_number,
            agent_filters_and_conditions_select_agents,
            agent_pages_have_order_total_and_missing_ids,
            distinct_values_have_agent_counts,
            agent_list_contains_only_permitted_agents,
            command_counts_follow_its_outcomes,
            command_outcome_moves_only_forward,
            finishing_a_command_expires_open_outcomes,
            command_outcomes_are_paged_by_agent,
            removing_an_agent_cancels_its_open_outcomes,
            reused_number_does_not_see_commands_of_former_agent,
            unfinished_commands_per_user_are_limited,
            first_user_has_reserved_id_and_cannot_be_deleted,
            policies_of_a_role_keep_their_order,
            security_change_and_revocations_are_one_transaction,
            access_returns_user_policies_and_settings,
            revocations_are_only_extended_until_they_expire,
            setting_or_keeps_and_revoke_and_set_replaces,
            change_and_audit_row_are_one_transaction,
            audit_row_is_dropped_unless_something_changed,
            threads_sharing_a_context_write_one_audit_row,
            audit_log_is_paged_newest_first,
            registry_backup_does_not_overwrite_a_file,
        );
    };
    ($make:expr; $($promise:ident,)*) => {
        $(#[test] fn $promise() { $crate::conformance::$promise(&*$make()); })*
    };
}

/// Returns a context for changes that write no row of the audit log.
fn by() -> WriteContext {
    WriteContext::server()
}

fn reader() -> Reader {
    Reader::server()
}

/// Returns an agent to register, without a number, groups or a key.
pub fn new_agent(name: &str) -> NewAgent {
    NewAgent {
        id: None,
        name: name.into(),
        register_ip: "any".into(),
        groups: Vec::new(),
        incarnation: Incarnation(1),
        client_key: None,
        now_s: 100,
    }
}

/// Registers agents with these names; returns their numbers.
pub fn add(store: &dyn ControlStore, names: &[&str]) -> Vec<AgentId> {
    let new: Vec<NewAgent> = names.iter().map(|name| new_agent(name)).collect();
    let rows = store.add_agents(&by(), &new).unwrap();
    rows.into_iter().map(|row| row.record.id).collect()
}

/// Returns the numbers of the matching agents, including the server's.
fn ids(store: &dyn ControlStore, query: &AgentQuery) -> Vec<u32> {
    let page = store.agents(&reader(), query, 1_000).unwrap();
    assert_eq!(page.total, page.items.len() as u64);
    let numbers = store.agent_ids(&reader(), query, 1_000).unwrap();
    let mut sorted: Vec<AgentId> = page.items.iter().map(|item| item.id).collect();
    sorted.sort();
    assert_eq!(sorted, numbers);
    page.items.iter().map(|item| item.id.0).collect()
}

fn only(ids: &[AgentId]) -> Permitted {
    Permitted::Only(Arc::new(ids.to_vec()))
}

fn except(ids: &[AgentId]) -> Permitted {
    Permitted::Except(Arc::new(ids.to_vec()))
}
