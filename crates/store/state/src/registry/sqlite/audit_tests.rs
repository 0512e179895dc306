//! A change and its row of the audit log.

use super::*;

struct Log {
    store: SqliteRegistry,
    _folder: tempfile::TempDir,
}

impl Log {
    fn new() -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let store = SqliteRegistry::open(&folder.path().join("registry.db")).unwrap();
        Self { store, _folder: folder }
    }

    fn rows(&self) -> Vec<(String, AuditOutcome)> {
        let log = self.store.audit_log(&Reader::server(), None, 9).unwrap();
        log.into_iter().map(|row| (row.action, row.outcome)).collect()
    }
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
fn a_change_and_its_audit_row_are_one_transaction() {
    let log = Log::new();
    let one = row("one", AuditOutcome::Done);
    let by = context("one");
    assert!(log.store.delete_group(&by, "gone").is_err(), "a failed change writes no row");
    log.store.save_liveness(&[]).unwrap();
    assert_eq!(log.rows(), []);
    log.store.create_group(&by, "web", 1).unwrap();
    assert_eq!(log.rows(), [row("one", AuditOutcome::Begun)]);
    log.store.create_group(&by, "db", 1).unwrap();
    log.store.end_audit(&by, AuditOutcome::Done).unwrap();
    assert_eq!((&log.rows()[0], log.rows().len()), (&one, 1), "one row for all steps");
    log.store.end_audit(&context("two"), AuditOutcome::Refused).unwrap();
    log.store.create_group(&WriteContext::server(), "files", 1).unwrap();
    assert_eq!(log.rows(), [row("two", AuditOutcome::Refused), one]);
    let by = context("three");
    log.store.write_audit(&by).unwrap();
    assert_eq!(log.rows()[0], row("three", AuditOutcome::Begun), "before anything is changed");
    log.store.end_audit(&by, AuditOutcome::Failed).unwrap();
    assert_eq!((&log.rows()[0], log.rows().len()), (&row("three", AuditOutcome::Failed), 3));
}

#[test]
fn a_row_is_left_out_unless_something_was_changed() {
    let log = Log::new();
    log.store.leave_out_audit(&context("never"), AuditOutcome::Refused).unwrap();
    let by = context("ahead");
    log.store.write_audit(&by).unwrap();
    log.store.leave_out_audit(&by, AuditOutcome::Refused).unwrap();
    assert_eq!(log.rows(), []);
    let by = context("inside");
    log.store.write_audit(&by).unwrap();
    log.store.create_group(&by, "web", 1).unwrap();
    log.store.leave_out_audit(&by, AuditOutcome::Refused).unwrap();
    let by = context("outside");
    log.store.write_audit(&by).unwrap();
    by.set_changed();
    log.store.leave_out_audit(&by, AuditOutcome::Failed).unwrap();
    let kept = [row("outside", AuditOutcome::Failed), row("inside", AuditOutcome::Refused)];
    assert_eq!(log.rows(), kept);
    let by = context("undone");
    log.store.create_group(&by, "db", 1).unwrap();
    log.store.leave_out_audit(&by, AuditOutcome::Unchanged).unwrap();
    assert_eq!(log.rows(), kept, "nothing that others see is different");
}

#[test]
fn threads_that_share_a_context_write_one_row() {
    let log = Log::new();
    let by = context("shared");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (log, by) = (&log, &by);
            scope.spawn(move || log.store.create_group(by, &format!("group-{n}"), 1).unwrap());
        }
    });
    log.store.end_audit(&by, AuditOutcome::Done).unwrap();
    assert_eq!(log.rows(), [row("shared", AuditOutcome::Done)]);
}
