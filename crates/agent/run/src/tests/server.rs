//! A server with the agents' port only.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use commit::{Commit, CommitOptions};
use env::clock::SystemClock;
use env::random::SystemRandom;
use journal::Journal;
use registry::{ControlStore, Registry, RegistryOptions};
use sessions::{Sessions, SessionsHandle, SessionsOptions};
use state::{StateOptions, StateStore};

pub(super) struct Server {
    pub(super) registry: Registry,
    handle: SessionsHandle,
    commit: Arc<Commit>,
    state: Arc<StateStore>,
}

impl Server {
    /// Starts a server with the data in the folder.
    pub(super) fn start(folder: &Path, listen: SocketAddr) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let state: Arc<StateStore> =
            Arc::new(StateStore::open(&folder.join("state.db"), StateOptions::default()).unwrap());
        let (journal, _) =
            Journal::open(&folder.join("journal"), journal::Options::default()).unwrap();
        let (commit, _) =
            Commit::open(journal, Arc::clone(&state), CommitOptions::default()).unwrap();
        let registry = Registry::open(
            Arc::new(ControlStore::open(&folder.join("registry.db")).unwrap()),
            folder,
            Arc::new(SystemClock::new()),
            Arc::new(SystemRandom),
            RegistryOptions::default(),
        )
        .unwrap();
        let options = SessionsOptions { https: Some(listen), ..SessionsOptions::default() };
        let handle =
            Sessions::start(options, Arc::clone(&commit), Arc::clone(&state), registry.clone())
                .unwrap();
        Self { registry, handle, commit, state }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.handle.local_addr().unwrap()
    }

    pub(super) async fn stop(self) {
        let Self { registry, handle, commit, state } = self;
        handle.shutdown().await;
        commit.close().await.unwrap();
        registry.close().unwrap();
        drop(state);
    }
}
