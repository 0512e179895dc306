//! Policies: list, create, change, delete.

use registry::{Policy, SecurityChange};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::entries::{self, MatchCount};
use super::{
    POLICY_ID, RESERVED_ID_MAX, Sort, check_name, deletable, ids_or_all, listed, one, refusal,
    single, some_ids,
};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, FailedId, List, to_value};
use rest::http::listing::Listing;
use rest::http::operation::{COMMON, Handler, LISTED, Operation, PAGING, Shape, Verb, action};

const SORT: Sort = Sort { kind: "policy:id", missing: Code::PolicyMissing };

pub const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/security/policies",
        id: "security.policies",
        about: "Policies with the numbers of the roles that have them.",
        access: action("security:read", "policy:id"),
        parameters: &[&[some_ids("policy_ids")], COMMON, PAGING, LISTED],
        body: None,
        shape: Shape::List("PolicyItem"),
        handler: Handler::Blocking(list),
    },
    Operation {
        verb: Verb::Post,
        path: "/security/policies",
        id: "security.policy_create",
        about: "Create a policy.",
        access: action("security:create", "*:*"),
        parameters: &[COMMON],
        body: Some("NewPolicy"),
        shape: Shape::List("PolicyItem"),
        handler: Handler::Blocking(create),
    },
    Operation {
        verb: Verb::Delete,
        path: "/security/policies",
        id: "security.policies_delete",
        about: "Delete policies; tokens of the roles that have them are refused from then on.",
        access: action("security:delete", "policy:id"),
        parameters: &[&[ids_or_all("policy_ids")], COMMON],
        body: None,
        shape: Shape::List("PolicyItem"),
        handler: Handler::Blocking(delete),
    },
    Operation {
        verb: Verb::Put,
        path: "/security/policies/{policy_id}",
        id: "security.policy_update",
        about: "Change a policy; tokens of the roles that have it are refused from then on.",
        access: action("security:update", "policy:id"),
        parameters: &[&[POLICY_ID], COMMON],
        body: Some("PolicyChange"),
        shape: Shape::List("PolicyItem"),
        handler: Handler::Blocking(update),
    },
];

/// A policy.
#[derive(Serialize, ToSchema)]
pub struct PolicyItem {
    id: u32,
    name: String,
    policy: PolicyBody,
    /// Numbers of the roles that have it.
    roles: Vec<u32>,
    /// Number of agents and groups each resource that names some matches now.
    matches: Vec<MatchCount>,
    /// Entries that do not work as written: they match nothing, or would be refused today.
    warnings: Vec<String>,
}

/// Content of a policy.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyBody {
    /// Actions, for example `agent:read`.
    pub(super) actions: Vec<String>,
    /// Resources, for example `agent:id:001`, `agent:group:web`, `agent:id:*`; two joined with `&`
    /// must both fit.
    pub(super) resources: Vec<String>,
    /// `allow` or `deny`.
    pub(super) effect: String,
}

/// A policy to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPolicy {
    /// 1 to 64 characters.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    policy: PolicyBody,
}

/// Changes of a policy.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyChange {
    /// 1 to 64 characters.
    #[schema(min_length = 1, max_length = 64)]
    name: Option<String>,
    policy: Option<PolicyBody>,
}

pub(super) fn body(policy: &Policy) -> PolicyBody {
    PolicyBody {
        actions: policy.actions.clone(),
        resources: policy.resources.clone(),
        effect: if policy.allow { "allow" } else { "deny" }.into(),
    }
}

/// Returns every policy with its id, as the API shows it.
fn items(call: &Call) -> Result<Vec<(u32, Value)>, Failure> {
    let registry = call.registry();
    let image = registry.security(call.reader())?;
    let groups: Vec<String> =
        registry.groups(call.reader())?.into_iter().map(|group| group.name).collect();
    let item = |row: registry::PolicyRow| {
        let id = row.policy.id;
        let policy = body(&row.policy);
        let matches = entries::match_counts(&row.policy, registry, &groups);
        let warnings = entries::warnings(&row.policy, &matches, &call.api.needs);
        let (name, roles) = (row.policy.name, row.roles);
        let item = PolicyItem { id, name, policy, roles, matches, warnings };
        Ok((id, to_value(&item)?))
    };
    image.policies.into_iter().map(item).collect()
}

fn item(call: &Call, id: u32) -> Result<Option<Value>, Failure> {
    Ok(items(call)?.into_iter().find(|(known, _)| *known == id).map(|(_, item)| item))
}

/// Converts a body into a stored policy. The error is the reason for which it is refused (4006).
fn read(call: &Call, id: u32, name: String, body: PolicyBody) -> Result<Policy, String> {
    let body = in_lower_case(body);
    let allow = match body.effect.as_str() {
        "allow" => true,
        "deny" => false,
        other => return Err(format!("effect {other:?}: write allow or deny")),
    };
    let policy = Policy { id, name, actions: body.actions, resources: body.resources, allow };
    entries::refusal(&policy, &call.api.needs).map_or(Ok(policy), Err)
}

/// Returns the policy as it is stored: everything but the values of resources in lower case.
fn in_lower_case(mut body: PolicyBody) -> PolicyBody {
    for resource in &mut body.resources {
        let part = |part: &str| {
            let value = part.match_indices(':').nth(1).map_or(part.len(), |(at, _)| at);
            let (kind, value) = part.split_at(value);
            kind.to_lowercase() + value
        };
        *resource = resource.split('&').map(part).collect::<Vec<_>>().join("&");
    }
    body.actions.iter_mut().for_each(|action| *action = action.to_lowercase());
    body.effect = body.effect.to_lowercase();
    body
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let listing = Listing {
        fields: &[
            "id",
            "name",
            "policy",
            "roles",
            "policy.actions",
            "policy.resources",
            "policy.effect",
            "matches",
            "warnings",
        ],
        always: &["id"],
        messages: [
            "All specified policies were returned",
            "Some policies were not returned",
            "No policies were returned",
        ],
    };
    let items = items(call)?;
    Ok(Answer::List(listed(call, &SORT, "policy_ids", items, &listing)?))
}

/// Returns the answer for a policy that is refused, with the entry and the reason.
fn invalid(reason: &str, id: FailedId, messages: [&'static str; 3]) -> Answer {
    let mut list = single(None, None, messages);
    list.fail_detailed(Code::PolicyInvalid, format!("not a policy: {reason}"), id);
    Answer::List(list)
}

fn create(call: &Call) -> Result<Answer, Failure> {
    let new: NewPolicy = call.json()?;
    check_name(&new.name)?;
    let messages = ["Policy was successfully created", "", "Policy was not created"];
    let failed =
        |code| Ok(Answer::List(single(None, Some((code, new.name.clone().into())), messages)));
    let policy = match read(call, 0, new.name.clone(), new.policy) {
        Ok(policy) => policy,
        Err(reason) => return Ok(invalid(&reason, new.name.into(), messages)),
    };
    match call.registry().change_security(&call.context, SecurityChange::CreatePolicy(policy)) {
        Ok(id) => Ok(Answer::List(single(item(call, id)?, None, messages))),
        Err(error) => failed(refusal(error, Code::PolicyMissing, Code::PolicyExists)?),
    }
}

fn update(call: &Call) -> Result<Answer, Failure> {
    let id = one(call, "policy_id");
    let change: PolicyChange = call.json()?;
    if change.name.is_none() && change.policy.is_none() {
        return Err(Failure::code(Code::NothingToChange));
    }
    change.name.as_deref().map_or(Ok(()), check_name)?;
    let messages = ["Policy was successfully updated", "", "Policy was not updated"];
    let failed = |code| Ok(Answer::List(single(None, Some((code, id.into())), messages)));
    if id <= RESERVED_ID_MAX {
        return failed(Code::Reserved);
    }
    let rows = call.registry().security(call.reader())?.policies;
    let Some(known) = rows.into_iter().find(|row| row.policy.id == id) else {
        return failed(Code::PolicyMissing);
    };
    let name = change.name.unwrap_or(known.policy.name.clone());
    let policy = match change.policy {
        Some(body) => read(call, id, name, body),
        None => Ok(Policy { name, ..known.policy }),
    };
    let policy = match policy {
        Ok(policy) => policy,
        Err(reason) => return Ok(invalid(&reason, id.into(), messages)),
    };
    match call.registry().change_security(&call.context, SecurityChange::ReplacePolicy(policy)) {
        Ok(_) => Ok(Answer::List(single(item(call, id)?, None, messages))),
        Err(error) => failed(refusal(error, Code::PolicyMissing, Code::PolicyNameExists)?),
    }
}

fn delete(call: &Call) -> Result<Answer, Failure> {
    let items = items(call)?;
    let known: Vec<u32> = items.iter().map(|(id, _)| *id).collect();
    let (wanted, mut failed) = deletable(call, &SORT, "policy_ids", &known, Code::Reserved);
    let mut gone = Vec::new();
    for id in wanted {
        match call.registry().change_security(&call.context, SecurityChange::DeletePolicy(id)) {
            Ok(_) => gone.extend(items.iter().find(|(k, _)| *k == id).map(|(_, i)| i.clone())),
            Err(error) => failed.push((refusal(error, Code::PolicyMissing, Code::Internal)?, id)),
        }
    }
    let total = gone.len() as u64;
    Ok(Answer::List(
        List::new(
            gone,
            total,
            [
                "All specified policies were deleted",
                "Some policies were not deleted",
                "No policies were deleted",
            ],
        )
        .with_failed(failed),
    ))
}
