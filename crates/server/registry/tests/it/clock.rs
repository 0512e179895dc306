//! Tests that expiry and deletion use the guarded time, so that no jump of the wall clock causes
//! them.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, START_US, csr, der, named, options};
use env::clock::{Clock as _, ManualClock};
use env::guard::{Acceptance, GuardedClock, HOLD_MAX};
use env::random::SystemRandom;
use registry::{
    AgentQuery, CommandKind, IdentityError, Reader, Registry, RevocationTarget, TokenTerms,
    WriteContext,
};
use tempfile::TempDir;

const YEAR_US: u64 = 365 * 86_400_000_000;

struct Guarded {
    folder: TempDir,
    wall: ManualClock,
    clock: Arc<GuardedClock>,
    registry: Registry,
}

impl Guarded {
    fn open() -> Self {
        let (folder, wall) = (TempDir::new().unwrap(), ManualClock::at(START_US));
        let clock = Arc::new(GuardedClock::new(Arc::new(wall.clone()), None));
        let registry = open(&folder, &clock);
        Self { folder, wall, clock, registry }
    }

    /// Restarts the process at another wall time.
    fn restarted_at(self, wall_us: u64) -> Self {
        let stored = self.clock.stored();
        drop(self.registry);
        self.wall.jump_to(wall_us);
        let clock = Arc::new(GuardedClock::new(Arc::new(self.wall.clone()), Some(stored)));
        let registry = open(&self.folder, &clock);
        Self { folder: self.folder, wall: self.wall, clock, registry }
    }

    /// Runs the hourly removal of expired data.
    fn forget(&self) {
        self.wall.advance(Duration::from_hours(1));
        self.registry.tick().unwrap();
    }
}

fn open(folder: &TempDir, clock: &Arc<GuardedClock>) -> Registry {
    let store = mirror::open(&folder.path().join("registry.db")).unwrap();
    let options = registry::RegistryOptions {
        tokens_until_s: i64::try_from(clock.resumed_us() / 1_000_000).ok(),
        ..options()
    };
    let random = Arc::new(SystemRandom);
    Registry::open(Arc::new(store), folder.path(), clock.clone(), random, options).unwrap()
}

#[test]
fn wall_clock_jump_expires_nothing() {
    for restart in [false, true] {
        let mut world = Guarded::open();
        let token = world
            .registry
            .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(9, 7_200))
            .unwrap();
        let enrolled = world.registry.enroll(&token, &csr("x"), &named("web")).unwrap();
        let leaf = der(&enrolled.certificate_pem);
        world.registry.identify(&leaf).unwrap();
        let command = world.registry.create_command(
            &WriteContext::server(),
            CommandKind::Rescan,
            &[enrolled.agent],
            "admin",
        );
        let command = command.unwrap();
        let nbf_s = world.registry.token_nbf_s(1, &[], false);
        world.registry.revoke_tokens(&WriteContext::server(), RevocationTarget::User(1)).unwrap();
        let keys = world.registry.token_keys().unwrap().public_pem;
        for wall_us in [START_US + 10 * YEAR_US, START_US - 3 * 86_400_000_000, 0] {
            if restart {
                world = world.restarted_at(wall_us);
            } else {
                world.wall.jump_to(wall_us);
            }
            world.forget();
            let registry = &world.registry;
            assert!(registry.token_revoked(1, &[], false, nbf_s));
            assert_eq!(registry.token_keys().unwrap().public_pem, keys);
            let identity = registry.identify(&leaf).unwrap();
            assert!(identity.renew_at_s > (world.clock.guarded_us() / 1_000_000) as i64);
            assert_eq!(
                registry.command(&Reader::server(), command).unwrap().unwrap().counts.expired,
                0
            );
            world.wall.jump_to(START_US + 60_000_000);
            world.clock.hold();
        }
        world.registry.enroll(&token, &csr("y"), &named("db")).unwrap();
    }
}

#[test]
fn expiry_resumes_after_the_maximum_clock_hold() {
    let world = Guarded::open();
    let token = world
        .registry
        .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(9, 60))
        .unwrap();
    let enrolled = world.registry.enroll(&token, &csr("x"), &named("web")).unwrap();
    let leaf = der(&enrolled.certificate_pem);
    let nbf_s = world.registry.token_nbf_s(1, &[], false);
    world.registry.revoke_tokens(&WriteContext::server(), RevocationTarget::User(1)).unwrap();
    world.wall.jump_to(START_US + 3 * YEAR_US);
    world.forget();
    assert!(world.registry.token_revoked(1, &[], false, nbf_s));
    world.wall.advance(HOLD_MAX);
    world.forget();
    assert!(!world.registry.token_revoked(1, &[], false, nbf_s));
    assert_eq!(world.registry.identify(&leaf), Err(IdentityError::Expired));
}

/// The token was issued by an earlier process, and the clock was then set back by less than a day.
#[test]
fn revocation_covers_tokens_from_before_a_small_clock_step() {
    let world = Guarded::open();
    let nbf_s = world.registry.token_nbf_s(1, &[], false);
    let world = world.restarted_at(START_US - 3_600_000_000);
    world.registry.revoke_tokens(&WriteContext::server(), RevocationTarget::User(1)).unwrap();
    assert!(world.registry.token_revoked(1, &[], false, nbf_s));
}

/// The registry was written by a version that expired revocations by the wall clock.
#[test]
fn upgrade_from_earlier_version_revokes_all_tokens_once() {
    let world = Guarded::open();
    let keys = |world: &Guarded| world.registry.token_keys().unwrap().public_pem;
    let before = keys(&world);
    let world = world.restarted_at(START_US);
    assert_eq!(keys(&world), before);
    let db = rusqlite::Connection::open(world.folder.path().join("registry.db")).unwrap();
    db.execute("DELETE FROM setting WHERE name = 'revocations_guarded'", []).unwrap();
    drop(db);
    let world = world.restarted_at(START_US);
    let after = keys(&world);
    assert_ne!(after, before);
    assert_eq!(keys(&world.restarted_at(START_US)), after);
}

/// Ages of agents use the same time as their keepalives.
#[test]
fn active_agent_is_never_old_during_a_clock_hold() {
    let world = Guarded::open();
    let token = world
        .registry
        .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(9, 7_200))
        .unwrap();
    let enrolled = world.registry.enroll(&token, &csr("x"), &named("web")).unwrap();
    let old = AgentQuery { older_than_s: Some(7 * 86_400), ..AgentQuery::default() };
    for wall_us in [START_US - 30 * 86_400_000_000, START_US + 10 * YEAR_US, 0, START_US] {
        world.wall.jump_to(wall_us);
        assert!(world.registry.keepalive(enrolled.agent, &common::info("debian", "v1")));
        world.registry.flush().unwrap();
        assert_eq!(world.registry.agent_ids(&Reader::server(), &old).unwrap(), [], "at {wall_us}");
    }
}

/// The clock jumped far ahead, revocations were forgotten, and the clock was set back. The revoked
/// tokens must not become valid again.
#[test]
fn clock_set_back_far_invalidates_every_token() {
    let world = Guarded::open();
    world.registry.token_nbf_s(1, &[], false);
    world.registry.revoke_tokens(&WriteContext::server(), RevocationTarget::User(1)).unwrap();
    let keys = world.registry.token_keys().unwrap().public_pem;
    world.wall.jump_to(START_US + 3 * YEAR_US);
    world.clock.hold().unwrap();
    assert_eq!(world.clock.accept(), Acceptance::Released);
    world.forget();
    world.wall.jump_to(START_US);
    world.clock.hold().unwrap();
    assert_eq!(world.clock.accept(), Acceptance::Released);
    world.registry.tick().unwrap();
    assert_ne!(world.registry.token_keys().unwrap().public_pem, keys);
}

#[test]
fn agent_enrolled_during_a_clock_hold_stays_valid() {
    let world = Guarded::open();
    let token = world
        .registry
        .create_enrolment_token(&WriteContext::server(), &TokenTerms::new(9, 7_200))
        .unwrap();
    world.wall.jump_to(START_US + 2 * YEAR_US);
    let enrolled = world.registry.enroll(&token, &csr("x"), &named("web")).unwrap();
    assert_eq!(world.clock.accept(), Acceptance::Released);
    world.registry.identify(&der(&enrolled.certificate_pem)).unwrap();
}

/// Clients check the server's certificate with their own clocks, so it must be valid at both times.
#[test]
fn server_certificate_is_valid_by_wall_and_guarded_time() {
    let world = Guarded::open();
    let day_s = 86_400;
    let guarded_s = (START_US / 1_000_000) as i64;
    for wall_us in [START_US, START_US + 10 * YEAR_US, START_US - 3 * 86_400_000_000] {
        world.wall.jump_to(wall_us);
        let pem = world.registry.issue_server_certificate(&[]).unwrap().cert_chain_pem;
        let leaf = der(&pem);
        let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).unwrap();
        let (begins_s, ends_s) =
            (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
        for now_s in [guarded_s, (wall_us / 1_000_000) as i64] {
            assert!(begins_s < now_s && now_s + 390 * day_s < ends_s, "{begins_s} {ends_s}");
        }
    }
}
