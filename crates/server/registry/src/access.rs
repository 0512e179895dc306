//! Caches the authorisation data of requests for at most ten seconds: the user with its id, the
//! permissions of its roles, and the security configuration.
//!
//! Every cached value has the generation in which it was read. A write starts a new generation
//! after its commit, so values read before are not used again. No value is shared between users.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use control::Reader;
use control::{Permitted, Policy, RevocationTarget, UserRow, WriteContext};
use model::AgentId;
use moka::sync::Cache;

use crate::fleet::Fleet;
use crate::limits::{POLICIES_KEPT_MAX, POLICIES_TTL_SECONDS};
use crate::rbac::{Grants, Members, RbacMode};
use crate::{Registry, RegistryError};

/// Setting: life of a token, seconds.
const TOKEN_TTL: &str = "security.token_ttl_s";
/// Setting: the mode.
const RBAC_MODE: &str = "security.rbac_mode";

/// A user, for authorisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub id: u32,
    pub name: String,
    /// True if it may log in with an authorization context.
    pub allow_run_as: bool,
    /// Roles in their order.
    pub roles: Vec<u32>,
}

impl From<UserRow> for Account {
    fn from(row: UserRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            allow_run_as: row.allow_run_as,
            roles: row.roles.into_iter().map(|role| role.id).collect(),
        }
    }
}

/// The configuration shown by `GET /security/config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityConfig {
    /// Life of a token, seconds.
    pub token_ttl_s: u64,
    /// The decision if no policy applies.
    pub mode: RbacMode,
}

/// The authorisation data of a user with a set of roles, from one snapshot.
#[derive(Debug)]
pub struct Clearance {
    pub account: Account,
    /// Permissions of the roles.
    pub grants: Arc<Grants>,
    /// The configuration for all users.
    pub config: SecurityConfig,
}

/// Hits and misses of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessCounts {
    /// Requests answered from the cache.
    pub hits: u64,
    /// Requests that had to read the store.
    pub misses: u64,
}

#[derive(Clone)]
struct Cached<T> {
    generation: u64,
    value: T,
}

/// Clearances by user and roles; `None` for a user that does not exist.
type Clearances = Cache<(u32, Vec<u32>), Cached<Option<Arc<Clearance>>>>;

/// The caches.
pub(crate) struct Access {
    generation: AtomicU64,
    /// Zero disables the caches.
    ttl: Duration,
    clearances: Clearances,
    config: Cache<(), Cached<SecurityConfig>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Access {
    pub(crate) fn new(ttl: Duration) -> Self {
        fn cache<K: Hash + Eq + Send + Sync + 'static, V: Clone + Send + Sync + 'static>(
            ttl: Duration,
        ) -> Cache<K, Cached<V>> {
            Cache::builder().max_capacity(POLICIES_KEPT_MAX).time_to_live(ttl).build()
        }
        let ttl = ttl.min(Duration::from_secs(POLICIES_TTL_SECONDS));
        Self {
            generation: AtomicU64::new(0),
            ttl,
            clearances: cache(ttl),
            config: cache(ttl),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Invalidates the caches.
    pub(crate) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn peek<K, V>(&self, cache: &Cache<K, Cached<V>>, key: &K) -> Option<V>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        let kept = cache.get(key)?;
        let fresh = kept.generation == self.generation.load(Ordering::Acquire);
        fresh.then_some(kept.value)
    }

    fn load_cached<K, V>(
        &self,
        cache: &Cache<K, Cached<V>>,
        key: K,
        load: impl FnOnce() -> Result<V, RegistryError>,
    ) -> Result<V, RegistryError>
    where
        K: Hash + Eq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        if let Some(value) = self.peek(cache, &key) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(value);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        // Read before the load, so that a value changed by a write in the meantime never counts as
        // fresh.
        let generation = self.generation.load(Ordering::Acquire);
        let value = load()?;
        if !self.ttl.is_zero() {
            cache.insert(key, Cached { generation, value: value.clone() });
        }
        Ok(value)
    }
}

impl Members for Fleet {
    fn generation(&self, group: &str) -> u64 {
        self.moved(group)
    }

    fn of_group(&self, group: &str) -> Vec<AgentId> {
        self.members(group)
    }

    fn is_in(&self, id: AgentId, group: &str) -> bool {
        self.get(id).is_some_and(|record| record.groups.iter().any(|own| own == group))
    }
}

impl Registry {
    /// Returns a user with the permissions of these roles and the configuration, by one statement,
    /// or `None` if there is no such user. Cached for ten seconds, or until a change.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn clearance(
        &self,
        reader: &Reader,
        user: u32,
        roles: &[u32],
    ) -> Result<Option<Arc<Clearance>>, RegistryError> {
        let access = &self.inner.access;
        access.load_cached(&access.clearances, (user, roles.to_vec()), || {
            let rows = self.inner.store.access(reader, user, roles, &[TOKEN_TTL, RBAC_MODE])?;
            Ok(rows.map(|rows| {
                let config = self.config_of(|name| rows.settings.get(name).cloned());
                let grants = Arc::new(Grants::new(config.mode, Arc::new(rows.policies)));
                Arc::new(Clearance { account: rows.user.into(), grants, config })
            }))
        })
    }

    /// Returns the permissions of these roles for any user; reads the store each time.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn grants(&self, reader: &Reader, roles: &[u32]) -> Result<Grants, RegistryError> {
        let mode = self.security_config(reader)?.mode;
        Ok(Grants::new(mode, Arc::new(self.inner.store.policies(reader, roles)?)))
    }

    /// Returns true if [`Registry::clearance`] would answer from memory.
    pub fn clearance_is_kept(&self, user: u32, roles: &[u32]) -> bool {
        let access = &self.inner.access;
        access.peek(&access.clearances, &(user, roles.to_vec())).is_some()
    }

    /// Returns the agents on which the grants permit an action. Memory only.
    pub fn permitted_agents(&self, grants: &Grants, action: &str) -> Permitted {
        grants.agents(action, &*self.inner.fleet.read())
    }

    /// Returns how many agents a resource of a policy names now, 000 included. Memory only.
    pub fn agents_of_resource(&self, resource: &str) -> u64 {
        let action = String::new();
        let (actions, resources) = (vec![action.clone()], vec![resource.to_owned()]);
        let policy = Policy { id: 0, name: String::new(), actions, resources, allow: true };
        let grants = Grants::new(RbacMode::White, Arc::new(vec![policy]));
        let named = self.permitted_agents(&grants, &action);
        let mut count = u64::from(named.holds(AgentId::SERVER));
        self.for_each_agent(&named, |_| count += 1);
        count
    }

    /// Returns true if the grants permit an action on an agent, by its number or its groups. Memory
    /// only.
    pub fn permits_agent(&self, grants: &Grants, action: &str, id: AgentId) -> bool {
        let number = id.to_string();
        let fleet = self.inner.fleet.read();
        let mut asked = vec![("agent:id", number.as_str())];
        if let Some(record) = fleet.get(id) {
            asked.extend(record.groups.iter().map(|group| ("agent:group", group.as_str())));
        }
        grants.permit(action, &asked)
    }

    /// Returns true if the roles permit the action on the resource (`agent:id:001`, `*:*:*`).
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn permits(
        &self,
        reader: &Reader,
        roles: &[u32],
        action: &str,
        resource: &str,
    ) -> Result<bool, RegistryError> {
        let grants = self.grants(reader, roles)?;
        let Some((kind, value)) = resource.rsplit_once(':') else { return Ok(false) };
        Ok(match (kind, value.parse::<AgentId>()) {
            ("agent:id", Ok(id)) => self.permits_agent(&grants, action, id),
            _ => grants.permit(action, &[(kind, value)]),
        })
    }

    /// Returns the hits and misses of the cache since the start.
    pub fn access_counts(&self) -> AccessCounts {
        AccessCounts {
            hits: self.inner.access.hits.load(Ordering::Relaxed),
            misses: self.inner.access.misses.load(Ordering::Relaxed),
        }
    }

    /// Returns the life of tokens and the mode; cached for ten seconds, or until a change.
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub fn security_config(&self, reader: &Reader) -> Result<SecurityConfig, RegistryError> {
        let access = &self.inner.access;
        access.load_cached(&access.config, (), || {
            let ttl = self.inner.store.setting(reader, TOKEN_TTL)?;
            let mode = self.inner.store.setting(reader, RBAC_MODE)?;
            let named = |name: &str| if name == TOKEN_TTL { ttl.clone() } else { mode.clone() };
            Ok(self.config_of(named))
        })
    }

    /// Builds the configuration from settings by name; a missing one has its default.
    fn config_of(&self, setting: impl Fn(&str) -> Option<String>) -> SecurityConfig {
        let defaults = self.default_security_config();
        let ttl = setting(TOKEN_TTL).and_then(|text| text.parse().ok());
        let mode = setting(RBAC_MODE).and_then(|text| RbacMode::from_name(&text));
        SecurityConfig {
            token_ttl_s: ttl.unwrap_or(defaults.token_ttl_s),
            mode: mode.unwrap_or(defaults.mode),
        }
    }

    /// Returns the default configuration.
    pub fn default_security_config(&self) -> SecurityConfig {
        SecurityConfig { token_ttl_s: self.inner.options.token_ttl_s, mode: RbacMode::default() }
    }

    /// Changes the life of tokens and the mode in one durable step; `None` leaves a value
    /// unchanged. Revokes every token.
    ///
    /// # Errors
    /// Returns an error if the store fails; then nothing is changed.
    pub fn change_security_config(
        &self,
        context: &WriteContext,
        token_ttl_s: Option<u64>,
        mode: Option<RbacMode>,
    ) -> Result<(), RegistryError> {
        let ttl = token_ttl_s.map(|seconds| (TOKEN_TTL, seconds.to_string()));
        let mode = mode.map(|mode| (RBAC_MODE, mode.name().to_owned()));
        let named: Vec<_> = ttl.into_iter().chain(mode).collect();
        self.write_security_config(context, &named)
    }

    /// Does the same as [`Registry::change_security_config`] for both; `None` restores the
    /// defaults.
    ///
    /// # Errors
    /// See [`Registry::change_security_config`].
    pub fn set_security_config(
        &self,
        context: &WriteContext,
        config: Option<SecurityConfig>,
    ) -> Result<(), RegistryError> {
        let ttl = config.map(|c| c.token_ttl_s.to_string()).unwrap_or_default();
        let mode = config.map(|c| c.mode.name()).unwrap_or_default();
        self.write_security_config(context, &[(TOKEN_TTL, ttl), (RBAC_MODE, mode.to_owned())])
    }

    fn write_security_config(
        &self,
        context: &WriteContext,
        settings: &[(&str, String)],
    ) -> Result<(), RegistryError> {
        let revocation = self.revocation(RevocationTarget::Everyone);
        self.inner.store.revoke_and_set(context, &revocation, settings)?;
        self.inner.access.changed();
        self.refuse(context, &[revocation])
    }
}
