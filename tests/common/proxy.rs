//! A network that can be cut: a TCP proxy on a port of its own in front of one address.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Passes connections on to the target until the mode changes.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    paused: bool,
    /// Both ends of every connection; ended ones go when there are many.
    connections: Vec<(TcpStream, TcpStream)>,
}

/// The state of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Every connection is reset or closed in both directions.
    Cut,
    /// The server hears the end of what the agent says, and may still answer.
    RequestsEnd,
    /// The agent hears the end of what the server says, and may still speak.
    AnswersEnd,
}

impl Proxy {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let all = shared.clone();
        let pass = move |agent: TcpStream| {
            // No server, no connection.
            if let Ok(server) = TcpStream::connect(target) {
                all.serve(&agent, &server);
            }
        };
        thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(pass));
        Self { port, shared }
    }

    /// Does it to every connection there is.
    pub(crate) fn fault(&self, fault: Fault) {
        let connections = std::mem::take(&mut self.shared.state.lock().unwrap().connections);
        for (agent, server) in connections {
            // One that has ended already fails.
            let _ = match fault {
                Fault::Cut => {
                    agent.shutdown(Shutdown::Both).and_then(|()| server.shutdown(Shutdown::Both))
                }
                Fault::RequestsEnd => server.shutdown(Shutdown::Write),
                Fault::AnswersEnd => agent.shutdown(Shutdown::Write),
            };
        }
    }

    /// Holds everything back that comes from now on, or lets it pass again.
    pub(crate) fn pause(&self, paused: bool) {
        self.shared.state.lock().unwrap().paused = paused;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn serve(self: &Arc<Self>, agent: &TcpStream, server: &TcpStream) {
        let pair = |a: &TcpStream, b: &TcpStream| Some((a.try_clone().ok()?, b.try_clone().ok()?));
        let (Some(kept), Some(there), Some(back)) =
            (pair(agent, server), pair(agent, server), pair(server, agent))
        else {
            return;
        };
        {
            let mut state = self.state.lock().unwrap();
            state.connections.retain(|(agent, _)| agent.peer_addr().is_ok());
            state.connections.push(kept);
        }
        for (from, to) in [there, back] {
            let shared = self.clone();
            thread::spawn(move || shared.pass(from, to));
        }
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            let state = self.state.lock().unwrap();
            drop(self.changed.wait_while(state, |s| s.paused).unwrap());
            if to.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}
