//! Passwords that were verified a short time ago, for clients that send name and password with each
//! request: hashing a password takes as long as a hundred requests.
//!
//! No password is kept, only a digest of it under a key of this process. An entry also holds the hash
//! that the password was verified against. It is used only while the user still has that hash, so a
//! new password and the removal of a user take effect at once. Roles are read for each request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use control::Reader;
use env::random::Random;
use parking_lot::Mutex;
use ring::hmac;

use crate::limits::{REMEMBERED_PASSWORDS_MAX, REMEMBERED_TIME};
use crate::types::User;
use crate::users::public;
use crate::{LoginError, Registry, RegistryError};

/// Bytes of the key, and of a digest.
const KEY_BYTES: usize = 32;
/// Passwords that are verified at the same time: those with the same remainder of their digest wait
/// for each other.
const LOCKS: usize = 16;

/// The keyed digest of a name and a password.
type Digest = [u8; KEY_BYTES];

struct Entry {
    /// The stored hash that the password was verified against.
    password_hash: String,
    /// Monotonic clock.
    until: Duration,
}

/// The passwords.
pub(crate) struct RememberedPasswords {
    key: hmac::Key,
    entries: Mutex<HashMap<Digest, Entry>>,
    /// Held while a password is verified, so that requests that arrive together hash it once.
    locks: [tokio::sync::Mutex<()>; LOCKS],
}

impl RememberedPasswords {
    pub(crate) fn new(random: &dyn Random) -> Result<Self, RegistryError> {
        let mut key = [0; KEY_BYTES];
        random.fill_bytes(&mut key)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        Ok(Self { key, entries: Mutex::default(), locks: Default::default() })
    }

    fn digest(&self, name: &str, password: &str) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        // The length keeps two pairs with the same joined text apart.
        context.update(&name.len().to_be_bytes());
        context.update(name.as_bytes());
        context.update(password.as_bytes());
        let mut digest = [0; KEY_BYTES];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    fn password_hash(&self, digest: &Digest, now: Duration) -> Option<String> {
        let entries = self.entries.lock();
        let entry = entries.get(digest).filter(|entry| now < entry.until)?;
        Some(entry.password_hash.clone())
    }

    fn insert(&self, digest: Digest, password_hash: String, now: Duration) {
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| now < entry.until);
        if entries.len() < REMEMBERED_PASSWORDS_MAX {
            entries.insert(digest, Entry { password_hash, until: now + REMEMBERED_TIME });
        }
    }

    fn lock(&self, digest: &Digest) -> Option<&tokio::sync::Mutex<()>> {
        self.locks.get(usize::from(*digest.first()?) % LOCKS)
    }
}

impl Registry {
    /// Returns true if this password was verified within the last minute. Memory only; the user may
    /// have changed since.
    pub fn password_is_remembered(&self, name: &str, password: &str) -> bool {
        let (remembered, now) = (&self.inner.remembered, self.inner.clock.monotonic());
        remembered.password_hash(&remembered.digest(name, password), now).is_some()
    }

    /// Does the same as [`Registry::login`], but does not verify a right password again for a minute. A
    /// blocked address is refused in either case: otherwise it could go on guessing the passwords that
    /// are remembered.
    ///
    /// # Errors
    /// See [`Registry::login`].
    pub async fn login_remembered(
        &self,
        reader: &Reader,
        name: &str,
        password: &str,
        source: Option<IpAddr>,
    ) -> Result<User, LoginError> {
        self.not_blocked(source)?;
        let digest = self.inner.remembered.digest(name, password);
        if let Some(user) = self.user_of_remembered(reader, name, digest).await? {
            return Ok(user);
        }
        let _alone = match self.inner.remembered.lock(&digest) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        };
        if let Some(user) = self.user_of_remembered(reader, name, digest).await? {
            return Ok(user);
        }
        let (row, _) = self.verified(reader, name, password, source).await?;
        let now = self.inner.clock.monotonic();
        self.inner.remembered.insert(digest, row.password_hash.clone(), now);
        Ok(public(row))
    }

    /// Returns the user of a remembered password if it still has that password.
    async fn user_of_remembered(
        &self,
        reader: &Reader,
        name: &str,
        digest: Digest,
    ) -> Result<Option<User>, LoginError> {
        let now = self.inner.clock.monotonic();
        let Some(password_hash) = self.inner.remembered.password_hash(&digest, now) else {
            return Ok(None);
        };
        let (registry, reader, name) = (self.clone(), reader.clone(), name.to_owned());
        let read = move || registry.inner.store.user(&reader, &name);
        let ended = |_| RegistryError::Hash("the thread that reads the user ended".into());
        let row = tokio::task::spawn_blocking(read).await.map_err(ended)??;
        Ok(row.filter(|row| row.password_hash == password_hash).map(public))
    }
}
