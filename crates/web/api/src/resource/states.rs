//! Documents of a dataset over all agents.

use model::{AgentId, Dataset, timestamp};
use registry::AgentQuery;
use serde::Serialize;
use serde_json::Value;
use state::{Condition, DocumentField, DocumentQuery, StoredDocument, Test};
use utoipa::ToSchema;

use super::AgentRef;
use crate::call::Call;
use crate::envelope::{Answer, List, to_value};
use crate::error::Failure;
use crate::operation::{
    AGENTS_LIST, COMMON, Handler, Kind, Operation, PAGING, Shape, Verb, action, path, query,
};

/// Most agents that one request looks through.
const AGENTS_MAX: usize = 1_000;
/// Longest name of a dataset, bytes.
const DATASET_BYTES_MAX: usize = 128;

pub(super) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/states/{dataset}",
    id: "states.list",
    about: "Documents of a dataset as they stand now, by agent, then by path.",
    access: action("syscheck:read", "agent:id"),
    parameters: &[
        COMMON,
        PAGING,
        &[
            path("dataset", Kind::Text, "Name of the dataset, for example fim-files."),
            AGENTS_LIST,
            query("search", Kind::Text, "Text that the path holds."),
        ],
    ],
    body: None,
    shape: Shape::List("StateItem"),
    handler: Handler::Blocking(list),
}];

/// One document.
#[derive(Serialize, ToSchema)]
pub(crate) struct StateItem {
    agent: AgentRef,
    /// The agent's id for it.
    id: String,
    version: u64,
    /// When the server received it, RFC 3339.
    received: String,
    /// As the agent told it.
    #[schema(value_type = Object)]
    document: Value,
}

fn list(call: &Call) -> Result<Answer, Failure> {
    let parameters = &call.parameters;
    let dataset = dataset(parameters.text("dataset").unwrap_or_default())?;
    let mut agents = match parameters.agents("agents_list") {
        Some(ids) => ids.to_vec(),
        None => call.registry().agent_ids(&AgentQuery::default())?,
    };
    agents.sort_unstable();
    agents.dedup();
    if agents.len() > AGENTS_MAX {
        return Err(Failure::bad(format!(
            "{} agents are too many for one request, at most {AGENTS_MAX}: name some with \
             agents_list",
            agents.len()
        )));
    }
    let condition = match parameters.text("search") {
        Some(text) => Condition::field(DocumentField::Path, Test::Contains, text),
        None => Condition::default(),
    };
    let (mut offset, limit) = (parameters.whole("offset"), parameters.whole("limit") as usize);
    let mut items = Vec::new();
    let mut total = 0;
    for agent in agents {
        let room = limit - items.len();
        let page = call.state().documents(&DocumentQuery {
            condition: condition.clone(),
            offset,
            // One at least: the total is wanted of every agent.
            limit: room.max(1),
            ..DocumentQuery::new(agent, dataset.clone())
        })?;
        offset = offset.saturating_sub(page.total);
        total += page.total;
        for document in page.items.into_iter().take(room) {
            items.push(to_value(&item(call, agent, document)?)?);
        }
    }
    let messages = [
        "All selected documents were returned",
        "Some documents were not returned",
        "No document was returned",
    ];
    Ok(Answer::List(List::new(items, total, messages)))
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

fn item(call: &Call, agent: AgentId, stored: StoredDocument) -> Result<StateItem, Failure> {
    let document = serde_json::from_slice(&stored.body)
        .map_err(|e| Failure::internal(&format!("document {} of {agent}: {e}", stored.id)))?;
    let name = call.api.registry.agent(agent).map(|record| record.name).unwrap_or_default();
    Ok(StateItem {
        agent: AgentRef { id: agent.to_string(), name },
        id: stored.id,
        version: stored.version,
        received: timestamp::micros(stored.received_at_us),
        document,
    })
}
