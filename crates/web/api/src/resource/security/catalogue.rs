//! The catalogues of actions and resources, read off the list of operations.

use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::call::Call;
use crate::envelope::Answer;
use crate::error::Failure;
use crate::operation::{Access, COMMON_PRETTY, Handler, Kind, Operation, Shape, Verb, query};
use crate::resource;

pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/security/actions",
        id: "security.actions",
        about: "Every action with its resources and the operations that need it.",
        access: Access::User,
        parameters: &[
            &[query("endpoint", Kind::Text, "Only actions of one, for example GET /agents.")],
            COMMON_PRETTY,
        ],
        body: None,
        shape: Shape::Plain("Catalogue"),
        handler: Handler::Blocking(actions),
    },
    Operation {
        verb: Verb::Get,
        path: "/security/resources",
        id: "security.resources",
        about: "Every type of resource that policies name.",
        access: Access::User,
        parameters: &[
            &[query("resource", Kind::Word(RESOURCE_NAMES), "Only this type.")],
            COMMON_PRETTY,
        ],
        body: None,
        shape: Shape::Plain("Catalogue"),
        handler: Handler::Blocking(resources),
    },
];

/// Entries by their names.
#[derive(Serialize, ToSchema)]
#[schema(value_type = Object)]
pub(crate) struct Catalogue(Map<String, Value>);

pub(super) const RESOURCE_NAMES: &[&str] = &[
    "*:*",
    "agent:group",
    "agent:id",
    "group:id",
    "node:id",
    "decoder:file",
    "list:file",
    "rule:file",
    "policy:id",
    "role:id",
    "user:id",
    "rule:id",
];

const RESOURCE_TEXTS: &[&str] = &[
    "What has no resource of its own",
    "Agents by their group, for example agent:group:web",
    "Agents by their number, for example agent:id:001",
    "Groups by their name, for example group:id:default",
    "Nodes of the server by their name, for example node:id:node01",
    "Decoder files: there are none",
    "List files: there are none",
    "Rules files by their name, for example rule:file:ssh_login.yml",
    "Policies by their number, for example policy:id:100",
    "Roles by their number, for example role:id:100",
    "Users by their number, for example user:id:100",
    "Security rules by their number, for example rule:id:100",
];

fn actions(call: &Call) -> Result<Answer, Failure> {
    let endpoint = call.parameters.text("endpoint").map(str::to_lowercase);
    let mut catalogue: Map<String, Value> = Map::new();
    let mut names: Vec<&str> = resource::all().flat_map(needs).map(|(a, _)| a).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let users: Vec<&Operation> =
            resource::all().filter(|o| needs(o).any(|(a, _)| a == name)).collect();
        let endpoints: Vec<String> =
            users.iter().map(|o| format!("{} {}", o.verb.name(), o.path)).collect();
        if let Some(wanted) = &endpoint
            && !endpoints.iter().any(|own| own.to_lowercase() == *wanted)
        {
            continue;
        }
        let mut resources: Vec<&str> = Vec::new();
        for (_, kind) in users.iter().flat_map(|o| needs(o)).filter(|(a, _)| *a == name) {
            let kinds: &[&str] =
                if kind == "agent:id" { &["agent:id", "agent:group"] } else { &[kind] };
            resources.extend(
                kinds.iter().filter(|kind| !resources.contains(kind)).copied().collect::<Vec<_>>(),
            );
        }
        let example: Vec<String> = resources.iter().map(|kind| format!("{kind}:*")).collect();
        let about = users.first().map_or("", |o| o.about);
        catalogue.insert(
            name.to_owned(),
            json!({
                "description": about,
                "resources": resources,
                "example": {"actions": [name], "resources": example, "effect": "allow"},
                "related_endpoints": endpoints,
            }),
        );
    }
    if endpoint.is_some() && catalogue.is_empty() {
        return Err(Failure::bad("endpoint: no operation of that name takes an action"));
    }
    Answer::data(&Catalogue(catalogue))
}

/// The actions that an operation asks, each with its type of resource.
fn needs(operation: &'static Operation) -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = match operation.access {
        Access::Action { action, resource } => Some((action, resource)),
        _ => None,
    };
    let further = resource::FURTHER.iter().filter(move |(id, _, _)| *id == operation.id);
    own.into_iter().chain(further.map(|(_, action, resource)| (*action, *resource)))
}

fn resources(call: &Call) -> Result<Answer, Failure> {
    let wanted = call.parameters.text("resource");
    let entries = RESOURCE_NAMES
        .iter()
        .zip(RESOURCE_TEXTS)
        .filter(|(name, _)| wanted.is_none_or(|wanted| wanted == **name))
        .map(|(name, about)| ((*name).to_owned(), json!({"description": about})));
    Answer::data(&Catalogue(entries.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_of_an_operation_is_in_the_catalogue() {
        assert_eq!(RESOURCE_NAMES.len(), RESOURCE_TEXTS.len());
        for operation in resource::all() {
            for (_, kind) in needs(operation) {
                assert!(RESOURCE_NAMES.contains(&kind), "{}: {kind}", operation.id);
            }
        }
    }
}
