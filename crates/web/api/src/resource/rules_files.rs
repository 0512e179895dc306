//! Rules files: Sigma detection rules in a folder of the server (`docs/reference/sigma.md`).
//!
//! As in the 4.x API, errors in a file are reported in `failed_items` of a list. There is one folder,
//! `rules`; a file is `disabled` if its rule has the status `deprecated` or `unsupported` or is
//! invalid.

use std::sync::Arc;

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use sigma::{FolderError, RuleError, RuleFile, RuleFolder};
use utoipa::ToSchema;

use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List, to_value};
use rest::http::listing::Listing;
use rest::http::operation::{
    COMMON, Handler, Kind, LISTED, Operation, PAGING, Parameter, Shape, Verb, action, path, query,
};

/// The name of the only folder in answers.
const FOLDER: &str = "rules";
/// Content type of an uploaded file.
const OCTETS: &str = "application/octet-stream";
/// Content type of the file itself (RFC 9512).
const YAML: &str = "application/yaml; charset=utf-8";
/// The action for deleting a file and for replacing one.
const DELETE: &str = "rules:delete";
const FILE: &str = "rule:file";

const NAME: Parameter = path("filename", Kind::Text, "Name of the file, ending in .yml.");
const DIRNAME: Parameter =
    query("relative_dirname", Kind::Text, "Folder of the file; rules is the only one.");

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/rules/files",
        id: "rules.files",
        about: "Files of detection rules.",
        access: action("rules:read", FILE),
        parameters: &[
            COMMON,
            PAGING,
            LISTED,
            &[
                DIRNAME,
                query("filename", Kind::Names, "Names, comma-separated; default all."),
                query(
                    "status",
                    Kind::Word(&["enabled", "disabled", "all"]),
                    "`disabled` for a deprecated, unsupported or invalid rule. No rule is evaluated yet.",
                ),
            ],
        ],
        body: None,
        shape: Shape::List("RulesFileItem"),
        handler: Handler::Blocking(list),
    },
    Operation {
        verb: Verb::Get,
        path: "/rules/files/{filename}",
        id: "rules.file",
        about: "One file of detection rules, as JSON or as it is.",
        access: action("rules:read", FILE),
        parameters: &[COMMON, &[NAME, query("raw", Kind::Flag, "As it is."), DIRNAME]],
        body: None,
        shape: Shape::List("RulesFileContent"),
        handler: Handler::Blocking(one),
    },
    Operation {
        verb: Verb::Put,
        path: "/rules/files/{filename}",
        id: "rules.put_file",
        about: "Store a file of one detection rule; checked first, durable when answered.",
        access: action("rules:update", "*:*"),
        parameters: &[
            COMMON,
            &[NAME, query("overwrite", Kind::Flag, "Replace the file if there is one."), DIRNAME],
        ],
        body: Some(OCTETS),
        shape: Shape::List("RulesFileName"),
        handler: Handler::Blocking(put_rules_file),
    },
    Operation {
        verb: Verb::Delete,
        path: "/rules/files/{filename}",
        id: "rules.delete_file",
        about: "Delete a file of detection rules.",
        access: action(DELETE, FILE),
        parameters: &[COMMON, &[NAME, DIRNAME]],
        body: None,
        shape: Shape::List("RulesFileName"),
        handler: Handler::Blocking(delete),
    },
];

/// A rules file.
#[derive(Serialize, ToSchema)]
pub(crate) struct RulesFileItem {
    filename: String,
    relative_dirname: &'static str,
    /// `enabled` or `disabled`.
    status: &'static str,
}

fn status(file: &RuleFile) -> &'static str {
    let enabled = file.rule.as_ref().is_ok_and(sigma::Rule::is_enabled);
    if enabled { "enabled" } else { "disabled" }
}

fn folder(call: &Call) -> Result<&RuleFolder, Failure> {
    let missing = || Failure::busy("this server has no rules files", 60);
    call.api.options.rules.as_deref().ok_or_else(missing)
}

/// Returns true if the requested folder is the only existing one.
fn is_ours(call: &Call) -> bool {
    let named = call.parameters.text("relative_dirname");
    named.is_none_or(|name| name.trim_end_matches('/') == FOLDER)
}

/// Returns the file name in the path. Invalid names are rejected before the folder is read.
fn name(call: &Call) -> Result<String, Failure> {
    let name = call.parameters.text("filename").unwrap_or_default();
    if !sigma::is_name(name) {
        return Err(Failure::bad(FolderError::Name(name.chars().take(120).collect()).to_string()));
    }
    Ok(name.to_owned())
}

fn display_path(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

fn failed(error: &FolderError) -> Failure {
    match error {
        FolderError::Name(_) => Failure::bad(error.to_string()),
        other => Failure::internal(other),
    }
}

const FILE_LIST: Listing = Listing {
    fields: &["filename", "relative_dirname", "status"],
    always: &[],
    messages: [
        "All rules files were returned",
        "Some rules files were not returned",
        "No rules files were returned",
    ],
};

fn list(call: &Call) -> Result<Answer, Failure> {
    let folder = folder(call)?;
    let named = call.parameters.list("filename");
    let wanted = call.parameters.text("status").filter(|word| *word != "all");
    let names = folder.names().map_err(|e| failed(&e))?;
    let mut items = Vec::new();
    for name in names.iter().filter(|name| named.is_empty() || named.contains(name)) {
        if !is_ours(call) || !call.may("rules:read", FILE, name) {
            continue;
        }
        let Some(file) = folder.file(name).map_err(|e| failed(&e))? else { continue };
        let status = status(&file);
        if wanted.is_none_or(|wanted| wanted == status) {
            let item = RulesFileItem { filename: name.clone(), relative_dirname: FOLDER, status };
            items.push(to_value(&item)?);
        }
    }
    let mut list = FILE_LIST.page(call, items)?;
    for name in named {
        if !call.may("rules:read", FILE, name) {
            list.fail(Code::Denied, name.clone());
        } else if !names.contains(name) || !is_ours(call) {
            list.fail(Code::RuleFileMissing, name.clone());
        }
    }
    Ok(Answer::List(list))
}

fn one(call: &Call) -> Result<Answer, Failure> {
    let name = name(call)?;
    let found = if is_ours(call) { folder(call)?.file(&name) } else { Ok(None) };
    let file: Option<Arc<RuleFile>> = found.map_err(|e| failed(&e))?;
    let list = |items: Vec<Value>| {
        let total = items.len() as u64;
        List::new(items, total, ["Selected rule was returned", "", "No rule was returned"])
    };
    let Some(file) = file else {
        return Ok(Answer::List(list(Vec::new()).with_failed([(Code::RuleFileMissing, name)])));
    };
    if call.parameters.flag("raw") {
        let body = file.bytes.clone();
        return Ok(Answer::Raw { status: StatusCode::OK, content_type: YAML, body });
    }
    Ok(Answer::List(match &file.rule {
        Ok(rule) => list(vec![rule.whole.clone()]),
        Err(cause) => {
            let mut list = list(Vec::new());
            list.fail_detailed(Code::RuleFileInvalid, cause.to_string(), name);
            list
        }
    }))
}

/// Returns the answer to a write: the file, or the reason why it was refused.
fn written(
    outcome: Result<(), FolderError>,
    name: &str,
    messages: [&'static str; 3],
) -> Result<Answer, Failure> {
    let (items, code) = match &outcome {
        Ok(()) => (vec![json!(display_path(name))], None),
        Err(FolderError::Invalid { cause: RuleError::Empty, .. }) => {
            (Vec::new(), Some(Code::FileEmpty))
        }
        Err(FolderError::Invalid { .. } | FolderError::SameId { .. }) => {
            (Vec::new(), Some(Code::RuleFileInvalid))
        }
        Err(FolderError::Exists(_)) => (Vec::new(), Some(Code::RuleFileExists)),
        Err(FolderError::Missing(_)) => (Vec::new(), Some(Code::RuleFileToChangeMissing)),
        Err(error @ FolderError::Full) => return Err(Failure::bad(error.to_string())),
        Err(error) => return Err(failed(error)),
    };
    let total = items.len() as u64;
    let mut list = List::new(items, total, messages);
    if let (Some(code), Err(error)) = (code, outcome) {
        list.fail_detailed(code, error.to_string(), display_path(name));
    }
    Ok(Answer::List(list))
}

fn put_rules_file(call: &Call) -> Result<Answer, Failure> {
    let name = name(call)?;
    if !is_ours(call) {
        return Err(Failure::bad(format!("relative_dirname: {FOLDER} is the only folder")));
    }
    let replace = call.parameters.flag("overwrite");
    if replace {
        // Replacing a file deletes the old one.
        call.require(DELETE, FILE, &name)?;
    }
    call.begun()?;
    let outcome = folder(call)?.write_rule(&name, &call.body, replace);
    written(outcome, &name, ["Rule was successfully uploaded", "", "Could not upload rule"])
}

fn delete(call: &Call) -> Result<Answer, Failure> {
    let name = name(call)?;
    let folder = folder(call)?;
    call.begun()?;
    let missing = || Err(FolderError::Missing(name.clone()));
    let outcome = if is_ours(call) { folder.delete(&name) } else { missing() };
    let messages = ["Rule file was successfully deleted", "", "Could not delete rule file"];
    written(outcome, &name, messages)
}
