//! Turns observations into operations for the sink, and counts them.

use std::sync::Arc;

use model::notification::Detection;
use model::traits::BaselineItem;
use model::{Change, ChangeKind, Fields, ItemKey, Observation, ObserveError, Op};
use observe::{ReadOutcome, ReadResult};

use crate::merge::{Verdict, judge};
use crate::report::ScanError;
use crate::walk::Walk;

impl Walk<'_, '_> {
    /// Processes a reader's result for one file.
    pub(crate) fn read(&mut self, done: ReadResult) -> Result<(), ScanError> {
        let ReadResult { job, outcome, bytes } = done;
        self.counts.bytes_hashed += bytes;
        let directory = &job.directory.path;
        let is_new = job.before.is_none();
        if self.is_overtaken(directory, &job.name)
            || (is_new && self.has_vanished(directory, &job.name))
        {
            return Ok(());
        }
        if is_unsettled(&outcome)
            && let Some(targeted) = &mut self.cx.targeted
        {
            targeted.unsettled.push(ItemKey::new(&**directory, &*job.name));
            return Ok(());
        }
        match outcome {
            ReadOutcome::Observed(now) => {
                self.counts.hashed += u64::from(now.error.is_none());
                if let Some(error) = now.error {
                    self.counts.error(error);
                }
                self.write_pair(directory, &job.name, job.before, *now, job.renumbered)
            }
            ReadOutcome::Gone => match job.before {
                Some(before) => self.delete(directory, &job.name, *before, true),
                None => Ok(()),
            },
            ReadOutcome::Left => Ok(()),
        }
    }

    /// Returns what is known about the change of an item; `now` is its state, if it exists. `None` if
    /// a scan found it.
    fn seen(
        &self,
        key: &ItemKey,
        now: Option<&Observation>,
        found_at_us: u64,
    ) -> Option<Arc<Detection>> {
        let targeted = self.cx.targeted.as_ref()?;
        if let Some(seen) = targeted.seen.get(key) {
            return Some(self.attributed(seen));
        }
        if let Some(seen) = targeted.moved_along(key, now) {
            return Some(self.attributed(&Arc::new(seen)));
        }
        let (first_us, last_us) = (found_at_us, found_at_us);
        Some(Arc::new(Detection { first_us, last_us, ..Detection::default() }))
    }

    /// Returns what is known about a change, without writers if the rule leaves them out.
    pub(crate) fn attributed(&self, seen: &Arc<Detection>) -> Arc<Detection> {
        if self.root.rule.watch.attribution {
            return Arc::clone(seen);
        }
        Arc::new(Detection { actors: Vec::new(), more_actors: 0, ..Detection::clone(seen) })
    }

    /// Compares an item's observations before and now, and writes the operation that results, if
    /// any. `renumbered` says that the device number in `before` was translated.
    pub(crate) fn write_pair(
        &mut self,
        directory: &[u8],
        name: &[u8],
        before: Option<Box<Observation>>,
        now: Observation,
        renumbered: bool,
    ) -> Result<(), ScanError> {
        let mask = self.root.rule.mask;
        let verdict = judge(before.as_deref(), &now, mask, self.first, renumbered);
        let (kind, fields) = match verdict {
            Verdict::Same => return Ok(()),
            Verdict::Touch => {
                let key = ItemKey::new(directory, name);
                return self.cx.writer.push(Op::Touch { key, observation: now });
            }
            Verdict::Quiet | Verdict::Baseline => {
                self.counts.baseline += u64::from(verdict == Verdict::Baseline);
                let key = ItemKey::new(directory, name);
                return self.cx.writer.push(Op::Put { key, observation: now, change: None });
            }
            Verdict::Created => {
                self.counts.created += 1;
                (ChangeKind::Created, Fields::default())
            }
            Verdict::Modified(fields) => {
                self.counts.modified += 1;
                (ChangeKind::Modified, fields)
            }
        };
        let key = ItemKey::new(directory, name);
        let found_at_us = self.cx.clock.now_us();
        let change = Change {
            key: key.clone(),
            kind,
            before: before.map(|b| *b),
            after: Some(now.clone()),
            fields,
            found_at_us,
            from: None,
            seen: self.seen(&key, Some(&now), found_at_us),
            cause: None,
        };
        self.cx.writer.push(Op::Put { key, observation: now, change: Some(Box::new(change)) })
    }

    /// Writes the deletion of an item. It is reported as a change if `reported` is true (the item is
    /// gone from the disk), and not if the rules no longer cover it.
    pub(crate) fn delete(
        &mut self,
        directory: &[u8],
        name: &[u8],
        before: Observation,
        reported: bool,
    ) -> Result<(), ScanError> {
        let key = ItemKey::new(directory, name);
        if !reported {
            self.counts.forgotten += 1;
            return self.cx.writer.push(Op::Delete { key, change: None });
        }
        self.counts.deleted += 1;
        let found_at_us = self.cx.clock.now_us();
        let change = Change {
            key: key.clone(),
            kind: ChangeKind::Deleted,
            before: Some(before),
            after: None,
            fields: Fields::default(),
            found_at_us,
            from: None,
            seen: self.seen(&key, None, found_at_us),
            cause: None,
        };
        self.cx.writer.push(Op::Delete { key, change: Some(Box::new(change)) })
    }

    /// Deletes every item below a directory. The caller deletes the directory's own item
    /// afterwards, so that after an interruption the next scan deletes the rest.
    pub(crate) fn delete_below(
        &mut self,
        directory: &[u8],
        reported: bool,
    ) -> Result<(), ScanError> {
        if self.blank {
            return Ok(());
        }
        let below = self.cx.baseline.directories_below(directory).map_err(ScanError::Baseline)?;
        let mut items: Vec<BaselineItem> = Vec::new();
        for directory in below.iter().map(Vec::as_slice).chain([directory]) {
            if self.root.excludes_below(directory) {
                continue;
            }
            self.cx.baseline.directory(directory, &mut items).map_err(ScanError::Baseline)?;
            items.retain(|i| !i.name.is_empty() && !self.root.excludes(directory, &i.name));
            for item in items.drain(..) {
                self.delete(directory, &item.name, item.observation, reported)?;
            }
        }
        Ok(())
    }

    /// Drops the items below the current directory, which is not entered because of its depth or
    /// file system. No change is reported.
    pub(crate) fn leave_below(&mut self) -> Result<(), ScanError> {
        let path = self.path().to_vec();
        self.delete_below(&path, false)
    }

    /// Records in the item of the current directory the error that prevents entering it, or `None`.
    /// With `quiet` this is not a change.
    pub(crate) fn mark(
        &mut self,
        error: Option<ObserveError>,
        quiet: bool,
    ) -> Result<(), ScanError> {
        // The batch may still hold this scan's operation for the same item.
        self.cx.writer.flush()?;
        let key = ItemKey::of_path(self.path());
        let item = self.cx.baseline.item(&key).map_err(ScanError::Baseline)?;
        let Some(before) = item.filter(|item| item.error != error) else { return Ok(()) };
        let mut now = before.clone();
        now.error = error;
        if quiet || self.first {
            return self.cx.writer.push(Op::Put { key, observation: now, change: None });
        }
        self.write_pair(&key.directory, &key.name, Some(Box::new(before)), now, false)
    }
}

/// Returns true if a file could not be read in a consistent state: a targeted check leaves it to
/// the next one.
fn is_unsettled(outcome: &ReadOutcome) -> bool {
    match outcome {
        ReadOutcome::Observed(now) => now.error == Some(ObserveError::Unstable),
        ReadOutcome::Left => true,
        ReadOutcome::Gone => false,
    }
}
