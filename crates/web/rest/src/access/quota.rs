//! Quotas on shared resources: a limit in total and a lower one per user, so that no single user can
//! take everything. Callers on this machine (the unix socket and, for connections, loopback) have a
//! quota of their own.

use std::collections::HashMap;
use std::sync::Arc;

use listener::Owner;
use parking_lot::Mutex;

/// A quota of permits or bytes.
#[derive(Debug, Clone)]
pub struct Quota {
    /// Limit for all users together; also the limit of each caller on this machine.
    all_max: usize,
    /// Limit of each user.
    each_max: usize,
    taken: Arc<Mutex<SharesInUse>>,
}

#[derive(Debug, Default)]
struct SharesInUse {
    /// Total taken by users, without callers on this machine.
    all: usize,
    each: HashMap<String, usize>,
}

/// A share of a quota, released when dropped.
#[derive(Debug)]
pub struct Share {
    quota: Quota,
    owner: Owner,
    size: usize,
}

impl Quota {
    pub fn new(all_max: usize, each_max: usize) -> Self {
        Self { all_max, each_max: each_max.min(all_max), taken: Arc::default() }
    }

    /// Takes a share of `size`, reduced to the owner's limit if it is larger. Returns `None` if the
    /// share does not fit into what is left.
    pub fn reserve(&self, owner: Owner, size: usize) -> Option<Share> {
        let size = size.min(self.own_max(&owner));
        let mut share = Share { quota: self.clone(), owner, size: 0 };
        share.grow(size).then_some(share)
    }

    fn own_max(&self, owner: &Owner) -> usize {
        if owner.is_local { self.all_max } else { self.each_max }
    }
}

impl Share {
    /// Enlarges the share by `more`; returns false and leaves it unchanged if that does not fit.
    pub fn grow(&mut self, more: usize) -> bool {
        let mut taken = self.quota.taken.lock();
        let own = taken.each.get(&self.owner.name).copied().unwrap_or(0);
        let full = !self.owner.is_local && taken.all + more > self.quota.all_max;
        if full || own + more > self.quota.own_max(&self.owner) {
            return false;
        }
        if !self.owner.is_local {
            taken.all += more;
        }
        taken.each.insert(self.owner.name.clone(), own + more);
        self.size += more;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.quota.taken.lock();
        if !self.owner.is_local {
            taken.all -= self.size;
        }
        if let Some(own) = taken.each.get_mut(&self.owner.name) {
            *own -= self.size;
            if *own == 0 {
                taken.each.remove(&self.owner.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Owner {
        Owner { name: name.into(), is_local: false }
    }

    #[test]
    fn no_user_exceeds_its_share_and_all_stay_within_the_total() {
        let quota = Quota::new(10, 4);
        let first = quota.reserve(user("first"), 3).unwrap();
        assert!(quota.reserve(user("first"), 2).is_none(), "four are for one user");
        let second = quota.reserve(user("second"), 4).unwrap();
        let third = quota.reserve(user("third"), 3).unwrap();
        assert!(quota.reserve(user("fourth"), 1).is_none(), "ten are for all");
        drop(first);
        let fourth = quota.reserve(user("fourth"), 3).unwrap();
        drop((second, third, fourth));
        let taken = quota.taken.lock();
        assert_eq!((taken.all, taken.each.len()), (0, 0));
    }

    #[test]
    fn quota_share_grows_within_user_and_total_limits() {
        let quota = Quota::new(10, 4);
        let mut first = quota.reserve(user("first"), 0).unwrap();
        assert!(first.grow(3) && !first.grow(2) && first.grow(1));
        let other =
            [quota.reserve(user("second"), 4).unwrap(), quota.reserve(user("third"), 2).unwrap()];
        assert!(!quota.reserve(user("third"), 0).unwrap().grow(1), "ten are for all");
        drop(other);
        assert!(quota.reserve(user("first"), 1).is_none());
        drop(first);
        assert!(quota.reserve(user("first"), 4).is_some());
    }

    #[test]
    fn request_above_the_user_limit_takes_the_whole_user_limit() {
        let quota = Quota::new(10, 4);
        let large = quota.reserve(user("first"), 1_000).unwrap();
        assert!(quota.reserve(user("first"), 1).is_none());
        drop(large);
        assert!(quota.reserve(user("first"), 1).is_some());
    }

    #[test]
    fn unix_socket_callers_have_a_quota_of_their_own() {
        let quota = Quota::new(8, 4);
        let all =
            [quota.reserve(user("first"), 4).unwrap(), quota.reserve(user("second"), 4).unwrap()];
        let root = Owner::from_uid(0);
        let own = quota.reserve(root.clone(), 8).unwrap();
        assert!(quota.reserve(root, 1).is_none(), "bounded, too");
        drop(all);
        assert!(quota.reserve(user("third"), 4).is_some(), "and take none from users");
        drop(own);
    }
}
