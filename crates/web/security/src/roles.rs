//! Roles: list, create, rename, delete.

use registry::{SecurityChange, SecurityImage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    RESERVED_ID_MAX, ROLE_ID, Sort, check_name, deletable, ids_or_all, listed, one, refusal,
    single, some_ids,
};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::listing::Listing;
use rest::http::operation::{COMMON, Handler, LISTED, Operation, PAGING, Shape, Verb, action};

const SORT: Sort = Sort { kind: "role:id", missing: Code::RoleMissing };

pub const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/security/roles",
        id: "security.roles",
        about: "Roles with the numbers of their policies, rules and users.",
        access: action("security:read", "role:id"),
        parameters: &[&[some_ids("role_ids")], COMMON, PAGING, LISTED],
        body: None,
        shape: Shape::List("RoleItem"),
        handler: Handler::Blocking(list),
    },
    Operation {
        verb: Verb::Post,
        path: "/security/roles",
        id: "security.role_create",
        about: "Create a role without policies.",
        access: action("security:create", "*:*"),
        parameters: &[COMMON],
        body: Some("RoleBody"),
        shape: Shape::List("RoleItem"),
        handler: Handler::Blocking(create),
    },
    Operation {
        verb: Verb::Delete,
        path: "/security/roles",
        id: "security.roles_delete",
        about: "Delete roles; tokens that carry them are refused from then on.",
        access: action("security:delete", "role:id"),
        parameters: &[&[ids_or_all("role_ids")], COMMON],
        body: None,
        shape: Shape::List("RoleItem"),
        handler: Handler::Blocking(delete),
    },
    Operation {
        verb: Verb::Put,
        path: "/security/roles/{role_id}",
        id: "security.role_update",
        about: "Rename a role; tokens that carry it are refused from then on.",
        access: action("security:update", "role:id"),
        parameters: &[&[ROLE_ID], COMMON],
        body: Some("RoleBody"),
        shape: Shape::List("RoleItem"),
        handler: Handler::Blocking(update),
    },
];

/// A role.
#[derive(Serialize, ToSchema)]
pub struct RoleItem {
    id: u32,
    name: String,
    /// Numbers of its policies in their order.
    policies: Vec<u32>,
    /// Numbers of the users that have it.
    users: Vec<u32>,
    /// Numbers of its rules, ascending.
    rules: Vec<u32>,
}

/// A role to create, or its new name.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleBody {
    /// 1 to 64 characters.
    #[schema(min_length = 1, max_length = 64)]
    name: Option<String>,
}

pub(super) fn items(image: SecurityImage) -> Result<Vec<(u32, Value)>, Failure> {
    let item = |mut role: registry::RoleRow| {
        let id = role.id;
        // Any rule that matches gives the role, so their order has no meaning.
        role.rules.sort_unstable();
        let item = RoleItem {
            id,
            name: role.name,
            policies: role.policies,
            users: role.users,
            rules: role.rules,
        };
        Ok((id, to_value(&item)?))
    };
    image.roles.into_iter().map(item).collect()
}

/// Returns the current state of a role.
pub(super) fn item(call: &Call, id: u32) -> Result<Option<Value>, Failure> {
    let items = items(call.registry().security(call.reader())?)?;
    Ok(items.into_iter().find(|(known, _)| *known == id).map(|(_, item)| item))
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let listing = Listing {
        fields: &["id", "name", "policies", "users", "rules"],
        always: &["id"],
        messages: [
            "All specified roles were returned",
            "Some roles were not returned",
            "No roles were returned",
        ],
    };
    let items = items(call.registry().security(call.reader())?)?;
    Ok(Answer::List(listed(call, &SORT, "role_ids", items, &listing)?))
}

fn create(call: &Call) -> Result<Answer, Failure> {
    let name = call.json::<RoleBody>()?.name.ok_or_else(|| Failure::code(Code::NothingToChange))?;
    check_name(&name)?;
    let messages = ["Role was successfully created", "", "Role was not created"];
    let made = call
        .registry()
        .change_security(&call.context, SecurityChange::CreateRole { name: name.clone() });
    Ok(Answer::List(match made {
        Ok(id) => single(item(call, id)?, None, messages),
        Err(error) => single(
            None,
            Some((refusal(error, Code::RoleMissing, Code::NameOrRuleExists)?, name.into())),
            messages,
        ),
    }))
}

fn update(call: &Call) -> Result<Answer, Failure> {
    let id = one(call, "role_id");
    let name = call.json::<RoleBody>()?.name.ok_or_else(|| Failure::code(Code::NothingToChange))?;
    check_name(&name)?;
    let messages = ["Role was successfully updated", "", "Role was not updated"];
    let failed = |code| Ok(Answer::List(single(None, Some((code, id.into())), messages)));
    if id <= RESERVED_ID_MAX {
        return failed(Code::Reserved);
    }
    match call.registry().change_security(&call.context, SecurityChange::RenameRole { id, name }) {
        Ok(_) => Ok(Answer::List(single(item(call, id)?, None, messages))),
        Err(error) => failed(refusal(error, Code::RoleMissing, Code::NameOrRuleExists)?),
    }
}

fn delete(call: &Call) -> Result<Answer, Failure> {
    let items = items(call.registry().security(call.reader())?)?;
    let known: Vec<u32> = items.iter().map(|(id, _)| *id).collect();
    let (wanted, mut failed) = deletable(call, &SORT, "role_ids", &known, Code::Reserved);
    let mut gone = Vec::new();
    for id in wanted {
        match call.registry().change_security(&call.context, SecurityChange::DeleteRole(id)) {
            Ok(_) => gone.extend(items.iter().find(|(k, _)| *k == id).map(|(_, i)| i.clone())),
            Err(error) => failed.push((refusal(error, Code::RoleMissing, Code::Internal)?, id)),
        }
    }
    let total = gone.len() as u64;
    Ok(Answer::List(
        List::new(
            gone,
            total,
            [
                "All specified roles were deleted",
                "Some roles were not deleted",
                "No roles were deleted",
            ],
        )
        .with_failed(failed),
    ))
}
