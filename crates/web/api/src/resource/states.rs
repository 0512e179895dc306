//! Documents of a dataset, of all agents.

use model::{AgentId, Dataset, timestamp};
use registry::Permitted;
use serde::Serialize;
use serde_json::{Map, Value, json};
use state::{Comparison, Condition, DocumentField, FleetQuery, SortDirection, StoredDocument};
use utoipa::ToSchema;

use super::common::{AgentRef, MEMBERS, members, named_agents};
use super::document_condition::condition;
use super::overlay::{JoinedDocument, Overlays};
use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, ItemWriter, List, to_value};
use rest::http::operation::{
    AGENTS_LIST, COMMON, Handler, Kind, Operation, PAGING, Q, Shape, Verb, action, path, query,
};
use rest::http::{q, shape};

/// Longest name of a dataset, bytes.
const DATASET_BYTES_MAX: usize = 128;

pub(crate) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/states/{dataset}",
    id: "states.list",
    about: "Current documents of a dataset over all agents, by agent, then by path.",
    access: action("state:read", "agent:id"),
    parameters: &[
        COMMON,
        PAGING,
        MEMBERS,
        &[
            path("dataset", Kind::Name, "Name of the dataset, for example fim-files."),
            AGENTS_LIST,
            query("select", Kind::Names, "Fields to return, comma-separated."),
            query(
                "sort",
                Kind::Sort,
                "Fields to sort by, comma-separated, each with an optional + or - before it.",
            ),
            query(
                "search",
                Kind::Text,
                "Text that the path contains; with a leading -, text that it does not contain.",
            ),
            Q,
        ],
    ],
    body: None,
    shape: Shape::List("StateItem"),
    handler: Handler::Blocking(list),
}];

/// One document.
#[derive(Serialize, ToSchema)]
pub(crate) struct StateItem<'a> {
    agent: AgentRef,
    /// Id that the agent gave it.
    id: String,
    version: u64,
    /// When the server received it, RFC 3339.
    received: String,
    /// The document as the agent sent it, with the server's data of the agent under `wazuh`.
    #[schema(value_type = Object)]
    document: JoinedDocument<'a>,
}

/// Fields of packages that `q` and `sort` may name.
const PACKAGE_FIELDS: &[(&str, DocumentField)] = &[
    ("name", DocumentField::PackageName),
    ("version", DocumentField::PackageVersion),
    ("architecture", DocumentField::PackageArchitecture),
    ("vendor", DocumentField::PackageVendor),
];

/// Fields of files, and of datasets that are not built in, that `q` and `sort` may name.
const COLUMNS: &[(&str, DocumentField)] = &[
    ("path", DocumentField::Path),
    ("directory", DocumentField::Directory),
    ("name", DocumentField::Name),
    ("type", DocumentField::Kind),
    ("size", DocumentField::Size),
    ("mode", DocumentField::Mode),
    ("uid", DocumentField::Uid),
    ("gid", DocumentField::Gid),
    ("owner", DocumentField::Owner),
    ("group", DocumentField::Group),
    ("mtime", DocumentField::Mtime),
    ("inode", DocumentField::Inode),
    ("md5", DocumentField::Md5),
    ("sha1", DocumentField::Sha1),
    ("sha256", DocumentField::Sha256),
    ("blake3", DocumentField::Blake3),
    ("checksum", DocumentField::Checksum),
];

/// Fields that `select` may name; for `document` also nested ones, such as `document.file`.
const FIELDS: &[&str] = &["agent.id", "agent.name", "id", "version", "received", "document"];

/// Returns the fields of a dataset that `q` and `sort` may name.
fn fields(dataset: &Dataset) -> &'static [(&'static str, DocumentField)] {
    if dataset.name() == Dataset::INVENTORY_PACKAGES { PACKAGE_FIELDS } else { COLUMNS }
}

fn fleet_query(call: &Call, agents: Permitted) -> Result<FleetQuery, Failure> {
    let parameters = &call.parameters;
    let dataset = dataset(parameters.text("dataset").unwrap_or_default())?;
    let fields = fields(&dataset);
    let mut all = Vec::new();
    if let Some(text) = parameters.text("search") {
        let (text, wanted) = match text.strip_prefix('-') {
            Some(text) => (text, false),
            None => (text, true),
        };
        let holds = Condition::field(DocumentField::Path, Comparison::Contains, text);
        all.push(if wanted { holds } else { Condition::Not(Box::new(holds)) });
    }
    if let Some(text) = parameters.text("q") {
        let now_us = call.api.options.clock.now_us();
        all.push(condition(q::parse(text, fields)?, now_us)?);
    }
    let direction = |down| if down { SortDirection::Descending } else { SortDirection::Ascending };
    let sort = shape::sort_fields(parameters.text("sort"), fields)?;
    Ok(FleetQuery {
        agents,
        dataset,
        condition: Condition::All(all),
        sort: sort.into_iter().map(|f| (f.column, direction(f.descending))).collect(),
        offset: parameters.database_offset()?,
        limit: parameters.whole("limit") as usize,
    })
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let selected = call.parameters.list("select");
    let outer: Vec<String> =
        selected.iter().filter(|name| !name.starts_with("document.")).cloned().collect();
    shape::check_select(&outer, FIELDS)?;
    let (scope, failed) = agents(call)?;
    let query = fleet_query(call, scope)?;
    let page = call.state().fleet_documents(call.reader(), &query)?;
    if page.total == 0 {
        expect_known(call, &query.dataset)?;
    }
    let (mut items, mut overlays) = (ItemWriter::default(), Overlays::default());
    for document in page.items {
        let item = item(overlays.of(call, document.agent)?, document)?;
        if selected.is_empty() {
            items.push(&item)?;
        } else {
            items.push(&shape::select(to_value(&item)?, selected, &[]))?;
        }
    }
    let messages = [
        "All selected documents were returned",
        "Some documents were not returned",
        "No document was returned",
    ];
    Ok(Answer::List(List::written(items, page.total, messages).with_failed(failed)))
}

/// Returns the agents whose documents are selected, and those that failed with their codes. A number
/// that is not registered may have documents, written by local programs.
fn agents(call: &Call) -> Result<(Permitted, Vec<(Code, AgentId)>), Failure> {
    let (scope, failed) = named_agents(call);
    if let Some(numbers) = members(call, &scope)? {
        return Ok((Permitted::Only(numbers.into()), failed));
    }
    let Permitted::Only(ids) = &scope else { return Ok((scope, failed)) };
    let (mut ids, mut left) = (ids.to_vec(), Vec::new());
    for (code, id) in failed {
        let may = code == Code::AgentMissing && call.may_gone(&call.caller, id);
        if may
            && call
                .state()
                .agent_counts(call.reader(), id)?
                .documents
                .iter()
                .any(|(_, count, _)| *count > 0)
        {
            ids.push(id);
        } else {
            left.push((code, id));
        }
    }
    ids.sort_unstable();
    Ok((Permitted::Only(ids.into()), left))
}

/// Fails if the dataset neither exists nor is built in: a misspelt name must not look like an empty
/// dataset.
fn expect_known(call: &Call, dataset: &Dataset) -> Result<(), Failure> {
    let own = [Dataset::FIM_FILES, Dataset::INVENTORY_PACKAGES].contains(&dataset.name());
    if own
        || call
            .state()
            .counts(call.reader())?
            .documents
            .iter()
            .any(|(known, _, _)| known == dataset)
    {
        return Ok(());
    }
    let (name, files) = (dataset.name(), Dataset::FIM_FILES);
    Err(Failure::missing(format!("no such dataset: {name}; that of files is {files}")))
}

fn dataset(name: &str) -> Result<Dataset, Failure> {
    let known = !name.is_empty()
        && name.len() <= DATASET_BYTES_MAX
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !known {
        return Err(Failure::bad("dataset: letters, digits, dash, underscore and dot only"));
    }
    Ok(Dataset::new(name))
}

fn item(
    (name, overlay): &(String, Value),
    stored: StoredDocument,
) -> Result<StateItem<'_>, Failure> {
    let agent = stored.agent;
    let mut document = serde_json::from_slice(&stored.body)
        .map_err(|e| Failure::internal(&format!("document {} of {agent}: {e}", stored.id)))?;
    raise_version(&mut document, stored.described_version);
    Ok(StateItem {
        agent: AgentRef { id: agent.to_string(), name: name.clone() },
        id: stored.id,
        version: stored.version,
        received: timestamp::micros(stored.received_at_us),
        document: JoinedDocument::new(document, overlay),
    })
}

/// Raises `state.document_version` to the version of the agent's description of itself.
fn raise_version(document: &mut Map<String, Value>, described: u64) {
    let shown = document.get("state").and_then(|state| state.get("document_version"));
    if shown.and_then(Value::as_u64).unwrap_or(0) >= described {
        return;
    }
    if let Value::Object(state) = document.entry("state").or_insert_with(|| json!({})) {
        state.insert("document_version".into(), described.into());
    }
}
