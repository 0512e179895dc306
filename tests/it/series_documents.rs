//! The commands of docs/reference/series.md that write and query run on a store with default settings.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::folder;
use crate::common::series::Alone;

/// Returns the shell blocks of a section and of the sections below it.
fn commands(document: &str, section: &str) -> String {
    let (_, rest) = document.split_once(&format!("\n## {section}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.collect()
}

#[test]
fn documented_writes_are_stored_and_queried() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed =
        Command::new(root.join("tests/packages.sh")).args(["nc", "netcat-openbsd"]).status();
    assert!(installed.unwrap().success());
    let document = fs::read_to_string(root.join("docs/reference/series.md")).unwrap();
    let base = folder("series-documents");
    let store = Alone::start(&base.join("data"), &[]);
    let run = |script: &str| {
        let ports = [("8282", store.resp), ("4242", store.opentsdb), ("8181", store.http)];
        let script = ports.iter().fold(script.to_owned(), |script, (port, real)| {
            script
                .replace(&format!("127.0.0.1 {port}"), &format!("127.0.0.1 {}", real.port()))
                .replace(&format!("127.0.0.1:{port}"), &real.to_string())
        });
        let out = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(&base)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{script}\n{said}{}", String::from_utf8_lossy(&out.stderr));
        said
    };
    let writes = commands(&document, "Write");
    let said = run(&writes);
    assert!(!said.contains("-PARSER") && !said.contains("-DB") && !said.contains("ERR"), "{said}");
    let answers = |text: &str| said.lines().filter(|line| line.trim_end() == text).count();
    let syncs = ["+OK", "ok"].map(answers);
    assert_eq!(syncs, [4, 1], "{said}");
    assert_eq!(said.matches(" 204 ").count(), 2, "{said}");
    assert_eq!(said.matches(r#"{"errors":[],"failed":0,"success":1}"#).count(), 1, "{said}");

    let rows = run(&commands(&document, "Query"));
    let refused = rows.lines().any(|line| line.starts_with('-'));
    assert!(!refused, "{rows}");
    for expected in [
        "cpu.user host=a,",
        "cpu.user:mean host=b,",
        "cpu.user host=d,",
        "cpu.user host=e,",
        "release 7",
        "15.5",
    ] {
        assert!(rows.contains(expected), "{expected}: {rows}");
    }
}
