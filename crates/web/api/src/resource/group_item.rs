//! Groups, as named in paths and shown in lists.

use registry::GroupCount;
use serde::Serialize;
use utoipa::ToSchema;

use super::digest;
use rest::code::Code;
use rest::error::Failure;
use rest::http::api::Api;
use rest::http::call::Call;
use rest::http::operation::{Kind, Parameter, path};
use rest::http::parameters;

/// `{group_id}` in a path.
pub(super) const GROUP_ID: Parameter = path("group_id", Kind::GroupName, "Name of the group.");

/// A group.
#[derive(Serialize, ToSchema)]
#[expect(non_snake_case, reason = "the names of the 4.x API")]
pub(crate) struct GroupItem {
    name: String,
    /// Its agents.
    count: u64,
    /// MD5 of its configuration as agents fetch it.
    pub(super) mergedSum: String,
    /// MD5 of its configuration.
    pub(super) configSum: String,
    /// Problem of its configuration, which an earlier version or other settings of the server
    /// accepted; an extension of this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Returns a group as lists show it.
pub(super) fn item(api: &Api, group: GroupCount) -> GroupItem {
    // A configuration that sets nothing has no sum there; as a file it has that of an empty one.
    let shown = |sum: &str| match sum {
        "" => digest::hex("md5", b""),
        sum => sum.to_owned(),
    };
    GroupItem {
        mergedSum: shown(&api.registry.merged_sum(&group.name)),
        problem: api.registry.group_problem(&group.name),
        name: group.name,
        count: group.count,
        configSum: shown(&group.config_sum),
    }
}

/// Returns the group named in the path; fails if it does not exist.
pub(super) fn existing(call: &Call) -> Result<String, Failure> {
    let name = call.parameters.text("group_id").unwrap_or_default();
    check_name(name, Code::GroupNameInvalid)?;
    if call.registry().groups(call.reader())?.iter().any(|group| group.name == name) {
        return Ok(name.to_owned());
    }
    Err(Failure::detailed(Code::GroupMissing, format!("group does not exist: {name}")))
}

/// Returns the same as [`existing`], and first refuses callers who may not perform the action on the
/// group, so that they do not learn which groups exist.
pub(super) fn permitted(call: &Call, action: &str) -> Result<String, Failure> {
    let name = call.parameters.text("group_id").unwrap_or_default();
    call.require(action, "group:id", name)?;
    existing(call)
}

/// Fails with `code` if the name is not valid, without querying a store.
pub(super) fn check_name(name: &str, code: Code) -> Result<(), Failure> {
    if parameters::is_group(name) {
        return Ok(());
    }
    Err(Failure::detailed(code, format!("group_id: {name:?} is {}", code.text())))
}
