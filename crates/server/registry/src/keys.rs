//! Agents as 4.x clients add, name and take them over: by a key of 64 characters, which only they
//! use (our own agents have certificates), with the rules by which a new agent may take the place
//! of an old one; and the import of a whole `client.keys`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use env::random::Random;
use model::{AgentId, AgentStatus, Incarnation};
use sha2::{Digest as _, Sha256};
use state::Reader;
use state::registry::{LastScan, NewAgent, RegistryStore, RegistryStoreError, WriteContext};

use crate::types::EnrollRequest;
use crate::{EnrollError, Registry, RegistryError};

/// Characters of a client key.
pub(crate) const CLIENT_KEY_CHARS: usize = 64;

/// When a new agent takes the place of one that has its name, number or address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForceRules {
    /// Whether it may at all.
    pub enabled: bool,
    /// Only of one that was disconnected for this long, seconds; `None`: however long.
    pub disconnected_s: Option<u64>,
    /// Only of one that was registered longer ago than this, seconds.
    pub registered_s: u64,
}

impl Default for ForceRules {
    /// An hour of both, as 4.x has it.
    fn default() -> Self {
        Self { enabled: true, disconnected_s: Some(3_600), registered_s: 3_600 }
    }
}

/// An agent that a client inserts with all that it wants fixed.
#[derive(Debug, Clone, Default)]
pub struct InsertAgent {
    /// Its number; else the next is drawn.
    pub id: Option<AgentId>,
    /// Name, address, groups.
    pub request: EnrollRequest,
    /// Its key of at least 64 characters; else one is drawn.
    pub key: Option<String>,
    /// Whether it may take another's place; `None`: it may not.
    pub force: Option<ForceRules>,
}

/// What an import did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Agents that were added.
    pub added: u64,
    /// Lines of removed agents (name marked with `!`) and comments that were passed over.
    pub passed_over: u64,
}

/// The number and the key of an agent that was inserted, and who had to make room.
pub type Inserted = (AgentId, String, Vec<(AgentId, Incarnation)>);

/// Who makes room for an agent that is inserted.
#[derive(Debug, Clone, Copy)]
pub struct Displaced<'a> {
    /// Who goes, with the lives that end.
    pub gone: &'a [(AgentId, Incarnation)],
    /// The agent itself, inserted anew with its own number and name: it stays, with another key.
    pub keyed_anew: Option<AgentId>,
}

/// Writes the journal's removal records of those who go; refused, nobody goes.
pub type RecordLives<'a> = &'a mut dyn FnMut(Displaced<'_>) -> Result<(), String>;

/// How the agent that stays in the way is told.
fn rival(new: &NewAgent, name: String, id: AgentId) -> EnrollError {
    if name == new.name {
        EnrollError::DuplicateName { name, id }
    } else if Some(id) == new.id {
        EnrollError::DuplicateId(id)
    } else {
        EnrollError::DuplicateIp { ip: new.register_ip.clone(), id }
    }
}

impl Registry {
    /// Add one agent with its key; durable when it returns. Its number, its key and who had to
    /// make room. One that is there with the same number and name, and may be replaced, stays who it
    /// is: it is given the key and is never connected again until it is heard from.
    ///
    /// `record` writes the journal's removal records once all has been found to be possible. Nobody
    /// else waits for the journal's disk meanwhile. Ends the process in between, those rows are
    /// removed when their agents speak or when it is asked again: never are there documents of nobody.
    ///
    /// # Errors
    /// As [`Registry::add_agents`]; `Refused` for a key that is too short; `DuplicateIp` for an
    /// address that another agent registered with; `Store(Unrecorded)`. Then nobody had to go, unless
    /// `record` was called: who had to may be gone, and it can be asked again.
    pub fn insert_agent(
        &self,
        context: &WriteContext,
        new: &InsertAgent,
        record: RecordLives<'_>,
    ) -> Result<Inserted, EnrollError> {
        let key = match &new.key {
            Some(key) if key.len() < CLIENT_KEY_CHARS => {
                let text = format!("key: must have at least {CLIENT_KEY_CHARS} characters");
                return Err(RegistryError::Refused(text).into());
            }
            Some(key) => key.clone(),
            None => self.draw_key()?,
        };
        let agent = self.new_agent(new.id, &new.request, Some(key.clone()), self.now().s)?;
        let order = self.inner.decisions.lock();
        let rivals = self.rivals(context.reader(), &agent, new.force, agent.now_s)?;
        if rivals.is_empty() {
            let (id, removed) = self.put_in_place(context, &[], &[], &agent)?;
            return Ok((id, key, removed));
        }
        self.inner.store.try_replace_agents(context.reader(), &rivals, &agent)?;
        let (keyed_anew, lives) = self.displaced(&rivals, &agent);
        drop(order);
        let gone: Vec<_> =
            lives.iter().filter(|(id, _)| Some(*id) != keyed_anew).copied().collect();
        record(Displaced { gone: &gone, keyed_anew }).map_err(RegistryStoreError::Unrecorded)?;
        let _order = self.inner.decisions.lock();
        // Who spoke meanwhile was found removed, and its number is not free for others.
        let (id, removed) = self.put_in_place(context, &self.still(&lives), &rivals, &agent)?;
        Ok((id, key, removed))
    }

    /// The lives of those in the way, and which of them is the agent itself.
    fn displaced(
        &self,
        rivals: &[AgentId],
        new: &NewAgent,
    ) -> (Option<AgentId>, Vec<(AgentId, Incarnation)>) {
        let fleet = self.inner.fleet.read();
        let itself = |id: &AgentId| fleet.get(*id).is_some_and(|known| known.name == new.name);
        let lives = rivals.iter().filter_map(|id| Some((*id, fleet.get(*id)?.incarnation)));
        (new.id.filter(|id| rivals.contains(id)).filter(itself), lives.collect())
    }

    /// Those of them whose lives have not ended.
    fn still(&self, lives: &[(AgentId, Incarnation)]) -> Vec<AgentId> {
        let fleet = self.inner.fleet.read();
        let same = |(id, life): &(AgentId, Incarnation)| {
            fleet.get(*id).filter(|now| now.incarnation == *life).map(|now| now.id)
        };
        lives.iter().filter_map(same).collect()
    }

    /// Put the agent in the place of those in its way, in store and memory: its number, and who went.
    /// The caller holds the lock of decisions.
    fn put_in_place(
        &self,
        context: &WriteContext,
        in_the_way: &[AgentId],
        freed: &[AgentId],
        new: &NewAgent,
    ) -> Result<(AgentId, Vec<(AgentId, Incarnation)>), EnrollError> {
        let (gone, row) = self.inner.store.replace_agents(context, in_the_way, freed, new)?;
        let gone = gone.iter().map(|row| (row.record.id, row.record.incarnation));
        let removed: Vec<(AgentId, Incarnation)> = gone.collect();
        self.drop_now(&removed, new.now_s);
        let id = row.record.id;
        let mut certificates = self.inner.certificates.write();
        let mut fleet = self.inner.fleet.write();
        if fleet.get(id).is_some_and(|known| known.incarnation == row.record.incarnation) {
            certificates.revoke(id, new.now_s);
            fleet.key_anew(row.record);
        } else {
            fleet.insert(row, self.now());
        }
        Ok((id, removed))
    }

    /// Who has the name, the number or the address; all of them may be replaced by the rules.
    fn rivals(
        &self,
        reader: &Reader,
        new: &NewAgent,
        force: Option<ForceRules>,
        now_s: i64,
    ) -> Result<Vec<AgentId>, EnrollError> {
        let single = new.register_ip != "any" && !new.register_ip.contains('/');
        let address = single.then_some(new.register_ip.as_str());
        let rivals = self.inner.store.rivals(reader, &new.name, new.id, address)?;
        if let Some(id) = rivals.iter().find(|id| !self.gives_way(**id, force, now_s)) {
            let fleet = self.inner.fleet.read();
            let name = fleet.get(*id).map(|other| other.name.clone()).unwrap_or_default();
            return Err(rival(new, name, *id));
        }
        Ok(rivals)
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

    /// The agent's key: the one it was inserted with, else one that follows from its number, its
    /// life and the registry's secret. Nothing is written.
    ///
    /// # Errors
    /// `Store(NotFound)`.
    pub fn client_key(&self, reader: &Reader, id: AgentId) -> Result<String, RegistryError> {
        if let Some(key) = self.inner.store.client_key(reader, id)? {
            return Ok(key);
        }
        let life = self.inner.fleet.read().get(id).map(|agent| agent.incarnation);
        let missing = || RegistryStoreError::NotFound { what: "agent", name: id.to_string() };
        let life = life.ok_or_else(missing)?;
        // The parts have fixed lengths: no other agent's are these bytes.
        let mut digest = Sha256::new_with_prefix(self.inner.client_secret.as_bytes());
        digest.update(id.0.to_be_bytes());
        digest.update(life.0.to_be_bytes());
        Ok(hex(&digest.finalize()))
    }

    fn draw_key(&self) -> Result<String, RegistryError> {
        let mut bytes = [0; CLIENT_KEY_CHARS / 2];
        self.inner.random.fill(&mut bytes)?;
        Ok(hex(&bytes))
    }

    /// Refuse every certificate of these agents from now on, in one durable step; those of them
    /// that there are, for the journal's removal records. The first step of a removal: then come
    /// the records, then [`Registry::remove_agents`]. After a crash in between the rows are still
    /// there, and removing them again does the rest.
    ///
    /// # Errors
    /// When the store fails; then none is refused.
    pub fn revoke_agents(
        &self,
        context: &WriteContext,
        ids: &[AgentId],
    ) -> Result<Vec<(AgentId, Incarnation)>, RegistryError> {
        let now_s = self.now().s;
        let _order = self.inner.decisions.lock();
        let lives: Vec<(AgentId, Incarnation)> = {
            let fleet = self.inner.fleet.read();
            ids.iter().filter_map(|id| Some((*id, fleet.get(*id)?.incarnation))).collect()
        };
        let ids: Vec<AgentId> = lives.iter().map(|(id, _)| *id).collect();
        self.inner.store.revoke_certificates(context, &ids, now_s)?;
        let mut certificates = self.inner.certificates.write();
        for id in &ids {
            certificates.revoke(*id, now_s);
        }
        Ok(lives)
    }

    /// Remove several agents in one durable step, as [`Registry::remove_agent`] does; who begins
    /// another life meanwhile stays. Who was removed.
    ///
    /// # Errors
    /// When the store fails; then none is removed.
    pub fn remove_agents(
        &self,
        context: &WriteContext,
        lives: &[(AgentId, Incarnation)],
    ) -> Result<Vec<AgentId>, RegistryError> {
        let now_s = self.now().s;
        let _order = self.inner.decisions.lock();
        let rows = self.inner.store.remove_agents(context, &self.still(lives), now_s)?;
        let gone = rows.iter().map(|row| (row.record.id, row.record.incarnation));
        Ok(self.drop_now(&gone.collect::<Vec<_>>(), now_s))
    }

    /// Let numbers of removed agents be given again to whoever asks for one of them, when all that went
    /// by them is gone; before that nobody has one of them.
    ///
    /// # Errors
    /// When the store fails; then none is free.
    pub fn free_numbers(
        &self,
        context: &WriteContext,
        ids: &[AgentId],
    ) -> Result<(), RegistryError> {
        Ok(self.inner.store.free_numbers(context, ids)?)
    }

    /// To be held by whoever stores an agent's metrics, from before the agent is found to be in force until
    /// they are stored.
    pub async fn storing_metrics(&self) -> impl Send + use<> {
        Arc::clone(&self.inner.storing).read_owned().await
    }

    /// Waits until what is being stored of metrics is stored: of agents that were revoked or removed before,
    /// nothing comes any more.
    pub async fn metrics_stored(&self) {
        drop(self.inner.storing.write().await);
    }

    /// Forget agents that are removed from the store; the caller holds the lock of decisions.
    fn drop_now(&self, gone: &[(AgentId, Incarnation)], now_s: i64) -> Vec<AgentId> {
        let mut ids: Vec<AgentId> = gone.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        self.inner.outstanding.lock().forget(&ids);
        // What was told of a scan is not the next one's of that number.
        self.inner.scans.lock().retain(|id, _| ids.binary_search(id).is_err());
        let mut certificates = self.inner.certificates.write();
        let mut fleet = self.inner.fleet.write();
        for id in &ids {
            certificates.revoke(*id, now_s);
            fleet.remove(*id);
        }
        drop((certificates, fleet));
        self.tell_removed(&ids);
        ids
    }

    /// Take over a registry as 4.x keeps it, all or nothing: one line `ID NAME IP|any KEY` per
    /// agent, removed ones marked with `!`. Ids, names, addresses and keys stay as they are.
    ///
    /// # Errors
    /// `Refused` names the line that is not one; otherwise as [`Registry::add_agents`].
    pub fn import_client_keys(
        &self,
        context: &WriteContext,
        text: &str,
    ) -> Result<ImportReport, EnrollError> {
        let now = self.now();
        let mut report = ImportReport::default();
        let (mut agents, mut seen) = (Vec::new(), HashSet::new());
        for (number, line) in (1..).zip(text.lines()) {
            let Some(line) = read_line(number, line)? else {
                report.passed_over += 1;
                continue;
            };
            if !seen.insert(line.id) {
                let text = format!("line {number}: number {} stands twice", line.id);
                return Err(RegistryError::Refused(text).into());
            }
            let request = EnrollRequest {
                name: line.name.to_owned(),
                ip: line.ip.to_owned(),
                groups: Vec::new(),
            };
            let key = Some(line.key.to_owned());
            agents.push(self.new_agent(Some(line.id), &request, key, now.s)?);
        }
        // Numbers only grow.
        agents.sort_by_key(|agent| agent.id);
        let _order = self.inner.decisions.lock();
        report.added = self.insert_agents(context, &agents, now)?.len() as u64;
        Ok(report)
    }

    /// The agent began or ended a scan; written with the next flush. Memory only.
    pub fn scanned(&self, id: AgentId, scan: LastScan) {
        let mut scans = self.inner.scans.lock();
        let known = scans.entry(id).or_default();
        known.started_at_s = scan.started_at_s.or(known.started_at_s);
        known.ended_at_s = scan.ended_at_s.or(known.ended_at_s);
    }

    /// What the agent told of its last scan.
    ///
    /// # Errors
    /// `Store(NotFound)`.
    pub fn last_scan(&self, reader: &Reader, id: AgentId) -> Result<LastScan, RegistryError> {
        self.flush_scans()?;
        Ok(self.inner.store.last_scan(reader, id)?)
    }

    pub(crate) fn flush_scans(&self) -> Result<(), RegistryStoreError> {
        let scans: HashMap<AgentId, LastScan> = std::mem::take(&mut *self.inner.scans.lock());
        if scans.is_empty() {
            return Ok(());
        }
        let rows: Vec<(AgentId, LastScan)> = scans.into_iter().collect();
        let written = self.inner.store.save_last_scans(&rows);
        if written.is_err() {
            let mut waiting = self.inner.scans.lock();
            for (id, scan) in rows {
                waiting.entry(id).or_insert(scan);
            }
        }
        written
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

/// What keys of agents that were not inserted with one follow from; drawn once for a registry.
pub(crate) fn client_secret(
    store: &dyn RegistryStore,
    random: &dyn Random,
) -> Result<String, RegistryError> {
    if let Some(secret) = store.setting(&Reader::server(), CLIENT_SECRET)? {
        return Ok(secret);
    }
    let mut bytes = [0; CLIENT_KEY_CHARS / 2];
    random.fill(&mut bytes)?;
    // Another process may have drawn one as well: the first stands for both.
    Ok(store.setting_or(CLIENT_SECRET, &hex(&bytes))?)
}

/// The setting that holds it, in hex.
const CLIENT_SECRET: &str = "client_key_secret";

struct Line<'a> {
    id: AgentId,
    name: &'a str,
    ip: &'a str,
    key: &'a str,
}

/// `None` for a removed agent, a comment or an empty line.
fn read_line(number: usize, line: &str) -> Result<Option<Line<'_>>, EnrollError> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let wrong = || {
        RegistryError::Refused(format!(
            "line {number}: not of the form `ID NAME IP KEY` with at least {CLIENT_KEY_CHARS} \
             characters of key: mend or remove it"
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
    Ok(Some(Line { id, name, ip, key }))
}
