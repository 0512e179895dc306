//! A registry on a real database in its own folder, with a clock that does not advance.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use env::clock::ManualClock;
use env::random::SystemRandom;
use model::{AgentId, AgentOs};
use rcgen::{CertificateParams, KeyPair};
use registry::{
    AgentEnrolment, AgentInfo, ControlStore, EnrollError, HashCost, IssuedIdentity, Registry,
    RegistryError, RegistryOptions, TokenTerms, WriteContext,
};
use tempfile::TempDir;

/// 2026-11-21T18:52:02Z in microseconds.
pub(crate) const START_US: u64 = 1_795_287_122_000_000;

pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) clock: ManualClock,
    pub(crate) registry: Registry,
}

pub(crate) fn options() -> RegistryOptions {
    RegistryOptions {
        hash_cost: HashCost { memory_kib: 8, passes: 1, lanes: 1 },
        ..RegistryOptions::default()
    }
}

pub(crate) fn try_open(
    folder: &Path,
    clock: &ManualClock,
    options: RegistryOptions,
) -> Result<Registry, RegistryError> {
    open_on(mirror::open(&folder.join("registry.db"))?, folder, clock, options)
}

fn open_on(
    store: ControlStore,
    folder: &Path,
    clock: &ManualClock,
    options: RegistryOptions,
) -> Result<Registry, RegistryError> {
    Registry::open(
        Arc::new(store),
        folder,
        Arc::new(clock.clone()),
        Arc::new(SystemRandom),
        options,
    )
}

/// Returns a registry whose rows are not logged, so that another process may write them.
pub(crate) fn fixture_unlogged() -> Fixture {
    let folder = TempDir::new().unwrap();
    let clock = ManualClock::at(START_US);
    let store = ControlStore::open(&folder.path().join("registry.db")).unwrap();
    let registry = open_on(store, folder.path(), &clock, options()).unwrap();
    Fixture { folder, clock, registry }
}

pub(crate) fn fixture() -> Fixture {
    fixture_with(options())
}

pub(crate) fn fixture_with(options: RegistryOptions) -> Fixture {
    let folder = TempDir::new().unwrap();
    let clock = ManualClock::at(START_US);
    let registry = try_open(folder.path(), &clock, options).unwrap();
    Fixture { folder, clock, registry }
}

impl Fixture {
    /// Drops the registry without closing it and opens it again.
    pub(crate) fn reopen(self) -> Self {
        let Self { folder, clock, registry } = self;
        drop(registry);
        let registry = try_open(folder.path(), &clock, options()).unwrap();
        Self { folder, clock, registry }
    }

    /// Returns the state after a kill: a copy of the files as they are while the server runs.
    pub(crate) fn killed(&self) -> Self {
        let folder = TempDir::new().unwrap();
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "registry.db-shm" {
                std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
            }
        }
        let registry = try_open(folder.path(), &self.clock, options()).unwrap();
        Self { folder, clock: self.clock.clone(), registry }
    }

    pub(crate) fn after(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn token(&self) -> String {
        self.registry
            .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(1_000, 3_600))
            .unwrap()
    }

    pub(crate) fn enroll(&self, name: &str) -> IssuedIdentity {
        self.try_enroll(name, &self.token()).unwrap()
    }

    pub(crate) fn try_enroll(
        &self,
        name: &str,
        token: &str,
    ) -> Result<IssuedIdentity, EnrollError> {
        self.registry.enroll(token, &csr(name), &named(name))
    }

    pub(crate) fn disconnected_at_s(&self, id: AgentId) -> Option<i64> {
        self.registry.agent(id).unwrap().disconnected_at_s
    }
}

pub(crate) fn named(name: &str) -> AgentEnrolment {
    AgentEnrolment { name: name.into(), ..AgentEnrolment::default() }
}

/// Returns a signing request with a fresh key for the name `subject`.
pub(crate) fn csr(subject: &str) -> String {
    let mut params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, subject);
    let key = KeyPair::generate().unwrap();
    params.serialize_request(&key).unwrap().pem().unwrap()
}

/// Returns the DER bytes of the first certificate of a PEM text.
pub(crate) fn der(pem: &str) -> Vec<u8> {
    use rustls_pki_types::pem::PemObject;
    rustls_pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

pub(crate) fn info(platform: &str, version: &str) -> AgentInfo {
    AgentInfo {
        version: Some(version.into()),
        hostname: Some("host".into()),
        ip: Some("192.0.2.9".into()),
        os: Some(AgentOs {
            name: platform.to_uppercase(),
            platform: platform.into(),
            family: "linux".into(),
            version: "12".into(),
            arch: "x86_64".into(),
            uname: "Linux".into(),
            codename: String::new(),
        }),
    }
}
