//! Inserts an agent for which a 4.x client gives the number, key or address, and replaces agents
//! that have them already, by the rules of the client.
//!
//! An insertion that replaces agents ends their lives, so it takes three steps: the registry checks
//! that it is possible, the caller writes the removal records to the journal, and the registry
//! replaces the rows in one transaction. A crash between the last two leaves rows of lives that
//! have ended in the journal. These rows are removed when their agents connect, or when the
//! insertion is repeated. There are never documents without an agent.

use control::Reader;
use control::{ControlError, NewAgent, WriteContext};
use model::{AgentId, AgentStatus, Incarnation};

use crate::client_keys::CLIENT_KEY_CHARS;
use crate::types::AgentEnrolment;
use crate::{EnrollError, Registry, RegistryError};

/// Rules for replacing an agent that has the name, number or address of a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForceRules {
    /// True if an agent may be replaced at all.
    pub enabled: bool,
    /// Replaces only an agent that was disconnected for this long, seconds; `None`: any agent.
    pub disconnected_s: Option<u64>,
    /// Replaces only an agent that was registered longer ago than this, seconds.
    pub registered_s: u64,
}

impl Default for ForceRules {
    /// Returns one hour for both times, as 4.x does.
    fn default() -> Self {
        Self { enabled: true, disconnected_s: Some(3_600), registered_s: 3_600 }
    }
}

/// An agent that a client inserts with a given number or key.
#[derive(Debug, Clone, Default)]
pub struct InsertAgent {
    /// Its number; if `None`, the next one is drawn.
    pub id: Option<AgentId>,
    /// Name, address, groups.
    pub request: AgentEnrolment,
    /// Its key of at least 64 characters; if `None`, one is drawn.
    pub key: Option<String>,
    /// Rules for replacing another agent; `None`: none is replaced.
    pub force: Option<ForceRules>,
}

/// One life of an agent number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pub agent: AgentId,
    pub incarnation: Incarnation,
}

/// An agent that was inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inserted {
    pub id: AgentId,
    pub key: String,
    /// The lives that the insertion ended.
    pub removed: Vec<Life>,
}

/// The agents that an insertion displaces.
#[derive(Debug, Clone, Copy)]
pub struct DisplacedAgents<'a> {
    /// The lives that end.
    pub gone: &'a [Life],
    /// The agent that is inserted again with its own number and name. It keeps its life and gets
    /// another key.
    pub rekeyed: Option<AgentId>,
}

/// Writes the removal records of displaced agents to the journal. If it fails, none of them is
/// removed.
pub type RecordLives<'a> = &'a mut dyn FnMut(DisplacedAgents<'_>) -> Result<(), String>;

impl Registry {
    /// Inserts one agent with its key; durable when it returns. If an agent with the same number
    /// and name is registered and may be replaced, it keeps its life, gets the key and counts as
    /// never connected until it connects.
    ///
    /// `record` is called without locks, after all checks have passed.
    ///
    /// # Errors
    /// As [`Registry::add_agents`]; `Refused` for a key that is too short; `DuplicateIp` for an
    /// address that another agent registered with; `Store(Unrecorded)` if `record` fails. Nothing
    /// is changed, unless `record` was called: then displaced agents may have been removed, and the
    /// call can be repeated.
    pub fn insert_agent(
        &self,
        context: &WriteContext,
        new: &InsertAgent,
        record: RecordLives<'_>,
    ) -> Result<Inserted, EnrollError> {
        let key = self.key_for(new)?;
        let agent = self.new_agent(new.id, &new.request, Some(key.clone()), self.now().s)?;
        let order = self.inner.decisions.lock();
        let rivals = self.rivals(context.reader(), &agent, new.force)?;
        if rivals.is_empty() {
            let (id, removed) = self.put_in_place(context, &[], &[], &agent)?;
            return Ok(Inserted { id, key, removed });
        }
        self.inner.store.try_replace_agents(context.reader(), &rivals, &agent)?;
        let lives = self.lives_of(&rivals);
        let rekeyed = self.is_same_agent(&rivals, &agent);
        // Other decisions proceed while this call waits for the journal.
        drop(order);
        let gone: Vec<Life> =
            lives.iter().filter(|life| Some(life.agent) != rekeyed).copied().collect();
        record(DisplacedAgents { gone: &gone, rekeyed }).map_err(ControlError::Unrecorded)?;
        let _order = self.inner.decisions.lock();
        // A life that began in the meantime is not displaced. A displaced agent that connected in
        // the meantime is already removed; its number stays reserved for this insertion.
        let still = self.still_current(&lives);
        let (id, removed) = self.put_in_place(context, &still, &rivals, &agent)?;
        Ok(Inserted { id, key, removed })
    }

    fn key_for(&self, new: &InsertAgent) -> Result<String, RegistryError> {
        match &new.key {
            Some(key) if key.len() < CLIENT_KEY_CHARS => Err(RegistryError::Refused(format!(
                "key: must have at least {CLIENT_KEY_CHARS} characters"
            ))),
            Some(key) => Ok(key.clone()),
            None => self.draw_client_key(),
        }
    }

    /// Returns the number of the agent that has the same number and the same name as the new one.
    fn is_same_agent(&self, rivals: &[AgentId], new: &NewAgent) -> Option<AgentId> {
        let id = new.id.filter(|id| rivals.contains(id))?;
        let fleet = self.inner.fleet.read();
        fleet.get(id).is_some_and(|known| known.name == new.name).then_some(id)
    }

    /// Replaces other agents by this one, in the store and in memory. It may get a number in
    /// `freed` although that was used before. The caller holds `decisions`.
    fn put_in_place(
        &self,
        context: &WriteContext,
        displaced: &[AgentId],
        freed: &[AgentId],
        new: &NewAgent,
    ) -> Result<(AgentId, Vec<Life>), EnrollError> {
        let (gone, row) = self.inner.store.replace_agents(context, displaced, freed, new)?;
        let removed: Vec<Life> = gone.iter().map(Life::of).collect();
        self.forget_removed(&removed, new.now_s);
        let id = row.record.id;
        let mut certificates = self.inner.certificates.write();
        let mut fleet = self.inner.fleet.write();
        if fleet.get(id).is_some_and(|known| known.incarnation == row.record.incarnation) {
            certificates.revoke(id, new.now_s);
            fleet.replace_key(row.record);
        } else {
            fleet.insert(row, self.now());
        }
        Ok((id, removed))
    }

    /// Returns the existing agents that have the new agent's name, number or address.
    ///
    /// # Errors
    /// Returns an error if the rules do not let one of them be replaced.
    fn rivals(
        &self,
        reader: &Reader,
        new: &NewAgent,
        force: Option<ForceRules>,
    ) -> Result<Vec<AgentId>, EnrollError> {
        let single = new.register_ip != "any" && !new.register_ip.contains('/');
        let address = single.then_some(new.register_ip.as_str());
        let rivals = self.inner.store.rivals(reader, &new.name, new.id, address)?;
        match rivals.iter().find(|id| !self.gives_way(**id, force, new.now_s)) {
            None => Ok(rivals),
            Some(id) => {
                let fleet = self.inner.fleet.read();
                let name = fleet.get(*id).map(|other| other.name.clone()).unwrap_or_default();
                Err(duplicate(new, name, *id))
            }
        }
    }

    fn gives_way(&self, id: AgentId, force: Option<ForceRules>, now_s: i64) -> bool {
        let Some(rules) = force.filter(|rules| rules.enabled) else { return false };
        let fleet = self.inner.fleet.read();
        let Some(other) = fleet.get(id) else { return true };
        let longer = |since_s: i64, limit_s: u64| {
            now_s.saturating_sub(since_s) >= i64::try_from(limit_s).unwrap_or(i64::MAX)
        };
        let silent = match (other.status, rules.disconnected_s) {
            (_, None) | (AgentStatus::NeverConnected, _) => true,
            (AgentStatus::Disconnected, Some(limit_s)) => {
                longer(other.disconnected_at_s.unwrap_or(0), limit_s)
            }
            (AgentStatus::Active | AgentStatus::Pending, Some(_)) => false,
        };
        silent && longer(other.added_at_s, rules.registered_s)
    }
}

/// Returns the error that names what an existing agent has in common with the new one.
fn duplicate(new: &NewAgent, name: String, id: AgentId) -> EnrollError {
    if name.eq_ignore_ascii_case(&new.name) {
        EnrollError::DuplicateName { name, id }
    } else if Some(id) == new.id {
        EnrollError::DuplicateId(id)
    } else {
        EnrollError::DuplicateIp { ip: new.register_ip.clone(), id }
    }
}
