//! Connection permits: a limit in total and one per network; callers on this machine have a
//! separate limit. When a limit is reached, the connection that has been idle for longest is
//! closed; connections that have never sent a request are closed first. Opening connections without
//! using them therefore blocks no other client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::idle::ConnectionActivity;
use crate::peer::Owner;

/// Time that a new connection has before it counts as one that never sent a request; it covers the
/// TLS handshake.
const GRACE: Duration = Duration::from_secs(2);
/// Minimum time between log messages about the limit.
const TELL_EVERY: Duration = Duration::from_mins(1);

/// The connection permits of one listener.
pub(super) struct ConnectionPermits {
    /// Limit of all networks together; also the limit of this machine.
    all_max: usize,
    each_max: usize,
    /// Time that a connection has for its first request.
    grace: Duration,
    open: Arc<Mutex<HashMap<u64, Open>>>,
    last: u64,
    /// Connections refused since the last log message.
    refused: u64,
    closed: u64,
    logged_at: Option<Instant>,
}

struct Open {
    owner: Owner,
    pulse: Arc<ConnectionActivity>,
    wanted: Arc<Notify>,
}

/// The permit of a connection, released when dropped.
pub(super) struct ConnectionPermit {
    number: u64,
    open: Arc<Mutex<HashMap<u64, Open>>>,
    /// The activity of the connection.
    pub(super) pulse: Arc<ConnectionActivity>,
    wanted: Arc<Notify>,
}

impl ConnectionPermits {
    pub(super) fn new(all_max: usize, each_max: usize) -> Self {
        Self {
            all_max,
            each_max: each_max.min(all_max),
            grace: GRACE,
            open: Arc::default(),
            last: 0,
            refused: 0,
            closed: 0,
            logged_at: None,
        }
    }

    /// Takes a permit, closing the longest idle connection if necessary; `None` if all others are
    /// active.
    pub(super) fn acquire(&mut self, owner: Owner) -> Option<ConnectionPermit> {
        let mut open = self.open.lock();
        let own = |other: &Open| other.owner == owner;
        let beside = |other: &Open| other.owner.is_local == owner.is_local;
        let own_max = if owner.is_local { self.all_max } else { self.each_max };
        let crowded: Option<&dyn Fn(&Open) -> bool> =
            if open.values().filter(|other| own(other)).count() >= own_max {
                Some(&own)
            } else if open.values().filter(|other| beside(other)).count() >= self.all_max {
                Some(&beside)
            } else {
                None
            };
        if let Some(among) = crowded {
            let now = Instant::now();
            let silent = open.iter().filter(|(_, other)| among(other));
            let grace = self.grace;
            let silent = silent.filter_map(|(number, other)| {
                let (asked, silent) = other.pulse.silence(now)?;
                Some(((!asked && silent >= grace, silent), *number))
            });
            let longest = silent.max().map(|(_, number)| number);
            self.closed += u64::from(longest.is_some());
            self.refused += u64::from(longest.is_none());
            let removed = longest.and_then(|number| open.remove(&number));
            if self.logged_at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
                let (refused, closed) = (self.refused, self.closed);
                tracing::warn!(
                    refused,
                    closed,
                    "api: too many connections: silent ones are closed, or new ones refused; see \
                     api.max_connections and api.max_connections_per_network"
                );
                (self.refused, self.closed, self.logged_at) = (0, 0, Some(Instant::now()));
            }
            removed?.wanted.notify_one();
        }
        self.last += 1;
        let (pulse, wanted) = (ConnectionActivity::new(), Arc::new(Notify::new()));
        let entry = Open { owner, pulse: Arc::clone(&pulse), wanted: Arc::clone(&wanted) };
        open.insert(self.last, entry);
        Some(ConnectionPermit { number: self.last, open: Arc::clone(&self.open), pulse, wanted })
    }
}

impl ConnectionPermit {
    /// Waits until the permit has been given to another connection.
    pub(super) async fn is_gone(&self) {
        self.wanted.notified().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.open.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str) -> Owner {
        Owner::from_network(address.parse().unwrap())
    }

    fn is_gone(permit: &ConnectionPermit) -> bool {
        !permit.open.lock().contains_key(&permit.number)
    }

    #[test]
    fn connection_limits_apply_per_network_and_to_loopback() {
        let mut permits = ConnectionPermits::new(4, 2);
        let mut held = Vec::new();
        for (address, taken) in [
            ("192.0.2.1", true),
            ("192.0.2.1", true),
            ("192.0.2.1", false),
            ("::ffff:192.0.2.1", false),
            ("2001:db8::1", true),
            ("2001:db8::2", true),
            ("2001:db8::3", false),
            ("198.51.100.1", false),
            ("127.0.0.1", true),
            ("127.0.0.1", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("::1", false),
        ] {
            let permit = permits.acquire(from(address));
            assert_eq!(permit.is_some(), taken, "{address}, after {}", held.len());
            // A request is in flight on each.
            held.extend(permit.map(|permit| (permit.pulse.begin_request(), permit)));
        }
        held.remove(0);
        assert!(permits.acquire(from("192.0.2.1")).is_some(), "one of its own has ended");
    }

    #[test]
    fn unused_connections_are_closed_before_the_longest_idle_one() {
        let mut permits = ConnectionPermits::new(4, 4);
        permits.grace = Duration::ZERO;
        let take = |permits: &mut ConnectionPermits| {
            // The next connection must not start at the same instant.
            let begun = Instant::now();
            while begun.elapsed().is_zero() {}
            permits.acquire(from("192.0.2.1")).expect("a place")
        };
        let asked = take(&mut permits);
        drop(asked.pulse.begin_request());
        let [first, second] = [take(&mut permits), take(&mut permits)];
        let busy = take(&mut permits);
        let request = busy.pulse.begin_request();
        let mut all = vec![asked, first, second, busy];
        let mut under_way = vec![request];
        for gone in [1, 2] {
            let newer = take(&mut permits);
            under_way.push(newer.pulse.begin_request());
            assert!(is_gone(&all[gone]) && all.iter().filter(|p| is_gone(p)).count() == gone);
            all.push(newer);
        }
        all.push(take(&mut permits));
        assert!(is_gone(&all[0]) && !is_gone(&all[3]), "idle, and with a request under way");
        let last = take(&mut permits);
        assert!(is_gone(&all[6]) && !is_gone(&last));
    }
}
