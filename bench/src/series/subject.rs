//! Servers under measurement, each a process of its own: the store behind its ports, and peers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::client::{Http, cpu_of};
use crate::payload::{Feed, Protocol};

/// A program that is measured.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// The store with a setting of its log: `always`, `interval` or `off`.
    Ours(&'static str),
    VictoriaMetrics(PathBuf),
    Prometheus,
    /// Path of its jar.
    QuestDb(PathBuf),
}

/// A running server.
pub struct Subject {
    pub kind: Kind,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    pub resp: u16,
    pub http: u16,
    opentsdb: u16,
    udp: u16,
    pub dir: PathBuf,
}

impl Drop for Subject {
    fn drop(&mut self) {
        // A process that has already ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Subject {
    /// Starts a server; `cores` pins it to these cores (in the form of `taskset -c`).
    pub fn start(kind: Kind, dir: &Path, cores: Option<&str>) -> anyhow::Result<Self> {
        let mut words: Vec<String> = cores
            .map_or_else(Vec::new, |cores| ["taskset", "-c", cores].map(String::from).to_vec());
        let (port, opentsdb, shown) = (free_port()?, free_port()?, dir.display());
        match &kind {
            Kind::Ours(wal) => {
                words.push(std::env::current_exe()?.display().to_string());
                words.extend(["--child".into(), shown.to_string(), "serve".into(), (*wal).into()]);
            }
            Kind::VictoriaMetrics(program) => words.extend([
                program.display().to_string(),
                format!("-storageDataPath={shown}"),
                format!("-httpListenAddr=127.0.0.1:{port}"),
                format!("-opentsdbListenAddr=127.0.0.1:{opentsdb}"),
                "-retentionPeriod=100y".into(),
                "-search.latencyOffset=0s".into(),
                "-selfScrapeInterval=0s".into(),
                "-loggerLevel=ERROR".into(),
            ]),
            Kind::QuestDb(jar) => words.extend([
                "java".into(),
                "-Xmx2g".into(),
                "-p".into(),
                jar.display().to_string(),
                "-m".into(),
                "io.questdb/io.questdb.ServerMain".into(),
                "-d".into(),
                shown.to_string(),
            ]),
            Kind::Prometheus => {
                let config = dir.join("prometheus.yml");
                std::fs::write(&config, "global: {}\n")?;
                words.extend([
                    "prometheus".into(),
                    format!("--config.file={}", config.display()),
                    format!("--storage.tsdb.path={shown}/data"),
                    format!("--web.listen-address=127.0.0.1:{port}"),
                    "--web.enable-remote-write-receiver".into(),
                    "--storage.tsdb.retention.time=100y".into(),
                    "--log.level=error".into(),
                ]);
            }
        }
        let ours = matches!(kind, Kind::Ours(_));
        if !ours {
            // A stopped server would outlive a killed benchmark; our own server handles that
            // itself.
            words.splice(0..0, ["setpriv", "--pdeathsig", "KILL"].map(String::from));
        }
        let questdb = matches!(kind, Kind::QuestDb(_));
        let (program, args) = words.split_first().context("no program")?;
        let piped = || if ours { Stdio::piped() } else { Stdio::null() };
        let mut command = Command::new(program);
        if questdb {
            command.env("QDB_HTTP_BIND_TO", format!("127.0.0.1:{port}"));
            let off = ["HTTP_MIN", "LINE_TCP", "LINE_UDP", "PG", "TELEMETRY"];
            command.envs(off.map(|part| (format!("QDB_{part}_ENABLED"), "false")));
        }
        command.args(args).stdin(piped()).stdout(piped());
        if !ours {
            command.stderr(Stdio::null());
        }
        let mut child = command.spawn().with_context(|| format!("{words:?}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let dir = dir.to_owned();
        let (resp, udp, http) = (0, 0, port);
        let mut it = Self { kind, child, stdin, stdout, resp, http, opentsdb, udp, dir };
        if ours {
            let found = it.answer()?;
            let port = |name: &str| found.iter().find(|(n, _)| n == name).map_or(0, |p| p.1 as u16);
            (it.resp, it.http) = (port("resp"), port("http"));
            (it.opentsdb, it.udp) = (port("opentsdb"), port("udp"));
        } else {
            it.wait_ready()?;
        }
        Ok(it)
    }

    fn wait_ready(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            let path = match self.kind {
                Kind::Prometheus => "/-/ready",
                Kind::QuestDb(_) => "/exec?query=select%201",
                _ => "/health",
            };
            let ready = |mut http: Http| http.send("GET", path, "", b"").is_ok();
            if Http::connect(self.http).is_ok_and(ready) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("{:?} does not answer", self.kind)
    }

    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Ours(_) => "holdfast",
            Kind::VictoriaMetrics(_) => "victoriametrics",
            Kind::Prometheus => "prometheus",
            Kind::QuestDb(_) => "questdb",
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn cpu(&self) -> anyhow::Result<f64> {
        cpu_of(self.pid())
    }

    /// Sends a signal that pauses or resumes the server.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Reads lines `name value` up to a line with a dot.
    fn answer(&mut self) -> anyhow::Result<Vec<(String, f64)>> {
        let stdout = self.stdout.as_mut().context("it does not talk")?;
        let mut found = Vec::new();
        loop {
            let mut line = String::new();
            if stdout.read_line(&mut line)? == 0 {
                bail!("the server ended");
            }
            match line.trim_end().rsplit_once(' ') {
                Some((name, value)) => found.push((name.to_owned(), value.parse()?)),
                None => return Ok(found),
            }
        }
    }

    /// Sends a question to our own server and returns the answer.
    pub fn send_command(&mut self, word: &str) -> anyhow::Result<Vec<(String, f64)>> {
        writeln!(self.stdin.as_mut().context("it does not listen")?, "{word}")?;
        self.answer()
    }

    /// Closes our own server in good order.
    pub fn close(mut self) -> anyhow::Result<()> {
        drop(self.stdin.take());
        anyhow::ensure!(self.child.wait()?.success(), "the server ended badly");
        Ok(())
    }

    /// Sends everything over one connection; returns once all of it is acknowledged.
    pub fn send(&self, protocol: Protocol, pieces: &[Vec<u8>]) -> anyhow::Result<()> {
        if protocol == Protocol::Rows {
            let mut stream = TcpStream::connect(("127.0.0.1", self.resp))?;
            for piece in pieces {
                stream.write_all(piece)?;
            }
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            anyhow::ensure!(answer.is_empty(), "refused: {answer:.300}");
            return Ok(());
        }
        let mut http = Http::connect(self.http)?;
        let (path, head) = request_of(protocol);
        for piece in pieces {
            http.send("POST", path, head, piece)?;
        }
        Ok(())
    }

    /// Sends over one connection until `until` or until nothing is left. Returns the number of
    /// points once they are acknowledged (datagrams: once they are sent).
    pub fn feed(
        &self,
        protocol: Protocol,
        begin: impl Iterator<Item = Vec<u8>>,
        feed: &mut Feed,
        until: Instant,
    ) -> anyhow::Result<u64> {
        let mut points = 0;
        let mut next = |send: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>| -> anyhow::Result<()> {
            while Instant::now() < until
                && let Some(piece) = feed.next()
            {
                send(piece.bytes)?;
                points += piece.points;
            }
            Ok(())
        };
        match protocol {
            Protocol::Influx | Protocol::Remote => {
                let mut http = Http::connect(self.http)?;
                let (path, head) = request_of(protocol);
                next(&mut |piece| http.send("POST", path, head, piece).map(drop))?;
            }
            Protocol::Udp => {
                let socket = UdpSocket::bind("127.0.0.1:0")?;
                socket.connect(("127.0.0.1", self.udp))?;
                next(&mut |piece| Ok(socket.send(piece).map(drop)?))?;
            }
            Protocol::Rows | Protocol::Points | Protocol::OpenTsdb => {
                let lines = protocol == Protocol::OpenTsdb;
                let port = if lines { self.opentsdb } else { self.resp };
                let mut stream = TcpStream::connect(("127.0.0.1", port))?;
                begin.into_iter().try_for_each(|piece| stream.write_all(&piece))?;
                next(&mut |piece| Ok(stream.write_all(piece)?))?;
                stream.shutdown(std::net::Shutdown::Write)?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                anyhow::ensure!(answer.is_empty(), "refused: {answer:.300}");
            }
        }
        Ok(points)
    }

    /// Returns one figure of our own server; see [`serve`].
    pub fn figure(&mut self, name: &str) -> anyhow::Result<f64> {
        let stats = self.send_command("stats")?;
        let found = stats.iter().find(|(n, _)| n == name).map(|s| s.1);
        found.with_context(|| format!("no {name}"))
    }

    /// Waits until N rows can be queried, for a server that answers before that.
    pub fn until_visible(&self, rows: f64) -> anyhow::Result<()> {
        if !matches!(self.kind, Kind::QuestDb(_)) {
            return Ok(());
        }
        let (mut http, began) = (Http::connect(self.http)?, Instant::now());
        let wanted = format!("[[{rows}]]");
        loop {
            let path = "/exec?query=select%20count()%20from%20cpu";
            let answer = http.send("GET", path, "", b"")?;
            if String::from_utf8_lossy(&answer).contains(&wanted) {
                return Ok(());
            }
            anyhow::ensure!(began.elapsed() < Duration::from_secs(60), "rows are missing");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Compacts the written data and makes it visible.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        match self.kind {
            Kind::Ours(_) => drop(self.send_command("settle")?),
            Kind::VictoriaMetrics(_) => {
                let mut http = Http::connect(self.http)?;
                http.send("GET", "/internal/force_flush", "", b"")?;
                http.send("GET", "/internal/force_merge", "", b"")?;
            }
            Kind::Prometheus | Kind::QuestDb(_) => {}
        }
        Ok(())
    }
}

/// Returns path and headers of a protocol's HTTP requests.
fn request_of(protocol: Protocol) -> (&'static str, &'static str) {
    match protocol {
        Protocol::Remote => (
            "/api/v1/write",
            "content-encoding: snappy\r\ncontent-type: application/x-protobuf\r\n\
             x-prometheus-remote-write-version: 0.1.0\r\n",
        ),
        _ => ("/write?precision=ns", ""),
    }
}

/// Serves a store until stdin ends; see [`Subject`].
pub fn serve(dir: &Path, options: series::StoreOptions) -> anyhow::Result<()> {
    // A stopped server would outlive a killed benchmark.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (store, _) = series::Store::open(dir, options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let listen = || runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
    let (resp, lines, http) = (listen()?, listen()?, listen()?);
    let udp = runtime.block_on(tokio::net::UdpSocket::bind("127.0.0.1:0"))?;
    let ports = [resp.local_addr()?, lines.local_addr()?, http.local_addr()?, udp.local_addr()?];
    for (name, address) in ["resp", "opentsdb", "http", "udp"].iter().zip(ports) {
        println!("{name} {}", address.port());
    }
    println!(".");
    for (listener, protocol) in
        [(resp, ingest::Protocol::Resp), (lines, ingest::Protocol::OpenTsdb)]
    {
        let guard = ingest::Guard::default();
        let serve = ingest::serve_tcp(listener, protocol, store.clone(), guard, stopped.clone());
        runtime.spawn(serve);
    }
    runtime.spawn(ingest::serve_udp(udp, store.clone(), stopped));
    let router = ingest::router(store.clone(), ingest::HttpOptions::default());
    // The last small part of an answer must not wait for the client's acknowledgement.
    let http = axum::serve::ListenerExt::tap_io(http, |stream| drop(stream.set_nodelay(true)));
    runtime.spawn(async move { axum::serve(http, router).await });
    for line in std::io::stdin().lock().lines() {
        if line? == "settle" {
            store.seal()?;
            while store.merge()?.parts_before > 0 {}
        }
        let stats = store.stats();
        let log = stats.log.as_ref();
        println!(
            "samples {}\nparts {}\nrollups {}",
            stats.samples, stats.part_bytes, stats.rollup_bytes
        );
        println!(
            "log_payload {}\nlog_written {}",
            stats.log_payload_bytes,
            log.map_or(0, |l| l.bytes_written)
        );
        println!(
            "sealed {}\npart_count {}\nlog_first {}",
            stats.sealed_position,
            stats.parts,
            log.map_or(0, |l| l.first_position)
        );
        println!("partitions {}\npart_samples {}", stats.partitions, stats.part_samples);
        println!("series {}\nindex {}\n.", stats.series, stats.index_bytes);
    }
    drop(stop);
    store.close()?;
    Ok(())
}
