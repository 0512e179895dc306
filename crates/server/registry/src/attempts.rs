//! Failed logins per source. No I/O.
//!
//! The n-th failure blocks the source. The failures are forgotten and the block ends a fixed time
//! after the *first* failure (`docs/reference/wire.md`, "API: failed logins"). IPv6 sources are
//! counted by /64 network, because one host can use all addresses of one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::limits::LOGIN_SOURCES_MAX;

/// Bits of an IPv6 address that name a network.
const IPV6_NETWORK_MASK: u128 = !0 << 64;

struct Failures {
    first: Duration,
    count: u32,
}

/// The failures, in memory only: a restart forgets them.
pub(crate) struct Attempts {
    max: u32,
    block: Duration,
    sources: HashMap<IpAddr, Failures>,
}

impl Attempts {
    /// Creates a counter that blocks a source at its `max`-th failure within `block` of the first
    /// one. With 0 nothing is blocked.
    pub(crate) fn new(max: u32, block: Duration) -> Self {
        Self { max, block, sources: HashMap::new() }
    }

    /// Returns the time for which the source is still blocked.
    pub(crate) fn blocked(&self, source: IpAddr, now: Duration) -> Option<Duration> {
        let failures = self.sources.get(&network(source))?;
        let left = (failures.first + self.block).saturating_sub(now);
        (self.max > 0 && failures.count >= self.max && !left.is_zero()).then_some(left)
    }

    /// Counts a failure; returns true if it is the one that blocks the source.
    pub(crate) fn failed(&mut self, source: IpAddr, now: Duration) -> bool {
        let source = network(source);
        if !self.sources.contains_key(&source) && self.sources.len() >= LOGIN_SOURCES_MAX {
            self.make_room(now);
        }
        let failures = self.sources.entry(source).or_insert(Failures { first: now, count: 0 });
        if now >= failures.first + self.block {
            *failures = Failures { first: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
        failures.count == self.max
    }

    fn make_room(&mut self, now: Duration) {
        let block = self.block;
        self.sources.retain(|_, f| now < f.first + block);
        if self.sources.len() >= LOGIN_SOURCES_MAX {
            let oldest = self.sources.iter().min_by_key(|(_, f)| f.first).map(|(s, _)| *s);
            oldest.map(|s| self.sources.remove(&s));
        }
    }
}

/// Returns the network of one host: an IPv6 host has a /64 to choose addresses from.
pub fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & IPV6_NETWORK_MASK)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Duration = Duration::from_mins(5);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn last_allowed_failure_blocks_until_the_first_one_expires() {
        let mut attempts = Attempts::new(50, BLOCK);
        let source: IpAddr = "192.0.2.7".parse().unwrap();
        for n in 0..49 {
            attempts.failed(source, at(n));
        }
        assert_eq!(attempts.blocked(source, at(49)), None);
        assert!(attempts.failed(source, at(49)), "this one blocks");
        assert_eq!(attempts.blocked(source, at(50)), Some(at(250)));
        assert_eq!(attempts.blocked("192.0.2.8".parse().unwrap(), at(50)), None);
        assert_eq!(attempts.blocked(source, at(300)), None);
        attempts.failed(source, at(301));
        assert_eq!(attempts.blocked(source, at(301)), None, "the counter restarted");
    }

    #[test]
    fn one_ipv6_network_is_one_source() {
        let mut attempts = Attempts::new(2, BLOCK);
        attempts.failed("2001:db8::1".parse().unwrap(), at(0));
        attempts.failed("2001:db8::ffff:2".parse().unwrap(), at(0));
        assert!(attempts.blocked("2001:db8::3".parse().unwrap(), at(1)).is_some());
        assert!(attempts.blocked("2001:db8:0:1::3".parse().unwrap(), at(1)).is_none());
        attempts.failed("::ffff:192.0.2.1".parse().unwrap(), at(0));
        attempts.failed("192.0.2.1".parse().unwrap(), at(0));
        assert!(attempts.blocked("192.0.2.1".parse().unwrap(), at(1)).is_some());
    }

    #[test]
    fn number_of_remembered_login_sources_is_bounded() {
        let mut attempts = Attempts::new(1, BLOCK);
        for n in 0..LOGIN_SOURCES_MAX as u32 + 10 {
            attempts.failed(IpAddr::V4(n.into()), Duration::from_millis(u64::from(n)));
        }
        assert_eq!(attempts.sources.len(), LOGIN_SOURCES_MAX);
        let newest = IpAddr::V4((LOGIN_SOURCES_MAX as u32 + 9).into());
        assert!(attempts.blocked(newest, at(100)).is_some());
    }
}
