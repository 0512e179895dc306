//! Failures per source address: sources that fail too often are blocked, and log lines about them
//! and about equal occurrences are limited. No I/O.
//!
//! The n-th failure blocks the source. The failures are forgotten and the block ends a fixed time
//! after the *first* failure (`docs/reference/wire.md`, "API: failed logins"). IPv6 sources are
//! counted by /64 network, because one host can use all addresses of one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// Bits of an IPv6 address that name a network.
const IPV6_NETWORK_MASK: u128 = !0 << 64;

/// Time over which log lines are counted.
const LINES_TIME: Duration = Duration::from_mins(1);
/// Lines about one source in that time.
const LINES_MAX: u32 = 10;
/// Sources whose lines are counted.
const LINE_SOURCES_MAX: usize = 4_096;

#[derive(Debug)]
struct Failures {
    first: Duration,
    count: u32,
}

/// The failures, in memory only: a restart forgets them.
#[derive(Debug)]
pub struct Attempts {
    max: u32,
    block: Duration,
    sources_max: usize,
    sources: HashMap<IpAddr, Failures>,
}

impl Attempts {
    /// Creates a counter that blocks a source at its `max`-th failure within `block` of the first
    /// one. With 0 nothing is blocked. The oldest of more than `sources_max` sources is forgotten.
    pub fn new(max: u32, block: Duration, sources_max: usize) -> Self {
        Self { max, block, sources_max, sources: HashMap::new() }
    }

    /// Returns the time for which the source is still blocked.
    pub fn blocked(&self, source: IpAddr, now: Duration) -> Option<Duration> {
        let failures = self.sources.get(&network(source))?;
        let left = (failures.first + self.block).saturating_sub(now);
        (self.max > 0 && failures.count >= self.max && !left.is_zero()).then_some(left)
    }

    /// Counts a failure; returns true if it is the one that blocks the source.
    pub fn failed(&mut self, source: IpAddr, now: Duration) -> bool {
        let source = network(source);
        if !self.sources.contains_key(&source) && self.sources.len() >= self.sources_max {
            self.evict_oldest(now);
        }
        let failures = self.sources.entry(source).or_insert(Failures { first: now, count: 0 });
        if now >= failures.first + self.block {
            *failures = Failures { first: now, count: 0 };
        }
        failures.count = failures.count.saturating_add(1);
        failures.count == self.max
    }

    fn evict_oldest(&mut self, now: Duration) {
        let block = self.block;
        self.sources.retain(|_, f| now < f.first + block);
        if self.sources.len() >= self.sources_max {
            let oldest = self.sources.iter().min_by_key(|(_, f)| f.first).map(|(s, _)| *s);
            oldest.map(|s| self.sources.remove(&s));
        }
    }
}

/// Limits log lines to 10 a minute for each source, so that refusals cannot fill the log.
#[derive(Debug)]
pub struct LogLimit {
    lines: Attempts,
    suppressed: u64,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self { lines: Attempts::new(LINES_MAX, LINES_TIME, LINE_SOURCES_MAX), suppressed: 0 }
    }
}

impl LogLimit {
    /// Counts an occurrence at `now`; `None` is this machine. Returns the number of occurrences
    /// that were suppressed since the last line if a line may be logged, and else `None`.
    pub fn line(&mut self, source: Option<IpAddr>, now: Duration) -> Option<u64> {
        let source = source.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if self.lines.blocked(source, now).is_some() {
            self.suppressed += 1;
            return None;
        }
        self.lines.failed(source, now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Time after which a repeated occurrence is logged again.
const REPEATS_TIME: Duration = Duration::from_hours(1);
/// Occurrences that are remembered.
const REPEATS_MAX: usize = 4_096;

/// Logs the first of equal occurrences, and then one line an hour with their number.
#[derive(Debug, Default)]
pub struct RepeatLog {
    /// Time of the last line and occurrences since, by what makes them equal.
    repeats: HashMap<Vec<u8>, (Duration, u64)>,
}

impl RepeatLog {
    /// Counts an occurrence at `now`. Returns the number of equal ones that were suppressed since the
    /// last line if a line may be logged, and else `None`. Of more than 4,096 different ones, the one
    /// whose line is the oldest is forgotten.
    pub fn line(&mut self, key: Vec<u8>, now: Duration) -> Option<u64> {
        if let Some((logged, suppressed)) = self.repeats.get_mut(&key) {
            if now < *logged + REPEATS_TIME {
                *suppressed += 1;
                return None;
            }
            *logged = now;
            return Some(std::mem::take(suppressed));
        }
        if self.repeats.len() >= REPEATS_MAX {
            let oldest = self.repeats.iter().min_by_key(|(_, (logged, _))| *logged);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.map(|key| self.repeats.remove(&key));
        }
        self.repeats.insert(key, (now, 0));
        Some(0)
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
        let mut attempts = Attempts::new(50, BLOCK, 100);
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
        let mut attempts = Attempts::new(2, BLOCK, 100);
        attempts.failed("2001:db8::1".parse().unwrap(), at(0));
        attempts.failed("2001:db8::ffff:2".parse().unwrap(), at(0));
        assert!(attempts.blocked("2001:db8::3".parse().unwrap(), at(1)).is_some());
        assert!(attempts.blocked("2001:db8:0:1::3".parse().unwrap(), at(1)).is_none());
        attempts.failed("::ffff:192.0.2.1".parse().unwrap(), at(0));
        attempts.failed("192.0.2.1".parse().unwrap(), at(0));
        assert!(attempts.blocked("192.0.2.1".parse().unwrap(), at(1)).is_some());
    }

    #[test]
    fn number_of_remembered_sources_is_bounded() {
        let mut attempts = Attempts::new(1, BLOCK, 100);
        for n in 0..100_u32 + 10 {
            attempts.failed(IpAddr::V4(n.into()), Duration::from_millis(u64::from(n)));
        }
        assert_eq!(attempts.sources.len(), 100);
        let newest = IpAddr::V4((100_u32 + 9).into());
        assert!(attempts.blocked(newest, at(100)).is_some());
    }

    #[test]
    fn repeated_occurrence_is_logged_once_and_counted_each_hour() {
        let mut log = RepeatLog::default();
        let key = |text: &str| text.as_bytes().to_vec();
        assert_eq!(log.line(key("a"), at(0)), Some(0));
        assert_eq!(log.line(key("b"), at(0)), Some(0), "another one has a line of its own");
        for minute in 1..60 {
            assert_eq!(log.line(key("a"), at(60 * minute)), None);
        }
        assert_eq!(log.line(key("a"), at(3_600)), Some(59));
        assert_eq!(log.line(key("a"), at(3_660)), None);
        for n in 0..REPEATS_MAX {
            log.line(key(&format!("more {n}")), at(3_700));
        }
        assert_eq!(log.repeats.len(), REPEATS_MAX);
        assert_eq!(log.line(key("b"), at(3_700)), Some(0), "the oldest is forgotten");
    }

    #[test]
    fn log_lines_are_limited_by_source_and_the_rest_is_counted() {
        let mut log = LogLimit::default();
        let source = Some("192.0.2.7".parse().unwrap());
        let logged = (0..1_000).filter_map(|_| log.line(source, at(100))).count();
        assert_eq!(logged, LINES_MAX as usize);
        assert_eq!(log.line(source, at(159)), None);
        assert_eq!(log.line(None, at(159)), Some(1_001 - u64::from(LINES_MAX)));
        assert_eq!(log.line(source, at(160)), Some(0));
    }
}
