//! Which process a notification names: every image and user that was in force in an interval.

use std::sync::Arc;

use model::{Interval, Origin, Writer, WriterSeen};

use crate::image::{Ancestor, Login, ObservedImage, Start};
use crate::life::{Life, Phase};
use crate::limits;
use crate::message::Ids;
use crate::table::Table;

/// Reason why a process, its executable or its users are not certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// `/proc` could not be read while the process had the image.
    Gone,
    /// The process has no number here.
    OtherNamespace,
    /// A thread of the kernel, such as the NFS server's.
    Kernel,
    /// The process refuses that its executable is read.
    NotPermitted,
    /// Messages were lost, nanoseconds of `CLOCK_MONOTONIC`.
    Incomplete(u64, u64),
    /// Two processes had the number in the interval.
    Reused,
    /// The process had more images in the interval than are kept.
    ManyImages,
    /// The process closed the file and was not seen changing it.
    OnlyClosed,
    /// The table did not pass the interval in time.
    Behind,
}

/// The outcome of a search.
#[derive(Debug)]
pub enum FindOutcome {
    Unknown(Reason),
    Uncertain(Reason),
    Process(Box<Found>),
}

/// The process that had the number in the whole interval.
#[derive(Debug)]
pub struct Found {
    pub start: Start,
    /// Different images in force in the interval of the last change whose executable is known, in
    /// their order.
    pub images: Vec<Arc<ObservedImage>>,
    /// Reason why a further image is not known.
    pub unknown_image: Option<Reason>,
    /// Other known images in force when the process made earlier changes, in their order.
    pub earlier: Vec<Arc<ObservedImage>>,
    /// Different users in force in the whole interval; empty if one of them is not known.
    pub ids: Vec<Ids>,
    /// Different logins in force in the whole interval; empty if one of them is not known.
    pub logins: Vec<Login>,
    pub ancestors: Arc<[Arc<Ancestor>]>,
    /// True for each ancestor that ran in the interval, or at its beginning.
    pub ancestors_running: Vec<bool>,
    /// Time at which the last of the images was read.
    pub read_ns: u64,
}

impl Table {
    /// Finds the process of a notification. The table must have passed the writer's interval.
    pub fn find(&self, writer: &Writer) -> FindOutcome {
        if writer.pid == 0 {
            return FindOutcome::Unknown(Reason::OtherNamespace);
        }
        let Interval { from_ns, to_ns } = writer.whole();
        let delay_ns = match writer.seen {
            WriterSeen::Changing => 0,
            WriterSeen::Closing | WriterSeen::OnlyClosing => limits::CLOSE_DELAY_NS,
        };
        let with_delay = from_ns.saturating_sub(delay_ns);
        if let Some((from, to)) = self.losses.within(with_delay, to_ns) {
            return FindOutcome::Uncertain(Reason::Incomplete(from, to));
        }
        let lives = self.lives.get(&writer.pid).map(Vec::as_slice).unwrap_or_default();
        let mut in_force = lives.iter().filter(|life| {
            // The EXIT of the first thread does not end a process that had several.
            let over = life.ended_ns.is_some_and(|ended| ended < from_ns && !life.threaded);
            life.from_ns <= to_ns && !over
        });
        match (in_force.next(), in_force.next()) {
            (None, _) => FindOutcome::Unknown(Reason::Gone),
            (Some(life), None) => {
                let mut found = Found::of(life, Interval { from_ns: with_delay, to_ns });
                found.add_images(life, writer, delay_ns);
                let running = |ancestor: &Arc<Ancestor>| self.is_running(ancestor, with_delay);
                found.ancestors_running = life.ancestors.iter().map(running).collect();
                FindOutcome::Process(Box::new(found))
            }
            (Some(_), Some(_)) => FindOutcome::Uncertain(Reason::Reused),
        }
    }

    /// Returns the origin of a process as it was last known; `None` if it is not.
    pub fn origin(&self, pid: u32) -> Option<Origin> {
        let last = self.lives.get(&pid)?.last()?.last()?;
        let session = last.login.and_then(|login| login.session).map(u64::from);
        let group = || last.image.as_ref().map(|seen| seen.image.control_group);
        let session = session.or_else(group).unwrap_or_default();
        Some(Origin { user: last.ids?.effective, session })
    }

    /// Returns true if an ancestor had not ended at this time. One that is no longer in the table
    /// had.
    fn is_running(&self, ancestor: &Ancestor, at_ns: u64) -> bool {
        let lives = self.lives.get(&ancestor.pid).map(Vec::as_slice).unwrap_or_default();
        let is_same = |life: &&Life| life.start.is_same(ancestor.start);
        lives.iter().find(is_same).is_some_and(|life| {
            life.threaded || life.ended_ns.is_none_or(|ended_ns| ended_ns >= at_ns)
        })
    }
}

/// Returns the phases of a process that were in force in an interval.
fn phases_within(life: &Life, within: Interval) -> impl Iterator<Item = &Phase> {
    let ends = life.phases.iter().skip(1).map(|next| next.from_ns).chain([u64::MAX]);
    let in_force = life.phases.iter().zip(ends);
    in_force
        .filter(move |(phase, end_ns)| phase.from_ns <= within.to_ns && *end_ns >= within.from_ns)
        .map(|(phase, _)| phase)
}

/// Returns true if phases of the interval are no longer kept.
fn is_cut_off(life: &Life, from_ns: u64) -> bool {
    let first_ns = life.phases.front().map_or(u64::MAX, |first| first.from_ns);
    first_ns > from_ns && first_ns > life.from_ns
}

impl Found {
    /// Returns the users of a process in an interval, without images.
    fn of(life: &Life, within: Interval) -> Self {
        let mut found = Self {
            start: life.start,
            images: Vec::new(),
            unknown_image: None,
            earlier: Vec::new(),
            ids: Vec::new(),
            logins: Vec::new(),
            ancestors: life.ancestors.clone(),
            ancestors_running: Vec::new(),
            read_ns: 0,
        };
        let known = !is_cut_off(life, within.from_ns);
        let (mut ids_known, mut logins_known) = (known, known);
        for phase in phases_within(life, within) {
            ids_known &= phase.ids.is_some();
            logins_known &= phase.login.is_some();
            add(&mut found.ids, phase.ids);
            add(&mut found.logins, phase.login);
        }
        for ids in &life.thread_ids {
            add(&mut found.ids, Some(*ids));
        }
        if !ids_known || life.thread_ids.len() > limits::THREAD_IDS_MAX {
            found.ids.clear();
        }
        if !logins_known {
            found.logins.clear();
        }
        found
    }

    /// Adds the images of the last change, and those of the changes before it.
    fn add_images(&mut self, life: &Life, writer: &Writer, delay_ns: u64) {
        let from_ns = writer.last.from_ns.saturating_sub(delay_ns);
        if is_cut_off(life, from_ns) {
            self.unknown_image = Some(Reason::ManyImages);
        }
        for phase in phases_within(life, Interval { from_ns, ..writer.last }) {
            self.add_image(phase);
        }
        let Some(earlier) = writer.earlier else { return };
        for seen in phases_within(life, earlier).filter_map(|phase| phase.image.as_ref()) {
            let same = |known: &Arc<ObservedImage>| Arc::ptr_eq(&known.image, &seen.image);
            let is_known = seen.known_program().is_some() && !seen.image.kernel;
            if is_known && !self.images.iter().any(same) && !self.earlier.iter().any(same) {
                self.read_ns = self.read_ns.max(seen.at_ns);
                self.earlier.push(seen.clone());
            }
        }
    }

    fn add_image(&mut self, phase: &Phase) {
        let Some(seen) = &phase.image else {
            self.unknown_image = self.unknown_image.or(Some(Reason::Gone));
            return;
        };
        self.read_ns = self.read_ns.max(seen.at_ns);
        if seen.image.kernel {
            self.unknown_image = Some(Reason::Kernel);
        } else if seen.image.program.is_none() {
            self.unknown_image = Some(Reason::NotPermitted);
        } else if seen.known_program().is_none() {
            self.unknown_image = self.unknown_image.or(Some(Reason::Gone));
        } else if !self.images.iter().any(|known| Arc::ptr_eq(&known.image, &seen.image)) {
            self.images.push(seen.clone());
        }
    }
}

fn add<T: PartialEq>(set: &mut Vec<T>, item: Option<T>) {
    if let Some(item) = item
        && !set.contains(&item)
    {
        set.push(item);
    }
}
