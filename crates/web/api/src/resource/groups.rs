//! Groups: the list, creating and deleting them, their agents, files and configuration.
//!
//! A group has two files: `agent.conf`, its configuration as stored, and `merged.mg`, the configuration
//! sent to an agent that is in this group only.

use std::collections::HashSet;

use axum::http::StatusCode;
use registry::{AgentQuery, ControlError, RegistryError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::group_item::{GROUP_ID, check_name, existing, item, permitted};
use super::{agent_list, digest, group_form};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::listing::Listing;
use rest::http::operation::{
    COMMON, Handler, Kind, LISTED, Operation, PAGING, Parameter, Shape, Verb, action, path, query,
    required,
};
use rest::http::shape;

/// The resource type of groups in policies.
const KIND: &str = "group:id";
const READ: &str = "group:read";
const DELETE: &str = "group:delete";
/// Content types of a configuration; its format is detected from the content.
const FORMS: &str = "application/xml, application/toml";
/// The file with the configuration as stored.
const CONFIG_FILE: &str = "agent.conf";
/// The file with the configuration as sent to agents.
const MERGED_FILE: &str = "merged.mg";

const HASH: Parameter =
    query("hash", Kind::Word(digest::NAMES), "Digest of the files; md5 unless named.");

const STATUS: Parameter = query(
    "status",
    Kind::Words(&["active", "pending", "never_connected", "disconnected"]),
    "Statuses, comma-separated.",
);

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/groups",
        id: "groups.list",
        about: "Groups with the number of their agents.",
        access: action("group:read", "group:id"),
        parameters: &[
            COMMON,
            PAGING,
            LISTED,
            &[query("groups_list", Kind::GroupNames, "Names, comma-separated; default all."), HASH],
        ],
        body: None,
        shape: Shape::List("GroupItem"),
        handler: Handler::Blocking(list),
    },
    Operation {
        verb: Verb::Post,
        path: "/groups",
        id: "groups.create",
        about: "Make a group.",
        access: action("group:create", "*:*"),
        parameters: &[COMMON],
        body: Some("NewGroup"),
        shape: Shape::Message,
        handler: Handler::Blocking(create),
    },
    Operation {
        verb: Verb::Delete,
        path: "/groups",
        id: "groups.delete",
        about: "Delete groups; agents that are left with none get default.",
        access: action("group:delete", "group:id"),
        parameters: &[
            COMMON,
            &[required("groups_list", Kind::GroupNames, "Names, comma-separated, or all.")],
        ],
        body: None,
        shape: Shape::List("GroupName"),
        handler: Handler::Blocking(delete),
    },
    Operation {
        verb: Verb::Get,
        path: "/groups/{group_id}/agents",
        id: "groups.agents",
        about: "Agents of a group.",
        access: action("agent:read", "agent:id"),
        parameters: &[COMMON, PAGING, LISTED, &[GROUP_ID, STATUS]],
        body: None,
        shape: Shape::List("AgentItem"),
        handler: Handler::Blocking(members),
    },
    Operation {
        verb: Verb::Get,
        path: "/groups/{group_id}/files",
        id: "groups.files",
        about: "Files of a group.",
        access: action("group:read", "group:id"),
        parameters: &[COMMON, PAGING, LISTED, &[GROUP_ID, HASH]],
        body: None,
        shape: Shape::List("GroupFile"),
        handler: Handler::Blocking(files),
    },
    Operation {
        verb: Verb::Get,
        path: "/groups/{group_id}/files/{file_name}",
        id: "groups.file",
        about: "One file of a group, as JSON or as it is.",
        access: action("group:read", "group:id"),
        parameters: &[
            COMMON,
            &[
                GROUP_ID,
                path("file_name", Kind::Alphanumeric, "agent.conf or merged.mg."),
                query(
                    "type",
                    Kind::Words(&["conf", "rootkit_files", "rootkit_trojans", "rcl"]),
                    "Kind of the file; conf is the only one there is.",
                ),
                query("raw", Kind::Flag, "As it is."),
            ],
        ],
        body: None,
        shape: Shape::List("GroupConfigItem"),
        handler: Handler::Blocking(file),
    },
    Operation {
        verb: Verb::Get,
        path: "/groups/{group_id}/configuration",
        id: "groups.configuration",
        about: "The configuration of a group, block by block.",
        access: action("group:read", "group:id"),
        parameters: &[COMMON, PAGING, &[GROUP_ID]],
        body: None,
        shape: Shape::List("GroupConfigItem"),
        handler: Handler::Blocking(configuration),
    },
    Operation {
        verb: Verb::Put,
        path: "/groups/{group_id}/configuration",
        id: "groups.configure",
        about: "Replace the configuration of a group; durable when answered; agents get it with their next heartbeats.",
        access: action("group:update_config", "group:id"),
        parameters: &[COMMON, &[GROUP_ID]],
        body: Some(FORMS),
        shape: Shape::Message,
        handler: Handler::Blocking(configure),
    },
];

/// Names that no group may have: the first three mean something else where groups are named, the others
/// are files that the 4.x API keeps next to the folders of groups.
const RESERVED_NAMES: &[&str] = &[".", "..", "all", "ar.conf", "agent-template.conf"];

/// A group to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewGroup {
    /// 1 to 128 of letters, digits, dot, dash and underscore.
    group_id: String,
}

/// A file of a group.
#[derive(Serialize, ToSchema)]
pub(crate) struct GroupFile {
    filename: String,
    /// Its digest, in hex.
    hash: String,
}

/// The configuration of a group.
#[derive(Serialize, ToSchema)]
pub(crate) struct GroupConfigItem {
    /// Agents that it applies to; empty for all agents of the group.
    #[schema(value_type = Object)]
    filters: Value,
    /// The configuration by section; of `merged.mg` its text.
    #[schema(value_type = Object)]
    config: Value,
}

const GROUP_LIST: Listing = Listing {
    fields: &["name", "count", "mergedSum", "configSum", "problem"],
    always: &["name"],
    messages: [
        "All selected groups information was returned",
        "Some groups information was not returned",
        "No group information was returned",
    ],
};

fn list(call: &Call) -> Result<Answer, Failure> {
    let named = call.parameters.list("groups_list");
    let may = |name: &str| call.may(READ, KIND, name);
    let groups = call.registry().groups(call.reader())?;
    let (allowed, denied): (Vec<&String>, Vec<&String>) = named.iter().partition(|name| may(name));
    let missing: Vec<&String> =
        allowed.into_iter().filter(|name| groups.iter().all(|g| g.name != **name)).collect();
    let hash = call.parameters.text("hash").filter(|name| *name != "md5");
    let mut items = Vec::new();
    for group in &groups {
        if (!named.is_empty() && !named.contains(&group.name)) || !may(&group.name) {
            continue;
        }
        let mut item = item(&call.api, group.clone());
        if let Some(name) = hash {
            (item.configSum, item.mergedSum) = digests(call, &group.name, name)?;
        }
        items.push(to_value(&item)?);
    }
    let missing = missing.into_iter().map(|name| (Code::GroupMissing, name));
    let failed = missing.chain(denied.into_iter().map(|name| (Code::Denied, name)));
    Ok(Answer::List(
        GROUP_LIST
            .page(call, items)?
            .with_failed(failed.into_iter().map(|(code, name)| (code, name.clone()))),
    ))
}

/// Returns the digests of a group's two files, cached until the configuration of any group changes.
fn digests(call: &Call, group: &str, name: &str) -> Result<(String, String), Failure> {
    // Read the version before the texts: a cached digest is then never older than its version.
    let key = (call.registry().configs_version(), group.to_owned(), name.to_owned());
    if let Some(known) = call.api.digests.get(&key) {
        return Ok(known);
    }
    let config = digest::hex(name, &config_of(call, group)?);
    let merged = digest::hex(name, &merged_of(call, group)?);
    call.api.digests.insert(key, (config.clone(), merged.clone()));
    Ok((config, merged))
}

fn create(call: &Call) -> Result<Answer, Failure> {
    let new: NewGroup = call.json()?;
    if RESERVED_NAMES.contains(&new.group_id.as_str()) {
        return Err(Failure::code(Code::GroupNameReserved));
    }
    check_name(&new.group_id, Code::GroupNameInvalid)?;
    if call.registry().groups(call.reader())?.iter().any(|group| group.name == new.group_id) {
        return Err(Failure::detailed(
            Code::GroupExists,
            format!("group already exists: {}", new.group_id),
        ));
    }
    call.registry().create_group(&call.context, &new.group_id)?;
    Ok(Answer::Message(format!("Group '{}' created.", new.group_id)))
}

fn delete(call: &Call) -> Result<Answer, Failure> {
    let groups = call.registry().groups(call.reader())?;
    let named = call.parameters.list("groups_list");
    let all = named.iter().any(|name| name == "all");
    let may = |name: &str| call.may(DELETE, KIND, name);
    let mut wanted: Vec<String> = if all {
        let names = groups.iter().map(|group| group.name.clone());
        names.filter(|name| name != "default" && may(name)).collect()
    } else {
        named.to_vec()
    };
    let mut seen = HashSet::new();
    wanted.retain(|name| seen.insert(name.clone()));
    let mut deleted = Vec::new();
    let mut failed = Vec::new();
    for name in wanted {
        if !may(&name) {
            failed.push((Code::Denied, name));
        } else if name == "default" {
            failed.push((Code::DefaultGroup, name));
        } else if is_gone(call.registry().delete_group(&call.context, &name))? {
            failed.push((Code::GroupMissing, name));
        } else {
            deleted.push(json!(name));
        }
    }
    let total = deleted.len() as u64;
    let messages = [
        "All selected groups were deleted",
        "Some groups were not deleted",
        "No group was deleted",
    ];
    Ok(Answer::List(List::new(deleted, total, messages).with_failed(failed)))
}

/// Returns true if the group did not exist, perhaps because another request has just deleted it.
fn is_gone(deleted: Result<u64, RegistryError>) -> Result<bool, Failure> {
    match deleted {
        Ok(_) => Ok(false),
        Err(RegistryError::Store(ControlError::NotFound { .. })) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn members(call: &Call) -> Result<Answer, Failure> {
    let group = permitted(call, READ)?;
    let query = AgentQuery { group: vec![group], ..agent_list::agent_query(call)? };
    Ok(Answer::List(agent_list::page(call, query)?))
}

/// Returns the configuration of an existing group; empty if none was stored.
fn config_of(call: &Call, group: &str) -> Result<Vec<u8>, Failure> {
    Ok(call
        .registry()
        .group_config(call.reader(), group)?
        .map(|config| config.body)
        .unwrap_or_default())
}

/// Returns the configuration that is sent to agents of this group only.
fn merged_of(call: &Call, group: &str) -> Result<Vec<u8>, Failure> {
    let merged = call.registry().merged_config(&[group.to_owned()])?;
    Ok(merged.text.clone().into_bytes())
}

const FILE_LIST: Listing = Listing {
    fields: &["filename", "hash"],
    always: &[],
    messages: [
        "All selected groups files were returned",
        "Some groups files were not returned",
        "No group files were returned",
    ],
};

fn files(call: &Call) -> Result<Answer, Failure> {
    let group = match existing(call) {
        Err(missing) if missing.code == Some(Code::GroupMissing) => {
            let name = call.parameters.text("group_id").unwrap_or_default().to_owned();
            let none = List::new(Vec::new(), 0, FILE_LIST.messages);
            return Ok(Answer::List(none.with_failed([(Code::GroupMissing, name)])));
        }
        group => group?,
    };
    let name = call.parameters.text("hash").unwrap_or("md5");
    let (config, merged) = digests(call, &group, name)?;
    let file = |filename: &str, hash| to_value(&GroupFile { filename: filename.into(), hash });
    let items = vec![file(CONFIG_FILE, config)?, file(MERGED_FILE, merged)?];
    Ok(Answer::List(FILE_LIST.page(call, items)?))
}

/// Returns the blocks of a configuration as a list.
fn config_list(call: &Call, body: &[u8]) -> List {
    let items = group_form::blocks(&String::from_utf8_lossy(body));
    let total = items.len() as u64;
    let (offset, limit) = (call.parameters.whole("offset"), call.parameters.whole("limit"));
    let items = if limit > 0 { shape::page(items, offset, limit) } else { items };
    List::new(items, total, ["Group configuration was returned", "", ""])
}

fn file(call: &Call) -> Result<Answer, Failure> {
    let group = existing(call)?;
    let name = call.parameters.text("file_name").unwrap_or_default();
    if ![CONFIG_FILE, MERGED_FILE].contains(&name) {
        let text = format!("group {group} has no file {name}: it has {CONFIG_FILE}, {MERGED_FILE}");
        return Err(Failure::detailed(Code::FileMissing, text));
    }
    let body = match name {
        MERGED_FILE => merged_of(call, &group)?,
        _ => config_of(call, &group)?,
    };
    if call.parameters.flag("raw") {
        let is_xml = name == CONFIG_FILE && settings::is_xml(&String::from_utf8_lossy(&body));
        let content_type =
            if is_xml { "application/xml; charset=utf-8" } else { "text/plain; charset=utf-8" };
        return Ok(Answer::Raw { status: StatusCode::OK, content_type, body });
    }
    if name == CONFIG_FILE {
        return Ok(Answer::List(config_list(call, &body)));
    }
    let config = json!(String::from_utf8_lossy(&body));
    let item = to_value(&GroupConfigItem { filters: json!({}), config })?;
    Ok(Answer::List(List::new(vec![item], 1, ["Group file was returned", "", ""])))
}

fn configuration(call: &Call) -> Result<Answer, Failure> {
    let group = existing(call)?;
    Ok(Answer::List(config_list(call, &config_of(call, &group)?)))
}

fn configure(call: &Call) -> Result<Answer, Failure> {
    let group = existing(call)?;
    if call.body.is_empty() {
        return Err(Failure::code(Code::GroupConfigurationEmpty));
    }
    let text = std::str::from_utf8(&call.body).map_err(|_| {
        Failure::detailed(Code::ConfigurationNotText, "the configuration is not UTF-8 text")
    })?;
    call.registry().set_group_config(&call.context, &group, text)?;
    Ok(Answer::Message("Agent configuration was successfully updated".into()))
}
