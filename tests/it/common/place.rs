//! A small watched tree, and a server with its agent in one process.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{Api, Running, eventually, folder};

pub(crate) struct Place {
    pub(crate) data: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) log: PathBuf,
}

impl Place {
    /// Returns a place, or `None` where realtime detection is not available.
    pub(crate) fn new(name: &str) -> Option<Self> {
        if !needs::root("for fanotify") {
            return None;
        }
        let base = folder(name);
        let tree = base.join("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("file"), "first\n").unwrap();
        fs::write(tree.join("sub/other"), "other\n").unwrap();
        Some(Self { data: base.join("data"), tree, log: base.join("log") })
    }

    pub(crate) fn words(&self) -> Vec<&str> {
        let (data, tree) = (self.data.to_str().unwrap(), self.tree.to_str().unwrap());
        let words = ["up", "--data", data, "--watch", tree, "--api", "127.0.0.1:0"];
        [&words[..], &["--scan-interval", "1h", "--plain-http"]].concat()
    }

    pub(crate) fn start(&self) -> Running {
        let running = Running::start(&self.words(), &self.log);
        running.line("ready: ");
        running
    }

    /// Starts, and waits until the first scan is on the server.
    pub(crate) fn up(&self) -> (Running, Api) {
        let running = self.start();
        running.line("synchronised: ");
        (running, Api::of(&self.data))
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.tree.join(name).to_str().unwrap().to_owned()
    }
}

/// Returns kind and path of each change, the oldest first.
pub(crate) fn told(api: &Api) -> Vec<(String, String)> {
    let mut items = api.history("/changes");
    items.reverse();
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    items.iter().map(|i| (text(&i["kind"]), text(&i["path"]))).collect()
}

/// Waits until exactly these changes are on the server, in any order.
pub(crate) fn expect(api: &Api, expected: &[(&str, String)]) {
    let mut expected: Vec<_> =
        expected.iter().map(|(kind, path)| ((*kind).to_owned(), path.clone())).collect();
    expected.sort();
    eventually("the changes are on the server", || {
        let mut told = told(api);
        told.sort();
        if told == expected { Ok(()) } else { Err(format!("{told:#?}\nnot {expected:#?}")) }
    });
}

pub(crate) fn sh(place: &Place, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(&place.tree).status();
    assert!(status.unwrap().success(), "{script}");
}

/// Returns the states of the roots that the server has.
pub(crate) fn coverage(api: &Api) -> Vec<Value> {
    let state = api.get("/coverage/state");
    let agent = &state["data"]["affected_items"][0];
    agent["roots"].as_array().cloned().unwrap_or_default()
}
