//! Security rules, which grant roles to logins with an authorization context: list, create, change,
//! delete.

use registry::{SecurityChange, SecurityImage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    RESERVED_ID_MAX, RULE_ID, Sort, check_name, deletable, ids_or_all, listed, one, refusal,
    single, some_ids,
};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::listing::Listing;
use rest::http::operation::{COMMON, Handler, LISTED, Operation, PAGING, Shape, Verb, action};

const SORT: Sort = Sort { kind: "rule:id", missing: Code::SecurityRuleMissing };
/// Largest rule, bytes of JSON.
const RULE_BYTES_MAX: usize = 64 * 1024;

pub const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/security/rules",
        id: "security.rules",
        about: "Rules over authorization contexts with the numbers of the roles they give.",
        access: action("security:read", "rule:id"),
        parameters: &[&[some_ids("rule_ids")], COMMON, PAGING, LISTED],
        body: None,
        shape: Shape::List("RuleItem"),
        handler: Handler::Blocking(list),
    },
    Operation {
        verb: Verb::Post,
        path: "/security/rules",
        id: "security.rule_create",
        about: "Create a rule.",
        access: action("security:create", "*:*"),
        parameters: &[COMMON],
        body: Some("RuleBody"),
        shape: Shape::List("RuleItem"),
        handler: Handler::Blocking(create),
    },
    Operation {
        verb: Verb::Delete,
        path: "/security/rules",
        id: "security.rules_delete",
        about: "Delete rules; tokens made with a context are refused from then on.",
        access: action("security:delete", "rule:id"),
        parameters: &[&[ids_or_all("rule_ids")], COMMON],
        body: None,
        shape: Shape::List("RuleItem"),
        handler: Handler::Blocking(delete),
    },
    Operation {
        verb: Verb::Put,
        path: "/security/rules/{rule_id}",
        id: "security.rule_update",
        about: "Change a rule; tokens made with a context are refused from then on.",
        access: action("security:update", "rule:id"),
        parameters: &[&[RULE_ID], COMMON],
        body: Some("RuleChange"),
        shape: Shape::List("RuleItem"),
        handler: Handler::Blocking(update),
    },
];

/// A rule.
#[derive(Serialize, ToSchema)]
pub struct RuleItem {
    id: u32,
    name: String,
    #[schema(value_type = Object)]
    rule: Value,
    /// Numbers of the roles it gives.
    roles: Vec<u32>,
}

/// A rule to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleBody {
    /// 1 to 64 characters.
    #[schema(min_length = 1, max_length = 64)]
    name: String,
    /// Operators FIND, FIND$, MATCH, MATCH$, AND, OR and NOT.
    #[schema(value_type = Object)]
    rule: Value,
}

/// Changes of a rule.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleChange {
    /// 1 to 64 characters.
    #[schema(min_length = 1, max_length = 64)]
    name: Option<String>,
    /// Operators FIND, FIND$, MATCH, MATCH$, AND, OR and NOT.
    #[schema(value_type = Option<Object>)]
    rule: Option<Value>,
}

/// Parses a stored rule; a damaged one is returned as text.
pub(super) fn body(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn items(image: SecurityImage) -> Result<Vec<(u32, Value)>, Failure> {
    let item = |row: registry::RuleRow| {
        let id = row.id;
        let item = RuleItem { id, name: row.name, rule: body(&row.body), roles: row.roles };
        Ok((id, to_value(&item)?))
    };
    image.rules.into_iter().map(item).collect()
}

fn item(call: &Call, id: u32) -> Result<Option<Value>, Failure> {
    let items = items(call.registry().security(call.reader())?)?;
    Ok(items.into_iter().find(|(known, _)| *known == id).map(|(_, item)| item))
}

/// Validates a rule and returns its stored form.
fn checked(rule: &Value) -> Result<String, Failure> {
    let bad = |cause: &str| {
        Failure::detailed(Code::NameOrRuleInvalid, format!("not a rule over contexts: {cause}"))
    };
    let text = rule.to_string();
    if text.len() > RULE_BYTES_MAX {
        return Err(bad(&format!("{} bytes, at most {RULE_BYTES_MAX}", text.len())));
    }
    registry::check_rule(rule).map_err(|cause| bad(&cause))?;
    Ok(text)
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let listing = Listing {
        fields: &["id", "name", "rule", "roles"],
        always: &["id"],
        messages: [
            "All specified security rules were returned",
            "Some security rules were not returned",
            "No security rules were returned",
        ],
    };
    let items = items(call.registry().security(call.reader())?)?;
    Ok(Answer::List(listed(call, &SORT, "rule_ids", items, &listing)?))
}

fn create(call: &Call) -> Result<Answer, Failure> {
    let new: RuleBody = call.json()?;
    check_name(&new.name)?;
    let messages = ["Security rule was successfully created", "", "Security rule was not created"];
    let change = SecurityChange::CreateRule { name: new.name.clone(), body: checked(&new.rule)? };
    Ok(Answer::List(match call.registry().change_security(&call.context, change) {
        Ok(id) => single(item(call, id)?, None, messages),
        Err(error) => single(
            None,
            Some((
                refusal(error, Code::SecurityRuleMissing, Code::NameOrRuleExists)?,
                new.name.into(),
            )),
            messages,
        ),
    }))
}

fn update(call: &Call) -> Result<Answer, Failure> {
    let id = one(call, "rule_id");
    let change: RuleChange = call.json()?;
    if change.name.is_none() && change.rule.is_none() {
        return Err(Failure::code(Code::NothingToChange));
    }
    change.name.as_deref().map_or(Ok(()), check_name)?;
    let messages = ["Security rule was successfully updated", "", "Security rule was not updated"];
    let failed = |code| Ok(Answer::List(single(None, Some((code, id.into())), messages)));
    if id <= RESERVED_ID_MAX {
        return failed(Code::Reserved);
    }
    let rows = call.registry().security(call.reader())?.rules;
    let Some(known) = rows.into_iter().find(|row| row.id == id) else {
        return failed(Code::SecurityRuleMissing);
    };
    let body = change.rule.as_ref().map_or(Ok(known.body), checked)?;
    let name = change.name.unwrap_or(known.name);
    match call
        .registry()
        .change_security(&call.context, SecurityChange::ReplaceRule { id, name, body })
    {
        Ok(_) => Ok(Answer::List(single(item(call, id)?, None, messages))),
        Err(error) => failed(refusal(error, Code::SecurityRuleMissing, Code::NameOrRuleExists)?),
    }
}

fn delete(call: &Call) -> Result<Answer, Failure> {
    let items = items(call.registry().security(call.reader())?)?;
    let known: Vec<u32> = items.iter().map(|(id, _)| *id).collect();
    let (wanted, mut failed) = deletable(call, &SORT, "rule_ids", &known, Code::Reserved);
    let mut gone = Vec::new();
    for id in wanted {
        match call.registry().change_security(&call.context, SecurityChange::DeleteRule(id)) {
            Ok(_) => gone.extend(items.iter().find(|(k, _)| *k == id).map(|(_, i)| i.clone())),
            Err(error) => {
                failed.push((refusal(error, Code::SecurityRuleMissing, Code::Internal)?, id));
            }
        }
    }
    let total = gone.len() as u64;
    Ok(Answer::List(
        List::new(
            gone,
            total,
            [
                "All specified security rules were deleted",
                "Some security rules were not deleted",
                "No security rules were deleted",
            ],
        )
        .with_failed(failed),
    ))
}
