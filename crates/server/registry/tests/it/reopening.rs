//! Acknowledged changes survive a kill; folders that must not be opened are refused with the reason.

use crate::common::{self, der, fixture, options, try_open};
use model::AgentId;
use registry::{
    CommandKind, ControlError, Reader, RegistryError, RevocationTarget, TokenTerms, WriteContext,
};

#[test]
fn acknowledged_registry_changes_survive_a_kill() {
    let fixture = fixture();
    fixture.registry.create_group(&WriteContext::server(), "web").unwrap();
    let spare = fixture
        .registry
        .create_enrolment_token(
            &WriteContext::server(),
            &TokenTerms { groups: vec!["web".into()], ..TokenTerms::new(1, 60) },
        )
        .unwrap();
    let a = fixture.enroll("a1");
    let b = fixture.enroll("b1");
    fixture.registry.set_agent_groups(&WriteContext::server(), a.agent, &["web".into()]).unwrap();
    fixture.registry.remove_agent(&WriteContext::server(), b.agent).unwrap();
    let password = fixture.registry.ensure_admin(None).unwrap().unwrap();
    fixture.registry.revoke_tokens(&WriteContext::server(), RevocationTarget::Role(2)).unwrap();
    let command = fixture
        .registry
        .create_command(&WriteContext::server(), CommandKind::Rescan, &[a.agent], "admin")
        .unwrap();
    fixture.registry.audit("admin", "agent:delete", "agents_list=002").unwrap();
    let killed = fixture.killed();
    let registry = &killed.registry;
    assert_eq!(registry.agent(a.agent).unwrap().groups, ["web"]);
    assert!(registry.agent(b.agent).is_none());
    assert_eq!(registry.identify(&der(&a.certificate_pem)).unwrap().incarnation, a.incarnation);
    assert_eq!(registry.pending_commands(a.agent)[0].id, command);
    assert!(registry.token_revoked(1, &[2], false, 0));
    assert_eq!(registry.token_keys().unwrap().public_pem, {
        fixture.registry.token_keys().unwrap().public_pem
    });
    let audit = registry.audit_log(&Reader::server(), None, 10).unwrap();
    assert_eq!(
        (audit[0].action.as_str(), audit[0].detail.as_str()),
        ("agent:delete", "agents_list=002")
    );
    assert_eq!(registry.audit_log(&Reader::server(), Some(audit[0].id), 10).unwrap().len(), 1);
    assert_eq!(killed.try_enroll("c1", &spare).unwrap().agent, AgentId(3));
    let login = registry.login("admin", &password, None);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(login).is_ok());
}

#[test]
fn registry_backup_made_in_use_is_complete() {
    let fixture = fixture();
    let enrolled = fixture.enroll("web");
    fixture.registry.keepalive(enrolled.agent, &common::info("debian", "v1"));
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("registry.db");
    fixture.registry.backup_to(&file).unwrap();
    assert!(matches!(
        fixture.registry.backup_to(&file),
        Err(RegistryError::Store(ControlError::Exists { .. }))
    ));
    for key in ["ca.key", "ca.pem", "token.key"] {
        std::fs::copy(fixture.folder.path().join(key), folder.path().join(key)).unwrap();
    }
    fixture.registry.remove_agent(&WriteContext::server(), enrolled.agent).unwrap();
    let restored = try_open(folder.path(), &fixture.clock, options()).unwrap();
    assert_eq!(restored.agent(enrolled.agent).unwrap().version.as_deref(), Some("v1"));
    assert!(restored.identify(&der(&enrolled.certificate_pem)).is_ok());
    assert_eq!(restored.status_summary().unwrap().active, 1);
}

#[test]
fn damaged_key_file_is_reported_and_not_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = fixture();
    for file in ["ca.key", "ca.pem", "token.key"] {
        let path = fixture.folder.path().join(file);
        let kept = std::fs::read(&path).unwrap();
        std::fs::write(&path, "garbage").unwrap();
        let opened = try_open(fixture.folder.path(), &fixture.clock, options());
        assert!(matches!(opened, Err(RegistryError::File { path: p, .. }) if p == path));
        assert_eq!(std::fs::read(&path).unwrap(), b"garbage");
        std::fs::write(&path, kept).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    assert!(try_open(fixture.folder.path(), &fixture.clock, options()).is_ok());
}
