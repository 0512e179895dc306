//! A server and an agent as separate processes, with the metrics of both, every few hundred
//! milliseconds, in the server's series store.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::common::{Running, free_port, run};

/// The configurations of a server and an agent.
pub struct Fleet {
    base: PathBuf,
}

impl Fleet {
    /// Writes the configurations to `base`. Nothing is started.
    pub fn new(base: &Path) -> Self {
        let tree = base.join("tree");
        fs::create_dir_all(&tree).unwrap();
        fs::write(tree.join("watched"), "x").unwrap();
        let agents = free_port();
        let fleet = Self { base: base.to_owned() };
        fs::write(
            fleet.path("server.toml"),
            format!(
                "data = {:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n[agents]\n\
                 listen = \"127.0.0.1:{agents}\"\n[series]\nresp = \"off\"\n\
                 udp = \"off\"\nopentsdb = \"off\"\nhttp = \"127.0.0.1:0\"\nown_metrics = \"200ms\"\n",
                base.join("server")
            ),
        )
        .unwrap();
        fs::write(
            fleet.path("agent.toml"),
            format!(
                "data = {:?}\nserver = \"https://127.0.0.1:{agents}\"\n[scan]\ninterval = \"1h\"\n\
                 [sync]\nheartbeat = \"200ms\"\n[metrics]\ninterval = \"100ms\"\nprocesses = \
                 [\"holdfast\"]\nown = true\n[[watch]]\npath = {tree:?}\n",
                base.join("agent")
            ),
        )
        .unwrap();
        fleet
    }

    fn path(&self, name: &str) -> String {
        self.base.join(name).to_str().unwrap().to_owned()
    }

    /// Starts the server. Returns it with the address of its query port.
    pub fn server(&self) -> (Running, SocketAddr) {
        let words = ["server", "--config", &self.path("server.toml")];
        let server = Running::start(&words, &self.base.join("server.log"));
        server.line("ready: ");
        let http = server.line("listening: http ").parse().unwrap();
        (server, http)
    }

    /// Enrols the agent at the running server.
    pub fn enroll(&self) {
        let (code, token, error) = run(&["token", "--data", &self.path("server")]);
        assert_eq!(code, 0, "{error}");
        let config = self.path("agent.toml");
        let (code, _, error) = run(&["enroll", "--config", &config, "--token", token.trim()]);
        assert_eq!(code, 0, "{error}");
    }

    /// Starts the agent.
    pub fn agent(&self) -> Running {
        let words = ["agent", "--config", &self.path("agent.toml")];
        Running::start(&words, &self.base.join("agent.log"))
    }
}
