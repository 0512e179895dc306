//! The API's tokens: the key pair that signs them, and revocations. The API issues and verifies the
//! tokens themselves.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use control::{Revocation, RevocationTarget, WriteContext};
use parking_lot::RwLock;
use rcgen::KeyPair;

use crate::limits::TOKEN_AHEAD_SECONDS_MAX;
use crate::types::TokenKeys;
use crate::{Registry, RegistryError, files};

/// The private key; the public one is derived from it.
pub(crate) const KEY_FILE: &str = "token.key";

/// The keys and the revocations in memory.
pub(crate) struct Tokens {
    pub(crate) path: PathBuf,
    keys: RwLock<TokenKeys>,
    refused: RwLock<HashMap<RevocationTarget, Revocation>>,
    /// Incremented when the keys are replaced.
    generation: AtomicU64,
    /// Latest `nbf` of any token issued, seconds since the epoch.
    issued_s: AtomicI64,
    /// True after a valid token was presented whose `nbf` is too far ahead to be accepted.
    ahead: AtomicBool,
}

impl Tokens {
    /// Returns true if a key pair exists already.
    pub(crate) fn exist(folder: &Path) -> bool {
        folder.join(KEY_FILE).exists()
    }

    /// Opens the keys. `issued_until_s`: latest time up to which an earlier process may have issued
    /// tokens.
    pub(crate) fn open(
        folder: &Path,
        revocations: &[Revocation],
        issued_until_s: Option<i64>,
    ) -> Result<Self, RegistryError> {
        let path = folder.join(KEY_FILE);
        let keys = match files::read_private(&path)? {
            Some(pem) => pair(&pem).map_err(|cause| files::failed(&path, &cause))?,
            None => make(&path)?,
        };
        let tokens = Self {
            path,
            keys: RwLock::new(keys),
            refused: RwLock::default(),
            generation: AtomicU64::new(0),
            issued_s: AtomicI64::new(issued_until_s.unwrap_or(i64::MIN)),
            ahead: AtomicBool::new(false),
        };
        for revocation in revocations {
            tokens.add(*revocation);
        }
        Ok(tokens)
    }

    /// Adds a revocation.
    pub(crate) fn add(&self, revocation: Revocation) {
        let mut refused = self.refused.write();
        let known = refused.entry(revocation.target).or_insert(revocation);
        known.issued_until_s = known.issued_until_s.max(revocation.issued_until_s);
        known.expires_at_s = known.expires_at_s.max(revocation.expires_at_s);
    }

    /// Returns the latest time for which a token may have been issued. Revocations cover tokens up
    /// to it; tokens further ahead are refused anyway.
    pub(crate) fn last_nbf_s(&self, now_s: i64) -> i64 {
        let ahead_s = now_s.saturating_add(TOKEN_AHEAD_SECONDS_MAX);
        now_s.max(self.issued_s.load(Ordering::Acquire).min(ahead_s))
    }

    /// Returns true if the clock was set back by more than a token may be ahead of it. The keys
    /// must then be replaced: a token from the later time would become valid once the clock reaches
    /// it, and a revocation up to that time would revoke all tokens issued now.
    fn of_another_time(&self, now_s: i64) -> bool {
        let ahead_s = now_s.saturating_add(TOKEN_AHEAD_SECONDS_MAX);
        self.ahead.load(Ordering::Acquire)
            || self.issued_s.load(Ordering::Acquire) > ahead_s
            || self.refused.read().values().any(|r| r.issued_until_s >= ahead_s)
    }

    /// Forgets revocations and times after the keys were replaced, because no earlier token is
    /// valid.
    fn forget_all(&self) {
        self.refused.write().clear();
        self.issued_s.store(i64::MIN, Ordering::Release);
        self.ahead.store(false, Ordering::Release);
    }

    /// Loads keys that another process wrote.
    pub(crate) fn reload(&self) -> Result<(), RegistryError> {
        // Locked before the file is read, so that keys replaced in the meantime are not restored.
        let mut keys = self.keys.write();
        let Some(pem) = files::read_private(&self.path)? else { return Ok(()) };
        let read = pair(&pem).map_err(|cause| files::failed(&self.path, &cause))?;
        if keys.private_pem != read.private_pem {
            *keys = read;
            self.generation.fetch_add(1, Ordering::AcqRel);
            self.forget_all();
        }
        Ok(())
    }

    /// Forgets revocations of expired tokens. Counts as issuing a token now, so that the keys are
    /// replaced if the clock is later set back by more than [`TOKEN_AHEAD_SECONDS_MAX`].
    pub(crate) fn forget_expired(&self, now_s: i64) {
        self.issued_s.fetch_max(now_s, Ordering::AcqRel);
        self.refused.write().retain(|_, r| r.expires_at_s > now_s);
    }

    fn refused_until(&self, user: u32, roles: &[u32], run_as: bool) -> Option<i64> {
        let refused = self.refused.read();
        let roles = roles.iter().map(|id| RevocationTarget::Role(*id));
        let run_as = run_as.then_some(RevocationTarget::RunAs);
        roles
            .chain(run_as)
            .chain([RevocationTarget::User(user), RevocationTarget::Everyone])
            .filter_map(|target| refused.get(&target).map(|r| r.issued_until_s))
            .max()
    }
}

fn pair(pem: &str) -> Result<TokenKeys, String> {
    let key = KeyPair::from_pem(pem).map_err(|e| format!("{e}: restore it from a backup"))?;
    if key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
        return Err("not an EC P-256 key: restore it from a backup".into());
    }
    Ok(TokenKeys { private_pem: key.serialize_pem(), public_pem: key.public_key_pem() })
}

fn make(path: &Path) -> Result<TokenKeys, RegistryError> {
    let bad = |e: rcgen::Error| RegistryError::Certificate(e.to_string());
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(bad)?;
    files::write_private(path, &key.serialize_pem())?;
    Ok(TokenKeys { private_pem: key.serialize_pem(), public_pem: key.public_key_pem() })
}

impl Registry {
    /// Returns the key pair of the API's tokens (ES256), created at first start.
    ///
    /// # Errors
    /// None at present; a key store elsewhere may fail.
    pub fn token_keys(&self) -> Result<TokenKeys, RegistryError> {
        Ok(self.inner.tokens.keys.read().clone())
    }

    /// Returns a number that changes whenever [`Registry::token_keys`] returns another pair. Memory
    /// only.
    pub fn token_keys_generation(&self) -> u64 {
        self.inner.tokens.generation.load(Ordering::Acquire)
    }

    /// Replaces the key pair. Every token becomes invalid, so the revocations are forgotten.
    ///
    /// # Errors
    /// Returns an error if the key file cannot be written; then the old keys stay.
    pub fn replace_token_keys(&self, context: &WriteContext) -> Result<TokenKeys, RegistryError> {
        let mut keys = self.inner.tokens.keys.write();
        *keys = make(&self.inner.tokens.path)?;
        self.inner.tokens.generation.fetch_add(1, Ordering::AcqRel);
        self.note_keys()?;
        self.inner.store.clear_revocations(context)?;
        self.inner.tokens.forget_all();
        Ok(keys.clone())
    }

    /// Revokes the tokens of the target issued up to now; durable when it returns.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn revoke_tokens(
        &self,
        context: &WriteContext,
        target: RevocationTarget,
    ) -> Result<(), RegistryError> {
        let revoked = self.revocation(target);
        self.inner.store.revoke_tokens(context, &revoked)?;
        self.refuse(context, &[revoked])
    }

    /// Returns true if a token with these claims was revoked. Memory only.
    pub fn token_revoked(&self, user: u32, roles: &[u32], run_as: bool, nbf_s: i64) -> bool {
        self.inner.tokens.refused_until(user, roles, run_as).is_some_and(|until| nbf_s <= until)
    }

    /// Returns the `nbf` of a token issued now: now, or the second after the latest revocation that
    /// covers it, so that a login right after a logout gives a valid token. It may be ahead of the
    /// clock, because only the end of a token is compared with the time.
    pub fn token_nbf_s(&self, user: u32, roles: &[u32], run_as: bool) -> i64 {
        let until = self.inner.tokens.refused_until(user, roles, run_as);
        let nbf_s = self.now().s.max(until.map_or(i64::MIN, |until| until.saturating_add(1)));
        self.inner.tokens.issued_s.fetch_max(nbf_s, Ordering::AcqRel);
        nbf_s
    }

    /// Records that a valid token with this `nbf` was presented, so that revocations cover it even
    /// if the clock was set back behind it. Returns false if it is too far ahead to be accepted.
    pub fn token_seen(&self, nbf_s: i64) -> bool {
        if nbf_s.saturating_sub(self.now().s) > TOKEN_AHEAD_SECONDS_MAX {
            self.inner.tokens.ahead.store(true, Ordering::Release);
            return false;
        }
        self.inner.tokens.issued_s.fetch_max(nbf_s, Ordering::AcqRel);
        true
    }

    /// Replaces the keys if the clock was set back by more than a day. Every token becomes invalid,
    /// and the revocations are forgotten.
    pub(crate) fn end_tokens_of_another_time(&self) -> Result<(), RegistryError> {
        if self.inner.tokens.of_another_time(self.now().s) {
            tracing::warn!("the clock was put back by more than a day: every login is ended");
            self.replace_token_keys(&WriteContext::server())?;
        }
        Ok(())
    }

    /// Returns the `nbf` of a token that replaces an old one: now, or the old one's if that is
    /// ahead. The caller checks afterwards that the old one is still valid, so that a revocation in
    /// between refuses one of them or both.
    pub fn renewed_nbf_s(&self, old_s: i64) -> i64 {
        let nbf_s = self.now().s.max(old_s);
        self.inner.tokens.issued_s.fetch_max(nbf_s, Ordering::AcqRel);
        nbf_s
    }
}
