//! Admission by bytes in flight: bodies that arrive or are processed, and answers that are not read
//! yet. [`env::budget`] has the rules for a spent budget, and its locking.

use std::net::IpAddr;

use env::budget::{Budget, ExceededLimit};
use env::sources::network;
use model::AgentId;

use crate::identity::{Caller, Peer};
use crate::options::{SMALL_BODY_BYTES_MAX, SessionsLimits};

/// One sender may hold this part of the bytes for small bodies.
const SMALL_SHARES: usize = 16;

/// The bytes of one body or answer; released when dropped.
pub(crate) type Charge = env::budget::Charge<Sender>;

/// The sender that bytes are counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    Agent(AgentId),
    /// The network of a caller without a certificate; `None` is the unix socket.
    Network(Option<IpAddr>),
}

/// The budgets of bytes in flight.
#[derive(Debug)]
pub(crate) struct Admission {
    common: Budget<Sender>,
    /// The budget that only small bodies use, so that heartbeats and small sessions arrive while
    /// large ones have spent the common budget.
    small: Budget<Sender>,
}

impl Admission {
    pub(crate) fn new(limits: &SessionsLimits) -> Self {
        let small = limits.small_in_flight_bytes_max;
        Self {
            common: Budget::new(limits.in_flight_bytes_max, cost(limits.agent_share_bytes_max)),
            small: Budget::new(small, small / SMALL_SHARES),
        }
    }

    /// Begins a body. A small one uses the common budget if the other one is spent.
    pub(crate) fn begin(&self, sender: Sender, length: usize) -> Charge {
        let is_small = length <= SMALL_BODY_BYTES_MAX && self.small.has_space(sender, cost(length));
        if is_small { self.small.begin(sender) } else { self.common.begin(sender) }
    }

    /// Charges the bytes of an answer before it is prepared.
    pub(crate) fn reserve(&self, caller: &Caller, bytes: usize) -> Result<Charge, ExceededLimit> {
        self.common.reserve(caller.into(), bytes)
    }

    /// Returns the number of bytes charged now.
    pub(crate) fn used(&self) -> usize {
        self.common.used() + self.small.used()
    }
}

impl From<&Caller> for Sender {
    fn from(caller: &Caller) -> Self {
        Self::Agent(caller.agent)
    }
}

impl From<&Peer> for Sender {
    fn from(peer: &Peer) -> Self {
        Self::Network(peer.ip().map(network))
    }
}

/// Returns the memory that a body takes until it is answered: its bytes, the values that are
/// decoded from it, and the record of the journal.
pub(crate) fn cost(bytes: usize) -> usize {
    bytes.saturating_mul(2).saturating_add(bytes / 2)
}
