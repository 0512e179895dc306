//! Integrity checks: is what the server holds what this agent told? And repair by difference.

use bytes::Bytes;
use link::{
    Answer, DigestAnswer, DigestItem, Mode, Operation, Payload, Session, SessionBuilder, Start,
};
use model::{Dataset, ItemKey};
use reqwest::StatusCode;
use tracing::warn;

use crate::difference::{Descent, Differing, Own};
use crate::documents::Maker;
use crate::syncer::{Syncer, blocking};
use crate::{SyncError, client, documents};

/// Items noted as known in one transaction.
const NOTED_PER_TRANSACTION: usize = 10_000;
/// Most deletes in one session of a repair.
const DELETES_PER_SESSION: usize = 1_000;

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// Documents compared on this side.
    pub documents: u64,
    /// Agent and server agreed at once.
    pub matched: bool,
    /// Documents that the server lacked or held differently; they are pending again.
    pub resent: u64,
    /// Documents that only the server held; removed.
    pub removed: u64,
    /// Nothing was done, and a check stays due: this agent had told nothing of the dataset yet, or
    /// the server compares no ranges while something is pending or refused.
    pub put_off: bool,
    /// Everything was told again to a server that compares no ranges; whether it agrees now could
    /// not be asked, since something is pending or refused.
    pub unsure: bool,
}

/// What becomes of documents that only the server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surplus {
    /// They stay: while a part of the dataset cannot be seen (a root is not mounted), what this
    /// agent lacks may well exist.
    Keep,
    /// They are removed, unless this agent has told nothing at all.
    RemoveUnlessAll,
    /// They are removed: everything that there is was looked at.
    Remove,
}

/// One dataset compared, as part of a check.
#[derive(Debug, Clone)]
pub struct Compared {
    /// What was found.
    pub report: CheckReport,
    /// The store that agrees now, or will after a cycle; `None` when the check stays due.
    pub store: Option<String>,
}

impl Syncer {
    /// Compare one dataset with the server's; on mismatch mark what differs as pending (a cycle
    /// sends it) and remove what the server holds too much. Run it right after a cycle, and not
    /// before the dataset was scanned once: what is pending is left out of the repair, but what
    /// this agent has never seen is taken for surplus (an agent that has told nothing at all puts
    /// the check off). Once done, no check is due any more.
    ///
    /// # Errors
    /// When there is no answer, or a refusal.
    pub async fn check(&self, dataset: &Dataset) -> Result<CheckReport, SyncError> {
        let begun = self.begin_check();
        let Compared { report, store } = self.check_part(dataset, Surplus::RemoveUnlessAll).await?;
        if let Some(store) = store {
            self.end_check(begun, store).await?;
        }
        Ok(report)
    }

    /// [`Syncer::check`] of one of several datasets: between [`Syncer::begin_check`] and
    /// [`Syncer::end_check`].
    ///
    /// # Errors
    /// As [`Syncer::check`].
    pub async fn check_part(
        &self,
        dataset: &Dataset,
        surplus: Surplus,
    ) -> Result<Compared, SyncError> {
        let own = self.own_digest(dataset).await?;
        let mut report = CheckReport { documents: own.documents, ..CheckReport::default() };
        if own.complete
            && let Some(store) = self.server_agrees(dataset, &own.digest).await?
        {
            report.matched = true;
            return Ok(Compared { report, store: Some(store) });
        }
        let Some(found) = self.compare(dataset, own.hashes).await? else {
            if !own.complete || own.documents == 0 {
                // What differs cannot be told from what is not told yet or was refused.
                warn!(%dataset, "the server cannot compare ranges: check postponed");
                report.put_off = true;
                return Ok(Compared { report, store: None });
            }
            return self.replace_all(dataset, report, surplus).await;
        };
        let store = found.store.clone();
        let Repair { resend, mut remove } = self.repair(dataset, found).await?;
        if surplus == Surplus::Keep {
            remove.clear();
        }
        if own.documents == 0 && !remove.is_empty() && surplus != Surplus::Remove {
            // A database just made, or every root gone: a gap, no reason to empty the server.
            warn!(%dataset, held = remove.len(), "this agent has sent nothing yet: check postponed");
            report.put_off = true;
            return Ok(Compared { report, store: None });
        }
        report.matched = resend.is_empty() && remove.is_empty();
        report.resent = resend.len() as u64;
        if !report.matched {
            warn!(%dataset, resent = report.resent, removed = remove.len(),
                "the server's documents differed; repairing the difference");
        }
        report.removed = self.remove(dataset, &remove).await?;
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        blocking(move || queue.resend(&dataset, &resend)).await?;
        Ok(Compared { report, store: Some(store) })
    }

    async fn own_digest(&self, dataset: &Dataset) -> Result<OwnDigest, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = std::sync::Arc::clone(&self.names);
        blocking(move || {
            let snapshot = queue.snapshot(&dataset)?;
            let complete = snapshot.pending().is_empty() && snapshot.exceptions().is_empty();
            let (mut checksums, mut hashes) = (Vec::new(), Own::default());
            let mut maker = Maker::new(&dataset, names.as_ref());
            snapshot.for_each(&mut |item| {
                let document = maker.make(item.key.borrowed(), item.seen, (&item.body).into());
                checksums.extend(raw(document.checksum));
                hashes.add(document.id, document.checksum);
                Ok(())
            })?;
            hashes.sort();
            let documents = checksums.len() as u64;
            Ok(OwnDigest { documents, complete, digest: documents::digest(&mut checksums), hashes })
        })
        .await
    }

    /// `Some` when the server holds the same; which store that is.
    async fn server_agrees(
        &self,
        dataset: &Dataset,
        digest: &str,
    ) -> Result<Option<String>, SyncError> {
        let start = Start { index: vec![dataset.wire()], ..self.start(Mode::ModuleCheck) };
        let payload = Payload::Checksum { index: dataset.wire(), checksum: digest.to_owned() };
        let body = link::encode(&Session { start, payload });
        let reply = self.post_session(body).await?;
        match reply.status {
            StatusCode::OK => {
                let answer: Answer = serde_json::from_slice(&reply.body)
                    .map_err(|e| client::protocol(&self.url("/stateful"), &e.to_string()))?;
                Ok(Some(answer.store))
            }
            StatusCode::CONFLICT => Ok(None),
            _ => Err(client::refused(&self.url("/stateful"), &reply)),
        }
    }

    async fn post_session(&self, body: Vec<u8>) -> Result<client::Reply, SyncError> {
        let id = self.session_id();
        self.note_sent(&id).await?;
        let head = client::SessionHead { id: &id, now_us: self.clock.now_us() };
        self.client()
            .post("/stateful", Some(head), "application/octet-stream", Bytes::from(body))
            .await
    }

    pub(crate) fn url(&self, route: &str) -> String {
        format!("{}{route}", self.client().identity().server_url)
    }

    /// Where the server differs; `None` when it is an older one that compares no ranges.
    pub(crate) async fn compare(
        &self,
        dataset: &Dataset,
        own: Own,
    ) -> Result<Option<Differing>, SyncError> {
        let client = self.client();
        let mut descent = Descent::new(&own, dataset.wire());
        while let Some(question) = descent.question() {
            let answer = match client.call::<_, DigestAnswer>("/digest", &question).await {
                Err(SyncError::Refused { status: 404, .. }) => return Ok(None),
                answer => answer?,
            };
            descent
                .answer(&question, answer)
                .map_err(|what| client::protocol(&self.url("/digest"), what))?;
        }
        Ok(Some(descent.finish()))
    }

    /// Returns what makes the server's documents equal to this agent's.
    async fn repair(&self, dataset: &Dataset, mut found: Differing) -> Result<Repair, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = std::sync::Arc::clone(&self.names);
        blocking(move || {
            let snapshot = queue.snapshot(&dataset)?;
            let (mut resend, mut maker) = (Vec::new(), Maker::new(&dataset, names.as_ref()));
            snapshot.for_each(&mut |item| {
                resend.extend(found.missing(&mut maker, item));
                Ok(())
            })?;
            for exception in snapshot.exceptions() {
                found.theirs.remove(maker.id(exception.key.borrowed()));
            }
            let mut held = snapshot.pending().to_vec();
            drop(snapshot);
            held.retain(|key| found.theirs.contains_key(maker.id(key.borrowed())));
            // Found anew by a database that lost what it had told of them: should they go before
            // they are told again, that must be told. Those that went meanwhile are surplus.
            let mut gone = Vec::new();
            for keys in held.chunks(NOTED_PER_TRANSACTION) {
                gone.extend(queue.resend(&dataset, keys)?);
            }
            let mut gone = gone.into_iter().peekable();
            for key in held.iter().filter(|key| gone.next_if_eq(*key).is_none()) {
                found.theirs.remove(maker.id(key.borrowed()));
            }
            Ok(Repair { resend, remove: found.theirs.into_values().collect() })
        })
        .await
    }

    /// Against an older server: everything is sent again over what it holds, so that its readers
    /// see every right document all the while. Only if it then still differs although nothing is
    /// pending, so that it must hold too much, is the dataset emptied and sent once more: its
    /// contract lists nothing and puts no two sessions into one transaction, and what this side no
    /// longer has it cannot name.
    async fn replace_all(
        &self,
        dataset: &Dataset,
        mut report: CheckReport,
        surplus: Surplus,
    ) -> Result<Compared, SyncError> {
        warn!(%dataset, documents = report.documents, "the server's documents differed and it \
            compares no ranges; sending all of them again");
        report.resent = self.resend_all(dataset).await?;
        self.cycle(dataset).await?;
        let mut agreed = self.agrees_now(dataset).await?;
        if agreed == Agreed::No && surplus != Surplus::Keep {
            // Pending before the server is emptied: a kill in between leaves nothing to be found
            // out.
            report.resent += self.resend_all(dataset).await?;
            self.clean(dataset).await?;
            self.cycle(dataset).await?;
            agreed = self.agrees_now(dataset).await?;
        }
        report.unsure = agreed == Agreed::NotTold;
        let store = if let Agreed::With(store) = agreed { Some(store) } else { None };
        Ok(Compared { report, store })
    }

    /// Whether the server holds the same as this side by now.
    async fn agrees_now(&self, dataset: &Dataset) -> Result<Agreed, SyncError> {
        let own = self.own_digest(dataset).await?;
        if !own.complete {
            return Ok(Agreed::NotTold);
        }
        Ok(self.server_agrees(dataset, &own.digest).await?.map_or(Agreed::No, Agreed::With))
    }

    /// Every told document is pending once more; how many there are.
    async fn resend_all(&self, dataset: &Dataset) -> Result<u64, SyncError> {
        let (queue, name) = (self.queue.clone(), dataset.clone());
        blocking(move || {
            let mut keys = Vec::new();
            queue.snapshot(&name)?.for_each(&mut |item| {
                keys.push(item.key);
                Ok(())
            })?;
            queue.resend(&name, &keys)?;
            Ok(keys.len() as u64)
        })
        .await
    }

    async fn clean(&self, dataset: &Dataset) -> Result<(), SyncError> {
        let index = dataset.wire();
        let start = Start { index: vec![index.clone()], ..self.start(Mode::ModuleDelta) };
        let body = link::encode(&Session { start, payload: Payload::Cleans(vec![index]) });
        let reply = self.post_session(body).await?;
        match reply.status {
            StatusCode::OK => Ok(()),
            _ => Err(client::refused(&self.url("/stateful"), &reply)),
        }
    }

    /// Delete documents that this agent does not have, above the version that the server holds; how
    /// many went.
    async fn remove(&self, dataset: &Dataset, items: &[DigestItem]) -> Result<u64, SyncError> {
        let (mut left, mut removed) = (items, 0);
        while !left.is_empty() {
            let Removal { taken, body } = self.removal(dataset, left);
            let bytes = body.len();
            let error = match self.post_session(body).await {
                Ok(reply) if reply.status == StatusCode::OK => {
                    let answer: Answer = serde_json::from_slice(&reply.body)
                        .map_err(|e| client::protocol(&self.url("/stateful"), &e.to_string()))?;
                    self.pace.lock().taken();
                    // Told anew meanwhile: no surplus any more.
                    removed += taken.saturating_sub(answer.skipped.len()) as u64;
                    left = left.get(taken..).unwrap_or_default();
                    continue;
                }
                Ok(reply) => client::refused(&self.url("/stateful"), &reply),
                Err(error) => error,
            };
            if !error.is_too_large() || taken <= 1 {
                self.slow_down(taken, bytes, &error);
                return Err(error);
            }
            self.pace.lock().halve(bytes);
        }
        Ok(removed)
    }

    /// A session that deletes the first of these, as many as the line and the server take.
    fn removal(&self, dataset: &Dataset, items: &[DigestItem]) -> Removal {
        let wire = dataset.wire();
        let (bytes_max, values_max) = {
            let (facts, pace) = (self.facts.lock(), self.pace.lock());
            let values_max = facts.session_values_max.min(pace.values_max());
            (facts.session_bytes_max.min(pace.bytes()), values_max.min(DELETES_PER_SESSION))
        };
        let mut builder = SessionBuilder::new();
        for item in items {
            let bytes = builder.bytes() + SessionBuilder::cost(&item.id, &wire, &[]);
            if builder.values() > 0 && (bytes > bytes_max || builder.values() >= values_max) {
                break;
            }
            let version = self.clock.now_us().max(item.version.saturating_add(1));
            builder.push(Operation::Delete, &item.id, &wire, version, &[]);
        }
        let start = Start { index: vec![wire], ..self.start(Mode::ModuleDelta) };
        Removal { taken: builder.values(), body: builder.finish(&start) }
    }
}

/// What makes the server's documents equal to this agent's.
struct Repair {
    resend: Vec<ItemKey>,
    /// Documents that only the server holds.
    remove: Vec<DigestItem>,
}

/// A session that removes documents.
struct Removal {
    /// How many of the documents it removes, from the first on.
    taken: usize,
    body: Vec<u8>,
}

/// What an older server says of the whole of a dataset.
#[derive(Debug, PartialEq, Eq)]
enum Agreed {
    /// It holds the same; which store that is.
    With(String),
    No,
    /// Something is pending or was refused: it was not asked.
    NotTold,
}

/// SHA-1 in hex as bytes.
fn raw(checksum: &str) -> Option<[u8; 20]> {
    let mut raw = [0; 20];
    hex::decode_to_slice(checksum, &mut raw).is_ok().then_some(raw)
}

struct OwnDigest {
    documents: u64,
    /// Nothing is pending or refused: the digest speaks of the whole dataset.
    complete: bool,
    digest: String,
    hashes: Own,
}
