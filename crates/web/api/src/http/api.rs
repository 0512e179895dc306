//! What all requests share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use commit::Commit;
use env::clock::Clock;
use env::guard::GuardedClock;
use metrics_exporter_prometheus::PrometheusHandle;
use registry::Registry;
use sigma::RuleFolder;
use state::StateStore;

use crate::access::rates::{IdleRows, RequestRate};
use crate::access::room::Room;
use crate::access::token::{TokenKeyError, Tokens};
use crate::access::turns::Turns;
use crate::http::log_ring::LogRing;
use crate::http::metrics::install_recorder;
use crate::limits::{
    ANSWERS_BYTES_EACH_MAX, ANSWERS_BYTES_MAX, BODIES_BYTES_EACH_MAX, BODIES_BYTES_MAX,
    DIGESTS_KEPT_MAX, LISTS_EACH_MAX, LISTS_MAX, LOCAL_BODIES_BYTES_MAX,
    LOGIN_BODIES_BYTES_EACH_MAX, LOGIN_BODIES_BYTES_MAX, REQUEST_TIMEOUT_MS,
    REQUESTS_PER_MINUTE_ALL_MAX, REQUESTS_PER_MINUTE_MAX, STREAMS_EACH_MAX, STREAMS_MAX,
};

/// The server's own clock.
pub trait ServerClock: Send + Sync {
    /// The guard over it.
    fn guard(&self) -> &GuardedClock;

    /// Persists the guarded time.
    ///
    /// # Errors
    /// The reason, if it could not be written.
    fn store(&self) -> Result<(), String>;
}

/// The server's configuration file, as whoever started the server reads it. Every failure is a text
/// for people.
pub trait ConfigFile: Send + Sync {
    /// The text that stands in the file now.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self) -> Result<String, String>;

    /// What a text configures, by section, with the default of each key that it leaves out.
    ///
    /// # Errors
    /// When no server can run with it.
    fn values(&self, text: &str) -> Result<serde_json::Value, String>;

    /// The keys, such as `api.listen`, in which a text differs from what the server runs with.
    ///
    /// # Errors
    /// As [`ConfigFile::values`].
    fn waiting(&self, text: &str) -> Result<Vec<String>, String>;

    /// Put a text in the file's place; whole and durable when it returns.
    ///
    /// # Errors
    /// When the file cannot be replaced; then it is as it was.
    fn store(&self, text: &str) -> Result<(), String>;
}

/// How the API behaves.
#[derive(Clone)]
pub struct ApiOptions {
    /// The clock of tokens, times in answers and the request counters.
    pub clock: Arc<dyn Clock>,
    /// What answers navigations and files of the page; without it those are 404.
    pub page: Option<Router>,
    /// Version of the program, for `GET /`.
    pub version: String,
    /// Name of this host: `manager` of every agent.
    pub hostname: String,
    /// Where the server keeps its data, for `/manager/info`.
    pub folder: String,
    /// Requests a minute from one address that is not this machine; 0 switches it off.
    pub requests_per_minute_max: u32,
    /// Requests a minute from all of them together; 0 switches it off.
    pub requests_per_minute_all_max: u32,
    /// Origins whose pages may call the API from a browser; `*` is any.
    pub cors_origins: Vec<String>,
    /// Addresses of proxies whose `X-Forwarded-For` is believed; none by default.
    pub trusted_proxies: Vec<IpAddr>,
    /// How long a request may take unless it says `wait_for_complete`, milliseconds.
    pub request_timeout_ms: u64,
    /// The latest lines of the log, for `/manager/logs`.
    pub log: LogRing,
    /// The file that the server was started with, if it was.
    pub config: Option<Arc<dyn ConfigFile>>,
    /// The detection rules; without them `/rules/files` answers 503.
    pub rules: Option<Arc<RuleFolder>>,
    /// The series store; without it `/series` answers 503.
    pub series: Option<series::Store>,
    /// Set to `true` when everything behind the API is up; `/readyz` answers 503 until then.
    pub ready: Arc<AtomicBool>,
    /// The server's own clock; without it `/clock` says that the clock is followed.
    pub server_clock: Option<Arc<dyn ServerClock>>,
}

impl ApiOptions {
    /// Defaults with a clock: no page, ready at once.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            page: None,
            version: env!("CARGO_PKG_VERSION").into(),
            hostname: "localhost".into(),
            folder: String::new(),
            requests_per_minute_max: REQUESTS_PER_MINUTE_MAX,
            requests_per_minute_all_max: REQUESTS_PER_MINUTE_ALL_MAX,
            cors_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            request_timeout_ms: REQUEST_TIMEOUT_MS,
            log: LogRing::default(),
            config: None,
            rules: None,
            series: None,
            ready: Arc::new(AtomicBool::new(true)),
            server_clock: None,
        }
    }
}

/// Why the API could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The registry gave no token keys.
    #[error("token keys: {0}")]
    Registry(#[from] registry::RegistryError),
    /// The token keys are not usable.
    #[error(transparent)]
    Keys(#[from] TokenKeyError),
}

/// What the table of routes says of itself.
pub(crate) struct Described {
    /// The OpenAPI document.
    pub(crate) openapi: Vec<u8>,
    /// In the order of the operations.
    pub(crate) needs: Vec<Need>,
}

/// An action that an operation needs.
pub(crate) struct Need {
    pub(crate) action: &'static str,
    /// The type of resource.
    pub(crate) resource: &'static str,
    /// Method and path of the operation.
    pub(crate) endpoint: String,
    pub(crate) about: &'static str,
}

/// What all requests share.
pub(crate) struct Api {
    pub(crate) options: ApiOptions,
    pub(crate) registry: Registry,
    pub(crate) state: Arc<dyn StateStore>,
    pub(crate) commit: Arc<Commit>,
    pub(crate) tokens: Tokens,
    pub(crate) rate: RequestRate,
    /// Which store requests run.
    pub(crate) turns: Turns,
    /// Of operations that wait and write.
    pub(crate) turns_to_write: Turns,
    /// Bytes of bodies that may be in memory.
    pub(crate) bodies: Room,
    /// The same of logins.
    pub(crate) login_bodies: Room,
    /// The same of callers on the unix socket.
    pub(crate) local_bodies: Room,
    /// Bytes of large answers that may wait for their readers.
    pub(crate) answers: Room,
    /// What users did in this minute that changed nothing.
    pub(crate) idle_rows: IdleRows,
    /// Lists that may be sent while they are read.
    pub(crate) lists: Room,
    /// Event streams that may be open.
    pub(crate) streams: Room,
    pub(crate) metrics: Option<PrometheusHandle>,
    /// The routes of the series store; who may ask was decided before.
    pub(crate) series: Option<Router>,
    /// Digests of the groups' files: by version of all configurations, group and name of the digest.
    pub(crate) digests: moka::sync::Cache<(u64, String, String), (String, String)>,
    /// The OpenAPI document, as bytes.
    pub(crate) openapi: Vec<u8>,
    /// See [`Described::needs`].
    pub(crate) needs: Vec<Need>,
}

impl Api {
    pub(crate) fn new(
        options: ApiOptions,
        registry: Registry,
        state: Arc<dyn StateStore>,
        commit: Arc<Commit>,
        described: Described,
    ) -> Result<Self, ApiError> {
        let generation = registry.token_keys_generation();
        let tokens = Tokens::new(&registry.token_keys()?, generation)?;
        Ok(Self {
            rate: RequestRate::new(
                options.requests_per_minute_max,
                options.requests_per_minute_all_max,
            ),
            series: options
                .series
                .clone()
                .map(|store| ingest::router(store, ingest::HttpOptions::default())),
            turns: Turns::new(),
            turns_to_write: Turns::new(),
            options,
            registry,
            state,
            commit,
            tokens,
            bodies: Room::new(BODIES_BYTES_MAX, BODIES_BYTES_EACH_MAX),
            login_bodies: Room::new(LOGIN_BODIES_BYTES_MAX, LOGIN_BODIES_BYTES_EACH_MAX),
            local_bodies: Room::new(LOCAL_BODIES_BYTES_MAX, LOCAL_BODIES_BYTES_MAX),
            answers: Room::new(ANSWERS_BYTES_MAX, ANSWERS_BYTES_EACH_MAX),
            idle_rows: IdleRows::default(),
            lists: Room::new(LISTS_MAX, LISTS_EACH_MAX),
            streams: Room::new(STREAMS_MAX, STREAMS_EACH_MAX),
            metrics: install_recorder(),
            digests: moka::sync::Cache::new(DIGESTS_KEPT_MAX),
            openapi: described.openapi,
            needs: described.needs,
        })
    }

    /// Guarded time, seconds since the epoch: tokens are issued, verified and expire by it.
    pub(crate) fn now_s(&self) -> i64 {
        (self.options.clock.guarded_us() / 1_000_000) as i64
    }

    /// Returns true if everything behind the API is up.
    pub(crate) fn is_ready(&self) -> bool {
        self.options.ready.load(Ordering::Acquire)
    }

    /// Name of this node, for problems.
    pub(crate) fn node(&self) -> &str {
        &self.registry.options().node_name
    }
}
