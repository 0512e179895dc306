//! A network that a test can interrupt: a TCP proxy in front of one address.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A proxy that forwards connections to one target.
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
    /// Both ends of every connection; ended ones are dropped when there are many.
    connections: Vec<(TcpStream, TcpStream)>,
}

/// A fault of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Every connection is closed in both directions.
    Cut,
    /// The server sees the end of the agent's stream and may still answer.
    RequestsEnd,
    /// The agent sees the end of the server's stream and may still send.
    AnswersEnd,
}

impl Proxy {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let all = shared.clone();
        let pass = move |agent: TcpStream| {
            // If the server does not accept, the client's connection is dropped.
            if let Ok(server) = TcpStream::connect(target) {
                all.serve(&agent, &server);
            }
        };
        thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(pass));
        Self { port, shared }
    }

    /// Applies the fault to every connection.
    pub(crate) fn fault(&self, fault: Fault) {
        let connections = std::mem::take(&mut self.shared.state.lock().unwrap().connections);
        for (agent, server) in connections {
            // The call fails for a connection that has already ended.
            let _ = match fault {
                Fault::Cut => {
                    agent.shutdown(Shutdown::Both).and_then(|()| server.shutdown(Shutdown::Both))
                }
                Fault::RequestsEnd => server.shutdown(Shutdown::Write),
                Fault::AnswersEnd => agent.shutdown(Shutdown::Write),
            };
        }
    }

    /// Holds back all further data, or forwards it again.
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
