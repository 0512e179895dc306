//! Users: first start, login, passwords and permissions.

use std::net::IpAddr;

use control::Reader;
use control::limits::{ADMIN_USER, ROLE_ADMINISTRATOR};
use control::{
    AuditOutcome, ControlError, Revocation, RevocationTarget, SecurityChange, UserRow, WriteContext,
};

use crate::limits::{PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN, TOKEN_TTL_SECONDS_MAX};
use crate::types::User;
use crate::{LoginError, Registry, RegistryError, passwords};

/// Shortest and longest name of a user, characters.
const USER_NAME_CHARS: std::ops::RangeInclusive<usize> = 4..=64;
/// Longest password that a login accepts, bytes: 64 characters of at most 4 bytes.
const PASSWORD_BYTES_MAX: usize = PASSWORD_CHARS_MAX * 4;
/// Seconds after which a refused login may be retried.
const BUSY_RETRY_SECONDS: u64 = 1;

pub(crate) fn public(row: UserRow) -> User {
    User { id: row.id, name: row.name, allow_run_as: row.allow_run_as, roles: row.roles }
}

impl Registry {
    /// Creates the first user (`admin`, role administrator) unless a user exists. With a preset (8
    /// to 64 characters chosen by the operator) as its password, returns `None`. Otherwise returns
    /// a random password, to be shown once. Only the hash is stored.
    ///
    /// # Errors
    /// Returns an error if the preset's length breaks the rule, or the store fails.
    pub fn ensure_admin(&self, preset: Option<&str>) -> Result<Option<String>, RegistryError> {
        if self.inner.store.user(&Reader::server(), ADMIN_USER)?.is_some() {
            return Ok(None);
        }
        let made = match preset {
            Some(preset) if passwords::length_fits(preset) => None,
            Some(_) => {
                return Err(RegistryError::Refused(format!(
                    "the preset password of {ADMIN_USER} needs {PASSWORD_CHARS_MIN} to \
                     {PASSWORD_CHARS_MAX} characters"
                )));
            }
            None => Some(passwords::make(&*self.inner.random)?),
        };
        let password = made.as_deref().or(preset).unwrap_or_default();
        let hash = self.hash(password)?;
        let roles = self.role_ids(&Reader::server(), &[ROLE_ADMINISTRATOR])?;
        let detail = "first start: user admin";
        let context = self.audited(Reader::server(), "system", "security:create_user", detail);
        match self.inner.store.create_user(&context, ADMIN_USER, &hash, true, &roles) {
            // Another process created it at the same moment.
            Err(ControlError::Exists { .. }) => return Ok(None),
            other => other?,
        };
        self.end_audit(&context, AuditOutcome::Done)?;
        Ok(made)
    }

    /// Checks a name and a password; `source` is the peer's address (`None`: a trusted local
    /// caller, never blocked). Takes as long for an unknown user as for a wrong password.
    ///
    /// # Errors
    /// [`LoginError`]. Each variant but `Registry` has a status of its own, with which the caller
    /// answers.
    pub async fn login(
        &self,
        name: &str,
        password: &str,
        source: Option<IpAddr>,
    ) -> Result<User, LoginError> {
        self.login_for_token(&Reader::server(), name, password, source).await.map(|(user, _)| user)
    }

    /// Does the same as [`Registry::login`], and returns the `nbf` of a token for this login: a
    /// change of the user between the check and the token refuses that token.
    pub async fn login_for_token(
        &self,
        reader: &Reader,
        name: &str,
        password: &str,
        source: Option<IpAddr>,
    ) -> Result<(User, i64), LoginError> {
        let (row, nbf_s) = self.verified(reader, name, password, source).await?;
        Ok((public(row), nbf_s))
    }

    /// Verifies a name and a password on the threads of logins; returns the user as it was then.
    pub(crate) async fn verified(
        &self,
        reader: &Reader,
        name: &str,
        password: &str,
        source: Option<IpAddr>,
    ) -> Result<(UserRow, i64), LoginError> {
        self.not_blocked(source)?;
        let (registry, reader) = (self.clone(), reader.clone());
        let (name, password) = (name.to_owned(), password.to_owned());
        let check = move || {
            // Failures may have been counted while this login waited in the queue.
            registry.not_blocked(source)?;
            let user = registry.check_password(&reader, &name, &password);
            if matches!(user, Err(LoginError::Invalid)) {
                registry.failed(&reader, &name, source);
            }
            user
        };
        let busy = |_| LoginError::Busy { retry_after_s: BUSY_RETRY_SECONDS };
        let result = self.inner.hashing.submit(check).map_err(busy)?;
        result.await.unwrap_or_else(|_| {
            let ended = RegistryError::Hash("the login thread ended".into());
            Err(LoginError::Registry(ended))
        })
    }

    /// Counts a failed login, and logs it if the limit of lines allows.
    fn failed(&self, reader: &Reader, name: &str, source: Option<IpAddr>) {
        let now = self.inner.clock.monotonic();
        let blocks = source.is_some_and(|source| self.inner.attempts.lock().failed(source, now));
        let (address, source) = (source, source.map_or("this machine".into(), |s| s.to_string()));
        if let Some(suppressed) = self.inner.failed_logins.lock().line(address, now) {
            // A password that was typed as the name must not be logged.
            let known = self.inner.store.user(reader, name).ok().flatten();
            let user = known.map_or_else(|| "unknown".to_owned(), |row| row.name);
            tracing::warn!(user, source, not_logged_before = suppressed, "a login failed");
        }
        if blocks && let Some(suppressed) = self.inner.blocked_sources.lock().line(address, now) {
            let for_s = self.inner.options.login_block_s;
            tracing::warn!(
                source,
                for_s,
                not_logged_before = suppressed,
                "too many logins failed: logins from this address are refused for a time"
            );
        }
    }

    pub(crate) fn not_blocked(&self, source: Option<IpAddr>) -> Result<(), LoginError> {
        let now = self.inner.clock.monotonic();
        let left = source.and_then(|source| self.inner.attempts.lock().blocked(source, now));
        left.map_or(Ok(()), |left| {
            Err(LoginError::Blocked { retry_after_s: left.as_secs().max(1) })
        })
    }

    fn check_password(
        &self,
        reader: &Reader,
        name: &str,
        password: &str,
    ) -> Result<(UserRow, i64), LoginError> {
        let row = self.inner.store.user(reader, name)?;
        let hash = row.as_ref().map_or(self.inner.nobody_hash.as_str(), |r| &r.password_hash);
        let fits = password.len() <= PASSWORD_BYTES_MAX;
        let right = self.inner.hasher.verify(if fits { password } else { "" }, hash) && fits;
        let row = row.filter(|_| right).ok_or(LoginError::Invalid)?;
        let roles: Vec<u32> = row.roles.iter().map(|role| role.id).collect();
        let nbf_s = self.token_nbf_s(row.id, &roles, false);
        // The user may have been changed since it was read; that change revoked tokens up to its
        // time.
        if self.inner.store.user(reader, name)?.as_ref() != Some(&row) {
            return Err(LoginError::Invalid);
        }
        Ok((row, nbf_s))
    }

    /// Checks as many passwords concurrently as there may be logins, so that the first logins are
    /// as fast as later ones. Blocks until it is done.
    pub fn warm_logins(&self) {
        let gate =
            std::sync::Arc::new(std::sync::Barrier::new(self.inner.options.login_workers.max(1)));
        let jobs: Vec<_> = (0..self.inner.options.login_workers.max(1))
            .filter_map(|_| {
                let (registry, gate) = (self.clone(), gate.clone());
                let job = move || {
                    gate.wait();
                    registry.inner.hasher.verify("", &registry.inner.nobody_hash)
                };
                self.inner.hashing.submit(job).ok()
            })
            .collect();
        for job in jobs {
            let _ = job.blocking_recv();
        }
    }

    /// Returns the hash of a new password, for [`SecurityChange::SetPassword`]. Blocks until it is
    /// done.
    ///
    /// # Errors
    /// `Password` when it breaks the rule, `Store(Busy)` when too many are waiting; nothing is
    /// changed.
    pub fn hash_of_new(&self, password: &str) -> Result<String, RegistryError> {
        passwords::check(password)?;
        self.hash(password)
    }

    /// Hashes a new password in the queue of logins, so that the limit on concurrent hashes applies
    /// and only idle CPU time is used. Blocks until it is done.
    fn hash(&self, password: &str) -> Result<String, RegistryError> {
        let (registry, password) = (self.clone(), password.to_owned());
        let (done, hash) = std::sync::mpsc::sync_channel(1);
        let work = move || {
            let (cost, random) = (registry.inner.options.hash_cost, &*registry.inner.random);
            // The caller is still waiting for the result.
            let _ = done.try_send(registry.inner.hasher.hash(&password, cost, random));
        };
        self.inner.hashing.submit(work).map_err(|_| ControlError::Busy)?;
        let ended = || RegistryError::Hash("the hashing thread ended".into());
        hash.recv().map_err(|_| ended())?
    }

    fn role_ids(&self, reader: &Reader, names: &[&str]) -> Result<Vec<u32>, RegistryError> {
        let roles = self.inner.store.roles(reader)?;
        let id = |name: &&str| {
            roles.iter().find(|r| r.name == *name).map(|r| r.id).ok_or_else(|| {
                ControlError::NotFound { what: "role", name: (*name).to_owned() }.into()
            })
        };
        names.iter().map(id).collect()
    }

    /// Replaces a password; every token of the user is refused from now on.
    ///
    /// # Errors
    /// `Password` when it breaks the rule, `Store(NotFound)` for an unknown user.
    pub fn set_password(
        &self,
        context: &WriteContext,
        name: &str,
        password: &str,
    ) -> Result<(), RegistryError> {
        passwords::check(password)?;
        let user = self.require_user(context.reader(), name)?.id;
        let hash = self.hash(password)?;
        self.change_security(context, SecurityChange::SetPassword { user, hash }).map(drop)
    }

    fn require_user(&self, reader: &Reader, name: &str) -> Result<User, RegistryError> {
        let missing = || ControlError::NotFound { what: "user", name: name.to_owned() };
        Ok(self.user(reader, name)?.ok_or_else(missing)?)
    }

    /// Creates a user with roles by name, in their order.
    ///
    /// # Errors
    /// `Password` or `Refused` when password or name break the rule, `Store(Exists)`,
    /// `Store(NotFound)` for a role.
    pub fn create_user(
        &self,
        context: &WriteContext,
        name: &str,
        password: &str,
        allow_run_as: bool,
        roles: &[&str],
    ) -> Result<User, RegistryError> {
        let fine = USER_NAME_CHARS.contains(&name.chars().count())
            && !name.chars().any(|c| c.is_control() || c == ':');
        if !fine {
            return Err(RegistryError::Refused(format!(
                "user name {name:?}: {} to {} characters, no colon and no control characters",
                USER_NAME_CHARS.start(),
                USER_NAME_CHARS.end()
            )));
        }
        passwords::check(password)?;
        let roles = self.role_ids(context.reader(), roles)?;
        let hash = self.hash(password)?;
        self.inner.store.create_user(context, name, &hash, allow_run_as, &roles)?;
        self.inner.access.changed();
        self.require_user(context.reader(), name)
    }

    /// Deletes a user and revokes its tokens. Returns true if the user existed.
    ///
    /// # Errors
    /// `Store(Refused)` for a user of the program itself.
    pub fn delete_user(&self, context: &WriteContext, name: &str) -> Result<bool, RegistryError> {
        let Some(user) = self.user(context.reader(), name)? else { return Ok(false) };
        let revoked = self.revocation(RevocationTarget::User(user.id));
        let there = self.inner.store.delete_user(context, name, &revoked)?;
        self.inner.access.changed();
        self.refuse(context, &[revoked])?;
        Ok(there)
    }

    /// Returns a user by name.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn user(&self, reader: &Reader, name: &str) -> Result<Option<User>, RegistryError> {
        Ok(self.inner.store.user(reader, name)?.map(public))
    }

    /// Returns all users by id.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn users(&self, reader: &Reader) -> Result<Vec<User>, RegistryError> {
        Ok(self.inner.store.users(reader)?.into_iter().map(public).collect())
    }

    pub(crate) fn revocation(&self, target: RevocationTarget) -> Revocation {
        let until_s = self.inner.tokens.last_nbf_s(self.now().s);
        // The longest possible lifetime: another process, or an earlier configuration, may have
        // issued tokens that live longer than those of this one.
        let expires_at_s = until_s.saturating_add_unsigned(TOKEN_TTL_SECONDS_MAX);
        Revocation { target, issued_until_s: until_s, expires_at_s }
    }

    /// Applies revocations in memory after they were written, and extends them to tokens issued in
    /// the meantime. If there are such tokens, rewrites the rows, for a restart and for other
    /// processes.
    pub(crate) fn refuse(
        &self,
        context: &WriteContext,
        written: &[Revocation],
    ) -> Result<(), RegistryError> {
        for before in written {
            self.inner.tokens.add(*before);
            let now = self.revocation(before.target);
            self.inner.tokens.add(now);
            if now.issued_until_s > before.issued_until_s {
                self.inner.store.revoke_tokens(context, &now)?;
            }
        }
        Ok(())
    }
}
