//! The description of an agent that is joined into documents and changes when they are read: from the
//! registry if the agent is registered, else as last reported (`docs/format/session.md`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use model::{AgentId, Overlay};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use state::StoredEvent;

use rest::error::Failure;
use rest::http::call::Call;

/// The key of the description in a document.
const KEY: &str = "wazuh";

/// The agents of one answer; each is looked up once.
#[derive(Default)]
pub(super) struct Overlays(HashMap<AgentId, (String, Value)>);

impl Overlays {
    /// Returns the agent's name and the value to join under `wazuh`.
    pub(super) fn of(&mut self, call: &Call, agent: AgentId) -> Result<&(String, Value), Failure> {
        Ok(match self.0.entry(agent) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let registry = &call.api.registry;
                let mut overlay = match registry.overlay(agent) {
                    Some(overlay) => overlay,
                    None => call.state().overlay(call.reader(), agent)?.unwrap_or_default(),
                };
                overlay.cluster.clone_from(&registry.options().cluster_name);
                let shown = overlay_json(agent, &overlay);
                place.insert((overlay.agent_name, shown))
            }
        })
    }
}

/// Returns the same for an event. Reads memory only, because the caller may be holding a reader of the
/// state store. For an agent that is not registered, returns its number and the name that it had.
pub(super) fn of_event(call: &Call, event: &StoredEvent) -> Value {
    let registry = &call.api.registry;
    let present = registry.overlay(event.agent).filter(|_| !event.former);
    let overlay = present.unwrap_or_else(|| Overlay {
        agent_name: event.agent_name.clone(),
        cluster: registry.options().cluster_name.clone(),
        ..Overlay::default()
    });
    overlay_json(event.agent, &overlay)
}

/// Returns the description without empty fields.
fn overlay_json(agent: AgentId, overlay: &Overlay) -> Value {
    let mut of_agent = json!({
        "id": agent.to_string(),
        "name": overlay.agent_name,
        "version": overlay.agent_version,
        "groups": overlay.groups,
        "host": {
            "architecture": overlay.architecture,
            "hostname": overlay.hostname,
            "os": {
                "name": overlay.os[0],
                "platform": overlay.os[1],
                "type": overlay.os[2],
                "version": overlay.os[3],
            },
        },
    });
    prune(&mut of_agent);
    json!({"agent": of_agent, "cluster": {"name": overlay.cluster}})
}

fn prune(value: &mut Value) {
    let Value::Object(fields) = value else { return };
    fields.retain(|_, field| {
        prune(field);
        match field {
            Value::String(text) => !text.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        }
    });
}

/// A document joined with the description of its agent, which replaces the document's own value.
pub(super) struct JoinedDocument<'a> {
    document: Map<String, Value>,
    wazuh: Cow<'a, Value>,
}

impl<'a> JoinedDocument<'a> {
    pub(super) fn new(mut document: Map<String, Value>, overlay: &'a Value) -> Self {
        let wazuh = match (document.remove(KEY), overlay) {
            (Some(Value::Object(mut own)), Value::Object(overlay)) => {
                own.extend(overlay.iter().map(|(key, value)| (key.clone(), value.clone())));
                Cow::Owned(Value::Object(own))
            }
            _ => Cow::Borrowed(overlay),
        };
        Self { document, wazuh }
    }
}

impl Serialize for JoinedDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.document.len() + 1))?;
        for (key, value) in &self.document {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry(KEY, &*self.wazuh)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlay_overrides_the_document_and_omits_empty_fields() {
        let overlay = Overlay {
            agent_name: "web".into(),
            os: [String::new(), "debian".into(), String::new(), String::new()],
            cluster: "c".into(),
            ..Overlay::default()
        };
        let shown = overlay_json(AgentId(7), &overlay);
        let agent = json!({"id": "007", "name": "web", "host": {"os": {"platform": "debian"}}});
        assert_eq!(shown, json!({"agent": agent, "cluster": {"name": "c"}}));
        let Value::Object(document) = json!({
            "a": 1,
            "wazuh": {"agent": {"id": "999", "groups": ["x"]}, "schema": {"version": "1"}},
        }) else {
            panic!("an object");
        };
        let joined = serde_json::to_value(JoinedDocument::new(document, &shown)).unwrap();
        let wazuh = json!({"agent": agent, "cluster": {"name": "c"}, "schema": {"version": "1"}});
        assert_eq!(joined, json!({"a": 1, "wazuh": wazuh}));
        let plain = serde_json::to_value(JoinedDocument::new(Map::new(), &shown)).unwrap();
        assert_eq!(plain, json!({"wazuh": shown}));
    }
}
