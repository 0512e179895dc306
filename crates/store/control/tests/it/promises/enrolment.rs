//! Enrolment tokens, certificates and the image for memory.

use model::{AgentId, Incarnation};

use super::{add, by, new_agent, open, reader};
use control::{
    CertificateRow, ControlError, ControlResult, ControlStore, EnrolledAgent, GroupConfig,
    NewAgent, NewCertificate, NewEnrolmentToken, Revocation, RevocationTarget,
};

fn certificate(fingerprint: u8, not_after_s: i64) -> NewCertificate {
    NewCertificate {
        fingerprint: [fingerprint; 32],
        key_digest: [fingerprint; 32],
        not_before_s: 0,
        not_after_s,
        pem: String::new(),
    }
}

fn token(digest: u8, uses: u32) -> NewEnrolmentToken {
    NewEnrolmentToken {
        digest: [digest; 32],
        groups: vec!["default".into()],
        uses,
        expires_at_s: 1_000,
        ephemeral_s: None,
        now_s: 100,
    }
}

fn enroll(store: &ControlStore, digest: u8, name: &str) -> ControlResult<EnrolledAgent> {
    let mut sign = |id: AgentId| Ok(certificate(id.0 as u8, 5_000));
    store.enroll(&[digest; 32], &new_agent(name), &mut sign)
}

/// Returns the reason why a token was refused.
fn refusal(result: ControlResult<EnrolledAgent>) -> &'static str {
    match result {
        Err(ControlError::Token(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn enrolment_token_registers_at_most_its_uses() {
    let store = open();
    store.create_group(&by(), "web", 1).unwrap();
    let groups = vec!["web".into()];
    store.add_enrolment_token(&by(), &NewEnrolmentToken { groups, ..token(1, 2) }).unwrap();
    let mut sign = |id: AgentId| Ok(certificate(id.0 as u8, 5_000));
    let agent = NewAgent { groups: vec!["default".into()], ..new_agent("a") };
    let first = store.enroll(&[1; 32], &agent, &mut sign).unwrap();
    assert_eq!(first.row.record.groups, ["web", "default"], "the token's come first");
    assert_eq!(first.certificate.fingerprint, [1; 32]);
    assert_eq!(store.enrolment_tokens(&reader(), 100).unwrap()[0].uses_left, 1);
    assert_eq!(enroll(&store, 1, "b").unwrap().row.record.groups, ["web"]);
    assert_eq!(store.enrolment_tokens(&reader(), 100).unwrap(), []);
    assert_eq!(refusal(enroll(&store, 1, "c")), "used up");
    for uses in [0, u32::MAX] {
        assert!(store.add_enrolment_token(&by(), &token(2, uses)).is_err());
    }
    let unknown = NewEnrolmentToken { groups: vec!["none".into()], ..token(2, 1) };
    assert!(store.add_enrolment_token(&by(), &unknown).is_err());
}

#[test]
fn refused_enrolment_does_not_use_the_token() {
    let store = open();
    add(&store, &["a"]);
    store.add_enrolment_token(&by(), &token(1, 1)).unwrap();
    assert!(matches!(enroll(&store, 1, "a"), Err(ControlError::DuplicateName { .. })));
    let mut fails = |_: AgentId| Err("no key".to_owned());
    let failed = store.enroll(&[1; 32], &new_agent("b"), &mut fails);
    assert!(matches!(failed, Err(ControlError::Certificate(_))));
    assert_eq!(enroll(&store, 1, "b").unwrap().row.record.id, AgentId(2));
}

#[test]
fn enrolment_tokens_end_by_revocation_and_expiry() {
    let store = open();
    store.add_enrolment_token(&by(), &token(1, 9)).unwrap();
    store.add_enrolment_token(&by(), &token(2, 9)).unwrap();
    assert_eq!(store.enrolment_tokens(&reader(), 999).unwrap().len(), 2);
    assert_eq!(store.enrolment_tokens(&reader(), 1_000).unwrap(), []);
    let late = NewAgent { now_s: 1_000, ..new_agent("late") };
    let mut sign = |_: AgentId| Ok(certificate(1, 5_000));
    assert_eq!(refusal(store.enroll(&[1; 32], &late, &mut sign)), "expired");
    assert!(store.revoke_enrolment_token(&by(), &[1; 32]).unwrap());
    assert!(!store.revoke_enrolment_token(&by(), &[1; 32]).unwrap());
    assert_eq!(refusal(enroll(&store, 1, "a")), "unknown or revoked");
    assert_eq!(store.forget_expired(999).unwrap(), 0);
    assert_eq!(store.forget_expired(1_000).unwrap(), 1);
}

#[test]
fn unused_enrolment_is_found_by_its_own_or_a_valid_token() {
    let store = open();
    for digest in 1..=3 {
        store.add_enrolment_token(&by(), &token(digest, 1)).unwrap();
    }
    let found = |digest: u8, name: &str, now_s: i64| {
        let row = store.unused_enrolment(&[digest; 32], name, now_s).unwrap();
        row.map(|row| (row.agent, row.key_digest[0]))
    };
    let a = enroll(&store, 1, "a").unwrap().row.record.id;
    enroll(&store, 2, "b").unwrap();
    let expected = Some((a, a.0 as u8));
    assert_eq!(found(1, "a", 100), expected, "used up");
    store.forget_expired(999).unwrap();
    assert_eq!(found(1, "a", 999), expected, "used up and deleted");
    assert_eq!(found(1, "a", 1_000), None, "expired");
    assert_eq!(found(2, "a", 100), None, "used up by another agent");
    assert_eq!(found(3, "a", 100), expected, "another token that has a use left");
    assert_eq!(found(3, "a", 1_000), None);
    assert_eq!((found(9, "a", 100), found(3, "c", 100)), (None, None));
    assert_eq!(store.enrolment_tokens(&reader(), 100).unwrap()[0].uses_left, 1, "none was used");
    assert!(store.revoke_enrolment_token(&by(), &[1; 32]).unwrap());
    assert!(!store.revoke_enrolment_token(&by(), &[1; 32]).unwrap());
    assert_eq!((found(1, "a", 100), found(3, "a", 100)), (None, expected), "1 is revoked");
}

#[test]
fn used_or_revoked_enrolment_is_not_found() {
    let store = open();
    store.add_enrolment_token(&by(), &token(1, 9)).unwrap();
    let found = |name: &str| store.unused_enrolment(&[1; 32], name, 100).unwrap().is_some();
    let [used, revoked, removed] =
        ["a", "b", "c"].map(|name| enroll(&store, 1, name).unwrap().row.record.id);
    assert!(found("a") && found("b") && found("c"));
    let row = store.load().unwrap().certificates.into_iter().find(|row| row.agent == used).unwrap();
    store.save_certificate_uses(&[CertificateRow { used_at_s: Some(100), ..row }]).unwrap();
    store.revoke_certificates(&by(), &[revoked], 100).unwrap();
    store.remove_agents(&by(), &[removed], 100).unwrap();
    assert!(!found("a") && !found("b") && !found("c"));
    add(&store, &["d"]);
    assert!(!found("d"), "added without a token");
}

#[test]
fn renewal_deletes_superseded_unused_certificates() {
    let store = open();
    let a = add(&store, &["a"])[0];
    for fingerprint in 1..=3 {
        store.add_certificate(a, &certificate(fingerprint, 5_000)).unwrap();
    }
    let mut rows = store.load().unwrap().certificates;
    rows.sort_by_key(|row| row.fingerprint);
    let superseded = |row: &CertificateRow, used_at_s| CertificateRow {
        used_at_s,
        superseded_at_s: Some(7),
        ..row.clone()
    };
    store
        .save_certificate_uses(&[superseded(&rows[0], Some(6)), superseded(&rows[1], None)])
        .unwrap();
    store.add_certificate(a, &certificate(4, 5_000)).unwrap();
    let mut kept = store.load().unwrap().certificates;
    kept.sort_by_key(|row| row.fingerprint);
    assert_eq!(kept.iter().map(|row| row.fingerprint[0]).collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!((kept[0].used_at_s, kept[0].superseded_at_s), (Some(6), Some(7)));
    assert!(store.add_certificate(AgentId(9), &certificate(9, 1)).is_err());
    assert_eq!(store.forget_expired(5_001).unwrap(), 1, "the others are in force");
}

#[test]
fn removing_agents_revokes_their_certificates() {
    let store = open();
    let [a, b] = add(&store, &["a", "b"])[..] else { panic!("two agents") };
    store.add_certificate(a, &certificate(1, 5_000)).unwrap();
    store.add_certificate(b, &certificate(2, 5_000)).unwrap();
    assert_eq!(store.revoke_certificates(&by(), &[b], 150).unwrap(), 1);
    assert_eq!(store.revoke_certificates(&by(), &[b], 160).unwrap(), 0);
    store.remove_agents(&by(), &[a, b, AgentId(9)], 200).unwrap();
    let mut rows = store.load().unwrap().certificates;
    rows.sort_by_key(|row| row.fingerprint);
    let revoked: Vec<_> = rows.iter().map(|row| row.revoked_at_s).collect();
    assert_eq!(revoked, [Some(200), Some(150)]);
    assert_eq!(rows[0].incarnation, Incarnation(1));
}

#[test]
fn control_image_contains_all_rows_kept_in_memory() {
    let store = open();
    let [a, b] = add(&store, &["a", "b"])[..] else { panic!("two agents") };
    store.add_certificate(b, &certificate(1, 5_000)).unwrap();
    let config = GroupConfig { body: b"text".to_vec(), sum: "sum".into(), at_s: 3 };
    store.set_group_config(&by(), "default", &config).unwrap();
    let revocation =
        Revocation { target: RevocationTarget::RunAs, issued_until_s: 1, expires_at_s: 9 };
    store.revoke_tokens(&by(), &revocation).unwrap();
    let image = store.load().unwrap();
    assert_eq!(image.agents.iter().map(|row| row.record.id).collect::<Vec<_>>(), [a, b]);
    assert_eq!(image.certificates.len(), 1);
    assert_eq!(image.configs, [("default".to_owned(), b"text".to_vec())]);
    assert_eq!(image.revocations, [revocation]);
    assert_eq!(image.outstanding, []);
}
