//! The audit log: a change and its row, pages, and the backup.

use sqlite::Reader;

use super::{by as server, open, reader};
use control::{AuditEntry, AuditOutcome, ControlError, ControlStore, WriteContext};

fn rows(store: &ControlStore) -> Vec<(String, AuditOutcome)> {
    let log = store.audit_log(&reader(), None, 9).unwrap();
    log.into_iter().map(|row| (row.action, row.outcome)).collect()
}

fn context(action: &str) -> WriteContext {
    let entry = AuditEntry {
        id: 0,
        at_us: 1,
        user: "admin".into(),
        action: action.into(),
        detail: String::new(),
        outcome: AuditOutcome::Begun,
    };
    WriteContext::audited(Reader::server(), entry)
}

fn row(action: &str, outcome: AuditOutcome) -> (String, AuditOutcome) {
    (action.to_owned(), outcome)
}

#[test]
fn change_and_audit_row_are_one_transaction() {
    let store = open();
    let one = row("one", AuditOutcome::Done);
    let by = context("one");
    assert!(store.delete_group(&by, "gone").is_err(), "a failed change writes no row");
    store.save_liveness(&[]).unwrap();
    assert_eq!(rows(&store), []);
    store.create_group(&by, "web", 1).unwrap();
    assert_eq!(rows(&store), [row("one", AuditOutcome::Begun)]);
    store.create_group(&by, "db", 1).unwrap();
    store.end_audit(&by, AuditOutcome::Done).unwrap();
    assert_eq!((&rows(&store)[0], rows(&store).len()), (&one, 1), "one row for all steps");
    store.end_audit(&context("two"), AuditOutcome::Refused).unwrap();
    store.create_group(&server(), "files", 1).unwrap();
    assert_eq!(rows(&store), [row("two", AuditOutcome::Refused), one]);
    let by = context("three");
    store.write_audit(&by).unwrap();
    assert_eq!(rows(&store)[0], row("three", AuditOutcome::Begun), "before anything is changed");
    store.end_audit(&by, AuditOutcome::Failed).unwrap();
    assert_eq!((&rows(&store)[0], rows(&store).len()), (&row("three", AuditOutcome::Failed), 3));
}

#[test]
fn audit_row_is_dropped_unless_something_changed() {
    let store = open();
    store.leave_out_audit(&context("never"), AuditOutcome::Refused).unwrap();
    let by = context("ahead");
    store.write_audit(&by).unwrap();
    store.leave_out_audit(&by, AuditOutcome::Refused).unwrap();
    assert_eq!(rows(&store), []);
    let by = context("inside");
    store.write_audit(&by).unwrap();
    store.create_group(&by, "web", 1).unwrap();
    store.leave_out_audit(&by, AuditOutcome::Refused).unwrap();
    let by = context("outside");
    store.write_audit(&by).unwrap();
    by.set_changed();
    store.leave_out_audit(&by, AuditOutcome::Failed).unwrap();
    let kept = [row("outside", AuditOutcome::Failed), row("inside", AuditOutcome::Refused)];
    assert_eq!(rows(&store), kept);
    let by = context("undone");
    store.create_group(&by, "db", 1).unwrap();
    store.leave_out_audit(&by, AuditOutcome::Unchanged).unwrap();
    assert_eq!(rows(&store), kept, "nothing that others see is different");
}

#[test]
fn threads_sharing_a_context_write_one_audit_row() {
    let store = &open();
    let by = context("shared");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let by = &by;
            scope.spawn(move || store.create_group(by, &format!("group-{n}"), 1).unwrap());
        }
    });
    store.end_audit(&by, AuditOutcome::Done).unwrap();
    assert_eq!(rows(store), [row("shared", AuditOutcome::Done)]);
}

#[test]
fn audit_log_is_paged_newest_first() {
    let store = open();
    for n in 1..=4 {
        let entry = AuditEntry {
            id: 0,
            at_us: n,
            user: "admin".into(),
            action: "agent:read".into(),
            detail: "agents_list=001".into(),
            outcome: AuditOutcome::Done,
        };
        store.audit(&entry).unwrap();
    }
    let page = store.audit_log(&reader(), None, 3).unwrap();
    assert_eq!(page.iter().map(|row| row.at_us).collect::<Vec<_>>(), [4, 3, 2]);
    let rest = store.audit_log(&reader(), Some(page[2].id), 3).unwrap();
    assert_eq!(rest.iter().map(|row| row.at_us).collect::<Vec<_>>(), [1]);
}

#[test]
fn registry_backup_does_not_overwrite_a_file() {
    let store = open();
    store.checkpoint().unwrap();
    let folder = std::env::temp_dir().join(format!("holdfast-control-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("copy");
    store.backup_to(&file).unwrap();
    assert!(std::fs::metadata(&file).unwrap().len() > 0);
    let again = store.backup_to(&file);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(matches!(again, Err(ControlError::Exists { what: "file", .. })));
}
