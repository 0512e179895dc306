//! The real server as a child process, and its cost.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;

use crate::client::Client;

/// The first administrator's password.
const PASSWORD: &str = "Bench-Marking-9";

/// A running server on loopback, without TLS.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// The address for agents over TLS.
    pub agents: SocketAddr,
    pub socket: PathBuf,
}

impl Server {
    /// Starts the release binary on a folder. `more` is appended to its configuration.
    pub fn start(binary: &Path, data: &Path, more: &str) -> anyhow::Result<Self> {
        let config = data.join("server.toml");
        fs::write(
            &config,
            format!(
                "data = {data:?}\n[api]\nlisten = \"127.0.0.1:0\"\nplain_http = true\n\
                 {more}\n[agents]\nlisten = \"127.0.0.1:0\"\n\
                 [series]\nresp = \"off\"\nudp = \"off\"\nopentsdb = \"off\"\nhttp = \"off\"\n"
            ),
        )?;
        let mut command = Command::new(binary);
        // SAFETY: the call takes integers and is safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // The server ends with the measuring process, however that process ends.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command
            .args(["server", "--config"])
            .arg(&config)
            .env("HOLDFAST_ADMIN_PASSWORD", PASSWORD)
            .env("HOLDFAST_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| binary.display().to_string())?;
        let out = child.stdout.take().context("stdout")?;
        let (mut address, mut agents) = (None, None);
        let mut lines = BufReader::new(out).lines();
        for line in lines.by_ref() {
            let line = line?;
            if let Some(url) = line.strip_prefix("agents: https://") {
                agents = url.parse().ok();
            }
            if let Some(url) = line.strip_prefix("ready: http://") {
                address = url.trim_end_matches('/').parse().ok();
                break;
            }
        }
        // Later output must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let (Some(address), Some(agents)) = (address, agents) else {
            bail!("the server did not start")
        };
        Ok(Self { child, address, agents, socket: data.join("holdfast.sock") })
    }

    /// Returns the CPU time of the whole process so far, including threads that have ended,
    /// seconds.
    pub fn cpu_s(&self) -> f64 {
        cpu_of(self.child.id())
    }

    /// Returns the resident memory, MB.
    pub fn rss_mb(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let line = status.unwrap_or_default();
        let kib = line
            .lines()
            .find_map(|l| l.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<f64>().ok());
        kib.unwrap_or(f64::NAN) * 1024.0 / 1e6
    }

    /// Logs in and returns the token.
    pub fn login(&self) -> anyhow::Result<String> {
        let mut client = Client::tcp(self.address)?;
        let answer = client.send("POST", LOGIN, &basic(), b"")?;
        ensure!(answer.status == 200, "login: {}", answer.status);
        Ok(String::from_utf8(answer.body)?)
    }

    /// Opens a connection with a token.
    pub fn client(&self, token: &str) -> anyhow::Result<Client> {
        Ok(Client::tcp(self.address)?.bearer(token))
    }
}

/// Path of the login.
pub const LOGIN: &str = "/security/user/authenticate?raw=true";

/// Returns the header line with the administrator's name and password.
pub fn basic() -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(format!("admin:{PASSWORD}"));
    format!("Authorization: Basic {text}\r\n")
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: a signal to a child that was not waited for yet.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        for _ in 0..100 {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the CPU time of a process so far, including threads that have ended, seconds.
pub fn cpu_of(process: u32) -> f64 {
    let mut clock = 0;
    // SAFETY: the pointer is valid for the call, which only fills it.
    let failed = unsafe { libc::clock_getcpuclockid(process as i32, &mut clock) != 0 };
    if failed { f64::NAN } else { read_clock(clock) }
}

/// Returns the CPU time of this process so far, seconds.
pub fn own_cpu_s() -> f64 {
    read_clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read_clock(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call, which only fills it.
    let failed = unsafe { libc::clock_gettime(clock, &mut time) != 0 };
    if failed { f64::NAN } else { time.tv_sec as f64 + time.tv_nsec as f64 / 1e9 }
}
