//! Passwords that are remembered for a minute.

use std::net::IpAddr;

use crate::common::{self, Fixture, fixture, fixture_with, options};
use registry::{HashCost, LoginError, Reader, RegistryOptions, User, WriteContext};

const PASSWORD: &str = "Correct-Horse-9";

fn source(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

async fn login(fixture: &Fixture, name: &str, password: &str) -> Result<User, LoginError> {
    fixture.registry.login_remembered(&Reader::server(), name, password, Some(source(1))).await
}

fn with_users(options: RegistryOptions) -> Fixture {
    let fixture = fixture_with(options);
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let context = WriteContext::server();
    fixture.registry.create_user(&context, "reader", PASSWORD, false, &["readonly"]).unwrap();
    fixture
}

#[tokio::test]
async fn right_password_is_remembered_for_a_minute() {
    let fixture = with_users(options());
    let is_remembered = |name, password| fixture.registry.password_is_remembered(name, password);
    assert!(!is_remembered("reader", PASSWORD));
    login(&fixture, "reader", PASSWORD).await.unwrap();
    assert!(login(&fixture, "reader", "wrong").await.is_err());
    assert!(is_remembered("reader", PASSWORD));
    for (name, password) in [("reader", "wrong"), ("admin", PASSWORD), ("readerC", &PASSWORD[1..])]
    {
        assert!(!is_remembered(name, password), "{name} {password}");
    }
    fixture.after(59);
    assert!(is_remembered("reader", PASSWORD));
    login(&fixture, "reader", PASSWORD).await.unwrap();
    fixture.after(1);
    assert!(!is_remembered("reader", PASSWORD), "a use does not extend the minute");
    login(&fixture, "reader", PASSWORD).await.unwrap();
}

#[tokio::test]
async fn remembered_password_is_void_once_the_user_changes() {
    let fixture = with_users(options());
    let context = WriteContext::server();
    login(&fixture, "reader", PASSWORD).await.unwrap();
    fixture.registry.set_password(&context, "reader", "Another-One-7").unwrap();
    assert!(matches!(login(&fixture, "reader", PASSWORD).await, Err(LoginError::Invalid)));
    login(&fixture, "reader", "Another-One-7").await.unwrap();
    fixture.registry.delete_user(&context, "reader").unwrap();
    assert!(matches!(login(&fixture, "reader", "Another-One-7").await, Err(LoginError::Invalid)));
    // A change by another process, too.
    login(&fixture, "admin", PASSWORD).await.unwrap();
    let other = common::try_open(fixture.folder.path(), &fixture.clock, options()).unwrap();
    other.set_password(&context, "admin", "Another-One-8").unwrap();
    assert!(matches!(login(&fixture, "admin", PASSWORD).await, Err(LoginError::Invalid)));
}

#[tokio::test]
async fn blocked_address_cannot_use_a_remembered_password() {
    let fixture = with_users(options());
    login(&fixture, "reader", PASSWORD).await.unwrap();
    for n in 0..50 {
        let refused = login(&fixture, "reader", "wrong").await;
        assert!(matches!(refused, Err(LoginError::Invalid)), "{n}");
    }
    let refused = login(&fixture, "reader", PASSWORD).await;
    assert!(matches!(refused, Err(LoginError::Blocked { retry_after_s: 300 })));
    let reader = Reader::server();
    let elsewhere =
        fixture.registry.login_remembered(&reader, "reader", PASSWORD, Some(source(2))).await;
    assert!(elsewhere.is_ok());
}

#[tokio::test]
async fn requests_that_arrive_together_hash_their_password_once() {
    let hash_cost = HashCost { memory_kib: 19 * 1024, passes: 2, lanes: 1 };
    let few = RegistryOptions { hash_cost, login_workers: 1, login_queue_max: 1, ..options() };
    let fixture = with_users(few);
    let requests: Vec<_> = (0..60)
        .map(|_| {
            let registry = fixture.registry.clone();
            tokio::spawn(async move {
                let reader = Reader::server();
                registry.login_remembered(&reader, "reader", PASSWORD, Some(source(1))).await
            })
        })
        .collect();
    for request in requests {
        request.await.unwrap().unwrap();
    }
}

#[test]
fn restart_forgets_passwords() {
    let fixture = fixture();
    fixture.registry.ensure_admin(Some(PASSWORD)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(login(&fixture, "admin", PASSWORD)).unwrap();
    assert!(!fixture.reopen().registry.password_is_remembered("admin", PASSWORD));
}
