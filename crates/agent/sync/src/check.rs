//! Integrity checks. They compare the server's documents with the reported ones and repair
//! differences.

use bytes::Bytes;
use link::{
    Answer, DigestAnswer, DigestItem, Mode, Operation, Payload, Session, SessionBuilder, Start,
};
use model::{Dataset, ItemKey};
use reqwest::StatusCode;
use tracing::warn;

use crate::difference::{Descent, DifferingRanges, OwnDocuments};
use crate::documents::DocumentWriter;
use crate::syncer::{Syncer, blocking};
use crate::{SyncError, client, documents};

/// Most pending items that are restamped in one transaction.
const NOTED_PER_TRANSACTION: usize = 10_000;
/// Most deletes in one session of a repair.
const DELETES_PER_SESSION: usize = 1_000;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// Documents compared on this side.
    pub documents: u64,
    /// True if agent and server agreed without a repair.
    pub matched: bool,
    /// Documents that the server lacked or had in another state. They are pending again.
    pub resent: u64,
    /// Documents that only the server had, and that were removed.
    pub removed: u64,
    /// True if nothing was done and the check stays due, because this agent has not reported
    /// anything of the dataset yet, or the server cannot compare ranges and items are pending or
    /// refused.
    pub put_off: bool,
    /// True if everything was sent again to a server that cannot compare ranges, but the result
    /// could not be verified, because items are pending or refused.
    pub unsure: bool,
}

/// The treatment of documents that only the server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SurplusPolicy {
    /// They are kept, because a part of the dataset cannot be read (for example, a root is not
    /// mounted) and items that this agent lacks may still exist.
    Keep,
    /// They are removed, unless this agent has reported nothing at all.
    RemoveUnlessAll,
    /// They are removed, because the whole dataset was scanned.
    Remove,
}

/// The comparison of one dataset, as part of a check.
#[derive(Debug, Clone)]
pub struct Compared {
    /// Result of the comparison.
    pub report: CheckReport,
    /// Id of the server's store, if it agrees now or will agree after a cycle; `None` if the check
    /// stays due.
    pub store: Option<String>,
}

impl Syncer {
    /// Compares one dataset with the server. If they differ, it marks the differing items as
    /// pending, so that a cycle sends them, and removes the server's surplus documents. Run it
    /// after a cycle and after the first complete scan: pending items are left out of the
    /// comparison, but items that this agent does not have count as surplus. An agent that has
    /// reported nothing at all postpones the check. After success no check is due.
    ///
    /// # Errors
    /// Returns an error if there is no answer, or a refusal.
    pub async fn check(&self, dataset: &Dataset) -> Result<CheckReport, SyncError> {
        let begun = self.begin_check();
        let Compared { report, store } =
            self.check_part(dataset, SurplusPolicy::RemoveUnlessAll).await?;
        if let Some(store) = store {
            self.end_check(begun, store).await?;
        }
        Ok(report)
    }

    /// Runs [`Syncer::check`] for one of several datasets, between [`Syncer::begin_check`] and
    /// [`Syncer::end_check`].
    ///
    /// # Errors
    /// See [`Syncer::check`].
    pub async fn check_part(
        &self,
        dataset: &Dataset,
        surplus: SurplusPolicy,
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
                // Differences cannot be distinguished from items that are pending or refused.
                warn!(%dataset, "the server cannot compare ranges: check postponed");
                report.put_off = true;
                return Ok(Compared { report, store: None });
            }
            return self.replace_all(dataset, report, surplus).await;
        };
        let store = found.store.clone();
        let Repair { resend, mut remove } = self.repair(dataset, found).await?;
        if surplus == SurplusPolicy::Keep {
            remove.clear();
        }
        if own.documents == 0 && !remove.is_empty() && surplus != SurplusPolicy::Remove {
            // The database is new or every root is missing. This is no reason to empty the server.
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
            let (mut checksums, mut hashes) = (Vec::new(), OwnDocuments::default());
            let mut maker = DocumentWriter::new(&dataset, names.as_ref());
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

    /// Returns the id of the store if the server holds the same documents.
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

    /// Returns the ranges in which the server differs; `None` if it is an older server that cannot
    /// compare ranges.
    pub(crate) async fn compare(
        &self,
        dataset: &Dataset,
        own: OwnDocuments,
    ) -> Result<Option<DifferingRanges>, SyncError> {
        let client = self.client();
        let mut descent = Descent::new(&own, dataset.wire());
        while let Some(question) = descent.question() {
            let answer = match client.call::<_, DigestAnswer>("/digest", &question).await {
                Err(SyncError::Refused { status: 404, .. }) => return Ok(None),
                answer => answer?,
            };
            descent
                .apply_answer(&question, answer)
                .map_err(|what| client::protocol(&self.url("/digest"), what))?;
        }
        Ok(Some(descent.finish()))
    }

    /// Returns the changes that make the server's documents equal to this agent's.
    async fn repair(
        &self,
        dataset: &Dataset,
        mut found: DifferingRanges,
    ) -> Result<Repair, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = std::sync::Arc::clone(&self.names);
        blocking(move || {
            let snapshot = queue.snapshot(&dataset)?;
            let (mut resend, mut maker) =
                (Vec::new(), DocumentWriter::new(&dataset, names.as_ref()));
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
            // These pending items are on the server, although this database has no record of
            // sending them. Restamping marks them as possibly sent, so that a delete before the
            // next cycle is reported. Items deleted in the meantime are surplus.
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

    /// Repairs a server that cannot compare ranges. First, everything is sent again over its
    /// documents, so that its readers see every correct document throughout. If it still differs
    /// and nothing is pending, it must have surplus documents. Only then is the dataset emptied and
    /// sent once more. An older protocol has no better way: it cannot list documents or combine two
    /// sessions in one transaction, and this agent does not have the ids of surplus documents.
    async fn replace_all(
        &self,
        dataset: &Dataset,
        mut report: CheckReport,
        surplus: SurplusPolicy,
    ) -> Result<Compared, SyncError> {
        warn!(%dataset, documents = report.documents, "the server's documents differed and it \
            compares no ranges; sending all of them again");
        report.resent = self.resend_all(dataset).await?;
        self.cycle(dataset).await?;
        let mut agreed = self.agrees_now(dataset).await?;
        if agreed == Agreement::No && surplus != SurplusPolicy::Keep {
            // Marked as pending before the server is emptied, so that nothing is lost if the agent
            // is killed in between.
            report.resent += self.resend_all(dataset).await?;
            self.clean(dataset).await?;
            self.cycle(dataset).await?;
            agreed = self.agrees_now(dataset).await?;
        }
        report.unsure = agreed == Agreement::NotTold;
        let store = if let Agreement::With(store) = agreed { Some(store) } else { None };
        Ok(Compared { report, store })
    }

    /// Compares the whole dataset with the server's once more.
    async fn agrees_now(&self, dataset: &Dataset) -> Result<Agreement, SyncError> {
        let own = self.own_digest(dataset).await?;
        if !own.complete {
            return Ok(Agreement::NotTold);
        }
        Ok(self.server_agrees(dataset, &own.digest).await?.map_or(Agreement::No, Agreement::With))
    }

    /// Marks every reported document as pending again; returns their number.
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

    /// Deletes documents that this agent does not have, with versions above those of the server.
    /// Returns the number of deleted documents.
    async fn remove(&self, dataset: &Dataset, items: &[DigestItem]) -> Result<u64, SyncError> {
        let (mut left, mut removed) = (items, 0);
        while !left.is_empty() {
            let Removal { taken, body } = self.removal(dataset, left);
            let bytes = body.len();
            let error = match self.post_session(body).await {
                Ok(reply) if reply.status == StatusCode::OK => {
                    let answer: Answer = serde_json::from_slice(&reply.body)
                        .map_err(|e| client::protocol(&self.url("/stateful"), &e.to_string()))?;
                    self.pace.lock().record_accepted();
                    // Skipped documents were reported again in the meantime and are not surplus any
                    // more.
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

    /// Builds a session that deletes as many of the first items as connection and server can
    /// handle.
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

/// The changes that make the server's documents equal to this agent's.
struct Repair {
    resend: Vec<ItemKey>,
    /// Documents that only the server holds.
    remove: Vec<DigestItem>,
}

/// A session that removes documents.
struct Removal {
    /// Number of documents that it removes, from the first on.
    taken: usize,
    body: Vec<u8>,
}

/// The result of comparing a whole dataset with an older server.
#[derive(Debug, PartialEq, Eq)]
enum Agreement {
    /// The server has the same documents; the id of its store.
    With(String),
    No,
    /// Unknown: items are pending or refused, so the server was not asked.
    NotTold,
}

/// Converts a SHA-1 in hex to bytes.
fn raw(checksum: &str) -> Option<[u8; 20]> {
    let mut raw = [0; 20];
    hex::decode_to_slice(checksum, &mut raw).is_ok().then_some(raw)
}

struct OwnDigest {
    documents: u64,
    /// True if nothing is pending or refused, so that the digest covers the whole dataset.
    complete: bool,
    digest: String,
    hashes: OwnDocuments,
}
