//! The state that all requests share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use commit::Commit;
use env::clock::Clock;
use folder::FolderClock;
use metrics_exporter_prometheus::PrometheusHandle;
use registry::Registry;
use sigma::RuleFolder;
use state::StateStore;

use crate::access::permits::RequestPermits;
use crate::access::quota::Quota;
use crate::access::rates::{RequestRate, UserRate};
use crate::access::token::{TokenKeyError, Tokens};
use crate::http::log_ring::LogRing;
use crate::http::metrics::install_recorder;
use crate::http::prometheus;
use crate::limits::{
    ANSWERS_BYTES_EACH_MAX, ANSWERS_BYTES_MAX, BODIES_BYTES_EACH_MAX, BODIES_BYTES_MAX,
    DIGESTS_KEPT_MAX, IDLE_ROWS_MAX, LISTS_EACH_MAX, LISTS_MAX, LOCAL_BODIES_BYTES_MAX,
    LOGIN_BODIES_BYTES_EACH_MAX, LOGIN_BODIES_BYTES_MAX, REQUEST_TIMEOUT_MS,
    REQUESTS_PER_MINUTE_ALL_MAX, REQUESTS_PER_MINUTE_MAX, REQUESTS_PER_MINUTE_USER_MAX,
    STREAMS_EACH_MAX, STREAMS_MAX,
};

/// The server's configuration file, read with the permissions of the server's user. Errors are texts
/// for the administrator.
pub trait ConfigFile: Send + Sync {
    /// Returns the file's current text.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    fn read(&self) -> Result<String, String>;

    /// Returns the values that a text configures, by section, with the defaults of the keys that it
    /// omits.
    ///
    /// # Errors
    /// Fails if the text is not a valid configuration of a server.
    fn values(&self, text: &str) -> Result<serde_json::Value, String>;

    /// Returns the keys, such as `api.listen`, whose values differ from those of the running server.
    ///
    /// # Errors
    /// See [`ConfigFile::values`].
    fn waiting(&self, text: &str) -> Result<Vec<String>, String>;

    /// Replaces the file's content atomically; the new content is durable on return.
    ///
    /// # Errors
    /// Fails if the file cannot be replaced; its content is then unchanged.
    fn store(&self, text: &str) -> Result<(), String>;
}

/// Options of the API.
#[derive(Clone)]
pub struct ApiOptions {
    /// The clock of tokens, times in answers and the request counters.
    pub clock: Arc<dyn Clock>,
    /// The router for navigations and files of the page; without it those are answered with 404.
    pub page: Option<Router>,
    /// Version of the program, for `GET /`.
    pub version: String,
    /// Name of this host: `manager` of every agent.
    pub hostname: String,
    /// The server's data directory, for `/manager/info`.
    pub folder: String,
    /// Limit of requests per minute from one address, except this machine; 0 disables it.
    pub requests_per_minute_max: u32,
    /// Limit of requests per minute from all those addresses together; 0 disables it.
    pub requests_per_minute_all_max: u32,
    /// Origins whose pages may call the API from a browser; `*` allows all.
    pub cors_origins: Vec<String>,
    /// Addresses of proxies whose `X-Forwarded-For` is believed; none by default.
    pub trusted_proxies: Vec<IpAddr>,
    /// Default time limit of a request without `wait_for_complete`, milliseconds.
    pub request_timeout_ms: u64,
    /// The latest log lines, for `/manager/logs`.
    pub log: LogRing,
    /// The configuration file that the server was started with, if any.
    pub config: Option<Arc<dyn ConfigFile>>,
    /// The detection rules; without them `/rules/files` answers 503.
    pub rules: Option<Arc<RuleFolder>>,
    /// The series store; without it `/series` answers 503.
    pub series: Option<series::Store>,
    /// The memory of its queries, which all ports of the server share.
    pub query_memory: ingest::Memory,
    /// Set to `true` when all components behind the API are running; `/readyz` answers 503 until then.
    pub ready: Arc<AtomicBool>,
    /// The server's own clock; without it `/clock` reports that the server follows the system clock.
    pub server_clock: Option<Arc<FolderClock>>,
}

impl ApiOptions {
    /// Returns the defaults with a clock: no page, and ready from the start.
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
            query_memory: ingest::Memory::default(),
            ready: Arc::new(AtomicBool::new(true)),
            server_clock: None,
        }
    }
}

/// Reason why the API could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The registry returned no token keys.
    #[error("token keys: {0}")]
    Registry(#[from] registry::RegistryError),
    /// The token keys are not valid.
    #[error(transparent)]
    Keys(#[from] TokenKeyError),
}

/// Data generated from the table of routes.
pub struct RouteDocuments {
    /// The OpenAPI document.
    pub openapi: Vec<u8>,
    /// Required actions, in the order of the operations.
    pub needs: Vec<RequiredAction>,
}

/// An action that an operation needs.
pub struct RequiredAction {
    pub action: &'static str,
    /// The type of resource.
    pub resource: &'static str,
    /// Method and path of the operation.
    pub endpoint: String,
    pub about: &'static str,
}

/// The state that all requests share.
pub struct Api {
    pub options: ApiOptions,
    pub registry: Registry,
    pub state: Arc<StateStore>,
    pub commit: Arc<Commit>,
    pub tokens: Tokens,
    pub rate: RequestRate,
    /// Counters of each user's requests to [`Api::prometheus`].
    pub user_rate: UserRate,
    /// Permits of store requests.
    pub permits: RequestPermits,
    /// Permits of operations that wait and write.
    pub write_permits: RequestPermits,
    /// Quota of bytes of request bodies in memory.
    pub bodies: Quota,
    /// Quota of bytes of bodies of logins.
    pub login_bodies: Quota,
    /// Quota of bytes of bodies from the unix socket.
    pub local_bodies: Quota,
    /// Quota of bytes of large answers that wait for their readers.
    pub answers: Quota,
    /// Counters of each user's requests that changed nothing.
    pub idle_rows: UserRate,
    /// Quota of lists that are streamed.
    pub lists: Quota,
    /// Quota of open event streams.
    pub streams: Quota,
    pub metrics: Option<PrometheusHandle>,
    /// The routes of the series store, without access control: the API checks permissions before it
    /// calls them.
    pub series: Option<Router>,
    /// The routes of Prometheus' API over the series store, also without access control.
    pub prometheus: Option<Router>,
    /// Digests of groups' files, by version of all configurations, name of the group and digest
    /// algorithm.
    pub digests: moka::sync::Cache<(u64, String, String), (String, String)>,
    /// The OpenAPI document, as bytes.
    pub openapi: Vec<u8>,
    /// See [`RouteDocuments::needs`].
    pub needs: Vec<RequiredAction>,
}

impl Api {
    pub fn new(
        options: ApiOptions,
        registry: Registry,
        state: Arc<StateStore>,
        commit: Arc<Commit>,
        described: RouteDocuments,
    ) -> Result<Self, ApiError> {
        let generation = registry.token_keys_generation();
        let tokens = Tokens::new(&registry.token_keys()?, generation)?;
        Ok(Self {
            rate: RequestRate::new(
                options.requests_per_minute_max,
                options.requests_per_minute_all_max,
            ),
            user_rate: UserRate::new(REQUESTS_PER_MINUTE_USER_MAX),
            prometheus: options
                .series
                .clone()
                .map(|store| prometheus::routes(store, options.query_memory.clone())),
            series: options.series.clone().map(|store| {
                let memory = options.query_memory.clone();
                let options = ingest::HttpOptions { memory, ..ingest::HttpOptions::default() };
                ingest::router(store, options)
            }),
            permits: RequestPermits::default(),
            write_permits: RequestPermits::default(),
            options,
            registry,
            state,
            commit,
            tokens,
            bodies: Quota::new(BODIES_BYTES_MAX, BODIES_BYTES_EACH_MAX),
            login_bodies: Quota::new(LOGIN_BODIES_BYTES_MAX, LOGIN_BODIES_BYTES_EACH_MAX),
            local_bodies: Quota::new(LOCAL_BODIES_BYTES_MAX, LOCAL_BODIES_BYTES_MAX),
            answers: Quota::new(ANSWERS_BYTES_MAX, ANSWERS_BYTES_EACH_MAX),
            idle_rows: UserRate::new(IDLE_ROWS_MAX),
            lists: Quota::new(LISTS_MAX, LISTS_EACH_MAX),
            streams: Quota::new(STREAMS_MAX, STREAMS_EACH_MAX),
            metrics: install_recorder(),
            digests: moka::sync::Cache::new(DIGESTS_KEPT_MAX),
            openapi: described.openapi,
            needs: described.needs,
        })
    }

    /// Returns the guarded time, seconds since the epoch. Tokens are issued, verified and expire by it.
    pub fn now_s(&self) -> i64 {
        (self.options.clock.guarded_us() / 1_000_000) as i64
    }

    /// Returns true if all components behind the API are running.
    pub fn is_ready(&self) -> bool {
        self.options.ready.load(Ordering::Acquire)
    }

    /// Returns the name of this node, for problem documents.
    pub fn node(&self) -> &str {
        &self.registry.options().node_name
    }
}
