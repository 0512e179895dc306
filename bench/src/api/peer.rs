//! The published design's access to its database, reimplemented from its description. A child
//! process answers text over a unix stream socket (a length of four bytes, little-endian, then at
//! most 64 KiB) and prepares every statement again. The client asks for a count before any data and
//! reads 500 rows at a time, halving the slice when an answer does not fit. What its API does with
//! the rows is left out, so these figures are a lower bound of its cost.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use holdfast_bench::{Results, median};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Map, Value};

use crate::server::{cpu_of, own_cpu_s};

/// Its name in the results.
pub const SUBJECT: &str = "published statements";
/// Longest message, bytes.
const MESSAGE_BYTES_MAX: usize = 65_536;
/// Initial number of rows in a slice.
const SLICE_ROWS: usize = 500;
/// The command-line word that starts the child.
pub const CHILD: &str = "peer-database";

/// Copies the fleet into a table of that design.
fn seed(from: &Path, to: &Path) -> anyhow::Result<()> {
    let conn = Connection::open(to)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.execute_batch(
        "CREATE TABLE agent (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, ip TEXT,
             register_ip TEXT, internal_key TEXT, os_name TEXT, os_version TEXT, os_major TEXT,
             os_minor TEXT, os_codename TEXT, os_build TEXT, os_platform TEXT, os_uname TEXT,
             os_arch TEXT, version TEXT, config_sum TEXT, merged_sum TEXT, manager_host TEXT,
             node_name TEXT DEFAULT 'unknown', date_add INTEGER NOT NULL, last_keepalive INTEGER,
             `group` TEXT DEFAULT 'default', group_hash TEXT DEFAULT NULL,
             group_sync_status TEXT DEFAULT 'synced', sync_status TEXT DEFAULT 'synced',
             connection_status TEXT NOT NULL, disconnection_time INTEGER DEFAULT 0,
             group_config_status TEXT DEFAULT 'not synced', status_code INTEGER DEFAULT 0);
         CREATE INDEX agent_name ON agent (name);
         CREATE INDEX agent_ip ON agent (ip);
         CREATE TABLE `group` (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
         CREATE TABLE belongs (id_agent INTEGER, id_group INTEGER, priority INTEGER,
             PRIMARY KEY (id_agent, id_group));
         CREATE INDEX belongs_id_group ON belongs (id_group);",
    )?;
    conn.execute("ATTACH ?1 AS ours", [from.to_string_lossy()])?;
    conn.execute_batch(
        "INSERT INTO agent (id, name, ip, register_ip, os_name, os_version, os_platform, os_uname,
             os_arch, version, node_name, date_add, last_keepalive, connection_status,
             disconnection_time, group_config_status, status_code)
         SELECT id, name, ip, register_ip, os_name, os_version, os_platform, os_uname, os_arch,
             version, 'node01', added_at_s, keepalive_at_s, status, coalesce(disconnected_at_s, 0),
             iif(status = 'never_connected', 'not synced', 'synced'), status_code
         FROM ours.agent;
         INSERT INTO `group` SELECT id, name FROM ours.agent_group;
         INSERT INTO belongs SELECT agent, grp, priority FROM ours.membership;
         PRAGMA wal_checkpoint(TRUNCATE);",
    )?;
    Ok(())
}

/// Runs the child: answers until it is killed.
pub fn serve(socket: &Path, file: &Path) -> anyhow::Result<()> {
    let listener = UnixListener::bind(socket)?;
    println!("ready");
    let conn = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        while let Some(request) = read(&mut stream)? {
            let statement = request.strip_prefix("global sql ").unwrap_or_default();
            let rows = serde_json::to_string(&rows(&conn, statement)?)?;
            let answer = if rows.len() > MESSAGE_BYTES_MAX - 3 {
                "err too long".into()
            } else {
                format!("ok {rows}")
            };
            write(&mut stream, &answer)?;
        }
    }
    Ok(())
}

fn rows(conn: &Connection, sql: &str) -> anyhow::Result<Vec<Value>> {
    let mut statement = conn.prepare(sql).with_context(|| sql.to_owned())?;
    let names: Vec<String> = statement.column_names().into_iter().map(String::from).collect();
    let mut found = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = found.next()? {
        let mut item = Map::new();
        for (at, name) in names.iter().enumerate() {
            let value = match row.get_ref(at)? {
                ValueRef::Integer(n) => n.into(),
                ValueRef::Real(n) => n.into(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
                ValueRef::Null | ValueRef::Blob(_) => continue,
            };
            item.insert(name.clone(), value);
        }
        all.push(item.into());
    }
    Ok(all)
}

fn read(stream: &mut UnixStream) -> anyhow::Result<Option<String>> {
    let mut length = [0; 4];
    if stream.read_exact(&mut length).is_err() {
        return Ok(None);
    }
    let mut text = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut text)?;
    Ok(Some(String::from_utf8(text)?))
}

fn write(stream: &mut UnixStream, text: &str) -> anyhow::Result<()> {
    let mut bytes = u32::try_from(text.len())?.to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    Ok(stream.write_all(&bytes)?)
}

/// The client's side of one connection.
struct Asking {
    stream: UnixStream,
    queries: u32,
}

impl Asking {
    /// Returns the rows; `None` if they do not fit.
    fn sql(&mut self, statement: &str) -> anyhow::Result<Option<Vec<Value>>> {
        self.queries += 1;
        write(&mut self.stream, &format!("global sql {statement}"))?;
        let answer = read(&mut self.stream)?.context("the peer's database hung up")?;
        match answer.split_once(' ') {
            Some(("ok", rows)) => Ok(Some(serde_json::from_str(rows)?)),
            _ => Ok(None),
        }
    }

    /// Reads a count, then the rows by slices.
    fn list(&mut self, what: &str, from: &str, wanted: usize) -> anyhow::Result<Vec<Value>> {
        self.sql(&format!("SELECT COUNT(*) FROM (SELECT id FROM agent {from})"))?;
        let (mut all, mut slice) = (Vec::new(), SLICE_ROWS.min(wanted));
        while all.len() < wanted {
            let rows = slice.min(wanted - all.len());
            let statement =
                format!("SELECT {what} FROM agent {from} LIMIT {rows} OFFSET {}", all.len());
            match self.sql(&statement)? {
                Some(rows) if rows.is_empty() => break,
                Some(rows) => all.extend(rows),
                None if slice > 1 => slice /= 2,
                None => bail!("a single row does not fit"),
            }
        }
        Ok(all)
    }

    /// Groups agents by some columns: a total, the number of groups, the groups.
    fn group_by(&mut self, columns: &str) -> anyhow::Result<()> {
        self.sql("SELECT COUNT(*) FROM agent WHERE id != 0")?;
        let kinds = format!("FROM agent WHERE id != 0 GROUP BY {columns}");
        self.sql(&format!("SELECT COUNT(*) FROM (SELECT {columns} {kinds})"))?;
        self.sql(&format!("SELECT {columns}, COUNT(*) AS count {kinds} LIMIT 500 OFFSET 0"))?;
        Ok(())
    }
}

const WIDE: &str = "id, name, ip, register_ip, status_code, os_name, os_version, os_platform, \
     os_uname, os_arch, version, node_name, date_add, last_keepalive, `group`, connection_status, \
     disconnection_time, group_config_status";

type Case = (&'static str, fn(&mut Asking, u32) -> anyhow::Result<()>);

/// The database queries of each request, as far as the descriptions give them.
const CASES: [Case; 6] = [
    ("GET /agents/summary/status", |ask, _| {
        ask.group_by("connection_status")?;
        ask.group_by("group_config_status")
    }),
    ("GET /agents?limit=500", |ask, _| ask.list(WIDE, "ORDER BY id ASC", 500).map(drop)),
    ("GET /agents?limit=1", |ask, _| ask.list(WIDE, "ORDER BY id ASC", 1).map(drop)),
    ("GET /agents/summary", |ask, _| {
        ask.group_by("connection_status")?;
        ask.group_by("os_platform")?;
        ask.sql(
            "SELECT g.name, COUNT(*) AS count FROM belongs b JOIN `group` g ON g.id = b.id_group \
             GROUP BY g.name LIMIT 500",
        )
        .map(drop)
    }),
    ("GET /overview/agents", |ask, _| {
        for columns in [
            "node_name",
            "connection_status",
            "group_config_status",
            "version",
            "os_name, os_platform, os_version",
        ] {
            ask.group_by(columns)?;
        }
        ask.sql("SELECT COUNT(*) FROM `group`")?;
        ask.sql(
            "SELECT g.name, COUNT(*) AS count FROM belongs b JOIN `group` g ON g.id = b.id_group \
             GROUP BY g.name LIMIT 500",
        )?;
        ask.list(WIDE, "ORDER BY date_add DESC", 1).map(drop)
    }),
    ("agent ids over the socket", |ask, agents| {
        ask.list("id", "WHERE id != 0", agents as usize).map(drop)
    }),
];

struct Database(Child);

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs each case repeatedly; the CPU time is that of both sides.
pub fn run(
    scratch: &Path,
    registry: &Path,
    agents: u32,
    times: usize,
    results: &mut Results,
) -> anyhow::Result<()> {
    let (file, socket) = (scratch.join("peer.db"), scratch.join("peer.sock"));
    seed(registry, &file)?;
    let child = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .args([&socket, &file])
        .stdout(Stdio::null())
        .spawn()?;
    let child = Database(child);
    let until = Instant::now() + Duration::from_secs(30);
    let stream = loop {
        match UnixStream::connect(&socket) {
            Ok(stream) => break stream,
            Err(e) if Instant::now() > until => return Err(e.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let mut ask = Asking { stream, queries: 0 };
    for (case, code) in CASES {
        code(&mut ask, agents)?;
        ask.queries = 0;
        let before = cpu_of(child.0.id()) + own_cpu_s();
        let mut took = Vec::new();
        for _ in 0..times {
            let begun = Instant::now();
            code(&mut ask, agents)?;
            took.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let cpu_ms = (cpu_of(child.0.id()) + own_cpu_s() - before) * 1e3 / times as f64;
        let case = format!("{agents} {case}");
        results.add(&case, SUBJECT, "cpu_ms", "ms", cpu_ms);
        results.add(&case, SUBJECT, "p50_ms", "ms", median(took));
        results.add(&case, SUBJECT, "queries", "", f64::from(ask.queries) / times as f64);
    }
    drop(child);
    fs::remove_file(&file)?;
    Ok(())
}
