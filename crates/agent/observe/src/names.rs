//! Names of users and groups from the system's user database.

use std::collections::HashMap;

use model::Names;
use parking_lot::Mutex;

/// A cache of the system's user database. Call [`SystemNames::clear`] once per scan, so that a
/// renamed user is noticed.
#[derive(Debug, Default)]
pub struct SystemNames {
    users: Mutex<HashMap<u32, Option<String>>>,
    groups: Mutex<HashMap<u32, Option<String>>>,
}

/// Most cached names of users, and of groups. A full cache is cleared.
const NAMES_MAX: usize = 10_000;

impl SystemNames {
    /// Returns an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Clears the cache.
    pub fn clear(&self) {
        self.users.lock().clear();
        self.groups.lock().clear();
    }
}

fn cached(
    cache: &Mutex<HashMap<u32, Option<String>>>,
    id: u32,
    ask: impl FnOnce() -> Option<String>,
) -> Option<String> {
    if let Some(known) = cache.lock().get(&id) {
        return known.clone();
    }
    let name = ask();
    let mut cache = cache.lock();
    if cache.len() >= NAMES_MAX {
        cache.clear();
    }
    cache.insert(id, name.clone());
    name
}

impl Names for SystemNames {
    fn user(&self, uid: u32) -> Option<String> {
        cached(&self.users, uid, || {
            uzers::get_user_by_uid(uid).map(|u| u.name().to_string_lossy().into_owned())
        })
    }

    fn group(&self, gid: u32) -> Option<String> {
        cached(&self.groups, gid, || {
            uzers::get_group_by_gid(gid).map(|g| g.name().to_string_lossy().into_owned())
        })
    }
}
