//! Integrity checks: is what the server holds what this agent told? And repair by difference.

use std::collections::HashMap;

use bytes::Bytes;
use link::{
    Answer, DigestAnswer, DigestItem, DigestRequest, Mode, Operation, Payload, Session,
    SessionBuilder, Start,
};
use model::{Dataset, ItemKey};
use reqwest::StatusCode;
use tracing::warn;

use crate::syncer::{Syncer, blocking};
use crate::{SyncError, client, documents};

/// Items asked for in one page of the server's listing.
const PAGE_ITEMS: u32 = 10_000;
/// Most deletes in one session of a repair.
const DELETES_PER_SESSION: usize = 10_000;

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
        self.check_with(dataset, true).await
    }

    /// As [`Syncer::check`], but what only the server holds stays there: while a part of the
    /// dataset cannot be seen (a root is not mounted), what this agent lacks may well exist.
    ///
    /// # Errors
    /// As [`Syncer::check`].
    pub async fn check_keeping_surplus(&self, dataset: &Dataset) -> Result<CheckReport, SyncError> {
        self.check_with(dataset, false).await
    }

    async fn check_with(&self, dataset: &Dataset, prune: bool) -> Result<CheckReport, SyncError> {
        let begun = self.begin_check();
        let own = self.own_digest(dataset).await?;
        let mut report = CheckReport { documents: own.documents, ..CheckReport::default() };
        if own.complete
            && let Some(store) = self.server_agrees(dataset, &own.digest).await?
        {
            report.matched = true;
            self.end_check(begun, store).await?;
            return Ok(report);
        }
        let (theirs, store) = self.listing(dataset).await?;
        let (resend, mut remove) = self.difference(dataset, theirs).await?;
        if !prune {
            remove.clear();
        }
        if own.documents == 0 && !remove.is_empty() {
            // A database just made, or every root gone: a gap, no reason to empty the server.
            warn!(%dataset, held = remove.len(), "this agent has told nothing yet: check put off");
            return Ok(report);
        }
        report.matched = resend.is_empty() && remove.is_empty();
        report.resent = resend.len() as u64;
        report.removed = remove.len() as u64;
        if !report.matched {
            warn!(%dataset, resent = report.resent, removed = report.removed,
                "the server's documents differed; repairing the difference");
        }
        self.remove(dataset, &remove).await?;
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        blocking(move || queue.resend(&dataset, &resend)).await?;
        self.end_check(begun, store).await?;
        Ok(report)
    }

    async fn own_digest(&self, dataset: &Dataset) -> Result<OwnDigest, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = std::sync::Arc::clone(&self.names);
        blocking(move || {
            let snapshot = queue.snapshot(&dataset)?;
            let complete = snapshot.pending().is_empty() && snapshot.exceptions().is_empty();
            let mut checksums = Vec::new();
            snapshot.for_each(&mut |item| {
                let document =
                    documents::build(&dataset, &item.key, item.seen, &item.body, names.as_ref());
                checksums.extend(raw(&document.checksum));
                Ok(())
            })?;
            let documents = checksums.len() as u64;
            Ok(OwnDigest { documents, complete, digest: documents::digest(&mut checksums) })
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
        self.client()
            .post("/stateful", Some(&id), "application/octet-stream", Bytes::from(body))
            .await
    }

    fn url(&self, route: &str) -> String {
        format!("{}{route}", self.client().identity().server_url)
    }

    /// The server's whole listing of the dataset, and from which store it is.
    async fn listing(
        &self,
        dataset: &Dataset,
    ) -> Result<(HashMap<String, DigestItem>, String), SyncError> {
        let mut items = HashMap::new();
        let mut after = None;
        let mut store = None;
        loop {
            let request =
                DigestRequest { index: dataset.wire(), after: after.clone(), limit: PAGE_ITEMS };
            let page: DigestAnswer = self.client().call("/digest", &request).await?;
            if *store.get_or_insert_with(|| page.store.clone()) != page.store {
                let detail = "the store was replaced during the listing";
                return Err(client::protocol(&self.url("/digest"), detail));
            }
            items.extend(page.items.into_iter().map(|item| (item.id.clone(), item)));
            match page.next {
                Some(next) if after.as_ref() != Some(&next) => after = Some(next),
                Some(_) => {
                    let detail = "the listing does not go on";
                    return Err(client::protocol(&self.url("/digest"), detail));
                }
                None => return Ok((items, store.unwrap_or_default())),
            }
        }
    }

    /// What to send again, and what the server holds too much.
    async fn difference(
        &self,
        dataset: &Dataset,
        mut theirs: HashMap<String, DigestItem>,
    ) -> Result<(Vec<ItemKey>, Vec<DigestItem>), SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = std::sync::Arc::clone(&self.names);
        blocking(move || {
            let snapshot = queue.snapshot(&dataset)?;
            let mut resend = Vec::new();
            snapshot.for_each(&mut |item| {
                let document =
                    documents::build(&dataset, &item.key, item.seen, &item.body, names.as_ref());
                let same = theirs
                    .remove(&document.id)
                    .is_some_and(|their| their.checksum == document.checksum);
                resend.extend((!same).then_some(item.key));
                Ok(())
            })?;
            for key in snapshot.pending() {
                theirs.remove(&documents::id(&dataset, key));
            }
            for exception in snapshot.exceptions() {
                theirs.remove(&documents::id(&dataset, &exception.key));
            }
            Ok((resend, theirs.into_values().collect()))
        })
        .await
    }

    /// Delete documents that this agent does not have, above the version that the server holds.
    async fn remove(&self, dataset: &Dataset, items: &[DigestItem]) -> Result<(), SyncError> {
        let wire = dataset.wire();
        let (bytes_max, values_max) = {
            let facts = self.facts.lock();
            let bytes_max = facts.session_bytes_max.min(self.options.session_bytes);
            (bytes_max, facts.session_values_max.min(DELETES_PER_SESSION))
        };
        let mut left = items.iter().peekable();
        while left.peek().is_some() {
            let mut builder = SessionBuilder::new();
            while let Some(item) = left.next_if(|item| {
                let bytes = builder.bytes() + SessionBuilder::cost(&item.id, &wire, &[]);
                builder.values() == 0 || (bytes <= bytes_max && builder.values() < values_max)
            }) {
                let version = self.clock.now_us().max(item.version.saturating_add(1));
                builder.push(Operation::Delete, &item.id, &wire, version, &[]);
            }
            let start = Start { index: vec![wire.clone()], ..self.start(Mode::ModuleDelta) };
            let reply = self.post_session(builder.finish(&start)).await?;
            if reply.status != StatusCode::OK {
                return Err(client::refused(&self.url("/stateful"), &reply));
            }
        }
        Ok(())
    }
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
}
