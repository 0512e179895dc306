//! Quotas on shared resources: a limit in total and a lower one per user, so that no single user can
//! take everything. Callers on this machine (the unix socket and, for connections, loopback) have a
//! quota of their own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::access::caller::{Caller, Source};

/// A quota of permits or bytes.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// Limit for all users together; also the limit of each caller on this machine.
    all_max: usize,
    /// Limit of each user.
    each_max: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Total taken by users, without callers on this machine.
    all: usize,
    each: HashMap<String, usize>,
}

/// The user, or network, to which a share is charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    name: String,
    /// True for callers on this machine, which have a quota of their own.
    local: bool,
}

impl Owner {
    /// Returns the owner for an address: its network. Loopback has a quota of its own.
    pub(crate) fn from_network(ip: IpAddr) -> Self {
        let ip = ip.to_canonical();
        Self { name: registry::network(ip).to_string(), local: ip.is_loopback() }
    }

    /// Returns the owner for a caller: the user, or the network if the caller has no credentials.
    pub(crate) fn who(caller: &Caller, source: Option<Source>) -> Self {
        match (caller, source.and_then(Source::ip)) {
            (Caller::Anyone, Some(ip)) => {
                let Self { name, local } = Self::from_network(ip);
                if local && !source.is_some_and(Source::is_local) {
                    // The proxy reports a loopback address; this must not count as this machine.
                    return Self { name: format!("proxied {name}"), local: false };
                }
                Self { name, local }
            }
            _ => Self::of(caller),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_local(&self) -> bool {
        self.local
    }

    pub(crate) fn of(caller: &Caller) -> Self {
        Self { name: caller.name(), local: matches!(caller, Caller::Local { .. }) }
    }
}

/// A share of a quota, released when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    room: Room,
    owner: Owner,
    size: usize,
}

impl Room {
    pub(crate) fn new(all_max: usize, each_max: usize) -> Self {
        Self { all_max, each_max: each_max.min(all_max), taken: Arc::default() }
    }

    /// Takes a share of `size`, reduced to the owner's limit if it is larger. Returns `None` if the
    /// share does not fit into what is left.
    pub(crate) fn take(&self, owner: Owner, size: usize) -> Option<Share> {
        let size = size.min(self.own_max(&owner));
        let mut share = Share { room: self.clone(), owner, size: 0 };
        share.grow(size).then_some(share)
    }

    fn own_max(&self, owner: &Owner) -> usize {
        if owner.local { self.all_max } else { self.each_max }
    }
}

impl Share {
    /// Enlarges the share by `more`; returns false and leaves it unchanged if that does not fit.
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        let mut taken = self.room.taken.lock();
        let own = taken.each.get(&self.owner.name).copied().unwrap_or(0);
        let full = !self.owner.local && taken.all + more > self.room.all_max;
        if full || own + more > self.room.own_max(&self.owner) {
            return false;
        }
        if !self.owner.local {
            taken.all += more;
        }
        taken.each.insert(self.owner.name.clone(), own + more);
        self.size += more;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock();
        if !self.owner.local {
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
        Owner { name: name.into(), local: false }
    }

    #[test]
    fn nobody_takes_more_than_a_share_and_all_together_no_more_than_there_is() {
        let room = Room::new(10, 4);
        let first = room.take(user("first"), 3).unwrap();
        assert!(room.take(user("first"), 2).is_none(), "four are for one user");
        let second = room.take(user("second"), 4).unwrap();
        let third = room.take(user("third"), 3).unwrap();
        assert!(room.take(user("fourth"), 1).is_none(), "ten are for all");
        drop(first);
        let fourth = room.take(user("fourth"), 3).unwrap();
        drop((second, third, fourth));
        let taken = room.taken.lock();
        assert_eq!((taken.all, taken.each.len()), (0, 0));
    }

    #[test]
    fn a_share_grows_within_the_same_bounds() {
        let room = Room::new(10, 4);
        let mut first = room.take(user("first"), 0).unwrap();
        assert!(first.grow(3) && !first.grow(2) && first.grow(1));
        let other = [room.take(user("second"), 4).unwrap(), room.take(user("third"), 2).unwrap()];
        assert!(!room.take(user("third"), 0).unwrap().grow(1), "ten are for all");
        drop(other);
        assert!(room.take(user("first"), 1).is_none());
        drop(first);
        assert!(room.take(user("first"), 4).is_some());
    }

    #[test]
    fn what_is_larger_than_a_share_is_alone() {
        let room = Room::new(10, 4);
        let large = room.take(user("first"), 1_000).unwrap();
        assert!(room.take(user("first"), 1).is_none());
        drop(large);
        assert!(room.take(user("first"), 1).is_some());
    }

    #[test]
    fn callers_on_the_unix_socket_have_room_whatever_users_have_taken() {
        let room = Room::new(8, 4);
        let all = [room.take(user("first"), 4).unwrap(), room.take(user("second"), 4).unwrap()];
        let root = Owner::of(&Caller::Local { uid: 0 });
        let own = room.take(root.clone(), 8).unwrap();
        assert!(room.take(root, 1).is_none(), "bounded, too");
        drop(all);
        assert!(room.take(user("third"), 4).is_some(), "and take none from users");
        drop(own);
    }
}
