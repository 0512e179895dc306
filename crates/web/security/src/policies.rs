//! Policies: list, create, change, delete.

use registry::{Policy, SecurityChange, SecurityImage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::catalogue;
use super::{
    POLICY_ID, RESERVED_ID_MAX, Sort, check_name, deletable, ids_or_all, listed, one, refusal,
    single, some_ids,
};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::listing::Listing;
use rest::http::operation::{COMMON, Handler, LISTED, Operation, PAGING, Shape, Verb, action};

const SORT: Sort = Sort { kind: "policy:id", missing: Code::PolicyMissing };
/// Most actions or resources of one policy.
const ENTRIES_MAX: usize = 256;
/// Longest action or resource, bytes.
const ENTRY_BYTES_MAX: usize = 512;
/// Most resources joined with `&`.
const PARTS_MAX: usize = 2;

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

fn items(image: SecurityImage) -> Result<Vec<(u32, Value)>, Failure> {
    let item = |row: registry::PolicyRow| {
        let id = row.policy.id;
        let policy = body(&row.policy);
        let item = PolicyItem { id, name: row.policy.name, policy, roles: row.roles };
        Ok((id, to_value(&item)?))
    };
    image.policies.into_iter().map(item).collect()
}

fn item(call: &Call, id: u32) -> Result<Option<Value>, Failure> {
    let items = items(call.registry().security(call.reader())?)?;
    Ok(items.into_iter().find(|(known, _)| *known == id).map(|(_, item)| item))
}

/// Converts a body into a stored policy; `None` if it is invalid (4006).
fn read(id: u32, name: String, body: PolicyBody) -> Option<Policy> {
    let body = in_lower_case(body);
    let allow = match body.effect.as_str() {
        "allow" => true,
        "deny" => false,
        _ => return None,
    };
    let counts = |list: &[String]| (1..=ENTRIES_MAX).contains(&list.len());
    let fine = counts(&body.actions)
        && counts(&body.resources)
        && body.actions.iter().all(|text| is_action(text))
        && body.resources.iter().all(|text| is_resource(text));
    fine.then_some(Policy { id, name, actions: body.actions, resources: body.resources, allow })
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

fn word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b"_-".contains(&b))
}

fn is_action(text: &str) -> bool {
    let parts = text.split_once(':');
    text.len() <= ENTRY_BYTES_MAX && parts.is_some_and(|(what, verb)| word(what) && word(verb))
}

fn is_resource(text: &str) -> bool {
    let part = |part: &str| {
        let known = catalogue::RESOURCE_NAMES.iter().find_map(|kind| {
            let value = part.strip_prefix(kind)?.strip_prefix(':')?;
            Some((*kind, value))
        });
        known.is_some_and(|(kind, value)| {
            let whole = kind != "*:*" || value == "*";
            whole
                && !value.is_empty()
                && !value.chars().any(|c| c.is_control() || c.is_whitespace())
        })
    };
    text.len() <= ENTRY_BYTES_MAX
        && text.split('&').count() <= PARTS_MAX
        && text.split('&').all(part)
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
        ],
        always: &["id"],
        messages: [
            "All specified policies were returned",
            "Some policies were not returned",
            "No policies were returned",
        ],
    };
    let items = items(call.registry().security(call.reader())?)?;
    Ok(Answer::List(listed(call, &SORT, "policy_ids", items, &listing)?))
}

fn create(call: &Call) -> Result<Answer, Failure> {
    let new: NewPolicy = call.json()?;
    check_name(&new.name)?;
    let messages = ["Policy was successfully created", "", "Policy was not created"];
    let failed =
        |code| Ok(Answer::List(single(None, Some((code, new.name.clone().into())), messages)));
    let Some(policy) = read(0, new.name.clone(), new.policy) else {
        return failed(Code::PolicyInvalid);
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
        Some(body) => read(id, name, body),
        None => Some(Policy { name, ..known.policy }),
    };
    let Some(policy) = policy else { return failed(Code::PolicyInvalid) };
    match call.registry().change_security(&call.context, SecurityChange::ReplacePolicy(policy)) {
        Ok(_) => Ok(Answer::List(single(item(call, id)?, None, messages))),
        Err(error) => failed(refusal(error, Code::PolicyMissing, Code::PolicyNameExists)?),
    }
}

fn delete(call: &Call) -> Result<Answer, Failure> {
    let items = items(call.registry().security(call.reader())?)?;
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
