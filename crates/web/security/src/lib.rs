//! Access control: logging in and out, users, roles, policies and rules with their links, and the
//! catalogues of actions and resources.
//!
//! Ids up to `RESERVED_ID_MAX` are reserved for the program: they can be read and linked, not
//! changed.

pub mod account;
pub mod audit;
pub mod catalogue;
pub mod config;
mod credentials;
pub mod entries;
pub mod links;
pub mod login;
pub mod policies;
pub mod roles;
pub mod rules;
pub mod users;

use registry::{ControlError, RegistryError};
use serde_json::Value;

use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{FailedId, List};
use rest::http::operation::{Kind, Parameter, path, query, required};

/// The last reserved id.
const RESERVED_ID_MAX: u32 = 99;
/// Longest name of a role, a policy or a rule, characters.
const NAME_CHARS_MAX: usize = 64;

const USER_ID: Parameter = path("user_id", Kind::Id, "Number of the user.");
const ROLE_ID: Parameter = path("role_id", Kind::Id, "Number of the role.");
const POLICY_ID: Parameter = path("policy_id", Kind::Id, "Number of the policy.");
const RULE_ID: Parameter = path("rule_id", Kind::Id, "Number of the rule.");
const POSITION: Parameter = query(
    "position",
    Kind::Position,
    "Position in the order, from 0; default the end. A later policy overrides an earlier one.",
);

/// Returns a parameter with the numbers of objects to read; all when absent.
const fn some_ids(name: &'static str) -> Parameter {
    query(name, Kind::Numbers, "Numbers, comma-separated; default all.")
}

/// Returns a parameter with the numbers of objects to change, or the word `all`.
const fn ids_or_all(name: &'static str) -> Parameter {
    required(name, Kind::NumbersOrAll, "Numbers, comma-separated, or the word all.")
}

/// Returns the distinct numbers of a parameter in their order; `None` if it is absent or `all`.
fn ids(call: &Call, name: &str) -> Option<Vec<u32>> {
    let mut list = Vec::new();
    for id in call.parameters.agents(name)? {
        if !list.contains(&id.0) {
            list.push(id.0);
        }
    }
    Some(list)
}

/// Returns the number in the path.
fn one(call: &Call, name: &str) -> u32 {
    ids(call, name).and_then(|list| list.first().copied()).unwrap_or_default()
}

/// The name of an object type in policies, and the code for an object that does not exist.
struct Sort {
    kind: &'static str,
    missing: Code,
}

impl Sort {
    /// Returns the id of one that a list does not contain: there the 4.x API writes that of a rule as
    /// a text.
    fn unlisted_id(&self, id: u32) -> FailedId {
        if self.kind == "rule:id" { id.to_string().into() } else { id.into() }
    }
}

/// Returns a page of the objects that the caller may read. Requested numbers that do not exist or are
/// not permitted are reported as failed.
fn listed(
    call: &Call,
    sort: &Sort,
    parameter: &str,
    items: Vec<(u32, Value)>,
    listing: &rest::http::listing::Listing,
) -> Result<List, Failure> {
    let wanted = ids(call, parameter);
    let mut failed = Vec::new();
    let may = |id: u32| call.may(call.action, sort.kind, &id.to_string());
    for id in wanted.iter().flatten() {
        if !may(*id) {
            failed.push((Code::Denied, *id));
        } else if !items.iter().any(|(known, _)| known == id) {
            failed.push((sort.missing, *id));
        }
    }
    let asked = |id: u32| wanted.as_ref().is_none_or(|wanted| wanted.contains(&id));
    let items =
        items.into_iter().filter(|(id, _)| asked(*id) && may(*id)).map(|(_, item)| item).collect();
    let failed = failed.into_iter().map(|(code, id)| (code, sort.unlisted_id(id)));
    Ok(listing.page(call, items)?.with_failed(failed))
}

/// Returns the requested objects that can be deleted, and the others with their codes. For `all`,
/// objects that cannot be deleted are skipped.
fn deletable(
    call: &Call,
    sort: &Sort,
    parameter: &str,
    known: &[u32],
    reserved: Code,
) -> (Vec<u32>, Vec<(Code, u32)>) {
    let may = |id: u32| call.may(call.action, sort.kind, &id.to_string());
    let Some(wanted) = ids(call, parameter) else {
        let fine = |id: &u32| *id > RESERVED_ID_MAX && may(*id);
        return (known.iter().copied().filter(fine).collect(), Vec::new());
    };
    let (mut fine, mut failed) = (Vec::new(), Vec::new());
    for id in wanted {
        if !may(id) {
            failed.push((Code::Denied, id));
        } else if id <= RESERVED_ID_MAX {
            failed.push((reserved, id));
        } else if !known.contains(&id) {
            failed.push((sort.missing, id));
        } else {
            fine.push(id);
        }
    }
    (fine, failed)
}

/// Returns the code of a refused change if the caller caused it; `missing` if the object does not
/// exist.
fn refusal(error: RegistryError, missing: Code, exists: Code) -> Result<Code, Failure> {
    match error {
        RegistryError::Store(ControlError::NotFound { .. }) => Ok(missing),
        RegistryError::Store(ControlError::Exists { .. }) => Ok(exists),
        other => Err(other.into()),
    }
}

/// Fails if the text is not a valid name of a role, a policy or a rule.
fn check_name(name: &str) -> Result<(), Failure> {
    let fine = (1..=NAME_CHARS_MAX).contains(&name.chars().count())
        && !name.chars().any(char::is_control)
        && name.trim() == name;
    if fine { Ok(()) } else { Err(Failure::code(Code::NameOrRuleInvalid)) }
}

/// Returns a list with the one object created or changed, or the reason of the failure.
fn single(
    item: Option<Value>,
    failed: Option<(Code, FailedId)>,
    messages: [&'static str; 3],
) -> List {
    let total = u64::from(item.is_some());
    List::new(item.into_iter().collect(), total, messages).with_failed(failed)
}

fn no_account() -> Failure {
    Failure::bad("a caller of the unix socket has no account of its own")
}
