//! Crates and files import one way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::modules::Modules;
use crate::{crates, root, source_folders};

/// Most files in one import cycle.
const CYCLE_FILES_MAX: usize = 3;

/// The crates that each crate may import, by folder. Every crate must be listed.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("base/actor", &[]),
    ("base/gzip", &[]),
    ("base/model", &["actor"]),
    ("base/env", &[]),
    ("base/service", &["model"]),
    ("base/settings", &[]),
    ("link", &["model"]),
    ("agent/observe", &["model", "env"]),
    ("agent/rules", &["model", "observe"]),
    ("agent/detect", &["model", "env", "observe", "rules"]),
    ("agent/attribution", &["model"]),
    ("agent/host", &["model", "env"]),
    ("agent/explain", &["model", "env"]),
    ("agent/realtime", &["model", "env", "attribution", "detect", "explain", "watch"]),
    ("agent/writers", &[]),
    ("agent/queue", &["model", "env", "writers"]),
    ("agent/sync", &["model", "env", "link", "queue"]),
    ("agent/dirty", &["model"]),
    ("agent/watch", &["model", "env", "dirty"]),
    ("agent/telemetry", &["model", "env", "settings", "service", "host", "queue", "sync"]),
    (
        "agent/run",
        &[
            "model",
            "env",
            "settings",
            "service",
            "link",
            "detect",
            "explain",
            "host",
            "queue",
            "realtime",
            "sync",
            "telemetry",
        ],
    ),
    ("store/journal", &["env"]),
    ("store/sqlite", &["env"]),
    ("store/columns", &["model"]),
    ("store/rows", &[]),
    ("store/state", &["columns", "model", "env", "sqlite"]),
    ("store/control", &["model", "env", "rows", "sqlite"]),
    ("store/codec", &[]),
    ("store/series", &["codec", "env", "journal"]),
    ("store/commit", &["model", "env", "journal", "control", "state"]),
    ("server/registry", &["model", "env", "settings", "control", "commit"]),
    ("server/silence", &["model", "env", "commit", "state", "registry"]),
    (
        "server/sessions",
        &["model", "env", "link", "commit", "control", "state", "series", "registry", "silence"],
    ),
    ("server/sigma", &["env"]),
    ("server/replication", &["model", "env", "journal", "control", "commit", "state"]),
    (
        "server/folder",
        &[
            "model",
            "env",
            "journal",
            "series",
            "state",
            "commit",
            "registry",
            "replication",
            "ingest",
        ],
    ),
    ("server/promql-syntax", &[]),
    ("server/budget", &[]),
    ("server/promql", &["budget", "promql-syntax", "series"]),
    (
        "server/prometheus-api",
        &["gzip", "model", "env", "series", "budget", "promql-syntax", "promql"],
    ),
    ("server/query", &["env", "series", "budget"]),
    ("server/readers", &["series", "query"]),
    ("server/ingest", &["env", "series", "query", "readers", "prometheus-api"]),
    (
        "web/rest",
        &[
            "model", "env", "registry", "sigma", "control", "state", "commit", "series", "ingest",
            "folder", "listener",
        ],
    ),
    ("web/security", &["model", "registry", "control", "listener", "rest"]),
    (
        "web/api",
        &[
            "model", "env", "settings", "registry", "sigma", "control", "state", "commit",
            "series", "listener", "rest", "security",
        ],
    ),
    ("web/listener", &["env"]),
    ("cli/client", &["model", "env", "service"]),
    ("cli/scan", &["model", "env", "service", "detect", "queue", "run"]),
    (
        "cli/inspect",
        &[
            "model", "service", "queue", "sync", "run", "journal", "control", "state", "folder",
            "client",
        ],
    ),
    (
        "cli/series-tools",
        &[
            "model",
            "env",
            "service",
            "series",
            "ingest",
            "readers",
            "replication",
            "folder",
            "client",
        ],
    ),
    ("web/page", &["gzip"]),
    ("testing/device", &["needs"]),
    ("testing/mirror", &["control", "rows"]),
    ("testing/needs", &[]),
    ("testing/tidy", &[]),
    ("testing/records", &["model"]),
];

#[test]
fn imports_run_one_way() {
    let table: BTreeMap<_, _> = MAY_IMPORT.iter().copied().collect();
    let ours: BTreeSet<&str> =
        MAY_IMPORT.iter().map(|(folder, _)| folder.rsplit('/').next().unwrap()).collect();
    let mut broken = Vec::new();
    for folder in crates() {
        let Some(allowed) = table.get(folder.as_str()) else {
            broken.push(format!("crates/{folder} is not in the table of crates/testing/tidy"));
            continue;
        };
        let manifest =
            fs::read_to_string(root().join("crates").join(&folder).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let Some(dependencies) = manifest.get("dependencies").and_then(|d| d.as_table()) else {
            continue;
        };
        for name in dependencies.keys().filter(|n| ours.contains(n.as_str())) {
            if !allowed.contains(&name.as_str()) {
                broken.push(format!("crates/{folder} may not import {name}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn modules_import_one_way() {
    let mut wrong = Vec::new();
    for (name, src) in source_folders() {
        let cycle = Modules::read(&src).largest_cycle();
        if cycle.len() > CYCLE_FILES_MAX {
            wrong.push(format!("{name}: {} files import each other: {cycle:?}", cycle.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn forbidden_tls_and_hash_libraries_are_not_dependencies() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for unwanted in ["openssl-sys", "aws-lc-sys", "native-tls"] {
        assert!(!lock.contains(&format!("name = \"{unwanted}\"")), "{unwanted} is in Cargo.lock");
    }
}
