//! A real server without a network: registry, journal, state and router in a temporary folder, with a
//! clock that the tests advance.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use api::ApiOptions;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use base64::Engine as _;
use commit::{Commit, CommitOptions};
use control::NewAgent;
use env::clock::{Clock, ManualClock};
use env::random::SeededRandom;
use http_body_util::BodyExt as _;
use journal::{Journal, Options};
use listener::Source;
use model::document::NoNames;
use model::{
    AgentId, AgentOs, Change, ChangeKind, Coverage, Dataset, EventBody, FileDocument, Incarnation,
    ItemKey, Kind, Observation, Overlay, Record, SessionRecord, Write,
};
use registry::{AgentInfo, HashCost, Registry, RegistryOptions, WriteContext};
use serde_json::{Value, json};
use state::{StateOptions, StateStore};
use tempfile::TempDir;
use tower::ServiceExt as _;

/// 2026-11-21T18:52:02Z.
pub(crate) const NOW_US: u64 = 1_795_287_122_000_000;
/// Time for which rules files are cached.
pub(crate) const RULES_TTL: std::time::Duration = std::time::Duration::from_secs(10);
/// The administrator's password.
pub(crate) const ADMIN: &str = "Correct-Horse-9";
/// The password of the users of [`World::user_with`].
pub(crate) const NARROW: &str = "Narrow-View-1";
/// The password of `reader`, who has the role `readonly`.
pub(crate) const READER: &str = "Reading-Only-7";

/// The server under test and its parts.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) clock: ManualClock,
    pub(crate) registry: Registry,
    pub(crate) state: Arc<StateStore>,
    pub(crate) commit: Arc<Commit>,
    pub(crate) router: Router,
    sessions: std::sync::atomic::AtomicU64,
}

pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Creates a server with three agents: 001 web-1 (active, debian, default and web), 002 db-1
/// (disconnected, fedora) and 003 new-1 (never connected).
pub(crate) fn world() -> World {
    world_with(|_| {})
}

pub(crate) fn world_with(edit: impl FnOnce(&mut ApiOptions)) -> World {
    world_of(cheap_logins(), edit)
}

/// Returns options with minimal cost of password hashing.
pub(crate) fn cheap_logins() -> RegistryOptions {
    RegistryOptions {
        hash_cost: HashCost { memory_kib: 64, passes: 1, lanes: 1 },
        ..RegistryOptions::default()
    }
}

pub(crate) fn world_of(options: RegistryOptions, edit: impl FnOnce(&mut ApiOptions)) -> World {
    let folder = TempDir::new().unwrap();
    let clock = ManualClock::at(NOW_US);
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = mirror::open(&folder.path().join("registry.db")).unwrap();
    store.create_group(&WriteContext::server(), "web", 1).unwrap();
    for (name, groups) in [("web-1", vec!["default", "web"]), ("db-1", vec![]), ("new-1", vec![])] {
        let groups = groups.into_iter().map(str::to_owned).collect();
        let agent = NewAgent {
            id: None,
            name: name.into(),
            register_ip: "any".into(),
            groups,
            incarnation: Incarnation(7),
            client_key: None,
            ephemeral_s: None,
            now_s: (NOW_US / 1_000_000) as i64 - 86_400,
        };
        store.add_agents(&WriteContext::server(), &[agent]).unwrap();
    }
    let registry = Registry::open(
        Arc::new(store),
        folder.path(),
        Arc::clone(&shared),
        Arc::new(SeededRandom::new(1)),
        options,
    )
    .unwrap();
    registry.ensure_admin(Some(ADMIN)).unwrap();
    registry.create_user(&WriteContext::server(), "reader", READER, false, &["readonly"]).unwrap();
    let seen = |name: &str, platform: &str, version: &str, ip: &str| AgentInfo {
        version: Some("Holdfast v0.1.0".into()),
        hostname: Some("host".into()),
        os: Some(AgentOs {
            name: name.into(),
            platform: platform.into(),
            family: "linux".into(),
            version: version.into(),
            arch: "x86_64".into(),
            uname: "Linux host 6.1.0".into(),
            codename: "bookworm".into(),
        }),
        ip: Some(ip.into()),
    };
    let debian = seen("Debian GNU/Linux", "debian", "12.4", "10.0.0.1");
    let fedora = seen("Fedora Linux", "fedora", "40", "10.0.0.2");
    assert!(registry.startup(AgentId(1), &debian) && registry.keepalive(AgentId(1), &debian));
    assert!(registry.startup(AgentId(2), &fedora) && registry.keepalive(AgentId(2), &fedora));
    assert!(registry.goodbye(AgentId(2)));
    let state_db = folder.path().join("state.db");
    let state = StateStore::open(&state_db, StateOptions::default()).unwrap();
    let state: Arc<StateStore> = Arc::new(state);
    let (journal, _) = Journal::open(&folder.path().join("journal"), small_journal()).unwrap();
    let (commit, _) = Commit::open(journal, Arc::clone(&state), CommitOptions::default()).unwrap();
    let mut options = ApiOptions::new(shared);
    options.hostname = "server-host".into();
    let rules = folder.path().join("rules");
    let rules = sigma::RuleFolder::open(&rules, RULES_TTL, Arc::clone(&options.clock)).unwrap();
    options.rules = Some(Arc::new(rules));
    let series = series::StoreOptions { wal: series::Wal::Off, ..series::StoreOptions::default() };
    options.series = Some(series::Store::open(&folder.path().join("series"), series).unwrap().0);
    edit(&mut options);
    let router =
        api::router(options, registry.clone(), Arc::clone(&state), Arc::clone(&commit)).unwrap();
    World { folder, clock, registry, state, commit, router, sessions: 0.into() }
}

fn small_journal() -> Options {
    Options { segment_bytes: 1024 * 1024, ..Options::default() }
}

/// Returns an observation of a file with a mode and a size.
pub(crate) fn observed(mode: u32, size: u64) -> Observation {
    let mut o = Observation::empty(Kind::File);
    o.mode = mode;
    o.size = size;
    o.inode = 131_090;
    o.device = 65_024;
    o.links = 1;
    o.mtime_ns = 1_790_000_000_000_000_001;
    o.ctime_ns = 1_790_000_001_000_000_002;
    o.hashes.sha256 = Some([0xab; 32]);
    o
}

pub(crate) fn upsert(path: &str, o: &Observation, version: u64) -> Write {
    let key = ItemKey::of_path(path.as_bytes());
    let document = FileDocument::new(&key, o, version, &NoNames);
    Write::Upsert {
        dataset: Dataset::fim_files(),
        id: key.document_id(),
        version,
        body: serde_json::to_vec(&document).unwrap(),
    }
}

pub(crate) fn change(
    path: &str,
    before: Option<&Observation>,
    after: Option<&Observation>,
    found_at_us: u64,
) -> EventBody {
    let (kind, fields) = match (before, after) {
        (None, _) => (ChangeKind::Created, model::Fields::default()),
        (_, None) => (ChangeKind::Deleted, model::Fields::default()),
        (Some(before), Some(after)) => (ChangeKind::Modified, before.difference(after)),
    };
    let change = Change {
        key: ItemKey::of_path(path.as_bytes()),
        kind,
        before: before.cloned(),
        after: after.cloned(),
        fields,
        found_at_us,
        from: None,
        seen: None,
        cause: None,
    };
    EventBody::of_change(&change, &NoNames)
}

pub(crate) fn gap(coverage: Coverage) -> EventBody {
    EventBody::of_coverage(coverage)
}

impl World {
    /// Submits one accepted session of an agent.
    pub(crate) async fn session(&self, agent: u32, writes: Vec<Write>) {
        let number = self.sessions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let record = Record::Session(SessionRecord {
            agent: AgentId(agent),
            incarnation: Incarnation(7),
            received_at_us: NOW_US + number,
            session: format!("s-{number}"),
            overlay: Overlay { agent_name: format!("agent-{agent}"), ..Overlay::default() },
            writes,
        });
        let committed = self.commit.submit(record).await.unwrap();
        assert_eq!(committed.applied.quarantined, None);
        assert_eq!(committed.applied.skipped, []);
    }

    /// Submits events of an agent, in the order given.
    pub(crate) async fn events(&self, agent: u32, bodies: Vec<EventBody>) {
        let start = self.sessions.load(std::sync::atomic::Ordering::Relaxed);
        let writes = bodies
            .iter()
            .enumerate()
            .map(|(at, body)| Write::Event { id: format!("e{start}-{at}"), body: body.to_json() });
        self.session(agent, writes.collect()).await;
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answered {
        let peer: IpAddr = [192, 0, 2, 9].into();
        self.send_from(Some(Source::Tcp(SocketAddr::new(peer, 4000))), method, path, headers, body)
            .await
    }

    pub(crate) async fn send_from(
        &self,
        source: Option<Source>,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answered {
        // Escape characters that clients escape and the tables of tests do not.
        let path = path.replace('<', "%3C").replace('>', "%3E");
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(body.into()).unwrap();
        if let Some(source) = source {
            request.extensions_mut().insert(source);
        }
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        // An event stream does not end, so its body is not read here.
        let endless = parts.headers.get("content-type").is_some_and(|t| t == "text/event-stream");
        let body =
            if endless { Vec::new() } else { body.collect().await.unwrap().to_bytes().to_vec() };
        Answered { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> Answered {
        self.send("GET", path, &[("authorization", &format!("Bearer {token}"))], Body::empty())
            .await
    }

    pub(crate) async fn put(&self, path: &str, token: &str) -> Answered {
        self.send("PUT", path, &[("authorization", &format!("Bearer {token}"))], Body::empty())
            .await
    }

    /// Returns the JSON of a GET, which must succeed.
    pub(crate) async fn ok(&self, path: &str, token: &str) -> Value {
        let answered = self.get(path, token).await;
        let text = String::from_utf8_lossy(&answered.body).into_owned();
        assert_eq!(answered.status, StatusCode::OK, "{path}: {text}");
        answered.json()
    }

    pub(crate) async fn try_login(&self, name: &str, password: &str) -> Answered {
        let basic = basic(name, password);
        self.send(
            "POST",
            "/security/user/authenticate?raw=true",
            &[("authorization", &basic)],
            Body::empty(),
        )
        .await
    }

    pub(crate) async fn login(&self, name: &str, password: &str) -> String {
        let answered = self.try_login(name, password).await;
        let text = String::from_utf8(answered.body).unwrap();
        assert_eq!(answered.status, StatusCode::OK, "{text}");
        text
    }

    pub(crate) async fn admin(&self) -> String {
        self.login("admin", ADMIN).await
    }

    /// Creates a user whose role has these policies, linked by their numbers in this order.
    pub(crate) async fn user_with(
        &self,
        policies: &[(&[&str], &str, &str)],
        linked: &str,
    ) -> String {
        let admin = self.admin().await;
        let bearer = format!("Bearer {admin}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let send = async |path: &str, body: String| {
            let answer = self.send("POST", path, &headers, body).await;
            assert_eq!(answer.json()["error"], 0, "{path}: {}", answer.json());
        };
        for (n, (actions, resource, effect)) in policies.iter().enumerate() {
            let policy = json!({"actions": actions, "resources": [resource], "effect": effect});
            let new = json!({"name": format!("policy-{n}"), "policy": policy});
            send("/security/policies", new.to_string()).await;
        }
        send("/security/roles", json!({"name": "narrow"}).to_string()).await;
        send(&format!("/security/roles/100/policies?policy_ids={linked}"), String::new()).await;
        let context = WriteContext::server();
        self.registry.create_user(&context, "narrow", NARROW, false, &["narrow"]).unwrap();
        self.login("narrow", NARROW).await
    }

    pub(crate) async fn reader(&self) -> String {
        self.login("reader", READER).await
    }
}

/// A configuration file in memory; every text is valid except `bad`.
#[derive(Default)]
pub(crate) struct TestFile(std::sync::Mutex<String>);

impl api::ConfigFile for TestFile {
    fn read(&self) -> Result<String, String> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn values(&self, text: &str) -> Result<Value, String> {
        match text {
            "bad" => Err("line 1: bad".into()),
            text => Ok(json!({"api": {"text": text}, "global": {"data": "x"}})),
        }
    }

    fn waiting(&self, text: &str) -> Result<Vec<String>, String> {
        self.values(text).map(|_| vec!["api.text".to_owned()])
    }

    fn store(&self, text: &str) -> Result<(), String> {
        text.clone_into(&mut self.0.lock().unwrap());
        Ok(())
    }
}

pub(crate) fn basic(name: &str, password: &str) -> String {
    let text = format!("{name}:{password}");
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}

/// Returns the text of one field of every item.
pub(crate) fn column(answer: &Value, field: &str) -> Vec<String> {
    let items = answer["data"]["affected_items"].as_array().unwrap();
    items.iter().map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect()
}

/// Compares a text with a golden file; `HOLDFAST_BLESS=1` rewrites it.
pub(crate) fn golden(file: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("HOLDFAST_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{file} differs; HOLDFAST_BLESS=1 writes it anew\n--- is\n{actual}\n--- was\n{expected}"
    );
}

/// Compares JSON with a golden file.
pub(crate) fn golden_json(name: &str, actual: &Value) {
    let mut text = serde_json::to_string_pretty(actual).unwrap();
    text.push('\n');
    golden(&format!("tests/golden/{name}.json"), &text);
}

/// Returns every operation of the description: method, path, and the names in `security`.
pub(crate) fn described() -> Vec<(String, String, Vec<String>)> {
    let document: Value = serde_json::from_str(&api::openapi_json()).unwrap();
    let paths: BTreeMap<String, BTreeMap<String, Value>> =
        serde_json::from_value(document["paths"].clone()).unwrap();
    let mut list = Vec::new();
    for (path, operations) in paths {
        for (method, operation) in operations {
            let security = operation["security"].as_array().cloned().unwrap_or_default();
            let names =
                security.iter().flat_map(|s| s.as_object().unwrap().keys().cloned()).collect();
            list.push((method.to_uppercase(), path.clone(), names));
        }
    }
    list
}
