//! Agents, groups, enrolment, certificates, liveness, users and commands.
//!
//! The durable side is a [`ControlStore`] (`registry.db`); this crate adds what must be fast or
//! secret: the certificate authority, the fleet in memory (identity and liveness), password
//! hashing and login limits.
//!
//! Invariants
//! - Decisions of operators (enrolment, removal, revocation, groups, users, commands) are durable
//!   before the call returns. Reports of agents (keepalives, outcomes) are visible in memory at
//!   once and written to the database by the next flush. A crash loses at most one flush interval
//!   of them; the next heartbeat restores them.
//! - [`Registry::identify`], [`Registry::overlay`], [`Registry::keepalive`] and
//!   [`Registry::pending_commands`] touch memory only.
//! - A certificate is refused the moment its revocation returns.
//! - Lists and counters reflect every status change made before the call.
//!
//! # Locking
//! Every call that makes a decision (enrolment, removal, groups, commands) holds `decisions` while
//! it changes the store and the memory. Both therefore see decisions in the same order; otherwise a
//! removal could overtake an enrolment in one of them. `flush` is held while reports of agents are
//! written, so that an older row never overwrites a newer one. Neither of the two is taken while
//! the other is held, and both are taken before any lock below.
//!
//! The maps in memory come next, `certificates` before `fleet`, so that a valid certificate never
//! names an agent that the fleet does not know. The token keys come before the revocations of
//! tokens. All other locks (`outstanding`, `reports`, `due`, `attempts`, the login logs, `removed`,
//! the entries of remembered passwords) are taken alone, for one step in memory. The locks of
//! [`Registry::login_remembered`] are async and held while a password is verified; no other lock is
//! held when they are taken.
//!
//! The store has its own lock, for its writer. It may be taken while `decisions`, `flush` or the
//! token keys are held, but never under `certificates`, `fleet` or `outstanding`: those are read on
//! every request of an agent and must not wait for a disk. Code inside a transaction takes no lock
//! of the registry. Listeners for removed agents ([`Registry::when_removed`]) are called under
//! `decisions` and must not call the registry. A caller of [`Registry::metrics_stored`] must hold
//! no lock, because that call waits for every holder of [`Registry::storing_metrics`].
//!
//! All calls block except [`Registry::login`] and its variants, and calls that write wait for the
//! disk. An async caller uses `spawn_blocking` for everything but those and the four memory-only
//! calls listed under Invariants.

mod access;
mod agents;
mod audit;
mod ca;
mod client_keys;
mod commands;
mod configs;
mod context;
mod error;
mod files;
mod fleet;
mod groups;
mod hasher;
mod hashing;
mod host;
mod identity;
mod insertion;
pub mod limits;
mod lists;
mod log;
mod older;
mod options;
mod passwords;
mod presence;
mod rbac;
mod remembered;
mod removal;
mod reports;
mod roll;
mod security;
mod server_certificate;
mod tokens;
mod types;
mod users;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use env::clock::Clock;
use env::random::Random;
use env::sources::{Attempts, LogLimit};
use model::{AgentId, AgentRecord};
use parking_lot::{Mutex, RwLock};

use ca::Authority;
use fleet::{Fleet, Now};
use limits::{FLUSH_ROWS_MAX, FORGET_EVERY_SECONDS, KEEPALIVE_FLUSHES, REVOCATIONS_RELOAD_SECONDS};

pub use access::{AccessCounts, Account, Clearance, SecurityConfig};
pub use ca::{Validity, certificate_begin_s, reissue_authority};
pub use client_keys::ImportReport;
pub use commands::IssuedCommand;
pub use context::check_rule;
pub use control::Reader;
pub use control::{
    AgentColumn, AgentCondition, AgentPage, AgentQuery, AgentRow, AuditEntry, AuditOutcome,
    Command, CommandCounts, CommandKind, CommandOutcome, CommandRow, CompareOp, ConfigState,
    ControlError, ControlStore, DistinctPage, EnrolmentTokenRow, FleetSummary, GroupConfig,
    GroupCount, LastScan, LinkKind, OutcomeFilter, OutcomeRow, OutcomeState, Overview, Permitted,
    Policy, PolicyRow, RegistryFailure, RevocationTarget, RoleRef, RoleRow, RuleRow,
    SecurityChange, SecurityImage, Sort, StatusCode, StatusSummary, WatchPage, WatchQuery,
    WatchRow, WriteContext,
};
pub use env::sources::network;
pub use error::{EnrollError, IdentityError, LoginError, PasswordError, RegistryError};
pub use groups::GroupChange;
pub use host::reached_name;
pub use insertion::{DisplacedAgents, ForceRules, InsertAgent, Inserted, Life, RecordLives};
pub use options::{HashCost, RegistryOptions};
pub use rbac::{Grants, RbacMode};
pub use server_certificate::ServerCertificate;
pub use types::{
    AgentEnrolment, AgentInfo, CertificateOwner, ConfigProblem, IssuedIdentity, IssuedKeyPair,
    ReportedConfig, SilentAgents, TickReport, TokenKeys, TokenTerms, User,
};

/// The registry. Clones share one state.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

/// A listener that is called with an agent that was just removed.
type RemovalListener = Box<dyn Fn(AgentId) + Send + Sync>;

struct Inner {
    store: Arc<ControlStore>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    options: RegistryOptions,
    authority: Authority,
    /// See [`client_keys::client_secret`].
    client_secret: String,
    server: AgentRecord,
    fleet: RwLock<Fleet>,
    certificates: RwLock<identity::Certificates>,
    /// Merged configurations by digest: a digest always names the same text.
    merged: moka::sync::Cache<Arc<str>, Arc<settings::Merged>>,
    outstanding: Mutex<commands::OutstandingCommands>,
    reports: reports::Reports,
    tokens: tokens::Tokens,
    access: access::Access,
    attempts: Mutex<Attempts>,
    failed_logins: Mutex<LogLimit>,
    blocked_sources: Mutex<LogLimit>,
    hashing: hashing::Pool,
    hasher: hasher::Hasher,
    remembered: remembered::RememberedPasswords,
    /// The hash that a password for an unknown user is checked against.
    nobody_hash: String,
    /// See the module documentation.
    decisions: Mutex<()>,
    /// See [`Registry::storing_metrics`].
    storing: Arc<tokio::sync::RwLock<()>>,
    /// The listeners for removed agents.
    removed: RwLock<Vec<RemovalListener>>,
    /// See the module documentation.
    flush: Mutex<()>,
    due: Mutex<TickTimes>,
}

/// The times at which the parts of a tick are due, on the monotonic clock.
struct TickTimes {
    flush: Duration,
    keepalives: Duration,
    forget: Duration,
    revocations: Duration,
}

impl Registry {
    /// Opens the registry: loads the fleet into memory and writes agent 000. The first start
    /// creates the certificate authority and the token keys in `folder`.
    ///
    /// # Errors
    /// Returns an error if a key file is damaged, readable by others, or missing although agents
    /// rely on it, or if the store fails.
    pub fn open(
        store: Arc<ControlStore>,
        folder: &Path,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        options: RegistryOptions,
    ) -> Result<Self, RegistryError> {
        let now = now(&*clock);
        let image = store.load()?;
        let relied_on = !image.certificates.is_empty();
        let authority = Authority::open(folder, &options.cluster_name, relied_on, &*random, now.s)?;
        let older = tokens::Tokens::exist(folder)
            && store.setting(&Reader::server(), REVOCATIONS_GUARDED)?.is_none();
        let tokens = tokens::Tokens::open(folder, &image.revocations, options.tokens_until_s)?;
        let mut server = host::record(now.s);
        server.added_at_s = store.save_server(&server)?;
        let client_secret = client_keys::client_secret(&store, &*random)?;
        let block = Duration::from_secs(options.login_block_s);
        let inner = Inner {
            authority,
            tokens,
            client_secret,
            server,
            fleet: RwLock::new(Fleet::load(
                image.agents,
                configs::Configs::load(image.configs, Duration::from_secs(options.disconnection_s)),
                now,
            )),
            certificates: RwLock::new(identity::Certificates::load(image.certificates)),
            merged: configs::merged_cache(),
            outstanding: Mutex::new(commands::OutstandingCommands::load(image.outstanding)),
            reports: reports::Reports::default(),
            access: access::Access::new(options.cache_ttl),
            attempts: Mutex::new(Attempts::new(
                options.login_attempts_max,
                block,
                limits::LOGIN_SOURCES_MAX,
            )),
            failed_logins: Mutex::default(),
            blocked_sources: Mutex::default(),
            hashing: hashing::Pool::start(options.login_workers, options.login_queue_max)?,
            hasher: hasher::Hasher::start(options.login_workers)?,
            nobody_hash: hashing::of_nothing(options.hash_cost, &*random)?,
            remembered: remembered::RememberedPasswords::new(&*random)?,
            decisions: Mutex::default(),
            storing: Arc::default(),
            removed: RwLock::default(),
            flush: Mutex::default(),
            due: Mutex::new(TickTimes {
                flush: now.monotonic + options.flush_interval,
                keepalives: now.monotonic + options.flush_interval * KEEPALIVE_FLUSHES,
                forget: now.monotonic,
                revocations: now.monotonic,
            }),
            store,
            clock,
            random,
            options,
        };
        let registry = Self { inner: Arc::new(inner) };
        if older {
            tracing::warn!(
                "an earlier version forgot revocations by the wall clock: every login is ended once"
            );
            registry.replace_token_keys(&WriteContext::server())?;
        }
        if let Err(error) = registry.note_keys() {
            tracing::warn!("followers do not learn of new keys: {error}");
        }
        registry.inner.store.setting_or(REVOCATIONS_GUARDED, "1")?;
        registry.end_tokens_of_another_time()?;
        registry.name_rules_beyond_limits()?;
        Ok(registry)
    }

    /// Adds a listener for callers that keep data of agents in memory. It is called for every
    /// removed agent, before its number can be used again, and must not call the registry.
    pub fn when_removed(&self, tell: impl Fn(AgentId) + Send + Sync + 'static) {
        self.inner.removed.write().push(Box::new(tell));
    }

    fn notify_removed(&self, ids: &[AgentId]) {
        for tell in self.inner.removed.read().iter() {
            for id in ids {
                tell(*id);
            }
        }
    }

    pub fn options(&self) -> &RegistryOptions {
        &self.inner.options
    }

    fn now(&self) -> Now {
        now(&*self.inner.clock)
    }

    /// Returns the guarded time, microseconds since the epoch. Memory only.
    pub fn guarded_us(&self) -> u64 {
        self.inner.clock.guarded_us()
    }

    /// Disconnects silent agents, expires commands, and writes the agents' reports if the flush
    /// interval has passed. The binary calls it every second. Every part runs even if an earlier
    /// one failed.
    ///
    /// # Errors
    /// Returns the first failure. A part that failed runs again when it is due next; nothing
    /// unwritten is lost.
    pub fn tick(&self) -> Result<TickReport, RegistryError> {
        let now = self.now();
        let silence = Duration::from_secs(self.inner.options.disconnection_s);
        let mut failures = Failures::default();
        // A separate statement: the fleet must be unlocked before commands are finished, which
        // takes `flush` and `decisions`.
        let disconnected = self.inner.fleet.write().sweep(silence, now);
        let mut report = TickReport {
            disconnected,
            expired: failures.note(self.expire_commands()),
            ..TickReport::default()
        };
        let due = |next: &mut Duration, every: Duration| {
            let due = now.monotonic >= *next;
            if due {
                *next = now.monotonic + every;
            }
            due
        };
        let interval = self.inner.options.flush_interval;
        let (flush, keepalives, forget, revocations) = {
            let mut at = self.inner.due.lock();
            (
                due(&mut at.flush, interval),
                due(&mut at.keepalives, interval * KEEPALIVE_FLUSHES),
                due(&mut at.forget, Duration::from_secs(FORGET_EVERY_SECONDS)),
                due(&mut at.revocations, Duration::from_secs(REVOCATIONS_RELOAD_SECONDS)),
            )
        };
        if flush {
            report.outcomes = failures.note(self.flush_outcomes());
            failures.note(self.trim_commands());
            failures.note(self.flush_reports().map_err(Into::into));
            report.written = failures.note(self.write_liveness(keepalives));
        }
        failures.note(self.inner.store.log_reports().map_err(Into::into));
        if keepalives {
            // The store logs when checkpoints begin to fail; the next one is due in a minute.
            let _ = self.inner.store.checkpoint();
        }
        if revocations {
            failures.note(self.take_over_revocations());
        }
        failures.note(self.end_tokens_of_another_time());
        if forget {
            failures.note(self.inner.store.forget_expired(now.s).map(drop).map_err(Into::into));
            self.inner.certificates.write().forget_expired(now.s);
            self.inner.tokens.forget_expired(now.s);
        }
        failures.0.map_or(Ok(report), Err)
    }

    fn trim_commands(&self) -> Result<(), RegistryError> {
        while self.inner.store.trim_commands()? {}
        Ok(())
    }

    /// Loads the keys and the revocations that another process wrote.
    fn take_over_revocations(&self) -> Result<(), RegistryError> {
        // The keys come first, because replacing them clears the revocations.
        self.inner.tokens.reload()?;
        for revocation in self.inner.store.revocations()? {
            self.inner.tokens.add(revocation);
        }
        self.end_tokens_of_another_time()
    }

    /// Writes the agents' reports now; returns the number of agents.
    ///
    /// # Errors
    /// Returns an error if the store fails; what was not written is still in memory.
    pub fn flush(&self) -> Result<u64, RegistryError> {
        self.flush_outcomes()?;
        self.flush_reports()?;
        self.write_liveness(true)
    }

    /// Writes what lists and counters would otherwise miss. If `all` is true, also writes the
    /// keepalives.
    fn write_pending(&self, all: bool) -> Result<(), RegistryError> {
        if all || self.inner.fleet.read().unsettled() {
            self.write_liveness(all)?;
        }
        Ok(())
    }

    fn write_liveness(&self, all: bool) -> Result<u64, RegistryError> {
        let _order = self.inner.flush.lock();
        self.write_uses()?;
        self.write_configs()?;
        let mut written = 0;
        loop {
            let rows = self.inner.fleet.write().take_unwritten(FLUSH_ROWS_MAX, all);
            if rows.is_empty() {
                return Ok(written);
            }
            if let Err(e) = self.inner.store.save_liveness(&rows) {
                self.inner.fleet.write().put_back(&rows);
                return Err(e.into());
            }
            written += rows.len() as u64;
        }
    }

    fn write_configs(&self) -> Result<(), RegistryError> {
        loop {
            let rows = self.inner.fleet.write().take_configs(FLUSH_ROWS_MAX);
            if rows.is_empty() {
                return Ok(());
            }
            if let Err(e) = self.inner.store.save_configs(&rows) {
                self.inner.fleet.write().put_back_configs(&rows);
                return Err(e.into());
            }
        }
    }

    /// Writes the first uses of certificates, and which certificates they superseded.
    fn write_uses(&self) -> Result<(), RegistryError> {
        if !self.inner.certificates.read().unsettled() {
            return Ok(());
        }
        let rows = self.inner.certificates.write().take_changed();
        if let Err(e) = self.inner.store.save_certificate_uses(&rows) {
            self.inner.certificates.write().put_back(&rows);
            return Err(e.into());
        }
        Ok(())
    }

    /// Returns the problem of the authority's validity by the wall clock, and the remedy; `None` if
    /// there is none. Agents still connect, but browsers refuse every certificate of such an
    /// authority.
    pub fn authority_problem(&self) -> Option<String> {
        self.inner.authority.problem(self.now().wall_s)
    }

    /// Returns the certificate authority's certificate.
    pub fn ca_pem(&self) -> String {
        self.inner.authority.pem.clone()
    }

    /// Returns the SHA-256 of the certificate authority's DER bytes, lower-case hex.
    pub fn ca_fingerprint(&self) -> String {
        self.inner.authority.fingerprint.clone()
    }

    /// Returns a certificate for this server under all of `names` and those of the host. It renews
    /// itself while in use, also when the host gets another name or address.
    ///
    /// # Errors
    /// See [`Registry::issue_server_certificate`].
    pub fn server_certificate(&self, names: &[String]) -> Result<ServerCertificate, RegistryError> {
        ServerCertificate::new(self.clone(), names)
    }

    /// Issues a server certificate for `names` (DNS names and IP addresses). It is valid for 397
    /// days, so issue one at every start.
    ///
    /// # Errors
    /// `Certificate` if a name is neither.
    pub fn issue_server_certificate(
        &self,
        names: &[String],
    ) -> Result<IssuedKeyPair, RegistryError> {
        self.inner.authority.server_certificate(names, &*self.inner.random, self.now())
    }

    /// Copies `registry.db` consistently while it is in use, the agents' reports included; the
    /// caller copies `ca.key`, `ca.pem` and `token.key`.
    ///
    /// # Errors
    /// `Store(Exists)` if the file exists.
    pub fn backup_to(&self, file: &Path) -> Result<(), RegistryError> {
        self.flush()?;
        Ok(self.inner.store.backup_to(file)?)
    }
}

/// Collects the first of several failures.
#[derive(Default)]
struct Failures(Option<RegistryError>);

impl Failures {
    /// Returns the result, or the default after noting the error.
    fn note<T: Default>(&mut self, done: Result<T, RegistryError>) -> T {
        done.unwrap_or_else(|error| {
            self.0.get_or_insert(error);
            T::default()
        })
    }
}

/// The setting that records that revocations were always forgotten by the guarded time.
const REVOCATIONS_GUARDED: &str = "revocations_guarded";

fn now(clock: &dyn Clock) -> Now {
    let seconds = |us: u64| (us / 1_000_000) as i64;
    Now {
        s: seconds(clock.guarded_us()),
        wall_s: seconds(clock.now_us()),
        monotonic: clock.monotonic(),
    }
}
