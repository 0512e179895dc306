//! Users, roles, policies, settings and revocations of tokens.

use super::{by, open, reader};
use control::limits::{ADMIN_USER, ADMIN_USER_ID, RESERVED_ID_MAX};
use control::{
    ControlError, ControlResult, ControlStore, LinkKind, Policy, Revocation, RevocationTarget,
    SecurityChange, SecurityWrite,
};

fn revocation(target: RevocationTarget, issued_until_s: i64, expires_at_s: i64) -> Revocation {
    Revocation { target, issued_until_s, expires_at_s }
}

fn change(store: &ControlStore, change: SecurityChange) -> ControlResult<u32> {
    store.change_security(&by(), &SecurityWrite { change, revoked: Vec::new() })
}

fn policy(name: &str, action: &str) -> Policy {
    Policy {
        id: 0,
        name: name.into(),
        actions: vec![action.into()],
        resources: vec!["agent:id:*".into()],
        allow: true,
    }
}

fn link(owner: u32, member: u32, position: Option<u64>) -> SecurityChange {
    SecurityChange::Link { kind: LinkKind::RolePolicy, owner, member, position }
}

#[test]
fn first_user_has_reserved_id_and_cannot_be_deleted() {
    let store = open();
    let role = store.roles(&reader()).unwrap()[0].id;
    let admin = store.create_user(&by(), ADMIN_USER, "hash", true, &[role]).unwrap();
    assert_eq!(admin, ADMIN_USER_ID);
    let joe = store.create_user(&by(), "joe", "hash", false, &[]).unwrap();
    assert!(joe > RESERVED_ID_MAX);
    assert!(matches!(
        store.create_user(&by(), "joe", "other", false, &[]),
        Err(ControlError::Exists { what: "user", .. })
    ));
    assert!(store.create_user(&by(), "ann", "hash", false, &[9_999]).is_err());
    assert_eq!(store.user(&reader(), "ann").unwrap(), None, "nothing of a refused user is kept");
    let ends = revocation(RevocationTarget::User(joe), 5, 9);
    assert!(store.delete_user(&by(), ADMIN_USER, &ends).is_err());
    assert_eq!(store.revocations().unwrap(), []);
    assert!(store.delete_user(&by(), "joe", &ends).unwrap());
    assert!(!store.delete_user(&by(), "joe", &ends).unwrap());
    assert_eq!(store.revocations().unwrap(), [ends]);
    let users = store.users(&reader()).unwrap();
    assert_eq!(users.iter().map(|user| user.id).collect::<Vec<_>>(), [admin]);
    assert_eq!(users[0].roles[0].id, role);
}

#[test]
fn policies_of_a_role_keep_their_order() {
    let store = open();
    let role = change(&store, SecurityChange::CreateRole { name: "ops".into() }).unwrap();
    let policies: Vec<u32> = ["one", "two", "three"]
        .into_iter()
        .map(|name| {
            change(&store, SecurityChange::CreatePolicy(policy(name, &format!("{name}:read"))))
                .unwrap()
        })
        .collect();
    change(&store, link(role, policies[0], None)).unwrap();
    change(&store, link(role, policies[1], Some(0))).unwrap();
    change(&store, link(role, policies[2], Some(99))).unwrap();
    let order = [policies[1], policies[0], policies[2]];
    let flat = store.policies(&reader(), &[role]).unwrap();
    assert_eq!(flat.iter().map(|policy| policy.id).collect::<Vec<_>>(), order);
    let image = store.security(&reader()).unwrap();
    let row = image.roles.iter().find(|row| row.id == role).unwrap();
    assert_eq!((row.name.as_str(), &row.policies[..]), ("ops", &order[..]));
    for (refused, what) in [
        (link(role, policies[0], None), "link"),
        (SecurityChange::CreateRole { name: "ops".into() }, "role"),
        (SecurityChange::CreatePolicy(policy("one", "other:read")), "policy"),
        (SecurityChange::CreatePolicy(policy("other", "one:read")), "policy body"),
    ] {
        let error = change(&store, refused).unwrap_err();
        assert!(matches!(error, ControlError::Exists { what: w, .. } if w == what), "{error}");
    }
    assert!(matches!(
        change(&store, link(role, 99_999, None)),
        Err(ControlError::NotFound { what: "policy", .. })
    ));
    change(&store, SecurityChange::DeletePolicy(policies[0])).unwrap();
    let flat = store.policies(&reader(), &[role]).unwrap();
    assert_eq!(flat.len(), 2, "its links went with it");
}

#[test]
fn security_change_and_revocations_are_one_transaction() {
    let store = open();
    let joe = store.create_user(&by(), "joe", "hash", false, &[]).unwrap();
    let write = |change| SecurityWrite {
        change,
        revoked: vec![revocation(RevocationTarget::User(joe), 5, 9)],
    };
    let missing = SecurityChange::SetPassword { user: 9_999, hash: "new".into() };
    assert!(store.change_security(&by(), &write(missing)).is_err());
    assert_eq!(store.revocations().unwrap(), []);
    let change = SecurityChange::SetPassword { user: joe, hash: "new".into() };
    store.change_security(&by(), &write(change)).unwrap();
    assert_eq!(store.user(&reader(), "joe").unwrap().unwrap().password_hash, "new");
    assert_eq!(store.revocations().unwrap().len(), 1);
}

#[test]
fn access_returns_user_policies_and_settings() {
    let store = open();
    let roles: Vec<u32> = store.roles(&reader()).unwrap().iter().map(|role| role.id).collect();
    let joe = store.create_user(&by(), "joe", "hash", true, &roles[..2]).unwrap();
    store.setting_or("mode", "black").unwrap();
    let asked = [roles[1], roles[0]];
    let rows = store.access(&reader(), joe, &asked, &["mode", "gone"]).unwrap().unwrap();
    assert_eq!(Some(&rows.user), store.user_by_id(&reader(), joe).unwrap().as_ref());
    assert_eq!(Some(rows.user), store.user(&reader(), "joe").unwrap());
    assert_eq!(rows.policies, store.policies(&reader(), &asked).unwrap());
    assert_eq!(rows.settings, [("mode".to_owned(), "black".to_owned())].into());
    assert_eq!(store.access(&reader(), 9_999, &asked, &[]).unwrap(), None);
}

#[test]
fn revocations_are_only_extended_until_they_expire() {
    let store = open();
    let target = RevocationTarget::Role(2);
    store.revoke_tokens(&by(), &revocation(target, 5, 9)).unwrap();
    store.revoke_tokens(&by(), &revocation(target, 3, 12)).unwrap();
    assert_eq!(store.revocations().unwrap(), [revocation(target, 5, 12)]);
    assert_eq!(store.forget_expired(11).unwrap(), 0);
    assert_eq!(store.forget_expired(12).unwrap(), 1);
    store.revoke_tokens(&by(), &revocation(RevocationTarget::Everyone, 5, 99)).unwrap();
    store.clear_revocations(&by()).unwrap();
    assert_eq!(store.revocations().unwrap(), []);
}

#[test]
fn setting_or_keeps_and_revoke_and_set_replaces() {
    let store = open();
    assert_eq!(store.setting(&reader(), "name").unwrap(), None);
    assert_eq!(store.setting_or("name", "first").unwrap(), "first");
    assert_eq!(store.setting_or("name", "second").unwrap(), "first");
    let everyone = revocation(RevocationTarget::Everyone, 5, 99);
    store.revoke_and_set(&by(), &everyone, &[("name", "third".into())]).unwrap();
    assert_eq!(store.setting(&reader(), "name").unwrap().as_deref(), Some("third"));
    assert_eq!(store.revocations().unwrap(), [everyone]);
}
