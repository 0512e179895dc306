//! After agent.db was lost: what the server holds takes the place of the baseline, so that what
//! changed meanwhile becomes events with before and after.
//!
//! The two sides are compared by ranges as in a check, but before anything is told: the server
//! still holds what was told last. Of an item that changed several times only the first and the
//! last state are known. The events are committed before the first document is told; a process
//! that ends between tells them once more. What a later scan tells while the server cannot be
//! asked is told by the comparison, too: twice rather than not at all.

use std::collections::{BTreeSet, HashMap};

use link::digest::key;
use link::{DigestAnswer, DigestRequest};
use model::{Dataset, EventBody, FileBody, FileDocument, ItemKey, Names};
use queue::{Queue, QueueError, ToldItem};
use tracing::{info, warn};

use crate::SyncError;
use crate::client;
use crate::difference::{Differing, Own};
use crate::documents::Maker;
use crate::syncer::{Syncer, blocking};

/// Documents whose former state is asked for in one question.
const BODIES_PER_QUESTION: usize = 500;

/// What the agent watches now. Raw paths, links resolved.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    /// Every root.
    pub roots: Vec<Vec<u8>>,
    /// Paths that cannot be seen at present: nothing below them is taken for deleted.
    pub gaps: Vec<Vec<u8>>,
}

impl Watched {
    /// Whether a path that is no longer on the disk was deleted there.
    fn is_gone(&self, path: &[u8]) -> bool {
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

/// The items that differ.
#[derive(Default)]
struct Found {
    /// Id on the wire, item.
    modified: Vec<(String, ItemKey)>,
    created: Vec<ItemKey>,
    /// Ids that only the server holds.
    deleted: Vec<String>,
    /// Roots that the server has never heard of: their content is baseline.
    fresh: Vec<Vec<u8>>,
}

/// What was found and is still to be told. It outlives a server that does not answer.
pub(crate) struct Work {
    dataset: Dataset,
    found: Found,
    /// What was told so far.
    report: LostReport,
}

/// The last items, as many as one question takes, and how many come before them.
fn last_page<T>(items: &[T]) -> Option<(&[T], usize)> {
    let left = items.len().saturating_sub(BODIES_PER_QUESTION);
    items.get(left..).filter(|page| !page.is_empty()).map(|page| (page, left))
}

impl Found {
    fn sort(
        &mut self,
        item: ToldItem,
        maker: &mut Maker<'_>,
        differing: &mut Differing,
        roots: &BTreeSet<Vec<u8>>,
    ) {
        if !differing.covers(maker.id(item.key.borrowed())) {
            return;
        }
        let document = maker.make(item.key.borrowed(), item.seen, (&item.body).into());
        match differing.theirs.remove(document.id) {
            Some(their) if their.checksum == document.checksum => {}
            Some(their) => self.modified.push((their.id, item.key)),
            None => {
                let path = item.key.path();
                self.fresh.extend(roots.contains(&path).then_some(path));
                self.created.push(item.key);
            }
        }
    }
}

impl Syncer {
    /// Compare the files with what the server holds and append what differs as events. To be done
    /// once the new database has seen a whole scan, before its first cycle. A server that holds
    /// nothing was never told anything: then nothing is appended.
    ///
    /// # Errors
    /// When there is no answer, or a refusal; then it is to be done again, and goes on where it
    /// broke off: no event is appended twice, however often the server fails.
    pub async fn tell_lost_changes(
        &self,
        dataset: &Dataset,
        watched: Watched,
    ) -> Result<LostReport, SyncError> {
        let left = self.lost.lock().take().filter(|work| work.dataset == *dataset);
        let mut work = match left {
            Some(left) => left,
            None => match self.find_lost(dataset, &watched).await? {
                Ok(work) => work,
                Err(report) => return Ok(report),
            },
        };
        if let Err(e) = self.tell_found(dataset, &watched, &mut work).await {
            *self.lost.lock() = Some(work);
            return Err(e);
        }
        let report = work.report;
        info!(%dataset, created = report.created, modified = report.modified,
            deleted = report.deleted, "what changed while agent.db was lost is told as changes");
        Ok(report)
    }

    /// Compare; what there is to be told, or the report when there is nothing.
    async fn find_lost(
        &self,
        dataset: &Dataset,
        watched: &Watched,
    ) -> Result<Result<Work, LostReport>, SyncError> {
        self.greet().await?;
        let own = self.everything(dataset).await?;
        let mut report = LostReport { documents: own.len() as u64, ..LostReport::default() };
        let Some(differing) = self.compare(dataset, own).await? else {
            warn!(%dataset, "this server compares no ranges: what changed while agent.db was lost \
                is not told as changes");
            report.unknown = true;
            return Ok(Err(report));
        };
        let found = self.sort_out(dataset, differing, watched.roots.clone()).await?;
        if found.created.len() as u64 == report.documents && found.deleted.is_empty() {
            return Ok(Err(report));
        }
        Ok(Ok(Work { dataset: dataset.clone(), found, report }))
    }

    /// Append what is left of it, page by page; what was appended is no longer left.
    async fn tell_found(
        &self,
        dataset: &Dataset,
        watched: &Watched,
        Work { found, report, .. }: &mut Work,
    ) -> Result<(), SyncError> {
        while let Some((page, left)) = last_page(&found.created) {
            let fresh = |key: &ItemKey| {
                let path = key.path();
                found.fresh.iter().any(|root| is_at_or_below(&path, root))
            };
            let pairs = page.iter().filter(|key| !fresh(key)).map(|key| (None, Some(key.clone())));
            report.created += self.append(dataset, pairs.collect()).await?;
            found.created.truncate(left);
        }
        while let Some((page, left)) = last_page(&found.modified) {
            let mut before = self.bodies(dataset, page.iter().map(|(id, _)| id.as_str())).await?;
            let pairs = page.iter().filter_map(|(id, key)| {
                before.remove(id).map(|before| (Some(before), Some(key.clone())))
            });
            report.modified += self.append(dataset, pairs.collect()).await?;
            found.modified.truncate(left);
        }
        while let Some((page, left)) = last_page(&found.deleted) {
            let before = self.bodies(dataset, page.iter().map(String::as_str)).await?;
            let watched = watched.clone();
            let gone = blocking(move || {
                let gone = before.into_values().filter(|file| watched.is_gone(&exact_path(file)));
                Ok(gone.map(|file| (Some(file), None)).collect())
            });
            report.deleted += self.append(dataset, gone.await?).await?;
            found.deleted.truncate(left);
        }
        Ok(())
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
            found.deleted = differing.theirs.into_keys().collect();
            Ok(found)
        })
        .await
    }

    /// The files that the server holds under these ids. What it gives no body of (an older one) or
    /// one that is no file's is left out.
    async fn bodies(
        &self,
        dataset: &Dataset,
        ids: impl Iterator<Item = &str>,
    ) -> Result<HashMap<String, FileBody>, SyncError> {
        let client = self.client();
        let ranges: BTreeSet<String> = ids.map(|id| format!("{:016x}", key(id))).collect();
        let mut left: Vec<String> = ranges.into_iter().collect();
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
            found.extend(answer.items.into_iter().filter_map(|item| {
                let document = serde_json::from_str::<FileDocument>(&item.body).ok()?;
                Some((item.id, document.file))
            }));
        }
        Ok(found)
    }

    /// Append one event for each pair of what the server holds and an item as it is now; how many
    /// there were.
    async fn append(
        &self,
        dataset: &Dataset,
        pairs: Vec<(Option<FileBody>, Option<ItemKey>)>,
    ) -> Result<u64, SyncError> {
        let (queue, dataset) = (self.queue.clone(), dataset.clone());
        let (names, now_us) = (std::sync::Arc::clone(&self.names), self.clock.now_us());
        blocking(move || {
            let mut events = Vec::new();
            for (before, now) in pairs {
                let after = match &now {
                    Some(key) => present(&queue, &dataset, key, names.as_ref())?,
                    None => None,
                };
                // Gone since: the scan that found it so tells of it.
                let told = now.is_none() || after.is_some();
                let event = EventBody::of_file(before.as_ref(), after.as_ref(), now_us);
                events.extend(event.filter(|_| told));
            }
            Ok(queue.apply_documents(&dataset, &[], &events)?.events)
        })
        .await
    }
}

/// The file as it is held now.
fn present(
    queue: &Queue,
    dataset: &Dataset,
    key: &ItemKey,
    names: &dyn Names,
) -> Result<Option<FileBody>, QueueError> {
    let body = queue.body(dataset, key)?;
    let seen = body.as_ref().and_then(|body| body.observation());
    Ok(seen.map(|o| FileBody::new(key, o, names)))
}

/// The raw path of a document.
fn exact_path(file: &FileBody) -> Vec<u8> {
    let exact = file.path_hex.as_ref().and_then(|text| hex::decode(text).ok());
    exact.unwrap_or_else(|| file.path.clone().into_bytes())
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
        let mut watched = Watched { roots, gaps: vec![path("mnt")] };
        assert!(watched.is_gone(&path("not-there")) && watched.is_gone(&path("there/below")));
        assert!(!watched.is_gone(&path("there")), "it is there");
        assert!(!watched.is_gone(&path("mnt/x")) && !watched.is_gone(&path("mnt")), "a gap");
        assert!(watched.is_gone(&path("mnt2")));
        watched.roots = vec![path("other")];
        assert!(!watched.is_gone(&path("not-there")), "not watched");
        watched.roots = vec![b"/".to_vec()];
        assert!(watched.is_gone(&path("not-there")));
    }
}
