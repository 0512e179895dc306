//! The entries of policies: which actions and resources are accepted, and what they match now.
//!
//! A policy whose entries match nothing does nothing, so a deny with a typo would deny nothing. A
//! policy that can never match is refused. One that matches nothing now, or was stored before these
//! checks, is listed with a warning.

use model::AgentId;
use registry::{Policy, Registry, RegistryError};
use rest::http::api::RequiredAction;
use rest::http::parameters::is_group;
use serde::Serialize;
use utoipa::ToSchema;

use super::RESERVED_ID_MAX;
use super::catalogue::RESOURCE_NAMES;

/// Most actions or resources of one policy.
const ENTRIES_MAX: usize = 256;
/// Longest action or resource, bytes.
const ENTRY_BYTES_MAX: usize = 512;
/// Most resources joined with `&`.
const PARTS_MAX: usize = 2;

/// Actions of the Wazuh API 4.x. Its clients store them in policies, whether an operation here needs
/// them or not. Source: its reference, "RBAC reference".
const COMPATIBLE_ACTIONS: &[&str] = &[
    "active-response:command",
    "agent:create",
    "agent:delete",
    "agent:modify_group",
    "agent:read",
    "agent:reconnect",
    "agent:restart",
    "agent:uninstall",
    "agent:upgrade",
    "ciscat:read",
    "cluster:delete_file",
    "cluster:read",
    "cluster:read_api_config",
    "cluster:restart",
    "cluster:status",
    "cluster:update_api_config",
    "cluster:update_config",
    "cluster:upload_file",
    "decoders:delete",
    "decoders:read",
    "decoders:update",
    "event:ingest",
    "group:create",
    "group:delete",
    "group:modify_assignments",
    "group:read",
    "group:update_config",
    "lists:delete",
    "lists:read",
    "lists:update",
    "logtest:run",
    "manager:delete_file",
    "manager:read",
    "manager:read_api_config",
    "manager:restart",
    "manager:update_api_config",
    "manager:update_config",
    "manager:upload_file",
    "mitre:read",
    "rootcheck:clear",
    "rootcheck:read",
    "rootcheck:run",
    "rules:delete",
    "rules:read",
    "rules:update",
    "sca:read",
    "security:create",
    "security:create_user",
    "security:delete",
    "security:edit_run_as",
    "security:read",
    "security:read_config",
    "security:revoke",
    "security:update",
    "security:update_config",
    "stats:read",
    "syscheck:clear",
    "syscheck:read",
    "syscheck:run",
    "syscollector:read",
    "tags:create",
    "tags:delete",
    "tags:read",
    "tags:update",
    "task:status",
    "vulnerability:read",
    "vulnerability:run",
];

/// The agents and groups that a resource of a policy matches now.
#[derive(Serialize, ToSchema)]
pub struct MatchCount {
    /// The resource, as in the policy.
    resource: String,
    /// Number of agents, 000 included.
    agents: u64,
    /// Number of groups.
    groups: u64,
}

/// Returns the first entry for which a policy is refused, with the reason.
pub(super) fn refusal(policy: &Policy, needs: &[RequiredAction]) -> Option<String> {
    let lists = [("actions", &policy.actions), ("resources", &policy.resources)];
    for (what, list) in lists {
        if !(1..=ENTRIES_MAX).contains(&list.len()) {
            return Some(format!("{what}: {} entries; give 1 to {ENTRIES_MAX}", list.len()));
        }
    }
    let known = |action: &str| is_own(action, needs) || COMPATIBLE_ACTIONS.contains(&action);
    if let Some(action) = policy.actions.iter().find(|action| !known(action)) {
        return Some(format!("{action}: no such action; GET /security/actions lists them"));
    }
    if let Some(reason) = policy.resources.iter().find_map(|text| wrong_resource(text)) {
        return Some(reason);
    }
    let own = policy.actions.iter().any(|action| is_own(action, needs));
    let matches = |resource: &String| can_match(resource, &policy.actions, needs);
    if own && !policy.resources.iter().any(matches) {
        let resource = policy.resources.first().map_or("", String::as_str);
        return Some(format!(
            "{resource}: no action of the policy applies to it; GET /security/actions lists the \
             resources of each"
        ));
    }
    None
}

fn is_own(action: &str, needs: &[RequiredAction]) -> bool {
    needs.iter().any(|need| need.action == action)
}

/// Returns the types of resources, and the values, of the parts of an entry.
fn parts(text: &str) -> impl Iterator<Item = Option<(&'static str, &str)>> {
    text.split('&').map(|part| {
        RESOURCE_NAMES.iter().find_map(|kind| {
            let value = part.strip_prefix(kind)?.strip_prefix(':')?;
            Some((*kind, value))
        })
    })
}

/// Returns the reason for which a resource is refused.
fn wrong_resource(text: &str) -> Option<String> {
    if text.len() > ENTRY_BYTES_MAX || text.split('&').count() > PARTS_MAX {
        return Some(format!(
            "{text}: a resource has at most {ENTRY_BYTES_MAX} bytes and {PARTS_MAX} parts"
        ));
    }
    for part in parts(text) {
        let Some((kind, value)) = part else {
            return Some(format!("{text}: no such resource; GET /security/resources lists them"));
        };
        if let Some(form) = wrong_value(kind, value) {
            return Some(format!("{text}: {value:?} is no value of {kind}; write {form} or *"));
        }
    }
    None
}

/// Returns the form that a value of a type of resource must have, if it has another one.
fn wrong_value(kind: &str, value: &str) -> Option<&'static str> {
    let (fits, form) = match kind {
        "*:*" => (false, "*:*:*"),
        "agent:id" => (value.parse::<AgentId>().is_ok(), "the number of an agent"),
        "agent:group" | "group:id" => (is_group(value), "the name of a group"),
        "policy:id" | "role:id" | "user:id" | "rule:id" => {
            (value.bytes().all(|b| b.is_ascii_digit()) && value.parse::<u32>().is_ok(), "a number")
        }
        _ => {
            let odd = |c: char| c.is_control() || c.is_whitespace() || c == '*';
            (!value.is_empty() && !value.contains(odd), "a name without spaces")
        }
    };
    (!fits && value != "*").then_some(form)
}

/// Returns true if one of the actions applies to one object that all parts of a resource name.
fn can_match(resource: &str, actions: &[String], needs: &[RequiredAction]) -> bool {
    needs.iter().filter(|need| actions.iter().any(|action| action == need.action)).any(|need| {
        parts(resource).all(|part| {
            let kind = part.map(|(kind, _)| kind);
            kind == Some(need.resource)
                || (need.resource == "agent:id" && kind == Some("agent:group"))
        })
    })
}

/// Returns what the resources of a policy that name agents or groups match now.
pub(super) fn match_counts(
    policy: &Policy,
    registry: &Registry,
    groups: &[String],
) -> Vec<MatchCount> {
    let count = |resource: &String| {
        let parts: Option<Vec<_>> = parts(resource).collect();
        let parts = parts?;
        let of_agents = parts.iter().any(|(kind, _)| kind.starts_with("agent:"));
        let names: Vec<&str> =
            parts.iter().filter(|(kind, _)| *kind == "group:id").map(|(_, value)| *value).collect();
        if !of_agents && names.is_empty() {
            return None;
        }
        let is_named = |group: &&String| names.iter().all(|name| *name == "*" || name == group);
        let groups = if of_agents { 0 } else { groups.iter().filter(is_named).count() as u64 };
        Some(MatchCount {
            resource: resource.clone(),
            agents: registry.agents_of_resource(resource),
            groups,
        })
    };
    policy.resources.iter().filter_map(count).collect()
}

/// Returns what is wrong with a stored policy: the reason for which it would be refused today, and
/// each of its resources that matches nothing.
pub(super) fn warnings(
    policy: &Policy,
    counts: &[MatchCount],
    needs: &[RequiredAction],
) -> Vec<String> {
    if policy.id <= RESERVED_ID_MAX {
        return Vec::new();
    }
    if let Some(reason) = refusal(policy, needs) {
        return vec![reason];
    }
    let own = policy.actions.iter().any(|action| is_own(action, needs));
    let unused = policy.resources.iter().filter(|r| own && !can_match(r, &policy.actions, needs));
    let unused = unused.map(|r| format!("{r}: no action of the policy applies to it"));
    let none = counts.iter().filter(|count| count.agents == 0 && count.groups == 0);
    let none = none.map(|count| format!("{}: matches no agent and no group now", count.resource));
    unused.chain(none).collect()
}

/// Logs stored policies that would be refused today.
///
/// # Errors
/// Returns an error if the store fails.
pub fn name_wrong_policies(
    registry: &Registry,
    needs: &[RequiredAction],
) -> Result<(), RegistryError> {
    for row in registry.security(&registry::Reader::server())?.policies {
        let (id, name) = (row.policy.id, &row.policy.name);
        if let Some(cause) = refusal(&row.policy, needs).filter(|_| id > RESERVED_ID_MAX) {
            tracing::warn!(id, name, cause, "a policy does not work as written: change it");
        }
    }
    Ok(())
}
