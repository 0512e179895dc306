//! Reporting changes made while agent.db was missing.
//!
//! A new agent.db has no record of what was reported to the server. The first check would only
//! replace the server's documents, and the changes of that time would never become events. So
//! before the first cycle of a dataset, and after the first complete scan, the documents of both
//! sides are compared by ranges as in a check ([`crate::difference`]); the server still holds the
//! state that was reported last. For each item that differs, one event is appended to the queue:
//!
//! - *before* is the server's state of the item.
//! - *after* is the state that the first scan found. If events of the item are queued, this is the
//!   state before the first of them ([`EventIndex`]), because a later scan may have found another
//!   change. Otherwise it is the state in the queue.
//!
//! **Invariants**
//!
//! - The comparison may run late, be interrupted anywhere, and run again. An event that it appended
//!   is then the item's first event, and its *before* equals the server's state, so nothing is
//!   appended twice.
//! - An item that only the server holds is reported as deleted only if it was watched, is in no
//!   gap, and is missing on the disk ([`Watched`]), or if an event says that it was not there.
//! - A root that the server does not have is new: its content is baseline and causes no events.
//!
//! **Limits.** If an item changed several times while the database was missing, only its first and
//! last state are known.

mod events;
mod item;

use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use link::digest::key;
use link::{DigestAnswer, DigestRequest};
use model::path::is_at_or_below;
use model::{ChangeKind, Dataset, EventBody, ItemKey, Names};
use queue::{Queue, QueueError, ReportedItem};
use tracing::{info, warn};

use crate::SyncError;
use crate::client;
use crate::difference::{DifferingRanges, OwnDocuments};
use crate::documents::DocumentWriter;
use crate::syncer::{Syncer, blocking};
use events::{EventIndex, FirstScan};
use item::Item;

/// Documents whose bodies are requested from the server at once.
const BODIES_PER_REQUEST: usize = 500;

/// The paths and packages that the agent watches at the time of the comparison.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    /// Every root of files: raw paths, links resolved.
    pub roots: Vec<Vec<u8>>,
    /// Paths that cannot be read at present: nothing below them is reported as deleted.
    pub gaps: Vec<Vec<u8>>,
    /// Keys of packages that are being changed at present: none is reported as deleted.
    pub moving: BTreeSet<String>,
    /// End of the first scan, microseconds since the epoch: the time of its findings.
    pub seen_us: u64,
}

impl Watched {
    /// Returns true if an item that only the server holds was deleted.
    fn is_deleted(&self, item: &Item) -> bool {
        match item {
            Item::File(_) => self.is_path_deleted(&item.key().path()),
            Item::Package(package) => !self.moving.contains(&package.key()),
        }
    }

    /// Returns true if the path is watched, is in no gap, and is missing on the disk.
    fn is_path_deleted(&self, path: &[u8]) -> bool {
        let in_any = |tops: &[Vec<u8>]| tops.iter().any(|top| is_at_or_below(path, top));
        in_any(&self.roots) && !in_any(&self.gaps) && is_missing(path)
    }
}

/// Returns true if nothing exists at the path. After any other error this is unknown, so it returns
/// false.
fn is_missing(path: &[u8]) -> bool {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    path.symlink_metadata()
        .is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
}

/// The outcome of a comparison: the events that were appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LostReport {
    /// Documents of this agent that were compared.
    pub documents: u64,
    /// Events of items that the server did not hold.
    pub created: u64,
    /// Events of items that the server held in another state.
    pub modified: u64,
    /// Events of items that only the server held.
    pub deleted: u64,
    /// True if the server cannot compare ranges, so that no event was appended.
    pub unknown: bool,
}

/// An item that may have changed.
struct Candidate {
    /// The key of its document's id, as in [`link::digest`].
    key: u64,
    /// Its key in the queue; `None` if the queue does not hold it.
    item: Option<ItemKey>,
}

impl Candidate {
    /// Returns the item as the queue holds it now.
    fn item_in_queue(
        &self,
        queue: &Queue,
        dataset: &Dataset,
        names: &dyn Names,
    ) -> Result<Option<Item>, QueueError> {
        let Some(key) = &self.item else { return Ok(None) };
        let body = queue.body(dataset, key)?;
        Ok(body.and_then(|body| Item::of_body(dataset, key, &body, names)))
    }
}

/// The items that may have changed, by whether the server holds a document of them.
#[derive(Default)]
struct Candidates {
    /// The server may hold them.
    on_server: Vec<Candidate>,
    /// The server does not hold them.
    only_here: Vec<Candidate>,
    /// Number of items in `on_server` that the queue does not hold.
    only_on_server: usize,
    /// Roots that the server does not know.
    new_roots: Vec<Vec<u8>>,
}

impl Candidates {
    /// Adds an item of the queue if it differs from the server's document, which is removed from
    /// `differing`.
    fn add_held(
        &mut self,
        held: ReportedItem,
        maker: &mut DocumentWriter<'_>,
        differing: &mut DifferingRanges,
        roots: &BTreeSet<Vec<u8>>,
    ) {
        if !differing.covers(maker.id(held.key.borrowed())) {
            return;
        }
        let document = maker.make(held.key.borrowed(), held.seen, (&held.body).into());
        let key = key(document.id);
        match differing.theirs.remove(document.id) {
            Some(theirs) if theirs.checksum == document.checksum => {}
            Some(_) => self.on_server.push(Candidate { key, item: Some(held.key) }),
            None => {
                let path = held.key.path();
                self.new_roots.extend(roots.contains(&path).then_some(path));
                self.only_here.push(Candidate { key, item: Some(held.key) });
            }
        }
    }

    /// Adds the documents that are left in `differing`, which only the server has.
    fn add_only_on_server(&mut self, differing: DifferingRanges) {
        self.only_on_server = differing.theirs.len();
        let ids = differing.theirs.into_keys();
        self.on_server.extend(ids.map(|id| Candidate { key: key(&id), item: None }));
    }

    /// Adds the other items with queued events. Their present state may equal the server's, so they
    /// are not among the differing ones.
    fn add_items_of(&mut self, events: &EventIndex) {
        let candidates = self.on_server.iter().chain(&self.only_here);
        let known: BTreeSet<u64> = candidates.map(|candidate| candidate.key).collect();
        let others = events.keys().filter(|key| !known.contains(key));
        self.on_server.extend(others.map(|key| Candidate { key, item: None }));
    }

    /// Returns true if the server holds nothing of the dataset.
    fn is_server_empty(&self, documents: u64) -> bool {
        self.only_here.len() as u64 == documents && self.only_on_server == 0
    }
}

/// An item before and after the time that the database was lost.
struct LostChange {
    /// The server's state; `None` if the server does not have the item.
    before: Option<Item>,
    /// The state that the first scan found; `None` if the item did not exist.
    after: Option<Item>,
    /// True if `after` is known from an event; otherwise it is the present state in the queue.
    from_event: bool,
}

impl LostChange {
    /// Returns the change of an item; `None` if another scan has removed it from the queue since
    /// the comparison, and its event covers the change.
    fn new(
        before: Option<Item>,
        first_scan: FirstScan,
        candidate: &Candidate,
        held: Option<Item>,
    ) -> Option<Self> {
        let was_held = candidate.item.is_some();
        match first_scan {
            FirstScan::Present(item) => Some(Self { before, after: Some(item), from_event: true }),
            FirstScan::Absent => Some(Self { before, after: None, from_event: true }),
            FirstScan::NoEvent if was_held && held.is_none() => None,
            FirstScan::NoEvent => Some(Self { before, after: held, from_event: false }),
        }
    }
}

/// One running comparison.
struct LostComparison<'a> {
    dataset: &'a Dataset,
    watched: Watched,
    new_roots: Vec<Vec<u8>>,
    events: EventIndex,
    report: LostReport,
}

impl LostComparison<'_> {
    /// Returns the event of a change and counts it; `None` if there is nothing to report.
    fn event(&mut self, change: &LostChange) -> Option<EventBody> {
        let LostChange { before, after, from_event } = change;
        match (before, after) {
            (None, Some(after)) if self.is_in_new_root(after) => return None,
            (Some(before), None) if !from_event && !self.watched.is_deleted(before) => return None,
            _ => {}
        }
        let event = Item::event(before.as_ref(), after.as_ref(), self.watched.seen_us)?;
        let report = &mut self.report;
        let count = match event.event.action.as_str() {
            action if action == ChangeKind::Created.name() => &mut report.created,
            action if action == ChangeKind::Deleted.name() => &mut report.deleted,
            _ => &mut report.modified,
        };
        *count += 1;
        Some(event)
    }

    fn is_in_new_root(&self, item: &Item) -> bool {
        let path = item.key().path();
        self.new_roots.iter().any(|root| is_at_or_below(&path, root))
    }
}

impl Syncer {
    /// Compares a dataset with the server and appends an event for each item that changed while
    /// agent.db was lost. Call it after the first complete scan and before the first cycle. Nothing
    /// is appended if the server holds nothing of the dataset.
    ///
    /// # Errors
    /// Returns an error if the server does not answer or refuses, or the queue cannot be used. Call
    /// it again then: no event is appended twice, unless a scan queues an event of the same item at
    /// the same time.
    pub async fn report_lost_changes(
        &self,
        dataset: &Dataset,
        mut watched: Watched,
    ) -> Result<LostReport, SyncError> {
        watched.seen_us = watched.seen_us.min(self.clock.now_us());
        self.send_startup().await?;
        let own = self.held_documents(dataset).await?;
        let mut report = LostReport { documents: own.len() as u64, ..LostReport::default() };
        let Some(differing) = self.compare(dataset, own).await? else {
            warn!(%dataset, "this server compares no ranges: changes made while agent.db was lost \
                are not reported");
            report.unknown = true;
            return Ok(report);
        };
        let mut candidates = self.candidates(dataset, differing, watched.roots.clone()).await?;
        if candidates.is_server_empty(report.documents) {
            return Ok(report);
        }
        let events = self.update_index(dataset, EventIndex::default()).await?;
        candidates.add_items_of(&events);
        let Candidates { on_server, only_here, new_roots, .. } = candidates;
        let mut comparison = LostComparison { dataset, watched, new_roots, events, report };
        for page in pages(on_server) {
            let before = self.server_items(dataset, &page).await?;
            self.append_lost_changes(&mut comparison, page, before).await?;
        }
        for page in pages(only_here) {
            self.append_lost_changes(&mut comparison, page, HashMap::new()).await?;
        }
        let report = comparison.report;
        info!(%dataset, created = report.created, modified = report.modified,
            deleted = report.deleted, "reporting changes made while agent.db was missing");
        Ok(report)
    }

    /// Returns key and hash of every document the queue holds, pending ones included.
    async fn held_documents(&self, dataset: &Dataset) -> Result<OwnDocuments, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = Arc::clone(&self.names);
        blocking(move || {
            let (mut own, mut maker) =
                (OwnDocuments::default(), DocumentWriter::new(&dataset, names.as_ref()));
            queue.snapshot(&dataset)?.for_each_held(&mut |item| {
                let document = maker.make(item.key.borrowed(), item.seen, (&item.body).into());
                own.add(document.id, document.checksum);
                Ok(())
            })?;
            own.sort();
            Ok(own)
        })
        .await
    }

    /// Returns the items of the ranges that differ.
    async fn candidates(
        &self,
        dataset: &Dataset,
        mut differing: DifferingRanges,
        roots: Vec<Vec<u8>>,
    ) -> Result<Candidates, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = Arc::clone(&self.names);
        blocking(move || {
            let mut maker = DocumentWriter::new(&dataset, names.as_ref());
            let (mut candidates, roots) = (Candidates::default(), BTreeSet::from_iter(roots));
            queue.snapshot(&dataset)?.for_each_held(&mut |item| {
                candidates.add_held(item, &mut maker, &mut differing, &roots);
                Ok(())
            })?;
            candidates.add_only_on_server(differing);
            Ok(candidates)
        })
        .await
    }

    /// Returns the index with the events that were queued since its last update.
    async fn update_index(
        &self,
        dataset: &Dataset,
        mut events: EventIndex,
    ) -> Result<EventIndex, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = Arc::clone(&self.names);
        blocking(move || {
            events.update(&queue, &dataset, names.as_ref())?;
            Ok(events)
        })
        .await
    }

    /// Returns the items as the server holds them, by key. An item is left out if the server sends
    /// no body (an older version) or one of another dataset.
    async fn server_items(
        &self,
        dataset: &Dataset,
        candidates: &[Candidate],
    ) -> Result<HashMap<u64, Item>, SyncError> {
        let client = self.client();
        let keys: BTreeSet<u64> = candidates.iter().map(|candidate| candidate.key).collect();
        let mut left: Vec<String> = keys.iter().map(|key| format!("{key:016x}")).collect();
        let mut found = HashMap::new();
        while !left.is_empty() {
            let request = DigestRequest {
                index: dataset.wire(),
                ranges: left.clone(),
                split: 0,
                bodies: true,
            };
            let answer: DigestAnswer = client.call("/digest", &request).await?;
            let answered = answer.ranges as usize;
            if answered == 0 || answered > left.len() {
                let what = "it names other ranges than those requested";
                return Err(client::protocol(&self.url("/digest"), what));
            }
            left.drain(..answered);
            found.extend(answer.items.into_iter().filter_map(|document| {
                Some((key(&document.id), Item::of_document(dataset, &document.body)?))
            }));
        }
        Ok(found)
    }

    /// Appends the events of these items in one transaction. `before` has the server's items.
    async fn append_lost_changes(
        &self,
        comparison: &mut LostComparison<'_>,
        page: Vec<Candidate>,
        mut before: HashMap<u64, Item>,
    ) -> Result<(), SyncError> {
        // Scans may have queued events since the last page.
        let events = mem::take(&mut comparison.events);
        let events = self.update_index(comparison.dataset, events).await?;
        let (queue, dataset) = (self.queue.clone(), comparison.dataset.clone());
        let names = Arc::clone(&self.names);
        let (events, changes) = blocking(move || {
            let mut changes = Vec::new();
            for candidate in page {
                let before = before.remove(&candidate.key);
                let first_scan = events.first_scan(&queue, candidate.key)?;
                let held = candidate.item_in_queue(&queue, &dataset, names.as_ref())?;
                changes.extend(LostChange::new(before, first_scan, &candidate, held));
            }
            Ok((events, changes))
        })
        .await?;
        comparison.events = events;
        let found: Vec<_> = changes.iter().filter_map(|change| comparison.event(change)).collect();
        let (queue, dataset) = (self.queue.clone(), comparison.dataset.clone());
        blocking(move || queue.apply_documents(&dataset, &[], &found).map(drop)).await
    }
}

/// Splits the candidates into pages of one request each.
fn pages(mut candidates: Vec<Candidate>) -> impl Iterator<Item = Vec<Candidate>> {
    std::iter::from_fn(move || {
        let left = candidates.len().saturating_sub(BODIES_PER_REQUEST);
        let page = candidates.split_off(left);
        (!page.is_empty()).then_some(page)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_watched_readable_and_missing_paths_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).into_os_string().into_encoded_bytes();
        std::fs::write(folder.path().join("there"), "").unwrap();
        let roots = vec![folder.path().as_os_str().as_encoded_bytes().to_vec()];
        let mut watched = Watched { roots, gaps: vec![path("mnt")], ..Watched::default() };
        assert!(watched.is_path_deleted(&path("not-there")));
        assert!(watched.is_path_deleted(&path("there/below")));
        assert!(!watched.is_path_deleted(&path("there")), "it exists");
        let gap = watched.is_path_deleted(&path("mnt/x")) || watched.is_path_deleted(&path("mnt"));
        assert!(!gap, "a gap");
        assert!(watched.is_path_deleted(&path("mnt2")));
        watched.roots = vec![path("other")];
        assert!(!watched.is_path_deleted(&path("not-there")), "not watched");
        watched.roots = vec![b"/".to_vec()];
        assert!(watched.is_path_deleted(&path("not-there")));
    }
}
