//! The catalogues of actions and resources, derived from the operations' requirements.

use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use rest::code::Code;
use rest::error::Failure;
use rest::http::api::RequiredAction;
use rest::http::call::Call;
use rest::http::envelope::Answer;
use rest::http::operation::{Access, COMMON_PRETTY, Handler, Kind, Operation, Shape, Verb, query};

pub const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/security/actions",
        id: "security.actions",
        about: "Every action with its resources and the operations that need it.",
        access: Access::User,
        parameters: &[
            &[query(
                "endpoint",
                Kind::Text,
                "Only actions of one operation, for example GET /agents.",
            )],
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
pub struct Catalogue(Map<String, Value>);

pub const RESOURCE_NAMES: &[&str] = &[
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
    let mut names: Vec<&str> = call.api.needs.iter().map(|need| need.action).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let needs: Vec<&RequiredAction> =
            call.api.needs.iter().filter(|need| need.action == name).collect();
        let mut endpoints: Vec<&str> = needs.iter().map(|need| need.endpoint.as_str()).collect();
        // An operation that requires an action on several types occurs once for each of them.
        endpoints.dedup();
        if let Some(wanted) = &endpoint
            && !endpoints.iter().any(|own| own.to_lowercase() == *wanted)
        {
            continue;
        }
        let mut resources: Vec<&str> = Vec::new();
        for need in &needs {
            let kinds: &[&str] = match need.resource {
                "agent:id" => &["agent:id", "agent:group"],
                kind => &[kind],
            };
            let new: Vec<&str> =
                kinds.iter().filter(|kind| !resources.contains(kind)).copied().collect();
            resources.extend(new);
        }
        let example: Vec<String> = resources.iter().map(|kind| format!("{kind}:*")).collect();
        let about = needs.first().map_or("", |need| need.about);
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
        return Err(Failure::code(Code::EndpointMissing));
    }
    Answer::data(&Catalogue(catalogue))
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
    fn resource_names_and_texts_have_equal_length() {
        assert_eq!(RESOURCE_NAMES.len(), RESOURCE_TEXTS.len());
    }
}
