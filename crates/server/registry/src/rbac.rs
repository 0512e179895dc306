//! The permissions of a set of roles: an ordered list of policies, evaluated per action and
//! resource.
//!
//! A resource is `type:attribute:value`, with `*` for every value. Parts joined with `&` must all
//! match (`agent:id:001&agent:group:web`). An agent matches by its number and by each of its
//! groups. The last policy that applies to an action and a resource decides. If none applies, the
//! mode decides: white forbids, black permits (`docs/reference/wire.md`, "API: access control").

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use control::{Permitted, Policy};
use model::AgentId;
use parking_lot::Mutex;

/// The decision if no policy applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RbacMode {
    /// Nothing is permitted unless a policy allows it.
    #[default]
    White,
    /// Everything is permitted unless a policy denies it.
    Black,
}

impl RbacMode {
    /// Returns the word used in the API and in tokens.
    pub fn name(self) -> &'static str {
        match self {
            Self::White => "white",
            Self::Black => "black",
        }
    }

    /// Returns the mode for a word.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::White, Self::Black].into_iter().find(|mode| mode.name() == name)
    }
}

/// Every value of an attribute.
const ANY: &str = "*";
/// An agent by its number.
const AGENT_ID: &str = "agent:id";
const AGENT_GROUP: &str = "agent:group";

/// One resource of a policy, in parts: `agent:id` and `001`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts(Vec<(String, String)>);

impl Parts {
    /// Parses a resource; `None` when it is malformed.
    fn read(text: &str) -> Option<Self> {
        let part = |part: &str| {
            let mut fields = part.splitn(3, ':');
            let (kind, attribute, value) = (fields.next()?, fields.next()?, fields.next()?);
            let kind = format!("{kind}:{attribute}");
            Some((kind.clone(), canonical(&kind, value)))
        };
        text.split('&').map(part).collect::<Option<Vec<_>>>().map(Self)
    }

    /// Returns true if every part matches one of the requested resources.
    fn cover(&self, asked: &[(&str, &str)]) -> bool {
        self.0.iter().all(|(kind, value)| {
            asked.iter().any(|(k, v)| k == kind && (value == ANY || value == v))
        })
    }

    /// Returns true if it refers to resources of this type. A group of agents refers to agents too.
    fn speaks_of(&self, kind: &str) -> bool {
        self.0.iter().any(|(own, _)| own == kind || (kind == AGENT_ID && own == AGENT_GROUP))
    }
}

/// Removes leading zeros from an agent's number, so that each agent is one resource.
fn canonical(kind: &str, value: &str) -> String {
    let number = (kind == AGENT_ID && value != ANY).then(|| value.parse::<AgentId>().ok());
    number.flatten().map_or_else(|| value.to_owned(), |id| id.to_string())
}

#[derive(Debug)]
struct Entry {
    parts: Parts,
    allow: bool,
}

/// The policies of one set of roles, indexed by action.
#[derive(Debug)]
pub struct Grants {
    mode: RbacMode,
    policies: Arc<Vec<Policy>>,
    actions: HashMap<String, Vec<Entry>>,
    /// Cached agents by action, with the generations of the groups that its policies name.
    scopes: Mutex<HashMap<String, (Vec<u64>, Permitted)>>,
}

/// The agents of the fleet by number and by group, as [`Grants::agents`] needs them.
pub(crate) trait Members {
    /// Returns a number that changes with every change of the group's members.
    fn generation(&self, group: &str) -> u64;
    fn of_group(&self, group: &str) -> Vec<AgentId>;
    fn is_in(&self, id: AgentId, group: &str) -> bool;
}

impl Grants {
    pub(crate) fn new(mode: RbacMode, policies: Arc<Vec<Policy>>) -> Self {
        let mut actions: HashMap<String, Vec<Entry>> = HashMap::new();
        for policy in policies.iter() {
            for action in &policy.actions {
                let entries = actions.entry(action.clone()).or_default();
                let parts = policy.resources.iter().filter_map(|text| Parts::read(text));
                entries.extend(parts.map(|parts| Entry { parts, allow: policy.allow }));
            }
        }
        Self { mode, policies, actions, scopes: Mutex::default() }
    }

    /// Returns the mode that decides if no policy applies.
    pub fn mode(&self) -> RbacMode {
        self.mode
    }

    /// Returns the policies in their order.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    fn entries(&self, action: &str) -> &[Entry] {
        self.actions.get(action).map_or(&[], Vec::as_slice)
    }

    fn default_permission(&self) -> bool {
        self.mode == RbacMode::Black
    }

    /// Returns true if the action is permitted on one object. `asked` lists the object and
    /// everything it belongs to as `(type:attribute, value)` pairs.
    pub fn permit(&self, action: &str, asked: &[(&str, &str)]) -> bool {
        let last = self.entries(action).iter().rev().find(|entry| entry.parts.cover(asked));
        last.map_or_else(|| self.default_permission(), |entry| entry.allow)
    }

    /// Returns true if the action is permitted on a removed agent, whose number is known but whose
    /// groups are not. A policy that denies a group denies the agent; a policy that allows a group
    /// does not allow it.
    pub fn permit_gone(&self, action: &str, id: AgentId) -> bool {
        let number = id.to_string();
        let mut permitted = self.default_permission();
        for entry in self.entries(action) {
            let of_group = entry.parts.0.iter().any(|(kind, _)| kind == AGENT_GROUP);
            if of_group {
                permitted &= entry.allow;
            } else if entry.parts.cover(&[(AGENT_ID, &number)]) {
                permitted = entry.allow;
            }
        }
        permitted
    }

    /// Returns true if the action may be permitted on some object of this type (`agent:id`, `*:*`).
    /// The caller still has to filter lists with the other functions.
    pub fn permit_some(&self, action: &str, kind: &str) -> bool {
        let mut rest = self.default_permission();
        for entry in self.entries(action).iter().filter(|entry| entry.parts.speaks_of(kind)) {
            let whole = matches!(entry.parts.0.as_slice(), [(own, value)]
                if value == ANY && own == kind);
            rest = entry.allow || (rest && !whole);
        }
        rest
    }

    pub(crate) fn agents(&self, action: &str, members: &dyn Members) -> Permitted {
        let groups = self.entries(action).iter().flat_map(|entry| &entry.parts.0);
        let groups = groups.filter(|(kind, value)| kind == AGENT_GROUP && value != ANY);
        let generations: Vec<u64> = groups.map(|(_, name)| members.generation(name)).collect();
        if let Some((at, scope)) = self.scopes.lock().get(action)
            && *at == generations
        {
            return scope.clone();
        }
        let scope = self.resolve(action, members);
        // The keys are the actions of API operations, so their number is small.
        self.scopes.lock().insert(action.to_owned(), (generations, scope.clone()));
        scope
    }

    fn resolve(&self, action: &str, members: &dyn Members) -> Permitted {
        let mut rest = self.default_permission();
        // The agents with the opposite decision of `rest`.
        let mut opposite: BTreeSet<AgentId> = BTreeSet::new();
        for entry in self.entries(action) {
            let named = match agents_of(&entry.parts, members) {
                Named::Nobody => continue,
                Named::All => {
                    (rest, opposite) = (entry.allow, BTreeSet::new());
                    continue;
                }
                // 000 is in no group.
                Named::AllInGroups => {
                    let server = opposite.contains(&AgentId::SERVER) != rest;
                    rest = entry.allow;
                    opposite = (server != rest).then_some(AgentId::SERVER).into_iter().collect();
                    continue;
                }
                Named::These(ids) => ids,
            };
            if entry.allow == rest {
                opposite = &opposite - &named.into_iter().collect();
            } else {
                opposite.extend(named);
            }
        }
        Permitted::of(rest, opposite.into_iter().collect())
    }
}

enum Named {
    Nobody,
    All,
    AllInGroups,
    These(Vec<AgentId>),
}

/// Returns the agents that match all parts.
fn agents_of(parts: &Parts, members: &dyn Members) -> Named {
    let agents = |(kind, _): &&(String, String)| kind == AGENT_ID || kind == AGENT_GROUP;
    if parts.0.is_empty() || parts.0.iter().filter(agents).count() != parts.0.len() {
        return Named::Nobody;
    }
    let values = |wanted: &'static str| {
        parts
            .0
            .iter()
            .filter(move |(kind, value)| kind == wanted && value != ANY)
            .map(|(_, value)| value.as_str())
    };
    let groups: Vec<&str> = values(AGENT_GROUP).collect();
    let mut numbers = values(AGENT_ID).map(str::parse::<AgentId>);
    match (numbers.next(), groups.split_first()) {
        (Some(Ok(id)), _) => {
            let one = numbers.all(|other| other.is_ok_and(|other| other == id))
                && groups.iter().all(|group| members.is_in(id, group));
            Named::These(if one { vec![id] } else { Vec::new() })
        }
        (Some(Err(_)), _) => Named::Nobody,
        (None, Some((first, others))) => {
            let mut ids = members.of_group(first);
            ids.retain(|id| others.iter().all(|group| members.is_in(*id, group)));
            Named::These(ids)
        }
        (None, None) if parts.0.iter().all(|(kind, _)| kind == AGENT_ID) => Named::All,
        (None, None) => Named::AllInGroups,
    }
}

#[cfg(test)]
#[path = "rbac_tests.rs"]
mod tests;
