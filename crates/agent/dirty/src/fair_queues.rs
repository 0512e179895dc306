//! Decides which names are checked next. A flood by one user must not hold back the change of another: the users
//! have turns, and so have the sessions and watched roots of each user. What a user changes in many
//! directories, or with many processes, is in one queue all the same.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use model::Origin;

use crate::directory_index::NodeId;

/// Names that a queue may have checked before the next one.
pub(crate) const QUANTUM_NAMES: usize = 64;
/// Most queues. Further sessions share the last one.
const QUEUES_MAX: usize = 256;
/// Most users whose last turn is remembered.
const USERS_MAX: usize = 1_024;

/// A function that returns the origin of a process as it is known at the moment, without waiting.
#[derive(Clone)]
pub struct OriginLookup(pub Arc<dyn Fn(u32) -> Option<Origin> + Send + Sync>);

impl fmt::Debug for OriginLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OriginLookup")
    }
}

/// Those who share a queue: processes of one origin, or of an unknown one, that change one root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Party {
    pub(crate) origin: Option<Origin>,
    pub(crate) root: NodeId,
}

/// Extent of a check. Each queue has the names apart from the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Name,
    /// A directory or everything below it, which may take long.
    Tree,
}

/// The place of an entry in the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) queue: u16,
    pub(crate) extent: Extent,
    pub(crate) due: u64,
}

#[derive(Debug, Default)]
struct Queue {
    party: Party,
    /// Number of its last turn.
    served: u64,
    names: BTreeSet<(u64, u32)>,
    trees: BTreeSet<(u64, u32)>,
}

impl Queue {
    fn entries(&self, extent: Extent) -> &BTreeSet<(u64, u32)> {
        match extent {
            Extent::Name => &self.names,
            Extent::Tree => &self.trees,
        }
    }

    fn entries_mut(&mut self, extent: Extent) -> &mut BTreeSet<(u64, u32)> {
        match extent {
            Extent::Name => &mut self.names,
            Extent::Tree => &mut self.trees,
        }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.trees.is_empty()
    }

    fn user(&self) -> Option<u32> {
        self.party.origin.map(|origin| origin.user)
    }
}

/// The queues of the pending entries.
#[derive(Debug, Default)]
pub(crate) struct FairQueues {
    queues: Vec<Queue>,
    by_party: HashMap<Party, u16>,
    /// Number of each user's last turn; `None` is the unknown user.
    users: HashMap<Option<u32>, u64>,
    round: u64,
    len: usize,
}

impl FairQueues {
    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the time at which the next entry is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let firsts = self.queues.iter().flat_map(|queue| [&queue.names, &queue.trees]);
        firsts.filter_map(|entries| entries.first()).map(|(due, _)| *due).min()
    }

    /// Returns the slots of all entries.
    pub(crate) fn slots(&self) -> Vec<u32> {
        let entries = self.queues.iter().flat_map(|queue| queue.names.iter().chain(&queue.trees));
        entries.map(|(_, slot)| *slot).collect()
    }

    /// Returns the queue of a party. An empty queue of another one is used again.
    pub(crate) fn queue_of(&mut self, party: Party) -> u16 {
        if let Some(known) = self.by_party.get(&party) {
            return *known;
        }
        let number = if self.queues.len() < QUEUES_MAX {
            self.queues.push(Queue::default());
            self.queues.len() - 1
        } else if let Some(empty) = self.queues.iter().position(Queue::is_empty) {
            empty
        } else {
            return (QUEUES_MAX - 1) as u16;
        };
        if let Some(queue) = self.queues.get_mut(number) {
            self.by_party.remove(&queue.party);
            *queue = Queue { party, ..Queue::default() };
        }
        self.by_party.insert(party, number as u16);
        number as u16
    }

    /// Adds an entry.
    pub(crate) fn insert(&mut self, place: Place, slot: u32) {
        let Some(queue) = self.queues.get_mut(usize::from(place.queue)) else { return };
        self.len += usize::from(queue.entries_mut(place.extent).insert((place.due, slot)));
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, place: Place, slot: u32) {
        let Some(queue) = self.queues.get_mut(usize::from(place.queue)) else { return };
        self.len -= usize::from(queue.entries_mut(place.extent).remove(&(place.due, slot)));
    }

    /// Begins the turn of the queue that has waited for the longest time, of the user who has. Returns
    /// `None` if nothing is due.
    pub(crate) fn next_queue(&mut self, extent: Extent, now: u64) -> Option<u16> {
        let is_due =
            |queue: &Queue| queue.entries(extent).first().is_some_and(|(due, _)| *due <= now);
        let last = |user| self.users.get(&user).copied().unwrap_or_default();
        let due = self.queues.iter().enumerate().filter(|(_, queue)| is_due(queue));
        let (number, _) = due.min_by_key(|(_, queue)| (last(queue.user()), queue.served))?;
        self.round += 1;
        let queue = self.queues.get_mut(number)?;
        queue.served = self.round;
        let user = queue.user();
        if self.users.len() >= USERS_MAX {
            self.users.clear();
        }
        self.users.insert(user, self.round);
        Some(number as u16)
    }

    /// Returns the first due entry of a queue.
    pub(crate) fn first(&self, queue: u16, extent: Extent, now: u64) -> Option<u32> {
        let first = self.queues.get(usize::from(queue))?.entries(extent).first();
        first.filter(|(due, _)| *due <= now).map(|(_, slot)| *slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(user: u32, session: u64) -> Party {
        Party { origin: Some(Origin { user, session }), root: NodeId::default() }
    }

    fn insert(queues: &mut FairQueues, party: Party, slots: std::ops::Range<u32>) {
        let queue = queues.queue_of(party);
        for slot in slots {
            queues.insert(Place { queue, extent: Extent::Name, due: u64::from(slot) }, slot);
        }
    }

    /// Takes one entry in each turn.
    fn take(queues: &mut FairQueues, number: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        while taken.len() < number
            && let Some(queue) = queues.next_queue(Extent::Name, u64::MAX)
        {
            let slot = queues.first(queue, Extent::Name, u64::MAX).unwrap();
            queues.remove(Place { queue, extent: Extent::Name, due: u64::from(slot) }, slot);
            taken.push(slot);
        }
        taken
    }

    #[test]
    fn users_have_turns_and_so_have_their_sessions() {
        let mut queues = FairQueues::default();
        insert(&mut queues, party(1, 1), 0..100);
        insert(&mut queues, party(1, 2), 100..200);
        insert(&mut queues, party(2, 1), 200..300);
        insert(&mut queues, Party::default(), 300..400);
        assert_eq!(queues.next_due(), Some(0));
        let mut taken = take(&mut queues, 12);
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 100, 101, 200, 201, 202, 203, 300, 301, 302, 303]);
        insert(&mut queues, party(3, 1), 400..401);
        assert_eq!(take(&mut queues, 1), [400], "a new user is first");
        assert_eq!(queues.len(), 400 + 1 - 13);
    }

    #[test]
    fn number_of_queues_is_bounded() {
        let mut queues = FairQueues::default();
        for session in 0..2 * QUEUES_MAX as u32 {
            insert(&mut queues, party(1, u64::from(session)), session..session + 1);
        }
        insert(&mut queues, party(2, 1), 5_000..5_001);
        assert_eq!((queues.queues.len(), queues.len()), (QUEUES_MAX, 2 * QUEUES_MAX + 1));
        assert_eq!(take(&mut queues, 1_000).len(), 2 * QUEUES_MAX + 1);
        insert(&mut queues, party(2, 1), 0..1);
        assert_eq!(queues.by_party.len(), QUEUES_MAX, "an empty queue is used again");
        assert_eq!(take(&mut queues, 2), [0]);
    }
}
