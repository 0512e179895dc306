//! Checkpoints that fail on the disk.

use std::process::Command;

use crate::common::{apply, base, open_new_with};
use queue::QueueOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits the size of this process's files; writes beyond it fail. `None` removes the limit.
fn limit_file_size(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

#[test]
#[ignore = "limits the files of its process: the next test runs it in one of its own"]
fn fill_a_database_that_cannot_grow() {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stdout).init();
    let options = QueueOptions { wal_autocheckpoint_pages: Some(16), ..QueueOptions::default() };
    let (_folder, path, _, queue) = open_new_with(&options);
    let add = |round: u64| {
        let ops = (0..20).map(|n| base(&format!("/{round}/{n:02}"), n));
        apply(&queue, ops.collect());
    };
    (0..1000).for_each(add);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes > 500_000, "{bytes}: the log must stay smaller than the limit");
    limit_file_size(Some(bytes));
    // Each of these commits needs another page and is due for a checkpoint, which fails.
    (1000..1020).for_each(add);
    limit_file_size(None);
    (1020..1100).for_each(add);
    assert!(std::fs::metadata(&path).unwrap().len() > bytes);
    queue.close().unwrap();
}

#[test]
fn failing_checkpoints_are_logged_once_until_they_work() {
    // Without the trap, a write beyond the limit kills the process.
    let program = std::env::current_exe().unwrap();
    let words = needs::own_process_words(module_path!(), "fill_a_database_that_cannot_grow");
    let script = "trap '' XFSZ; exec \"$0\" \"$@\"";
    let output = Command::new("sh").args(["-c", script]).arg(program).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("checkpoint")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("ERROR") && lines[0].contains("checkpoint failed"), "{text}");
    assert!(lines[0].contains("agent.db"), "{text}");
    assert!(lines[1].contains("checkpoints work again"), "{text}");
}
