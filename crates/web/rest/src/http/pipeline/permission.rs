//! Checks of a caller's permissions on the resources that a request names.

use model::AgentId;
use registry::Registry;

use crate::access::caller::Caller;
use crate::error::Failure;
use crate::http::call::Call;
use crate::http::operation::{Access, Operation};

/// Refuses a request unless the caller may perform the operation's action on the resource named in the
/// path or, if there is none, on any resource of the type. Lists are filtered by the operation's code;
/// those of the 4.x API may be empty.
pub(super) fn on_path(
    registry: &Registry,
    caller: &Caller,
    operation: &Operation,
    path: &[(String, String)],
) -> Result<(), Failure> {
    let access = operation.access;
    let (Caller::User { grants, .. }, Access::Action { action, resource }) = (caller, access)
    else {
        return Ok(());
    };
    let fine = match (named(path, resource), resource) {
        // An invalid agent number is rejected later, when the parameters are validated.
        (Some(value), "agent:id") if value.parse::<AgentId>().is_err() => {
            grants.permit_some(action, resource)
        }
        (Some(value), _) => {
            if !caller.may(registry, action, resource, &value) {
                return Err(Failure::denied_on(resource, &[value]));
            }
            true
        }
        (None, NO_RESOURCE) => grants.permit(action, &[(NO_RESOURCE, "*")]),
        (None, _) => operation.narrows() || grants.permit_some(action, resource),
    };
    if fine { Ok(()) } else { Err(Failure::denied(resource)) }
}

/// The query parameter that lists resources of a type.
const LISTS: &[(&str, &str)] = &[
    ("agent:id", "agents_list"),
    ("group:id", "groups_list"),
    ("node:id", "nodes_list"),
    ("user:id", "user_ids"),
    ("role:id", "role_ids"),
    ("policy:id", "policy_ids"),
    ("rule:id", "rule_ids"),
    ("rule:file", "filename"),
];

/// Refuses a request that lists resources if the caller may perform the action on none of them. If at
/// least one is permitted, the others are reported as failed items.
pub(super) fn on_list(call: &Call, access: Access) -> Result<(), Failure> {
    let (Caller::User { .. }, Access::Action { action, resource }) = (&call.caller, access) else {
        return Ok(());
    };
    let Some((_, name)) = LISTS.iter().find(|(kind, _)| *kind == resource) else { return Ok(()) };
    let names: Vec<String> = if let Some(ids) = call.parameters.agents(name) {
        let agents = resource == "agent:id";
        let scope = agents.then(|| call.scope());
        if scope.as_ref().is_some_and(|scope| ids.iter().any(|id| scope.holds(*id))) {
            return Ok(());
        }
        let shown = |id: &AgentId| if agents { id.to_string() } else { id.0.to_string() };
        ids.iter().map(shown).collect()
    } else {
        call.parameters.list(name).to_vec()
    };
    let allowed = |name: &String| name == "all" || call.may(action, resource, name);
    if names.is_empty() || (resource != "agent:id" && names.iter().any(allowed)) {
        return Ok(());
    }
    Err(Failure::denied_on(resource, &names))
}

/// The resource type of operations without a resource.
const NO_RESOURCE: &str = "*:*";

/// The path parameter that names a resource of a type.
const NAMED: &[(&str, &str)] = &[
    ("agent:id", "agent_id"),
    ("group:id", "group_id"),
    ("node:id", "node_id"),
    ("user:id", "user_id"),
    ("role:id", "role_id"),
    ("policy:id", "policy_id"),
    ("rule:id", "rule_id"),
    ("rule:file", "filename"),
];

/// Returns the resource of the request as policies name it. Leading zeros of numbers are normalized, so
/// that they do not name a different resource.
fn named(path: &[(String, String)], resource: &str) -> Option<String> {
    let (_, parameter) = NAMED.iter().find(|(kind, _)| *kind == resource)?;
    let (_, value) = path.iter().find(|(name, _)| name == parameter)?;
    let number = !matches!(resource, "group:id" | "node:id" | "rule:file");
    let number = number.then(|| value.parse::<u32>().ok()).flatten();
    Some(number.map_or_else(|| value.clone(), |number| number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_of_an_id_name_the_same_resource() {
        let of = |name: &str, id: &str, kind| named(&[(name.into(), id.into())], kind);
        for id in ["7", "007", "0007", "+007"] {
            assert_eq!(of("agent_id", id, "agent:id").as_deref(), Some("7"));
            assert_eq!(of("role_id", id, "role:id").as_deref(), Some("7"));
        }
        assert_eq!(of("group_id", "007", "group:id").as_deref(), Some("007"));
        assert_eq!(of("agent_id", "007", "group:id"), None);
        assert_eq!(named(&[], "agent:id"), None);
    }
}
