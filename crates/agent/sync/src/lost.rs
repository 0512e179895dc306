//! After agent.db was lost: what the server holds takes the place of the baseline, so that what
//! changed meanwhile becomes events with before and after.
//!
//! The two sides are compared by ranges as in a check, but before anything is told: the server
//! still holds what was told last. An event says how an item came from there to what the first
//! scan found; what later scans found stands in the queue already, and goes on from that. So the
//! comparison may be made late, break off anywhere and be made again: what it appended is in the
//! queue, too, and found there. Of an item that changed several times while nobody looked only the
//! first and the last state are known.

mod item;
mod since;

use std::collections::{BTreeSet, HashMap};

use link::digest::key;
use link::{DigestAnswer, DigestRequest};
use model::{ChangeKind, Dataset, ItemKey, Names};
use queue::{Queue, QueueError, ToldItem};
use tracing::{info, warn};

use crate::SyncError;
use crate::client;
use crate::difference::{Differing, Own};
use crate::documents::Maker;
use crate::syncer::{Syncer, blocking};
use item::Item;
use since::{Before, Since};

/// Documents whose former state is asked for in one question.
const BODIES_PER_QUESTION: usize = 500;

/// What the agent watches now.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    /// Every root of files: raw paths, links resolved.
    pub roots: Vec<Vec<u8>>,
    /// Paths that cannot be seen at present: nothing below them is taken for deleted.
    pub gaps: Vec<Vec<u8>>,
    /// Keys of packages that are being changed at present: none is taken for removed.
    pub moving: BTreeSet<String>,
    /// When the first look at everything ended, microseconds since the epoch: the time of what it
    /// found.
    pub seen_us: u64,
}

impl Watched {
    /// Whether an item that only the server knows is no longer there.
    fn is_gone(&self, item: &Item) -> bool {
        match item {
            Item::File(_) => self.is_path_gone(&item.key().path()),
            Item::Package(package) => !self.moving.contains(&package.key()),
        }
    }

    /// Whether a path that is no longer on the disk was deleted there.
    fn is_path_gone(&self, path: &[u8]) -> bool {
        let below = |tops: &[Vec<u8>]| tops.iter().any(|top| is_at_or_below(path, top));
        let there = || {
            use std::os::unix::ffi::OsStrExt as _;
            let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
            !matches!(path.symlink_metadata(),
                Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound
                    | std::io::ErrorKind::NotADirectory))
        };
        below(&self.roots) && !below(&self.gaps) && !there()
    }
}

fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || top.ends_with(b"/"))
}

/// What was found and told as events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LostReport {
    /// Documents compared on this side.
    pub documents: u64,
    /// Events of items that the server did not know.
    pub created: u64,
    /// Events of items that it knew otherwise.
    pub modified: u64,
    /// Events of items that it knew and that are gone.
    pub deleted: u64,
    /// The server compares no ranges: nothing could be told.
    pub unknown: bool,
}

/// One item that may have changed.
struct Suspect {
    /// Of its document's id.
    key: u64,
    /// Where the queue holds it, if it does.
    item: Option<ItemKey>,
}

impl Suspect {
    /// The item as the queue holds it now.
    fn held(
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

/// The items that may have changed.
#[derive(Default)]
struct Found {
    /// The server may know how they were.
    known: Vec<Suspect>,
    /// The server has never heard of them.
    unknown: Vec<Suspect>,
    /// How many of the known ones only the server has.
    surplus: usize,
    /// Roots that the server has never heard of: their content is baseline.
    fresh: Vec<Vec<u8>>,
}

impl Found {
    fn sort(
        &mut self,
        told: ToldItem,
        maker: &mut Maker<'_>,
        differing: &mut Differing,
        roots: &BTreeSet<Vec<u8>>,
    ) {
        if !differing.covers(maker.id(told.key.borrowed())) {
            return;
        }
        let document = maker.make(told.key.borrowed(), told.seen, (&told.body).into());
        let key = key(document.id);
        match differing.theirs.remove(document.id) {
            Some(their) if their.checksum == document.checksum => {}
            Some(_) => self.known.push(Suspect { key, item: Some(told.key) }),
            None => {
                let path = told.key.path();
                self.fresh.extend(roots.contains(&path).then_some(path));
                self.unknown.push(Suspect { key, item: Some(told.key) });
            }
        }
    }

    fn is_baseline(&self, item: &Item) -> bool {
        let path = item.key().path();
        self.fresh.iter().any(|root| is_at_or_below(&path, root))
    }

    /// Add what only events speak of: it may be by now as the server knows it.
    fn add_told(&mut self, since: &Since) {
        let held = self.known.iter().chain(&self.unknown).map(|suspect| suspect.key);
        let held: BTreeSet<u64> = held.collect();
        let told = since.keys().filter(|key| !held.contains(key));
        self.known.extend(told.map(|key| Suspect { key, item: None }));
    }
}

impl Syncer {
    /// Compare a dataset with what the server holds and append what differs as events. To be done
    /// once the new database has seen everything, before its first cycle. A server that holds
    /// nothing was never told anything: then nothing is appended.
    ///
    /// # Errors
    /// When there is no answer, or a refusal; then it is to be done again. However often it is
    /// done before the first cycle: no event is appended twice, but for an item that a scan tells
    /// of in the same instant.
    pub async fn tell_lost_changes(
        &self,
        dataset: &Dataset,
        mut watched: Watched,
    ) -> Result<LostReport, SyncError> {
        watched.seen_us = watched.seen_us.min(self.clock.now_us());
        self.greet().await?;
        let own = self.everything(dataset).await?;
        let mut report = LostReport { documents: own.len() as u64, ..LostReport::default() };
        let Some(differing) = self.compare(dataset, own).await? else {
            warn!(%dataset, "this server compares no ranges: what changed while agent.db was lost \
                is not told as changes");
            report.unknown = true;
            return Ok(report);
        };
        let mut found = self.sort_out(dataset, differing, watched.roots.clone()).await?;
        if found.unknown.len() as u64 == report.documents && found.surplus == 0 {
            return Ok(report);
        }
        let mut since = self.look(dataset, Since::default()).await?;
        found.add_told(&since);
        let known = std::mem::take(&mut found.known);
        let unknown = std::mem::take(&mut found.unknown);
        let mut telling = Telling { dataset, watched, found, report };
        for page in pages(known) {
            let before = self.former(dataset, &page).await?;
            since = self.tell(&mut telling, since, page, before).await?;
        }
        for page in pages(unknown) {
            since = self.tell(&mut telling, since, page, HashMap::new()).await?;
        }
        let report = telling.report;
        info!(%dataset, created = report.created, modified = report.modified,
            deleted = report.deleted, "what changed while agent.db was lost is told as changes");
        Ok(report)
    }

    /// Key and hash of everything held, told or not.
    async fn everything(&self, dataset: &Dataset) -> Result<Own, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = std::sync::Arc::clone(&self.names);
        blocking(move || {
            let (mut own, mut maker) = (Own::default(), Maker::new(&dataset, names.as_ref()));
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

    async fn sort_out(
        &self,
        dataset: &Dataset,
        mut differing: Differing,
        roots: Vec<Vec<u8>>,
    ) -> Result<Found, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = std::sync::Arc::clone(&self.names);
        blocking(move || {
            let mut maker = Maker::new(&dataset, names.as_ref());
            let (mut found, roots) = (Found::default(), BTreeSet::from_iter(roots));
            queue.snapshot(&dataset)?.for_each_held(&mut |item| {
                found.sort(item, &mut maker, &mut differing, &roots);
                Ok(())
            })?;
            found.surplus = differing.theirs.len();
            let surplus = differing.theirs.into_keys();
            found.known.extend(surplus.map(|id| Suspect { key: key(&id), item: None }));
            Ok(found)
        })
        .await
    }

    async fn look(&self, dataset: &Dataset, mut since: Since) -> Result<Since, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let names = std::sync::Arc::clone(&self.names);
        blocking(move || {
            since.look(&queue, &dataset, names.as_ref())?;
            Ok(since)
        })
        .await
    }

    /// What the server holds of these items. What it gives no body of (an older one) or one that
    /// is no item of this dataset is left out.
    async fn former(
        &self,
        dataset: &Dataset,
        items: &[Suspect],
    ) -> Result<HashMap<u64, Item>, SyncError> {
        let client = self.client();
        let ranges: BTreeSet<u64> = items.iter().map(|suspect| suspect.key).collect();
        let mut left: Vec<String> = ranges.iter().map(|key| format!("{key:016x}")).collect();
        let mut found = HashMap::new();
        while !left.is_empty() {
            let question = DigestRequest {
                index: dataset.wire(),
                ranges: left.clone(),
                split: 0,
                bodies: true,
            };
            let answer: DigestAnswer = client.call("/digest", &question).await?;
            let answered = answer.ranges as usize;
            if answered == 0 || answered > left.len() {
                let what = "it speaks of other ranges than asked for";
                return Err(client::protocol(&self.url("/digest"), what));
            }
            left.drain(..answered);
            found.extend(
                answer.items.into_iter().filter_map(|held| {
                    Some((key(&held.id), Item::of_document(dataset, &held.body)?))
                }),
            );
        }
        Ok(found)
    }

    /// Append the events of these items in one transaction. `former` is what the server holds of
    /// them.
    async fn tell(
        &self,
        telling: &mut Telling<'_>,
        mut since: Since,
        page: Vec<Suspect>,
        mut former: HashMap<u64, Item>,
    ) -> Result<Since, SyncError> {
        // Before anything is compared: what a scan tells of meanwhile counts.
        since = self.look(telling.dataset, since).await?;
        let (queue, dataset) = (self.queue.clone(), telling.dataset.clone());
        let names = std::sync::Arc::clone(&self.names);
        let (since, pairs) = blocking(move || {
            let mut pairs = Vec::new();
            for suspect in page {
                let before = former.remove(&suspect.key);
                let told = since.before(&queue, suspect.key)?;
                let held = suspect.held(&queue, &dataset, names.as_ref())?;
                pairs.extend(Pair::new(before, told, suspect.item.is_some(), held));
            }
            Ok((since, pairs))
        })
        .await?;
        let events: Vec<_> = pairs.into_iter().filter_map(|pair| telling.event(pair)).collect();
        let (queue, dataset) = (self.queue.clone(), telling.dataset.clone());
        blocking(move || queue.apply_documents(&dataset, &[], &events).map(drop)).await?;
        Ok(since)
    }
}

/// One item as the server knew it and as the first scan found it.
struct Pair {
    before: Option<Item>,
    after: Option<Item>,
    /// An event speaks of it: it was seen.
    seen: bool,
}

impl Pair {
    /// Of what the server holds, what events say, whether the queue held the item and what it
    /// holds now. `None` for one that is gone since: the scan that found it so tells of it.
    fn new(before: Option<Item>, told: Before, found: bool, held: Option<Item>) -> Option<Self> {
        let (after, seen) = match told {
            Before::Was(item) => (Some(item), true),
            Before::Absent => (None, true),
            Before::Untold if found && held.is_none() => return None,
            Before::Untold => (held, false),
        };
        Some(Self { before, after, seen })
    }
}

/// What is being told.
struct Telling<'a> {
    dataset: &'a Dataset,
    watched: Watched,
    found: Found,
    report: LostReport,
}

impl Telling<'_> {
    fn event(&mut self, Pair { before, after, seen }: Pair) -> Option<model::EventBody> {
        match (&before, &after) {
            (None, Some(after)) if self.found.is_baseline(after) => return None,
            (Some(before), None) if !seen && !self.watched.is_gone(before) => return None,
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
}

/// As many items as one question takes, one page after the other.
fn pages(mut items: Vec<Suspect>) -> impl Iterator<Item = Vec<Suspect>> {
    std::iter::from_fn(move || {
        let left = items.len().saturating_sub(BODIES_PER_QUESTION);
        let page = items.split_off(left);
        (!page.is_empty()).then_some(page)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_watched_can_be_seen_and_is_not_there_counts_as_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).into_os_string().into_encoded_bytes();
        std::fs::write(folder.path().join("there"), "").unwrap();
        let roots = vec![folder.path().as_os_str().as_encoded_bytes().to_vec()];
        let mut watched = Watched { roots, gaps: vec![path("mnt")], ..Watched::default() };
        assert!(watched.is_path_gone(&path("not-there")));
        assert!(watched.is_path_gone(&path("there/below")));
        assert!(!watched.is_path_gone(&path("there")), "it is there");
        let gap = watched.is_path_gone(&path("mnt/x")) || watched.is_path_gone(&path("mnt"));
        assert!(!gap, "a gap");
        assert!(watched.is_path_gone(&path("mnt2")));
        watched.roots = vec![path("other")];
        assert!(!watched.is_path_gone(&path("not-there")), "not watched");
        watched.roots = vec![b"/".to_vec()];
        assert!(watched.is_path_gone(&path("not-there")));
    }
}
