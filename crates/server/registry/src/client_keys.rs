//! The keys of 64 characters that 4.x clients use for agents (our own agents have certificates),
//! and the import of a whole `client.keys`.

use std::collections::HashMap;
use std::fmt::Write as _;

use control::Reader;
use control::{ControlError, ControlStore, WriteContext};
use env::random::Random;
use model::AgentId;
use sha2::{Digest as _, Sha256};

use crate::types::AgentEnrolment;
use crate::{EnrollError, Registry, RegistryError};

/// Characters of a client key.
pub(crate) const CLIENT_KEY_CHARS: usize = 64;
/// The setting that holds the secret from which keys are derived, in hex.
const CLIENT_SECRET: &str = "client_key_secret";

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Agents that were added.
    pub added: u64,
    /// Lines of removed agents (name marked with `!`) and comments, which were skipped.
    pub passed_over: u64,
}

impl Registry {
    /// Returns the agent's key: the one it was inserted with, or one derived from its number, its
    /// life and the registry's secret. Nothing is written.
    ///
    /// # Errors
    /// `Store(NotFound)`.
    pub fn client_key(&self, reader: &Reader, id: AgentId) -> Result<String, RegistryError> {
        if let Some(key) = self.inner.store.client_key(reader, id)? {
            return Ok(key);
        }
        let life = self.inner.fleet.read().get(id).map(|agent| agent.incarnation);
        let missing = || ControlError::NotFound { what: "agent", name: id.to_string() };
        let life = life.ok_or_else(missing)?;
        // The parts have fixed lengths, so no other agent has the same bytes.
        let mut digest = Sha256::new_with_prefix(self.inner.client_secret.as_bytes());
        digest.update(id.0.to_be_bytes());
        digest.update(life.0.to_be_bytes());
        Ok(hex(&digest.finalize()))
    }

    pub(crate) fn draw_client_key(&self) -> Result<String, RegistryError> {
        let mut bytes = [0; CLIENT_KEY_CHARS / 2];
        self.inner.random.fill_bytes(&mut bytes)?;
        Ok(hex(&bytes))
    }

    /// Imports a registry of 4.x, all or nothing: one line `ID NAME IP|any KEY` per
    /// agent, removed ones marked with `!`. Ids, names, addresses and keys are preserved.
    ///
    /// # Errors
    /// `Refused` or `Line` with the invalid line; otherwise as [`Registry::add_agents`].
    pub fn import_client_keys(
        &self,
        context: &WriteContext,
        text: &str,
    ) -> Result<ImportReport, EnrollError> {
        let now = self.now();
        let mut report = ImportReport::default();
        let (mut agents, mut lines) = (Vec::new(), FileLines::default());
        for (number, line) in (1..).zip(text.lines()) {
            let Some(line) = read_line(number, line)? else {
                report.passed_over += 1;
                continue;
            };
            lines.add(number, &line)?;
            let request = AgentEnrolment {
                name: line.name.to_owned(),
                ip: line.ip.to_owned(),
                ..AgentEnrolment::default()
            };
            let key = Some(line.key.to_owned());
            let agent = self.new_agent(Some(line.id), &request, key, now.s);
            agents.push(agent.map_err(|cause| at_line(number, cause))?);
        }
        // Numbers only increase.
        agents.sort_by_key(|agent| agent.id);
        let _order = self.inner.decisions.lock();
        let added = self.insert_agents(context, &agents, now);
        report.added = added.map_err(|cause| lines.locate(cause))?.len() as u64;
        Ok(report)
    }
}

/// The lines of a `client.keys` by the numbers and the names of their agents.
#[derive(Default)]
struct FileLines {
    ids: HashMap<AgentId, usize>,
    /// Names in lower case.
    names: HashMap<String, usize>,
}

impl FileLines {
    /// Adds a line. The number and the name, in any case, may be on one line only.
    fn add(&mut self, number: usize, line: &KeyLine<'_>) -> Result<(), EnrollError> {
        let twice = |what: &str, earlier: usize| {
            let text = format!("line {number}: {what} is also on line {earlier}: correct one");
            RegistryError::Refused(text).into()
        };
        if let Some(earlier) = self.ids.insert(line.id, number) {
            return Err(twice(&format!("number {}", line.id), earlier));
        }
        match self.names.insert(line.name.to_ascii_lowercase(), number) {
            Some(earlier) => Err(twice(&format!("the name {} (in any case)", line.name), earlier)),
            None => Ok(()),
        }
    }

    /// Adds the line to the error of a name or a number that is in use.
    fn locate(&self, cause: EnrollError) -> EnrollError {
        let line = match &cause {
            EnrollError::DuplicateName { name, .. } => self.names.get(&name.to_ascii_lowercase()),
            EnrollError::Registry(RegistryError::Store(ControlError::NumberUsed {
                id, ..
            })) => self.ids.get(id),
            _ => None,
        };
        match line {
            Some(line) => at_line(*line, cause),
            None => cause,
        }
    }
}

fn at_line(line: usize, cause: EnrollError) -> EnrollError {
    EnrollError::Line { line, cause: Box::new(cause) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

/// Returns the secret from which the keys of agents without a stored key are derived. It is
/// generated once per registry.
pub(crate) fn client_secret(
    store: &ControlStore,
    random: &dyn Random,
) -> Result<String, RegistryError> {
    if let Some(secret) = store.setting(&Reader::server(), CLIENT_SECRET)? {
        return Ok(secret);
    }
    let mut bytes = [0; CLIENT_KEY_CHARS / 2];
    random.fill_bytes(&mut bytes)?;
    // Another process may have generated one as well; both use the first one stored.
    Ok(store.setting_or(CLIENT_SECRET, &hex(&bytes))?)
}

struct KeyLine<'a> {
    id: AgentId,
    name: &'a str,
    ip: &'a str,
    key: &'a str,
}

/// Parses a line; `None` for a removed agent, a comment or an empty line.
fn read_line(number: usize, line: &str) -> Result<Option<KeyLine<'_>>, EnrollError> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let wrong = || {
        RegistryError::Refused(format!(
            "line {number}: not of the form `ID NAME IP KEY` with at least {CLIENT_KEY_CHARS} \
             characters of key: correct or remove it"
        ))
    };
    let mut words = line.split(' ');
    let (Some(id), Some(name), Some(ip), Some(key), None) =
        (words.next(), words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong().into());
    };
    if name.starts_with('!') {
        return Ok(None);
    }
    let id: AgentId = id.parse().map_err(|_| wrong())?;
    if id == AgentId::SERVER || key.len() < CLIENT_KEY_CHARS {
        return Err(wrong().into());
    }
    Ok(Some(KeyLine { id, name, ip, key }))
}
