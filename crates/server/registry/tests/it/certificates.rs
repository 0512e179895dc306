//! The authority, its certificates, and identification by certificate.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{self, csr, der, fixture, options, try_open};
use env::clock::Clock as _;
use model::AgentId;
use registry::{
    ControlStore, EnrollError, IdentityError, RegistryError, RegistryOptions, WriteContext,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

const YEAR_S: u64 = 365 * 24 * 3600;

fn roots(pem: &str) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(der(pem).into()).unwrap();
    Arc::new(roots)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn at(us: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_micros(us))
}

#[test]
fn tls_verifier_accepts_server_certificate_for_all_its_names() {
    let fixture = fixture();
    let names = ["fleet.example.org".to_owned(), "192.0.2.1".to_owned()];
    let issued = fixture.registry.issue_server_certificate(&names).unwrap();
    let chain: Vec<_> = CertificateDer::pem_slice_iter(issued.cert_chain_pem.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(chain.len(), 2);
    assert_eq!(chain[1].to_vec(), der(&fixture.registry.ca_pem()));
    PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap();
    let ca = roots(&fixture.registry.ca_pem());
    let verifier = WebPkiServerVerifier::builder_with_provider(ca, provider()).build().unwrap();
    let accepts = |name: &str| {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier
            .verify_server_cert(&chain[0], &chain[1..], &name, &[], at(common::START_US))
            .is_ok()
    };
    for name in ["fleet.example.org", "192.0.2.1"] {
        assert!(accepts(name), "{name}");
    }
    assert!(!accepts("other.example.org"));
    assert!(fixture.registry.issue_server_certificate(&["a b".into()]).is_err());
}

#[test]
fn server_certificate_is_replaced_after_two_thirds_of_its_life() {
    let fixture = fixture();
    let shown = fixture.registry.server_certificate(&[]).unwrap();
    let of = |key: Arc<rustls::sign::CertifiedKey>| key.cert[0].to_vec();
    let first = of(shown.current());
    let life_s = registry::limits::SERVER_CERTIFICATE_SECONDS as u64;
    fixture.clock.advance(Duration::from_secs(life_s / 3 * 2 - 1));
    assert_eq!(of(shown.current()), first);
    fixture.clock.advance(Duration::from_secs(1));
    let second = of(shown.current());
    assert_ne!(second, first);
    assert_eq!(of(shown.current()), second);
    let ca = roots(&fixture.registry.ca_pem());
    let verifier = WebPkiServerVerifier::builder_with_provider(ca, provider()).build().unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let at = |at| {
        let certificate = CertificateDer::from(second.clone());
        verifier.verify_server_cert(&certificate, &[], &name, &[], at).is_ok()
    };
    let now = Duration::from_micros(fixture.clock.now_us());
    assert!(at(UnixTime::since_unix_epoch(now)));
    assert!(at(UnixTime::since_unix_epoch(now + Duration::from_secs(life_s - 1))));
    // The clock is set back, so a new certificate would not be valid yet.
    fixture.clock.jump_to(common::START_US);
    assert_ne!(of(shown.current()), second);
}

#[test]
fn server_certificate_follows_the_names_of_its_host() {
    static RENAMED: AtomicBool = AtomicBool::new(false);
    fn names() -> Vec<String> {
        let name = if RENAMED.load(Ordering::SeqCst) { "new.example.org" } else { "old" };
        vec![name.into(), "192.0.2.7".into(), "no name".into()]
    }
    let fixture = common::fixture_with(RegistryOptions { host_names: names, ..options() });
    let shown = fixture.registry.server_certificate(&["fleet.example.org".into()]).unwrap();
    let of = || {
        let der = shown.current().cert[0].to_vec();
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        let names = parsed.subject_alternative_name().unwrap().unwrap().value;
        names.general_names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let before = of();
    assert!(before.contains("fleet.example.org") && before.contains("old"), "{before}");
    RENAMED.store(true, Ordering::SeqCst);
    fixture.clock.advance(Duration::from_secs(59));
    assert_eq!(of(), before);
    fixture.clock.advance(Duration::from_secs(1));
    let after = of();
    assert!(after.contains("fleet.example.org") && after.contains("new.example.org"), "{after}");
    assert!(!after.contains("old"), "{after}");
}

#[test]
fn agent_certificate_is_client_only_and_carries_its_agent_id() {
    let fixture = fixture();
    let enrolled =
        fixture.registry.enroll(&fixture.token(), &csr("root-of-all"), &common::named("web"));
    let enrolled = enrolled.unwrap();
    let leaf = der(&enrolled.certificate_pem);
    let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).unwrap();
    assert_eq!(parsed.subject().to_string(), "CN=001");
    assert!(parsed.subject_alternative_name().unwrap().is_none());
    assert!(!parsed.is_ca());
    let ca = roots(&enrolled.ca_pem);
    let clients = WebPkiClientVerifier::builder_with_provider(ca.clone(), provider());
    let clients = clients.build().unwrap();
    let leaf = CertificateDer::from(leaf);
    assert!(clients.verify_client_cert(&leaf, &[], at(common::START_US)).is_ok());
    let late = at(common::START_US + (YEAR_S + 1) * 1_000_000);
    assert!(clients.verify_client_cert(&leaf, &[], late).is_err());
    let servers = WebPkiServerVerifier::builder_with_provider(ca, provider()).build().unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let now = at(common::START_US);
    assert!(servers.verify_server_cert(&leaf, &[], &name, &[], now).is_err());
}

#[test]
fn keys_are_readable_by_their_owner_alone() {
    let fixture = fixture();
    for file in ["ca.key", "token.key", "registry.db"] {
        let path = fixture.folder.path().join(file);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let key = fixture.folder.path().join("ca.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let opened = try_open(fixture.folder.path(), &fixture.clock, options());
    assert!(matches!(opened, Err(RegistryError::File { path, .. }) if path == key));
}

#[test]
fn ca_survives_a_restart_and_is_never_silently_replaced() {
    let fixture = fixture();
    let (ca, fingerprint) = (fixture.registry.ca_pem(), fixture.registry.ca_fingerprint());
    let enrolled = fixture.enroll("web");
    let fixture = fixture.reopen();
    assert_eq!((fixture.registry.ca_pem(), fixture.registry.ca_fingerprint()), (ca, fingerprint));
    assert!(fixture.registry.identify(&der(&enrolled.certificate_pem)).is_ok());
    for file in ["ca.key", "ca.pem"] {
        let path = fixture.folder.path().join(file);
        let kept = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let opened = try_open(fixture.folder.path(), &fixture.clock, options());
        assert!(matches!(&opened, Err(RegistryError::CaLost { path: p }) if *p == path), "{file}");
        std::fs::write(&path, kept).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let other = common::fixture();
    let foreign = other.folder.path().join("ca.pem");
    std::fs::copy(foreign, fixture.folder.path().join("ca.pem")).unwrap();
    let Err(e) = try_open(fixture.folder.path(), &fixture.clock, options()) else {
        panic!("opened")
    };
    assert!(e.to_string().contains("does not belong"), "{e}");
}

#[test]
fn certificate_identifies_its_agent_and_renewal_time() {
    let fixture = fixture();
    let enrolled = fixture.enroll("web");
    let leaf = der(&enrolled.certificate_pem);
    let identity = fixture.registry.identify(&leaf).unwrap();
    assert_eq!((identity.agent, identity.incarnation), (enrolled.agent, enrolled.incarnation));
    let start_s = (common::START_US / 1_000_000) as i64;
    let two_thirds = (YEAR_S * 2 / 3) as i64;
    assert!((identity.renew_at_s - start_s - two_thirds).abs() < 600);
    assert_eq!(fixture.registry.identify(b"garbage"), Err(IdentityError::Unknown));
    let foreign = common::fixture().enroll("web");
    let foreign = der(&foreign.certificate_pem);
    assert_eq!(fixture.registry.identify(&foreign), Err(IdentityError::Unknown));
    fixture.after(YEAR_S + 1);
    assert_eq!(fixture.registry.identify(&leaf), Err(IdentityError::Expired));
    fixture.clock.jump_to(common::START_US - 3_600_000_000);
    assert_eq!(fixture.registry.identify(&leaf).unwrap().agent, enrolled.agent, "not checked");
}

#[test]
fn revocation_and_removal_take_effect_at_once_and_persist() {
    let fixture = fixture();
    let (a, b) = (fixture.enroll("a1"), fixture.enroll("b1"));
    let (leaf_a, leaf_b) = (der(&a.certificate_pem), der(&b.certificate_pem));
    assert!(fixture.registry.identify(&leaf_a).is_ok());
    assert_eq!(fixture.registry.revoke(&WriteContext::server(), a.agent).unwrap(), 1);
    fixture.registry.remove_agent(&WriteContext::server(), b.agent).unwrap();
    for fixture in [&fixture, &fixture.killed()] {
        assert_eq!(fixture.registry.identify(&leaf_a), Err(IdentityError::Revoked));
        assert_eq!(fixture.registry.identify(&leaf_b), Err(IdentityError::Revoked));
    }
    assert!(fixture.registry.agent(a.agent).is_some(), "revoked is not removed");
}

#[test]
fn revocation_also_stops_a_renewal_in_progress() {
    let fixture = fixture();
    let agent = fixture.enroll("web").agent;
    fixture.registry.revoke(&WriteContext::server(), agent).unwrap();
    let renewed = fixture.registry.renew(agent, &csr("web"));
    assert!(matches!(renewed, Err(EnrollError::Revoked(id)) if id == agent), "{renewed:?}");
}

#[test]
fn repeated_unused_renewals_do_not_fill_the_registry() {
    let fixture = fixture();
    let old = fixture.enroll("web");
    let old_leaf = der(&old.certificate_pem);
    fixture.registry.identify(&old_leaf).unwrap();
    let mut last = None;
    for _ in 0..20 {
        last = Some(fixture.registry.renew(old.agent, &csr("web")).unwrap());
        fixture.registry.identify(&old_leaf).unwrap();
        fixture.registry.flush().unwrap();
    }
    let store = ControlStore::open(&fixture.folder.path().join("registry.db")).unwrap();
    let kept = store.load().unwrap().certificates.len();
    assert!(kept <= 4, "{kept} certificates are kept");
    for fixture in [&fixture.killed(), &fixture] {
        let new_leaf = der(&last.as_ref().unwrap().certificate_pem);
        assert_eq!(fixture.registry.identify(&new_leaf).unwrap().agent, old.agent);
        assert_eq!(fixture.registry.identify(&old_leaf), Err(IdentityError::Superseded));
    }
}

#[test]
fn old_certificate_works_until_the_new_one_is_first_used() {
    let fixture = fixture();
    let old = fixture.enroll("web");
    let old_leaf = der(&old.certificate_pem);
    fixture.registry.identify(&old_leaf).unwrap();
    let new = fixture.registry.renew(old.agent, &csr("web")).unwrap();
    let new_leaf = der(&new.certificate_pem);
    assert_eq!(new.incarnation, old.incarnation);
    assert!(fixture.registry.identify(&old_leaf).is_ok(), "the answer may have been lost");
    assert!(fixture.registry.identify(&new_leaf).is_ok());
    assert_eq!(fixture.registry.identify(&old_leaf), Err(IdentityError::Superseded));
    fixture.registry.flush().unwrap();
    let killed = fixture.killed();
    assert_eq!(killed.registry.identify(&old_leaf), Err(IdentityError::Superseded));
    assert!(killed.registry.identify(&new_leaf).is_ok());
}

#[test]
fn only_one_of_two_renewing_copies_stays_valid() {
    let fixture = fixture();
    let image = fixture.enroll("web");
    let shared = der(&image.certificate_pem);
    fixture.registry.identify(&shared).unwrap();
    let first = der(&fixture.registry.renew(image.agent, &csr("web")).unwrap().certificate_pem);
    let second = der(&fixture.registry.renew(image.agent, &csr("web")).unwrap().certificate_pem);
    assert_eq!(fixture.registry.identify(&first), Err(IdentityError::Superseded));
    assert!(fixture.registry.identify(&second).is_ok());
    assert_eq!(fixture.registry.identify(&shared), Err(IdentityError::Superseded));
}

#[test]
fn renewal_with_a_superseded_certificate_is_rejected() {
    let fixture = fixture();
    let image = fixture.enroll("web");
    let shared = der(&image.certificate_pem);
    fixture.registry.identify(&shared).unwrap();
    let renewed = fixture.registry.renew_presented(image.agent, &csr("web"), &shared).unwrap();
    let renewed = der(&renewed.certificate_pem);
    // A request of a copy was admitted earlier and is still running when the original switches
    // certificates.
    assert!(fixture.registry.identify(&renewed).is_ok());
    let late = fixture.registry.renew_presented(image.agent, &csr("web"), &shared);
    assert!(matches!(late, Err(EnrollError::Presented(IdentityError::Superseded))));
    assert!(fixture.registry.identify(&renewed).is_ok(), "the original goes on");
}

#[test]
fn agent_with_an_unused_first_certificate_can_renew() {
    let fixture = fixture();
    let enrolled = fixture.enroll("web");
    let renewed = fixture.registry.renew(enrolled.agent, &csr("web")).unwrap();
    assert!(fixture.registry.identify(&der(&enrolled.certificate_pem)).is_ok());
    let late = fixture.registry.identify(&der(&renewed.certificate_pem));
    assert_eq!(late, Err(IdentityError::Superseded));
    let unknown = fixture.registry.renew(AgentId(99), &csr("web"));
    assert!(matches!(unknown, Err(EnrollError::NoSuchAgent(AgentId(99)))));
}

#[test]
fn expired_superseded_or_revoked_certificates_are_deleted() {
    let fixture = fixture();
    let (a, b) = (fixture.enroll("a1"), fixture.enroll("b1"));
    let old = der(&a.certificate_pem);
    fixture.registry.identify(&old).unwrap();
    let new = der(&fixture.registry.renew(a.agent, &csr("a1")).unwrap().certificate_pem);
    fixture.registry.identify(&new).unwrap();
    fixture.registry.remove_agent(&WriteContext::server(), b.agent).unwrap();
    fixture.registry.flush().unwrap();
    fixture.after(YEAR_S + 10);
    fixture.registry.tick().unwrap();
    for fixture in [&fixture, &fixture.killed()] {
        assert_eq!(fixture.registry.identify(&old), Err(IdentityError::Unknown));
        let removed = fixture.registry.identify(&der(&b.certificate_pem));
        assert_eq!(removed, Err(IdentityError::Unknown));
        assert_eq!(fixture.registry.identify(&new), Err(IdentityError::Expired));
    }
    // The clock was wrong; no agent is locked out.
    fixture.clock.jump_to(common::START_US);
    assert!(fixture.registry.identify(&new).is_ok());
}
