//! Events.

/// One queued event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number in the queue.
    pub seq: u64,
    /// Its id on the wire, `epoch-seq`: never used twice.
    pub id: String,
    /// A [`model::EventBody`] as JSON.
    pub body: Vec<u8>,
}

/// Events handed out for one session; answer with [`crate::Queue::ack_events`], or drop it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventLease {
    /// Oldest first.
    pub items: Vec<Event>,
}

impl EventLease {
    /// Keep the first `count` events: the next lease begins with the rest.
    pub fn truncate(&mut self, count: usize) {
        self.items.truncate(count);
    }
}
