//! Users, passwords, blocked sources, refused tokens, and permissions of roles.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{self, Fixture, fixture, fixture_with, options};
use control::Revocation;
use registry::{
    ControlError, ControlStore, HashCost, LoginError, RbacMode, Reader, RegistryError,
    RegistryOptions, RevocationTarget, User, WriteContext,
};

const PASSWORD: &str = "Correct-Horse-9";

fn source(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

fn login(fixture: &Fixture, name: &str, password: &str) -> Result<User, LoginError> {
    run(fixture.registry.login(name, password, Some(source(1))))
}

#[test]
fn first_start_creates_one_administrator_with_a_random_password() {
    let fixture = fixture();
    let password = fixture.registry.ensure_admin(None).unwrap().unwrap();
    assert!(password.len() >= 20, "{password}");
    assert_eq!(fixture.registry.ensure_admin(None).unwrap(), None);
    let user = login(&fixture, "admin", &password).unwrap();
    assert_eq!((user.id, user.name.as_str()), (1, "admin"));
    assert!(user.has_role("administrator"));
    let killed = fixture.killed();
    assert!(login(&killed, "admin", &password).is_ok());
    assert_eq!(killed.registry.ensure_admin(Some("another-one")).unwrap(), None);
    assert!(login(&killed, "admin", "another-one").is_err());
    for entry in std::fs::read_dir(fixture.folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(password.len()).any(|w| w == password.as_bytes()));
    }
    assert_eq!(
        fixture.registry.audit_log(&Reader::server(), None, 10).unwrap()[0].action,
        "security:create_user"
    );
}

#[test]
fn preset_password_is_accepted_and_not_returned() {
    let fixture = fixture();
    assert!(fixture.registry.ensure_admin(Some("short")).is_err());
    assert_eq!(fixture.registry.ensure_admin(Some("of my choice")).unwrap(), None);
    assert!(login(&fixture, "admin", "of my choice").is_ok());
}

#[test]
fn wrong_password_and_unknown_user_get_the_same_error() {
    let fixture = fixture();
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    for (name, password) in [
        ("admin", "wrong"),
        ("admin", ""),
        ("nobody", PASSWORD),
        ("", ""),
        ("admin' OR 1=1 --", PASSWORD),
        ("admin", &PASSWORD.repeat(10_000)),
    ] {
        assert!(matches!(login(&fixture, name, password), Err(LoginError::Invalid)), "{name}");
    }
}

#[test]
fn login_time_is_equal_for_unknown_user_and_wrong_password() {
    // The hash is a hundred times as expensive as the rest, so that its absence is visible above
    // the noise.
    let hash_cost = HashCost { memory_kib: 16_384, passes: 2, lanes: 1 };
    let fixture = fixture_with(RegistryOptions { hash_cost, login_attempts_max: 0, ..options() });
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let fastest = |name: &str| {
        let once = |_| {
            let started = Instant::now();
            assert!(login(&fixture, name, "wrong").is_err());
            started.elapsed()
        };
        (0..8).map(once).min().unwrap()
    };
    let (known, unknown) = (fastest("admin"), fastest("nobody"));
    assert!(unknown * 10 > known, "unknown {unknown:?}, known {known:?}");
}

#[test]
fn fiftieth_failed_login_blocks_only_its_source() {
    let fixture = fixture();
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    for n in 0..50 {
        let refused = login(&fixture, "admin", "wrong");
        assert!(matches!(refused, Err(LoginError::Invalid)), "{n}");
    }
    fixture.after(100);
    let Err(LoginError::Blocked { retry_after_s }) = login(&fixture, "admin", PASSWORD) else {
        panic!("not blocked")
    };
    assert_eq!(retry_after_s, 200);
    assert!(run(fixture.registry.login("admin", PASSWORD, Some(source(2)))).is_ok());
    assert!(run(fixture.registry.login("admin", PASSWORD, None)).is_ok());
    fixture.after(200);
    assert!(login(&fixture, "admin", PASSWORD).is_ok());
}

#[test]
fn queued_login_failures_count_towards_the_block() {
    let attempts = RegistryOptions { login_attempts_max: 5, login_queue_max: 1_000, ..options() };
    let fixture = fixture_with(attempts);
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let invalid = run(async {
        let tries = (0..100).map(|_| fixture.registry.login("admin", "wrong", Some(source(1))));
        let results = futures(tries).await;
        results.iter().filter(|r| matches!(r, Err(LoginError::Invalid))).count()
    });
    // Each of the two threads may be checking one when the fifth failure is counted.
    assert!((5..=6).contains(&invalid), "{invalid} passwords were tried");
}

/// Polls all of them to completion; they are submitted in order before any is awaited.
async fn futures<T: Send + 'static>(work: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = work.map(|w| (Box::pin(w), None)).collect();
    std::future::poll_fn(|cx| {
        for (future, done) in &mut pending {
            if done.is_none()
                && let std::task::Poll::Ready(out) = future.as_mut().poll(cx)
            {
                *done = Some(out);
            }
        }
        if pending.iter().all(|(_, done)| done.is_some()) {
            return std::task::Poll::Ready(());
        }
        std::task::Poll::Pending
    })
    .await;
    pending.into_iter().filter_map(|(_, done)| done).collect()
}

#[test]
fn logins_beyond_threads_and_queue_are_refused_at_once() {
    let hash_cost = HashCost { memory_kib: 19 * 1024, passes: 2, lanes: 1 };
    let few = RegistryOptions { hash_cost, login_workers: 1, login_queue_max: 2, ..options() };
    let fixture = fixture_with(few);
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let results = run(async {
        futures((0..20).map(|_| fixture.registry.login("admin", PASSWORD, Some(source(1))))).await
    });
    let busy = |r: &&Result<User, LoginError>| matches!(r, Err(LoginError::Busy { .. }));
    let refused = results.iter().filter(busy).count();
    let passed = results.iter().filter(|r| r.is_ok()).count();
    assert_eq!(refused + passed, 20);
    assert!((2..=4).contains(&passed), "{passed} passed");
}

#[test]
fn new_password_replaces_the_old_one_and_revokes_tokens() {
    let fixture = fixture();
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let user = login(&fixture, "admin", PASSWORD).unwrap();
    let nbf_s = fixture.registry.token_nbf_s(user.id, &user.role_ids(), false);
    assert!(!fixture.registry.token_revoked(user.id, &user.role_ids(), false, nbf_s));
    let weak = fixture.registry.set_password(&WriteContext::server(), "admin", "weak");
    assert!(matches!(weak, Err(RegistryError::Password(_))));
    fixture.registry.set_password(&WriteContext::server(), "admin", "Another-One-7").unwrap();
    assert!(login(&fixture, "admin", PASSWORD).is_err());
    assert!(login(&fixture, "admin", "Another-One-7").is_ok());
    let killed = fixture.killed();
    for fixture in [&fixture, &killed] {
        assert!(fixture.registry.token_revoked(user.id, &user.role_ids(), false, nbf_s));
        let fresh = fixture.registry.token_nbf_s(user.id, &user.role_ids(), false);
        assert!(!fixture.registry.token_revoked(user.id, &user.role_ids(), false, fresh));
        assert!(!fixture.registry.token_revoked(user.id + 1, &[], false, nbf_s));
    }
    let missing = fixture.registry.set_password(&WriteContext::server(), "nobody", "Another-One-7");
    assert!(missing.unwrap_err().to_string().contains("no such user: nobody"));
}

#[test]
fn tokens_are_revoked_by_role_by_run_as_and_by_new_keys() {
    let fixture = fixture();
    let refused = |run_as: bool, roles: &[u32]| {
        let now_s = (common::START_US / 1_000_000) as i64;
        fixture.registry.token_revoked(7, roles, run_as, now_s)
    };
    fixture.registry.revoke_tokens(&WriteContext::server(), RevocationTarget::Role(2)).unwrap();
    assert!(refused(false, &[1, 2]) && !refused(false, &[1]));
    fixture.registry.revoke_tokens(&WriteContext::server(), RevocationTarget::RunAs).unwrap();
    assert!(refused(true, &[1]) && !refused(false, &[1]));
    let before = fixture.registry.token_keys().unwrap();
    let after = fixture.registry.replace_token_keys(&WriteContext::server()).unwrap();
    assert_ne!(before.public_pem, after.public_pem);
    assert!(!refused(true, &[2]), "every token is dead by its signature");
    let reopened = fixture.killed().registry.token_keys().unwrap();
    assert_eq!(reopened.private_pem, after.private_pem);
    assert!(after.private_pem.starts_with("-----BEGIN PRIVATE KEY-----"));
    assert!(after.public_pem.starts_with("-----BEGIN PUBLIC KEY-----"));
}

#[test]
fn revocation_by_another_process_is_adopted_and_later_expires() {
    let fixture = common::fixture_unlogged();
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let nbf_s = fixture.registry.token_nbf_s(1, &[1], false);
    fixture.registry.tick().unwrap();
    let path = fixture.folder.path();
    let other = common::try_open(path, &fixture.clock, options()).unwrap();
    other.set_password(&WriteContext::server(), "admin", "Another-One-7").unwrap();
    fixture.after(10);
    fixture.registry.tick().unwrap();
    assert!(fixture.registry.token_revoked(1, &[1], false, nbf_s));
    assert!(login(&fixture, "admin", "Another-One-7").is_ok());
    fixture.after(12 * 3_600);
    fixture.registry.tick().unwrap();
    let revoked = || fixture.registry.token_revoked(1, &[1], false, nbf_s);
    assert!(revoked(), "how long this server's tokens live the other process does not know");
    fixture.after(366 * 24 * 3_600);
    fixture.registry.tick().unwrap();
    assert!(!revoked(), "no token lives so long");
}

#[test]
fn users_are_created_and_deleted_except_the_reserved_one() {
    let fixture = fixture();
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let made = fixture
        .registry
        .create_user(&WriteContext::server(), "reader", PASSWORD, false, &["readonly"])
        .unwrap();
    assert_eq!(made.id, 100);
    for (name, password, roles) in [
        ("reader", PASSWORD, &["readonly"][..]),
        ("abc", PASSWORD, &[]),
        ("a:bcd", PASSWORD, &[]),
        ("other", "weak", &[]),
        ("other", PASSWORD, &["emperor"]),
    ] {
        assert!(
            fixture
                .registry
                .create_user(&WriteContext::server(), name, password, false, roles)
                .is_err(),
            "{name}"
        );
    }
    assert!(login(&fixture, "reader", PASSWORD).unwrap().has_role("readonly"));
    assert!(fixture.registry.delete_user(&WriteContext::server(), "reader").unwrap());
    assert!(!fixture.registry.delete_user(&WriteContext::server(), "reader").unwrap());
    assert!(login(&fixture, "reader", PASSWORD).is_err());
    assert!(fixture.registry.delete_user(&WriteContext::server(), "admin").is_err());
    let again = fixture
        .registry
        .create_user(&WriteContext::server(), "reader", PASSWORD, false, &[])
        .unwrap();
    assert_eq!(again.id, 101, "the number of a deleted user is not given again");
    assert_eq!(fixture.registry.users(&Reader::server()).unwrap().len(), 2);
}

#[test]
fn concurrent_changes_of_two_settings_are_both_kept() {
    let fixture = fixture();
    let registry = &fixture.registry;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            registry.change_security_config(&WriteContext::server(), Some(77), None).unwrap();
        });
        scope.spawn(|| {
            registry
                .change_security_config(&WriteContext::server(), None, Some(RbacMode::Black))
                .unwrap();
        });
    });
    let now = registry.security_config(&Reader::server()).unwrap();
    assert_eq!((now.token_ttl_s, now.mode), (77, RbacMode::Black));
}

#[test]
fn administrator_may_write_and_readonly_may_only_read() {
    let fixture = fixture();
    let (administrator, readonly) = (1, 2);
    let may = |role: u32, action: &str, resource: &str| {
        fixture.registry.permits(&Reader::server(), &[role], action, resource).unwrap()
    };
    for (action, resource) in [
        ("agent:read", "agent:id:001"),
        ("group:read", "group:id:default"),
        ("syscheck:read", "agent:id:*"),
        ("change:read", "agent:id:*"),
        ("manager:read", "*:*:*"),
    ] {
        assert!(may(administrator, action, resource), "{action}");
        assert!(may(readonly, action, resource), "{action}");
    }
    for (action, resource) in [
        ("agent:delete", "agent:id:001"),
        ("agent:restart", "agent:id:001"),
        ("syscheck:run", "agent:id:001"),
        ("security:create_user", "*:*:*"),
        ("enrolment:create", "*:*:*"),
    ] {
        assert!(may(administrator, action, resource), "{action}");
        assert!(!may(readonly, action, resource), "{action}");
    }
    assert!(
        !fixture.registry.permits(&Reader::server(), &[], "agent:read", "agent:id:001").unwrap()
    );
    assert!(!may(administrator, "agent:read", "group:id:default"));
}

#[test]
fn database_failure_is_not_reported_as_a_wrong_password() {
    let fixture = fixture();
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let path = fixture.folder.path().join("registry.db");
    let raw = rusqlite_drop_users(&path);
    assert!(raw.is_ok());
    assert!(matches!(login(&fixture, "admin", PASSWORD), Err(LoginError::Registry(_))));
}

fn rusqlite_drop_users(path: &std::path::Path) -> rusqlite::Result<()> {
    let _keep: Arc<ControlStore> = Arc::new(ControlStore::open(path).unwrap());
    let conn = rusqlite::Connection::open(path)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.execute_batch("ALTER TABLE user RENAME TO person")
}

/// A clock that advances by a second each time it is read.
struct Hasty(std::sync::atomic::AtomicU64);

impl env::clock::Clock for Hasty {
    fn now_us(&self) -> u64 {
        self.0.fetch_add(1_000_000, std::sync::atomic::Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn revocation_known_in_memory_survives_a_restart() {
    let folder = tempfile::TempDir::new().unwrap();
    let open = || {
        let store = mirror::open(&folder.path().join("registry.db")).unwrap();
        let clock = Arc::new(Hasty(common::START_US.into()));
        let random = Arc::new(env::random::SystemRandom);
        registry::Registry::open(Arc::new(store), folder.path(), clock, random, options()).unwrap()
    };
    let registry = open();
    registry.ensure_admin(Some(PASSWORD)).unwrap();
    let until = |registry: &registry::Registry| {
        let first = (common::START_US / 1_000_000) as i64;
        (first..first + 1_000).rfind(|nbf| registry.token_revoked(1, &[], false, *nbf)).unwrap()
    };
    for change in ["password", "logout", "config"] {
        match change {
            "password" => {
                registry.set_password(&WriteContext::server(), "admin", PASSWORD).unwrap();
            }
            "logout" => {
                registry.revoke_tokens(&WriteContext::server(), RevocationTarget::User(1)).unwrap();
            }
            _ => registry.set_security_config(&WriteContext::server(), None).unwrap(),
        }
        assert_eq!(until(&open()), until(&registry), "{change}");
    }
}

#[test]
fn revocation_covers_tokens_issued_before_a_clock_set_back() {
    let fixture = fixture();
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let user = login(&fixture, "admin", PASSWORD).unwrap();
    let ahead_s = (common::START_US / 1_000_000) as i64 + 3_600;
    // The token was issued before a restart, by a clock that was an hour ahead.
    fixture.registry.token_seen(ahead_s);
    fixture
        .registry
        .revoke_tokens(&WriteContext::server(), RevocationTarget::User(user.id))
        .unwrap();
    assert!(fixture.registry.token_revoked(user.id, &user.role_ids(), false, ahead_s));
}

#[test]
fn clock_years_ahead_leaves_no_valid_token_and_no_lockout() {
    let fixture = common::fixture_unlogged();
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let user = login(&fixture, "admin", PASSWORD).unwrap();
    let now_s = (common::START_US / 1_000_000) as i64;
    let years_s = now_s + 3 * 365 * 24 * 3_600;
    assert!(!fixture.registry.token_seen(years_s), "made by a clock three years ahead");
    fixture
        .registry
        .revoke_tokens(&WriteContext::server(), RevocationTarget::User(user.id))
        .unwrap();
    let nbf_s = fixture.registry.token_nbf_s(user.id, &user.role_ids(), false);
    assert!(nbf_s <= now_s + 1, "a login after the logout begins now, not in {} s", nbf_s - now_s);
    // The revocation was made while the clock was ahead.
    let store = ControlStore::open(&fixture.folder.path().join("registry.db")).unwrap();
    let until =
        |target, issued_until_s| Revocation { target, issued_until_s, expires_at_s: i64::MAX };
    store
        .revoke_tokens(&WriteContext::server(), &until(RevocationTarget::User(user.id), years_s))
        .unwrap();
    let public = || fixture.registry.token_keys().unwrap().public_pem;
    let before = public();
    fixture.after(60);
    fixture.registry.tick().unwrap();
    assert_ne!(public(), before, "every token dies");
    let nbf_s = fixture.registry.token_nbf_s(user.id, &user.role_ids(), false);
    assert!(fixture.registry.token_seen(nbf_s) && nbf_s <= now_s + 61);
    store
        .revoke_tokens(&WriteContext::server(), &until(RevocationTarget::Everyone, years_s))
        .unwrap();
    drop(store);
    let fixture = fixture.reopen();
    let nbf_s = fixture.registry.token_nbf_s(user.id, &user.role_ids(), false);
    assert!(nbf_s <= now_s + 61, "at a start, too");
}

#[test]
fn token_issued_by_a_clock_days_ahead_never_becomes_valid() {
    let fixture = fixture();
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let user = login(&fixture, "admin", PASSWORD).unwrap();
    let (day, now_us) = (Duration::from_hours(24), common::START_US);
    let now_s = (now_us / 1_000_000) as i64;
    let public = |fixture: &Fixture| fixture.registry.token_keys().unwrap().public_pem;
    let before = public(&fixture);
    fixture.clock.jump_to(now_us + 2 * day.as_micros() as u64);
    let ahead_s = fixture.registry.token_nbf_s(user.id, &user.role_ids(), false);
    assert_eq!(ahead_s, now_s + 2 * 86_400);
    fixture.clock.jump_to(now_us);
    fixture
        .registry
        .revoke_tokens(&WriteContext::server(), RevocationTarget::User(user.id))
        .unwrap();
    fixture.after(11);
    fixture.registry.tick().unwrap();
    assert_ne!(public(&fixture), before, "what was signed ahead is no token any more");
    fixture
        .registry
        .revoke_tokens(&WriteContext::server(), RevocationTarget::User(user.id))
        .unwrap();
    let nbf_s = fixture.registry.token_nbf_s(user.id, &user.role_ids(), false);
    assert!(nbf_s <= now_s + 12, "and a login after a logout begins now");
    // The token was issued before a restart, and was only presented afterwards.
    let (fixture, before) = (fixture.reopen(), before);
    assert!(!fixture.registry.token_seen(now_s + 3 * 86_400));
    let kept = public(&fixture);
    fixture.after(11);
    fixture.registry.tick().unwrap();
    assert!(public(&fixture) != kept && kept != before);
}

#[test]
fn new_passwords_share_the_login_queue_and_fail_when_it_is_full() {
    let hash_cost = HashCost { memory_kib: 19 * 1024, passes: 2, lanes: 1 };
    let few = RegistryOptions { hash_cost, login_workers: 1, login_queue_max: 1, ..options() };
    let fixture = fixture_with(few);
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let results: Vec<Result<(), RegistryError>> = std::thread::scope(|scope| {
        let one =
            || fixture.registry.set_password(&WriteContext::server(), "admin", "Another-One-7");
        let all: Vec<_> = (0..16).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let busy =
        |r: &&Result<(), RegistryError>| matches!(r, Err(RegistryError::Store(ControlError::Busy)));
    let refused = results.iter().filter(busy).count();
    assert!(refused > 0 && refused < 16, "{results:?}");
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 16 - refused);
}
