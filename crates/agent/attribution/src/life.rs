//! One process of the table: its phases, and which of its images are in doubt.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::image::{Ancestor, Login, ObservedImage, Start};
use crate::limits;
use crate::message::Ids;

/// A span of time with one image and one pair of users.
#[derive(Debug, Clone, Default)]
pub(crate) struct Phase {
    pub(crate) from_ns: u64,
    /// `None` if `/proc` could not be read.
    pub(crate) image: Option<Arc<ObservedImage>>,
    pub(crate) ids: Option<Ids>,
    /// Time at which `ids` were read from `/proc`; 0 if a message named them.
    pub(crate) ids_read_ns: u64,
    pub(crate) login: Option<Login>,
}

/// One process, from its start to its end.
#[derive(Debug)]
pub(crate) struct Life {
    /// Number of the entry; distinguishes processes with the same pid.
    pub(crate) serial: u64,
    /// 0 if it ran before the table began.
    pub(crate) from_ns: u64,
    pub(crate) start: Start,
    /// Last EXIT of one of its threads.
    pub(crate) ended_ns: Option<u64>,
    /// True if it may have had more than one thread: it can go on after the EXIT of the first one.
    pub(crate) threaded: bool,
    /// In the order of their messages; the first ones may have been dropped.
    pub(crate) phases: VecDeque<Phase>,
    pub(crate) has_children: bool,
    /// True if a child may have other users than this process.
    pub(crate) children_differ: bool,
    /// Users that threads have set for themselves since the last exec.
    pub(crate) thread_ids: Vec<Ids>,
    pub(crate) ancestors: Arc<[Arc<Ancestor>]>,
    /// This process as an ancestor; recreated when its image changes.
    pub(crate) node: Option<Arc<Ancestor>>,
}

impl Life {
    pub(crate) fn push(&mut self, phase: Phase) {
        self.node = None;
        self.phases.push_back(phase);
        if self.phases.len() > limits::PHASES_MAX {
            self.phases.pop_front();
        }
    }

    pub(crate) fn last(&self) -> Option<&Phase> {
        self.phases.back()
    }

    pub(crate) fn last_image(&self) -> Option<&Arc<ObservedImage>> {
        self.last()?.image.as_ref()
    }

    /// Marks the last image as doubtful, and those before it that were trusted because its
    /// executable is another one.
    pub(crate) fn doubt(&self) {
        let mut replaced_ns = None;
        let mut last: Option<&Arc<ObservedImage>> = None;
        for phase in self.phases.iter().rev() {
            // Phases of one image differ in their users.
            let new =
                phase.image.as_ref().filter(|i| last.is_none_or(|last| !Arc::ptr_eq(i, last)));
            let trusted =
                |seen: &ObservedImage| replaced_ns.is_some_and(|ns| !is_inside_exec(seen, ns));
            if new.is_some_and(|seen| trusted(seen)) {
                return;
            }
            if let Some(seen) = new {
                seen.doubt();
            }
            last = new.or(last);
            replaced_ns = Some(phase.from_ns);
        }
    }

    /// Returns true if a child may have other users than this process.
    pub(crate) fn needs_users(&self) -> bool {
        self.children_differ || !self.thread_ids.is_empty()
    }

    pub(crate) fn node(&mut self, pid: u32) -> Arc<Ancestor> {
        if let Some(node) = &self.node {
            return node.clone();
        }
        let image = self.last().and_then(|phase| phase.image.clone());
        let user = self.last().and_then(|phase| phase.ids).map(|ids| ids.effective);
        let node = Arc::new(Ancestor { pid, start: self.start, image, user });
        self.node = Some(node.clone());
        node
    }
}

/// Returns true if an exec that ended at this time may have begun before the image was read.
pub(crate) fn is_inside_exec(seen: &ObservedImage, ended_ns: u64) -> bool {
    !seen.image.kernel && ended_ns.saturating_sub(seen.at_ns) < limits::EXEC_WINDOW_NS
}
