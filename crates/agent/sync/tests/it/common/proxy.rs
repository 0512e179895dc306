//! A TCP proxy that can refuse connections and can cut one after a number of bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy to which agents connect and which connects to the server.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// Target address; changing it ends all connections.
    target: watch::Sender<Option<SocketAddr>>,
    /// Bytes to the server until the next cut.
    requests: Mutex<Option<usize>>,
    /// Bytes to the agent until the next cut.
    answers: Mutex<Option<usize>>,
    /// Bytes passed on to the server and to the agent.
    passed: [Mutex<u64>; 2],
    cuts: Mutex<u64>,
    connections: AtomicU64,
    /// Bytes per second to the server; 0 is no limit.
    rate: AtomicU64,
}

impl Proxy {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target: watch::Sender::new(None),
            requests: Mutex::new(None),
            answers: Mutex::new(None),
            passed: Default::default(),
            cuts: Mutex::new(0),
            connections: AtomicU64::new(0),
            rate: AtomicU64::new(0),
        });
        let all = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((agent, _)) = listener.accept().await {
                all.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(agent, Arc::clone(&all)));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Ends all connections; forwards new ones to this address, or refuses them.
    pub(crate) fn lead_to(&self, target: Option<SocketAddr>) {
        self.shared.target.send_replace(target);
    }

    /// Cuts a connection once, after this number of further bytes to the server.
    pub(crate) fn cut_requests_after(&self, bytes: usize) {
        *self.shared.requests.lock() = Some(bytes);
    }

    /// Cuts a connection once, after this number of further bytes to the agent.
    pub(crate) fn cut_answers_after(&self, bytes: usize) {
        *self.shared.answers.lock() = Some(bytes);
    }

    /// Limits the bytes per second to the server.
    pub(crate) fn slow_down(&self, bytes_per_second: u64) {
        self.shared.rate.store(bytes_per_second, Ordering::SeqCst);
    }

    /// Cancels the requested cuts. Returns true if one was still to come.
    pub(crate) fn take_back(&self) -> bool {
        let requests = self.shared.requests.lock().take();
        let answers = self.shared.answers.lock().take();
        requests.is_some() || answers.is_some()
    }

    /// Returns the number of connections cut so far.
    pub(crate) fn cuts(&self) -> u64 {
        *self.shared.cuts.lock()
    }

    /// Returns the number of connections made so far.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Returns the bytes forwarded so far, to the server and to the agent.
    pub(crate) fn passed(&self) -> (u64, u64) {
        let [requests, answers] = &self.shared.passed;
        (*requests.lock(), *answers.lock())
    }
}

async fn serve(agent: TcpStream, shared: Arc<Shared>) {
    let mut target = shared.target.subscribe();
    let Some(address) = *target.borrow_and_update() else { return };
    let Ok(server) = TcpStream::connect(address).await else { return };
    let (agent_read, agent_write) = agent.into_split();
    let (server_read, server_write) = server.into_split();
    let [requests, answers] = &shared.passed;
    tokio::select! {
        () = pass(agent_read, server_write, (&shared.requests, &shared.rate), requests, &shared.cuts) => {}
        () = pass(server_read, agent_write, (&shared.answers, &FAST), answers, &shared.cuts) => {}
        _ = target.changed() => {}
    }
}

static FAST: AtomicU64 = AtomicU64::new(0);

/// Forwards bytes until either side ends or the budget is used up.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (budget, rate): (&Mutex<Option<usize>>, &AtomicU64),
    passed: &Mutex<u64>,
    cuts: &Mutex<u64>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(n) => n,
        };
        let allowed = {
            let mut budget = budget.lock();
            match *budget {
                Some(left) if left < read => {
                    *budget = None;
                    *cuts.lock() += 1;
                    left
                }
                Some(left) => {
                    *budget = Some(left - read);
                    read
                }
                None => read,
            }
        };
        *passed.lock() += allowed as u64;
        let rate = rate.load(Ordering::SeqCst);
        if rate > 0 {
            tokio::time::sleep(Duration::from_secs_f64(allowed as f64 / rate as f64)).await;
        }
        if to.write_all(&buffer[..allowed]).await.is_err() || allowed < read {
            return;
        }
    }
}
