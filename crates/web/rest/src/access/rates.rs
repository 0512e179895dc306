//! Counters per minute: requests by address or by user, and rows of the audit log by user.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

/// Number of networks counted separately in one window; all further ones share one counter.
const ADDRESSES_MAX: usize = 65_536;
/// Length of the counting window.
const WINDOW: Duration = Duration::from_mins(1);

/// A counter of requests per network and in total, in windows of one minute.
pub struct RequestRate {
    each_max: u32,
    all_max: u32,
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    started: Duration,
    all: u32,
    each: HashMap<IpAddr, u32>,
    others: u32,
}

impl RequestRate {
    pub fn new(each_max: u32, all_max: u32) -> Self {
        Self { each_max, all_max, window: Mutex::default() }
    }

    /// Counts one request at `now` (a monotonic clock). If it exceeds a limit, `Err` holds the number
    /// of seconds to wait. A request refused for its own network does not count towards the total.
    pub fn admit(&self, from: Option<IpAddr>, now: Duration) -> Result<(), u64> {
        let from = from.map(registry::network);
        let mut window = self.window.lock();
        let age = now.saturating_sub(window.started);
        if age > WINDOW {
            *window = Window { started: now, ..Window::default() };
        }
        let wait = WINDOW.saturating_sub(age).as_secs() + 1;
        let full = window.each.len() >= ADDRESSES_MAX;
        let window = &mut *window;
        let own = match from {
            Some(ip) if !full || window.each.contains_key(&ip) => {
                window.each.entry(ip).or_insert(0)
            }
            _ => &mut window.others,
        };
        *own = own.saturating_add(1);
        if self.each_max != 0 && *own > self.each_max {
            return Err(wait);
        }
        window.all = window.all.saturating_add(1);
        if self.all_max != 0 && window.all > self.all_max {
            return Err(wait);
        }
        Ok(())
    }

    /// Takes back a request that was counted, because it counts elsewhere.
    pub fn give_back(&self, from: Option<IpAddr>) {
        let mut window = self.window.lock();
        let window = &mut *window;
        let own = match from.map(registry::network).and_then(|ip| window.each.get_mut(&ip)) {
            Some(own) => own,
            None => &mut window.others,
        };
        *own = own.saturating_sub(1);
        window.all = window.all.saturating_sub(1);
    }
}

/// A counter per user, in windows of one minute. It holds a name for each user that is counted.
pub struct UserRate {
    each_max: u32,
    window: Mutex<(Duration, HashMap<String, u32>)>,
}

impl UserRate {
    pub fn new(each_max: u32) -> Self {
        Self { each_max, window: Mutex::default() }
    }

    /// Counts one for a user at `now` (a monotonic clock). If it exceeds the limit, `Err` holds the
    /// number of seconds to wait.
    pub fn admit(&self, user: &str, now: Duration) -> Result<(), u64> {
        let (started, users) = &mut *self.window.lock();
        let age = now.saturating_sub(*started);
        if age > WINDOW {
            *started = now;
            users.clear();
        }
        let own = users.entry(user.to_owned()).or_default();
        *own = own.saturating_add(1);
        if *own <= self.each_max { Ok(()) } else { Err(WINDOW.saturating_sub(age).as_secs() + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
    const B: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));

    #[test]
    fn requests_without_effect_do_not_fill_the_audit_log() {
        let rows = UserRate::new(3);
        let now = Duration::from_secs(100);
        for _ in 0..3 {
            assert_eq!(rows.admit("reader", now), Ok(()));
        }
        assert!(rows.admit("reader", now).is_err());
        assert_eq!(rows.admit("other", now), Ok(()));
        assert_eq!(rows.admit("reader", now + WINDOW + Duration::from_secs(1)), Ok(()));
    }

    #[test]
    fn request_that_is_given_back_does_not_count() {
        let rate = RequestRate::new(2, 3);
        for _ in 0..9 {
            assert_eq!(rate.admit(A, Duration::ZERO), Ok(()));
            rate.give_back(A);
        }
        assert_eq!(rate.admit(A, Duration::ZERO), Ok(()));
        assert_eq!(rate.admit(A, Duration::ZERO), Ok(()));
        assert!(rate.admit(A, Duration::ZERO).is_err());
    }

    #[test]
    fn address_at_its_limit_does_not_block_others() {
        let rate = RequestRate::new(3, 5);
        let now = Duration::from_secs(100);
        for _ in 0..3 {
            assert_eq!(rate.admit(A, now), Ok(()));
        }
        assert!(rate.admit(A, now).is_err());
        assert_eq!(rate.admit(B, now), Ok(()));
        assert_eq!(rate.admit(B, now), Ok(()));
        assert!(rate.admit(B, now).is_err(), "five in all are the limit");
        assert_eq!(rate.admit(A, now + Duration::from_secs(61)), Ok(()), "a new window");
    }

    #[test]
    fn rate_limit_counts_an_ipv6_network_as_one_client() {
        let rate = RequestRate::new(3, 0);
        let at = |last: u16| Some(IpAddr::from([0x2001, 0xdb8, 0, 1, last, last, 0, last]));
        let refused = (1..=9).filter(|n| rate.admit(at(*n), Duration::ZERO).is_err()).count();
        assert_eq!(refused, 6);
        let other = IpAddr::from([0x2001, 0xdb8, 0, 2, 1, 1, 0, 1]);
        assert_eq!(rate.admit(Some(other), Duration::ZERO), Ok(()));
    }

    #[test]
    fn zero_disables_a_rate_limit() {
        let rate = RequestRate::new(0, 0);
        for _ in 0..10_000 {
            assert_eq!(rate.admit(A, Duration::ZERO), Ok(()));
        }
    }
}
