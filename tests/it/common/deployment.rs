//! A tree of files, a package database, and a server and an agent as separate processes.

use std::fs;
use std::path::{Path, PathBuf};

use super::mounted::folder_to_watch;
use super::{Api, Running, differences, disk, eventually, folder, free_port, run, stored};

/// Number of directories in the tree.
pub(crate) const FOLDERS: usize = 8;
/// Number of files in each directory.
pub(crate) const FILES: usize = 25;

fn configure(base: &Path, tree: &Path, interval: &str) {
    let agents = free_port();
    let server = format!(
        "data = {:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n\
         max_request_per_minute = 0\n[agents]\nlisten = \"127.0.0.1:{agents}\"\n\
         quiet_start = \"1s\"\n",
        base.join("server")
    );
    let agent = format!(
        "data = {:?}\nserver = \"https://127.0.0.1:{agents}\"\n[scan]\ninterval = {interval:?}\n\
         background_priority = false\n[inventory]\ninterval = {interval:?}\nroot = {:?}\n[sync]\n\
         heartbeat = \"200ms\"\n[[watch]]\npath = {tree:?}\n",
        base.join("agent"),
        base.join("system")
    );
    fs::write(base.join("server.toml"), server).unwrap();
    fs::write(base.join("agent.toml"), agent).unwrap();
}

/// Starts a role with its configuration.
pub(crate) fn start(base: &Path, role: &str) -> Running {
    let config = base.join(format!("{role}.toml"));
    Running::start(&[role, "--config", config.to_str().unwrap()], &base.join(format!("{role}.log")))
}

/// A tree of files, and the configurations of a server and an agent.
pub(crate) struct Deployment {
    pub(crate) base: PathBuf,
    pub(crate) tree: PathBuf,
}

impl Deployment {
    /// Creates a deployment with two packages; nothing is started. Intervals are so long that no
    /// periodic scan or check runs: repairs come from the check after a kill.
    pub(crate) fn new(name: &str) -> Self {
        Self::looking(name, "1h")
    }

    /// Does the same as [`Deployment::new`], but scans files and packages at this interval.
    pub(crate) fn looking(name: &str, interval: &str) -> Self {
        let base = folder(name);
        let tree = folder_to_watch(base.join("tree"));
        for n in 0..FOLDERS * FILES {
            let path = tree.join(format!("d{}/f{n}", n % FOLDERS));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("content {n}")).unwrap();
        }
        configure(&base, &tree, interval);
        let deployment = Self { base, tree };
        deployment.install(&[("bash", "1"), ("old", "1")]);
        deployment
    }

    /// Writes a package database that contains exactly these packages.
    pub(crate) fn install(&self, packages: &[(&str, &str)]) {
        let folder = self.base.join("system/var/lib/dpkg");
        fs::create_dir_all(folder.join("info")).unwrap();
        let stanza = |(name, version): &(&str, &str)| {
            let state = "Status: install ok installed\nArchitecture: amd64";
            format!("Package: {name}\n{state}\nVersion: {version}\nDescription: of a test\n\n")
        };
        let text: String = packages.iter().map(stanza).collect();
        fs::write(folder.join("new"), text).unwrap();
        fs::rename(folder.join("new"), folder.join("status")).unwrap();
    }

    /// Returns the server's data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.base.join("server")
    }

    /// Starts the server and waits until it is ready.
    pub(crate) fn server(&self) -> (Running, Api) {
        let server = start(&self.base, "server");
        server.line("ready: ");
        (server, Api::of(&self.data()))
    }

    /// Starts the agent without waiting.
    pub(crate) fn agent(&self) -> Running {
        start(&self.base, "agent")
    }

    /// Enrols the agent. Returns the exit code and stderr.
    pub(crate) fn enroll(&self, name: &str) -> (i32, String) {
        let (code, token, error) = run(&["token", "--data", self.data().to_str().unwrap()]);
        assert_eq!(code, 0, "{error}");
        let config = self.base.join("agent.toml");
        let config = config.to_str().unwrap();
        let words = ["enroll", "--config", config, "--name", name, "--token", token.trim()];
        let (code, _, error) = run(&words);
        (code, error)
    }

    /// Removes the agent's files whose names have this prefix.
    pub(crate) fn lose(&self, prefixes: &[&str]) {
        for entry in fs::read_dir(self.base.join("agent")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    /// Waits until the server's copy of the agent equals the disk.
    pub(crate) fn equal(&self, api: &Api, agent: &str) {
        eventually("the server equals the disk", || {
            differences(&disk(&self.tree), &stored(api, agent))
        });
    }
}

/// Returns the names and versions of the packages that the server holds.
pub(crate) fn packages(api: &Api) -> Vec<(String, String)> {
    let all = api.all("/states/inventory-packages");
    let text = |package: &serde_json::Value, name: &str| package[name].as_str().unwrap().to_owned();
    let mut found: Vec<_> = all
        .iter()
        .map(|item| &item["document"]["package"])
        .map(|package| (text(package, "name"), text(package, "version")))
        .collect();
    found.sort();
    found
}

/// Returns an error unless the server holds exactly these packages.
pub(crate) fn has_packages(api: &Api, wanted: &[(&str, &str)]) -> Result<(), String> {
    let found = packages(api);
    let wanted: Vec<_> = wanted.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
}
