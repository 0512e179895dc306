//! Skips of tests that cannot run on this machine, and tests that run in a process of their own.
//!
//! A test that cannot run here is not a passed test. It calls [`skip`] and returns. `make test`
//! counts these calls in its last line. With `CI=true` it fails unless `tests/skips.txt` lists the
//! test.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on fails")]

use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;
use std::process::Command;

/// Names the file that collects skipped tests. `make test` sets it.
pub const SKIPPED_FILE: &str = "HOLDFAST_SKIPPED";

/// Reports that the calling test cannot run, and why: appends `PACKAGE::TEST: REASON` to the file
/// named by [`SKIPPED_FILE`], if there is one, and prints it. Call it on the test's own thread.
pub fn skip(reason: impl Display) {
    let line = format!("{}: {reason}\n", test_name());
    eprint!("skipped: {line}");
    if let Some(path) = std::env::var_os(SKIPPED_FILE) {
        // One write to a file opened for appending, because tests run at the same time.
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// Returns true if this process runs as root. If not, the test is skipped because of `need`.
pub fn root(need: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(format_args!("needs root {need}"));
    }
    root
}

/// Returns the package and the name of the calling test. The harness names the thread of a test
/// after it, except where it runs tests on the main thread.
fn test_name() -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "unknown".into());
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").map(str::to_owned);
    let test = test.or_else(|| std::env::var("NEXTEST_TEST_NAME").ok());
    format!("{package}::{}", test.unwrap_or_else(|| "unknown".into()))
}

/// Returns a command that runs one test of this program in a process of its own. `module` is the
/// caller's `module_path!()`, `test` a function of that module, which may be marked `#[ignore]`.
///
/// # Panics
/// If the path of this program is not known.
pub fn own_process(module: &str, test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(own_process_words(module, test));
    command
}

/// Returns the arguments of [`own_process`].
pub fn own_process_words(module: &str, test: &str) -> Vec<String> {
    // The harness leaves out the name of the program, the first part of a module's path.
    let name = match module.split_once("::") {
        Some((_, module)) => format!("{module}::{test}"),
        None => test.to_owned(),
    };
    [&name, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]
        .map(str::to_owned)
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "run by the next test in a process of its own"]
    fn print_a_line() {
        eprintln!("this line");
    }

    #[test]
    fn test_runs_in_a_process_of_its_own() {
        let output = own_process(module_path!(), "print_a_line").output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("this line"), "{text}");
    }

    #[test]
    #[ignore = "run by the next test in a process of its own"]
    fn skip_this() {
        skip("it is a test");
    }

    #[test]
    fn skipped_test_is_listed_with_its_reason() {
        let path = std::env::temp_dir().join(format!("holdfast-skips-{}", std::process::id()));
        let words = ["--exact", "tests::skip_this", "--include-ignored"];
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(words).env(SKIPPED_FILE, &path);
        for _ in 0..2 {
            assert!(command.output().unwrap().status.success());
        }
        let listed = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(listed, "holdfast-needs::tests::skip_this: it is a test\n".repeat(2));
    }
}
