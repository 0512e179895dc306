//! Installed packages: from the package database to the queue.
//!
//! A scan compares the whole database with the documents in the queue, and commits documents and
//! events in one transaction (with `queue.transaction = "per_event"` each document with its event).
//! A database that was not written since the last scan is not read again, unless the queue may have
//! lost something. A missing or incomplete database is a gap, which is reported when it opens and
//! when it closes. No package is deleted because of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use env::clock::Clock;
use explain::Explainer;
use host::{Dpkg, Inventory, InventoryError, Plan, Stamp, StoredDocuments};
use model::{Coverage, Dataset, EventBody, LastingGap};
use queue::{DocumentStep, Queue, QueueError};
use serde::{Deserialize, Serialize};
use service::Console;
use tracing::{info, warn};

use crate::config::InventoryConfig;
use crate::datasets::DatasetKind;
use crate::notes;

/// Note: the result of the last scan, as JSON.
const NOTE: &str = "packages.last";
/// Time until packages that dpkg is changing are looked at again.
const WAITING: Duration = Duration::from_secs(1);
/// Most packages remembered as being changed.
const MOVING_MAX: usize = 500;
/// Id of the gap that a missing or unreadable package database is. Those of files are digests.
const GAP_ID: &str = "packages";

/// The result of the last scan, as stored in the note.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct LastScan {
    /// Root folder of the database; empty while none was read.
    root: String,
    /// Stamp of the database that was read; empty if it must be read again.
    stamp: String,
    /// Time at which it was read, microseconds since the epoch; 0 if it never was.
    read_us: u64,
    packages: u64,
    /// Keys of packages that dpkg was changing then; `None` if there were too many.
    moving: Option<BTreeSet<String>>,
    /// True if they wait for the end of dpkg.
    waiting: bool,
    gap: Option<OpenGap>,
}

/// A gap that was reported and is still open.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OpenGap {
    since_us: u64,
    kind: model::CoverageKind,
    #[serde(default)]
    detail: String,
}

/// Age of the data that the queue has of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// The source was never read, so nothing can be compared.
    Never,
    /// The last scan read the whole source.
    Current,
    /// The source was read before, but the last scan could not read all of it.
    Outdated,
}

/// Returns how current the queue is about packages.
pub(super) fn reading(queue: &Queue) -> Result<Reading, QueueError> {
    let last = load(queue)?;
    Ok(match (last.read_us, last.gap) {
        (0, _) => Reading::Never,
        (_, None) => Reading::Current,
        (_, Some(_)) => Reading::Outdated,
    })
}

/// Returns the keys of packages that dpkg was changing at the last scan, for which the queue has no
/// reliable state. Returns `None` if there were too many to remember.
pub(super) fn moving(queue: &Queue) -> Result<Option<BTreeSet<String>>, QueueError> {
    Ok(load(queue)?.moving)
}

/// Makes the next scan read everything even if the package database was not written since, because
/// the queue may have lost some of the last scan's data.
pub(super) fn look_again(queue: &Queue) -> Result<(), QueueError> {
    let last = load(queue)?;
    if last.stamp.is_empty() {
        return Ok(());
    }
    let again = LastScan { stamp: String::new(), ..last };
    queue.meta_set(NOTE, &serde_json::to_vec(&again).unwrap_or_default())
}

fn load(queue: &Queue) -> Result<LastScan, QueueError> {
    let note = queue.meta_get(NOTE)?;
    Ok(note.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default())
}

/// The outcome of a scan of packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookOutcome {
    Unchanged,
    /// Documents or events were committed, and must be reported.
    Committed,
}

/// The scanner of the package database.
pub(super) struct Packages {
    queue: Queue,
    dataset: Dataset,
    dpkg: Dpkg,
    config: InventoryConfig,
    clock: Arc<dyn Clock>,
    console: Console,
    last: LastScan,
    /// Time at which the queue was last known to be current, microseconds since the epoch.
    good_us: u64,
    /// Changes found since the agent started.
    changes: u64,
}

impl Packages {
    pub(super) fn new(
        queue: &Queue,
        config: &InventoryConfig,
        clock: Arc<dyn Clock>,
        console: Console,
    ) -> Result<Self, QueueError> {
        let last = load(queue)?;
        Ok(Self {
            queue: queue.clone(),
            dataset: Dataset::inventory_packages(),
            dpkg: Dpkg::new(&config.root),
            config: config.clone(),
            clock,
            console,
            good_us: last.read_us,
            last,
            changes: 0,
        })
    }

    /// Returns the time until the next scan.
    pub(super) fn interval(&self) -> Duration {
        if self.last.waiting { WAITING.min(self.config.interval) } else { self.config.interval }
    }

    /// Returns the number of changes found since the agent started; `None` if packages are not
    /// watched.
    pub(super) fn changes(&self) -> Option<u64> {
        self.config.packages.then_some(self.changes)
    }

    /// Scans the package database.
    pub(super) fn scan_packages(
        &mut self,
        explainer: &mut Explainer,
    ) -> Result<LookOutcome, QueueError> {
        if !self.config.packages {
            return self.forget();
        }
        let now_us = self.clock.now_us();
        let root = self.config.root.display().to_string();
        let stamp = self.dpkg.stamp();
        // A package that dpkg left in the middle of a change is reported once no dpkg runs.
        let is_left = self.last.waiting && !explainer.is_dpkg_running();
        if self.last.gap.is_none()
            && !is_left
            && self.last.root == root
            && stamp.as_ref().is_ok_and(|stamp| stamp.text() == self.last.stamp)
        {
            self.good_us = now_us;
            return Ok(LookOutcome::Unchanged);
        }
        let was_running = explainer.is_dpkg_running();
        match stamp.and_then(|_| self.dpkg.read()) {
            Ok((mut inventory, stamp)) => {
                let runs = was_running || explainer.is_dpkg_running();
                self.last.waiting = runs && !inventory.moving.is_empty();
                // The baseline leaves none out.
                if !runs || self.last.root.is_empty() {
                    inventory.settle();
                }
                self.compare(&inventory, &stamp, (root, now_us), explainer)
            }
            Err(problem) => self.gap(&problem, now_us),
        }
    }

    fn compare(
        &mut self,
        inventory: &Inventory,
        stamp: &Stamp,
        (root, now_us): (String, u64),
        explainer: &mut Explainer,
    ) -> Result<LookOutcome, QueueError> {
        let baseline = self.baseline()?;
        // The first scan, and the first scan below another root, creates documents without events.
        let report =
            if self.last.root.is_empty() { !baseline.is_empty() } else { self.last.root == root };
        let mut plan = host::plan(&baseline, inventory, report.then_some(now_us));
        plan.set_causes(|name, version| explainer.cause_of_package(name, version));
        let detail = "the package database can be read again; all packages were compared";
        let changes = if report { plan.changes() } else { 0 };
        let closed = self.end(detail, now_us, report.then_some(changes));
        let changed = self.commit(&plan, closed.as_slice())?;
        self.changes += changes;
        let settled = stamp.is_settled(now_us);
        let packages = inventory.packages.len() as u64;
        let next = LastScan {
            root,
            stamp: if settled { stamp.text().to_owned() } else { String::new() },
            read_us: now_us,
            packages,
            moving: (inventory.moving.len() <= MOVING_MAX)
                .then(|| inventory.moving.keys().cloned().collect()),
            waiting: self.last.waiting,
            gap: None,
        };
        notes::set_seen(&self.queue, DatasetKind::Packages, now_us)?;
        self.good_us = now_us;
        if changed == LookOutcome::Committed
            || self.last.stamp != next.stamp
            || self.last.moving != next.moving
            || self.last.gap.is_some()
        {
            self.note(next)?;
        }
        if plan.changes() > 0 {
            self.console.line(&plan.line(packages, report));
        }
        Ok(changed)
    }

    /// Commits the differences together with these events.
    fn commit(&self, plan: &Plan, events: &[EventBody]) -> Result<LookOutcome, QueueError> {
        if plan.items.is_empty() && events.is_empty() {
            return Ok(LookOutcome::Unchanged);
        }
        let steps: Vec<DocumentStep<'_>> = plan
            .items
            .iter()
            .map(|put| DocumentStep {
                key: &put.key,
                document: put.document.as_deref(),
                event: put.event.as_ref(),
            })
            .collect();
        self.queue.apply_documents(&self.dataset, &steps, events)?;
        Ok(LookOutcome::Committed)
    }

    fn baseline(&self) -> Result<StoredDocuments, QueueError> {
        let mut baseline = StoredDocuments::new();
        self.queue.documents(&self.dataset, &mut |key, body| {
            baseline.insert(key.to_vec(), body.to_vec());
        })?;
        Ok(baseline)
    }

    /// Reports that the database cannot be read, once when the gap opens or its kind changes.
    fn gap(&mut self, problem: &InventoryError, now_us: u64) -> Result<LookOutcome, QueueError> {
        let kind = problem.coverage();
        let open = self.last.gap.as_ref();
        if open.is_some_and(|gap| gap.kind == kind) {
            return Ok(LookOutcome::Unchanged);
        }
        warn!("packages: {problem}");
        self.console.line(&format!("gap: {problem}"));
        let since_us = match open {
            Some(gap) => gap.since_us,
            None if self.good_us == 0 => now_us,
            None => self.good_us,
        };
        let gap = OpenGap { since_us, kind, detail: problem.to_string() };
        self.queue.apply_documents(&self.dataset, &[], &[self.start(&gap)])?;
        self.note(LastScan { gap: Some(gap), stamp: String::new(), ..self.last.clone() })?;
        Ok(LookOutcome::Committed)
    }

    /// Reports the start of the gap again, if one is open.
    pub(super) fn report_open_gap(&self) -> Result<(), QueueError> {
        let Some(gap) = &self.last.gap else { return Ok(()) };
        self.queue.apply_documents(&self.dataset, &[], &[self.start(gap)]).map(drop)
    }

    fn start(&self, gap: &OpenGap) -> EventBody {
        let lasting = LastingGap::start(GAP_ID);
        EventBody::of_coverage(self.coverage(gap, lasting, gap.since_us, &gap.detail))
    }

    /// Returns the end of the gap, if one is open.
    fn end(&self, detail: &str, now_us: u64, found: Option<u64>) -> Option<EventBody> {
        let gap = self.last.gap.as_ref()?;
        let end = self.coverage(gap, LastingGap::end(GAP_ID), now_us, detail);
        Some(EventBody::of_coverage(Coverage { found, ..end }))
    }

    fn coverage(&self, gap: &OpenGap, lasting: LastingGap, to_us: u64, detail: &str) -> Coverage {
        let (path, detail) = (self.path(), detail.to_owned());
        let &OpenGap { kind, since_us: from_us, .. } = gap;
        Coverage { kind, path, from_us, to_us, found: None, lasting: Some(lasting), detail }
    }

    /// Removes all packages without events, because packages are no longer watched.
    fn forget(&mut self) -> Result<LookOutcome, QueueError> {
        notes::set_compared(&self.queue, DatasetKind::Packages)?;
        if self.last.root.is_empty() && self.last.gap.is_none() {
            return Ok(LookOutcome::Unchanged);
        }
        let plan = host::plan(&self.baseline()?, &Inventory::default(), None);
        let ended = self.end("packages are no longer watched", self.clock.now_us(), None);
        let changed = self.commit(&plan, ended.as_slice())?;
        self.note(LastScan::default())?;
        info!(packages = plan.deleted, "packages are no longer watched; they were dropped");
        Ok(changed)
    }

    fn note(&mut self, last: LastScan) -> Result<(), QueueError> {
        self.queue.meta_set(NOTE, &serde_json::to_vec(&last).unwrap_or_default())?;
        self.last = last;
        Ok(())
    }

    fn path(&self) -> String {
        model::path::show(Path::new(&self.dpkg.path()).as_os_str().as_encoded_bytes()).into_owned()
    }
}
