//! Users: first start, login, passwords, what they may do.

use std::net::IpAddr;
use std::sync::Arc;

use state::registry::limits::{ADMIN_USER, ROLE_ADMINISTRATOR};
use state::registry::{Policy, RegistryStoreError, Revocation, RevocationTarget, UserRow};

use crate::limits::{PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN};
use crate::types::User;
use crate::{LoginError, Registry, RegistryError, hashing, passwords};

/// Shortest and longest name of a user, characters.
const USER_NAME_CHARS: std::ops::RangeInclusive<usize> = 4..=64;
/// Longest password that a login looks at, bytes: 64 characters of at most 4 bytes.
const PASSWORD_BYTES_MAX: usize = PASSWORD_CHARS_MAX * 4;
/// When a refused login may try again, seconds.
const BUSY_RETRY_SECONDS: u64 = 1;

fn public(row: UserRow) -> User {
    User { id: row.id, name: row.name, allow_run_as: row.allow_run_as, roles: row.roles }
}

impl Registry {
    /// Make the first user (`admin`, role administrator) unless there is one. With a preset
    /// (8 to 64 characters of the operator's choice) that is its password and nothing is
    /// returned; else a random one, returned to be shown once. Only its hash is kept.
    ///
    /// # Errors
    /// When the preset's length breaks the rule, or the store fails.
    pub fn ensure_admin(&self, preset: Option<&str>) -> Result<Option<String>, RegistryError> {
        if self.inner.store.user(ADMIN_USER)?.is_some() {
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
        let roles = self.role_ids(&[ROLE_ADMINISTRATOR])?;
        match self.inner.store.create_user(ADMIN_USER, &hash, true, &roles) {
            // Another process made it at the same moment.
            Err(RegistryStoreError::Exists { .. }) => return Ok(None),
            other => other?,
        };
        self.audit("system", "security:create_user", "first start: user admin")?;
        Ok(made)
    }

    /// Check a name and a password; `source` is the peer's address (`None`: a trusted local
    /// caller, never blocked). Takes as long for an unknown user as for a wrong password.
    ///
    /// # Errors
    /// [`LoginError`]: all but `Registry` are the caller's to answer with their own status.
    pub async fn login(
        &self,
        name: &str,
        password: &str,
        source: Option<IpAddr>,
    ) -> Result<User, LoginError> {
        self.not_blocked(source)?;
        let registry = self.clone();
        let (name, password) = (name.to_owned(), password.to_owned());
        let check = move || {
            // Failures that were counted while this one waited in the queue.
            registry.not_blocked(source)?;
            let user = registry.check_password(&name, &password);
            if matches!(user, Err(LoginError::Invalid))
                && let Some(source) = source
            {
                let now = registry.inner.clock.monotonic();
                registry.inner.attempts.lock().failed(source, now);
            }
            user
        };
        let busy = LoginError::Busy { retry_after_s: BUSY_RETRY_SECONDS };
        let Ok(result) = self.inner.hashing.submit(check) else { return Err(busy) };
        result.await.unwrap_or_else(|_| {
            Err(LoginError::Registry(RegistryError::Hash("the login thread ended".into())))
        })
    }

    fn not_blocked(&self, source: Option<IpAddr>) -> Result<(), LoginError> {
        let now = self.inner.clock.monotonic();
        let left = source.and_then(|source| self.inner.attempts.lock().blocked(source, now));
        left.map_or(Ok(()), |left| {
            Err(LoginError::Blocked { retry_after_s: left.as_secs().max(1) })
        })
    }

    fn check_password(&self, name: &str, password: &str) -> Result<User, LoginError> {
        let row = self.inner.store.user(name)?;
        let hash = row.as_ref().map_or(self.inner.nobody_hash.as_str(), |r| &r.password_hash);
        let fits = password.len() <= PASSWORD_BYTES_MAX;
        let right = hashing::verify(if fits { password } else { "" }, hash) && fits;
        row.filter(|_| right).map(public).ok_or(LoginError::Invalid)
    }

    fn hash(&self, password: &str) -> Result<String, RegistryError> {
        hashing::hash(password, self.inner.options.hash_cost, &*self.inner.random)
    }

    fn role_ids(&self, names: &[&str]) -> Result<Vec<u32>, RegistryError> {
        let roles = self.inner.store.roles()?;
        let id = |name: &&str| {
            roles.iter().find(|r| r.name == *name).map(|r| r.id).ok_or_else(|| {
                RegistryStoreError::NotFound { what: "role", name: (*name).to_owned() }.into()
            })
        };
        names.iter().map(id).collect()
    }

    /// Replace a password; every token the user has is refused from now on.
    ///
    /// # Errors
    /// `Password` when it breaks the rule, `Store(NotFound)` for an unknown user.
    pub fn set_password(&self, name: &str, password: &str) -> Result<(), RegistryError> {
        passwords::check(password)?;
        let user = self.require_user(name)?;
        let hash = self.hash(password)?;
        let revoked = self.revocation(RevocationTarget::User(user.id));
        self.inner.store.set_password_hash(name, &hash, &revoked)?;
        self.inner.tokens.add(revoked);
        Ok(())
    }

    fn require_user(&self, name: &str) -> Result<User, RegistryError> {
        let missing = || RegistryStoreError::NotFound { what: "user", name: name.to_owned() };
        Ok(self.user(name)?.ok_or_else(missing)?)
    }

    /// Create a user with roles by name, in their order.
    ///
    /// # Errors
    /// `Password` or `Refused` when password or name break the rule, `Store(Exists)`,
    /// `Store(NotFound)` for a role.
    pub fn create_user(
        &self,
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
        let roles = self.role_ids(roles)?;
        let hash = self.hash(password)?;
        self.inner.store.create_user(name, &hash, allow_run_as, &roles)?;
        self.require_user(name)
    }

    /// Delete a user; its tokens are refused. Whether it was there.
    ///
    /// # Errors
    /// `Store(Refused)` for a user of the program itself.
    pub fn delete_user(&self, name: &str) -> Result<bool, RegistryError> {
        let Some(user) = self.user(name)? else { return Ok(false) };
        let revoked = self.revocation(RevocationTarget::User(user.id));
        let there = self.inner.store.delete_user(name, &revoked)?;
        self.inner.tokens.add(revoked);
        Ok(there)
    }

    /// A user by name.
    ///
    /// # Errors
    /// When the store fails.
    pub fn user(&self, name: &str) -> Result<Option<User>, RegistryError> {
        Ok(self.inner.store.user(name)?.map(public))
    }

    /// All users by id.
    ///
    /// # Errors
    /// When the store fails.
    pub fn users(&self) -> Result<Vec<User>, RegistryError> {
        Ok(self.inner.store.users()?.into_iter().map(public).collect())
    }

    /// The policies of roles in the order in which a later one overrides an earlier one; kept in
    /// memory for ten seconds.
    ///
    /// # Errors
    /// When the store fails.
    pub fn policies(&self, roles: &[u32]) -> Result<Arc<Vec<Policy>>, RegistryError> {
        if let Some(policies) = self.inner.policies.get(roles) {
            return Ok(policies);
        }
        let policies = Arc::new(self.inner.store.policies(roles)?);
        self.inner.policies.insert(roles.to_vec(), policies.clone());
        Ok(policies)
    }

    /// Whether the roles allow the action on the resource (`agent:id:001`, `*:*:*`): nothing is
    /// permitted unless allowed; of the policies that speak of both, the last one decides.
    ///
    /// # Errors
    /// When the store fails.
    pub fn permits(
        &self,
        roles: &[u32],
        action: &str,
        resource: &str,
    ) -> Result<bool, RegistryError> {
        let policies = self.policies(roles)?;
        let last = policies.iter().rev().find(|policy| {
            policy.actions.iter().any(|a| a == action)
                && policy.resources.iter().any(|r| covers(r, resource))
        });
        Ok(last.is_some_and(|policy| policy.allow))
    }

    pub(crate) fn revocation(&self, target: RevocationTarget) -> Revocation {
        let now_s = self.now().s;
        let ttl_s = i64::try_from(self.inner.options.token_ttl_s).unwrap_or(i64::MAX);
        Revocation { target, issued_until_s: now_s, expires_at_s: now_s.saturating_add(ttl_s) }
    }
}

/// Whether a policy's resource covers the one asked for: it is the same, or ends in `*` where the
/// other goes on.
fn covers(policy: &str, asked: &str) -> bool {
    policy == asked || policy.strip_suffix('*').is_some_and(|head| asked.starts_with(head))
}
