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
            numbers_are_drawn_in_order_and_never_again,
            a_freed_number_is_given_to_the_agent_that_asks_for_it,
            agents_are_added_all_or_none,
            a_replaced_agent_gives_up_its_number,
            the_same_agent_inserted_again_keeps_what_it_has,
            a_trial_of_a_replacement_changes_nothing,
            the_server_is_neither_counted_nor_removed,
            rows_of_an_earlier_incarnation_are_passed_over,
            the_last_scan_keeps_what_is_not_reported,
            the_image_holds_everything_that_memory_needs,
            a_token_registers_as_many_agents_as_it_allows,
            a_refused_enrolment_leaves_the_token_unused,
            tokens_end_by_revocation_and_by_time,
            a_renewal_drops_superseded_certificates_never_used,
            removal_revokes_certificates,
            agents_have_groups_in_order_and_never_none,
            a_deleted_group_leaves_its_agents,
            a_configuration_belongs_to_its_group,
            counters_follow_every_change,
            filters_and_conditions_select_agents,
            pages_have_an_order_a_total_and_what_is_missing,
            distinct_values_are_counted,
            a_caller_sees_only_permitted_agents,
            a_command_counts_its_outcomes,
            an_outcome_moves_only_forward,
            a_finished_command_expires_what_is_open,
            outcomes_are_paged_by_agent,
            a_removed_agent_cancels_its_outcomes,
            commands_of_a_reused_number_stay_hidden,
            open_commands_of_one_user_are_limited,
            the_first_user_is_reserved,
            roles_and_policies_keep_their_order,
            a_security_change_and_its_revocations_are_one_step,
            one_call_answers_what_authorisation_asks,
            revocations_only_grow_until_they_expire,
            settings_are_set_once_or_replaced,
            a_change_and_its_audit_row_are_one_transaction,
            an_audit_row_is_left_out_unless_something_changed,
            threads_that_share_a_context_write_one_row,
            the_audit_log_is_paged_newest_first,
            a_backup_is_refused_over_an_existing_file,
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
