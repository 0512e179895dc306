//! Checkpoints that fail on the disk.

use std::process::Command;

use control::{AuditEntry, AuditOutcome, ControlStore};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits the size of this process's files; writes beyond it fail. `None` removes the limit.
fn limit_file_size(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

#[test]
#[ignore = "limits the files of its process: the next test runs it in one of its own"]
fn fill_a_registry_that_cannot_grow() {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stdout).init();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("registry.db");
    let store = ControlStore::open(&path).unwrap();
    let entry = AuditEntry {
        id: 0,
        at_us: 1,
        user: "admin".into(),
        action: "x".into(),
        detail: "x".repeat(4_000),
        outcome: AuditOutcome::Done,
    };
    let add = |rows: u64| (0..rows).for_each(|_| store.audit(&entry).unwrap());
    add(200);
    store.checkpoint().unwrap();
    // The log restarts with the next write, far below the limit.
    let bytes = std::fs::metadata(&path).unwrap().len();
    limit_file_size(Some(bytes));
    add(5);
    for _ in 0..3 {
        assert!(store.checkpoint().is_err());
    }
    limit_file_size(None);
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
}

#[test]
fn failing_checkpoints_are_logged_once_until_they_work() {
    // Without the trap, a write beyond the limit kills the process.
    let program = std::env::current_exe().unwrap();
    let words = needs::own_process_words(module_path!(), "fill_a_registry_that_cannot_grow");
    let script = "trap '' XFSZ; exec \"$0\" \"$@\"";
    let output = Command::new("sh").args(["-c", script]).arg(program).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("checkpoint")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("ERROR") && lines[0].contains("checkpoint failed"), "{text}");
    assert!(lines[0].contains("registry.db"), "{text}");
    assert!(lines[1].contains("checkpoints work again"), "{text}");
}
