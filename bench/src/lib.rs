//! Parts shared by all comparisons: children measured by the kernel's own accounting, medians, a
//! table with ratios and a results file.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

/// The cost of one finished process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// From start to end, seconds.
    pub wall_s: f64,
    /// User and system time, seconds.
    pub cpu_s: f64,
    /// Largest resident set, MB (10^6 bytes).
    pub rss_mb: f64,
}

/// Runs a command to its end and drops its stdout. `accepted` lists the exit codes of success.
pub fn measure(command: &mut Command, accepted: &[i32]) -> anyhow::Result<Cost> {
    let shown = format!("{command:?}");
    let start = Instant::now();
    let child =
        command.stdout(std::process::Stdio::null()).spawn().with_context(|| shown.clone())?;
    let ended = wait4(child.id())?;
    let wall_s = start.elapsed().as_secs_f64();
    let (status, usage) = (ended.status, ended.usage);
    if !libc::WIFEXITED(status) || !accepted.contains(&libc::WEXITSTATUS(status)) {
        bail!("{shown}: ended with status {status}");
    }
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(Cost {
        wall_s,
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        rss_mb: usage.ru_maxrss as f64 * 1024.0 / 1e6,
    })
}

/// A process that has ended.
struct Ended {
    status: i32,
    usage: libc::rusage,
}

fn wait4(pid: u32) -> io::Result<Ended> {
    let mut status = 0;
    // SAFETY: both pointers are valid for the call, and rusage is plain numbers.
    let (found, usage) = unsafe {
        let mut usage = std::mem::zeroed();
        (libc::wait4(pid as i32, &mut status, 0, &mut usage), usage)
    };
    if found < 0 { Err(io::Error::last_os_error()) } else { Ok(Ended { status, usage }) }
}

/// Returns the median; for an even number of values the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |n: usize| values.get(n).copied().unwrap_or(f64::NAN);
    let (half, odd) = (values.len() / 2, values.len() % 2 == 1);
    if odd || values.is_empty() { at(half) } else { f64::midpoint(at(half - 1), at(half)) }
}

/// Rows of a results file.
#[derive(Debug, Default)]
pub struct Results(Vec<Row>);

/// One row, with the median of its values.
#[derive(Debug)]
pub struct Figure<'a> {
    pub case: &'a str,
    pub subject: &'a str,
    pub metric: &'static str,
    pub unit: &'static str,
    pub median: f64,
}

#[derive(Debug)]
struct Row {
    case: String,
    subject: String,
    metric: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

impl Row {
    fn figure(&self) -> Figure<'_> {
        Figure {
            case: &self.case,
            subject: &self.subject,
            metric: self.metric,
            unit: self.unit,
            median: median(self.values.clone()),
        }
    }
}

impl Results {
    /// Adds one measured value.
    pub fn add(
        &mut self,
        case: &str,
        subject: &str,
        metric: &'static str,
        unit: &'static str,
        value: f64,
    ) {
        let same = |r: &&mut Row| r.case == case && r.subject == subject && r.metric == metric;
        match self.0.iter_mut().find(same) {
            Some(row) => row.values.push(value),
            None => self.0.push(Row {
                case: case.into(),
                subject: subject.into(),
                metric,
                unit,
                values: vec![value],
            }),
        }
    }

    /// Adds the three figures of a process.
    pub fn add_cost(&mut self, case: &str, subject: &str, cost: Cost) {
        self.add(case, subject, "wall_s", "s", cost.wall_s);
        self.add(case, subject, "cpu_s", "s", cost.cpu_s);
        self.add(case, subject, "rss_mb", "MB", cost.rss_mb);
    }

    /// Returns all values that were added, in order.
    pub fn runs(&self, case: &str, subject: &str, metric: &str) -> Vec<f64> {
        self.0
            .iter()
            .find(|r| r.case == case && r.subject == subject && r.metric == metric)
            .map(|r| r.values.clone())
            .unwrap_or_default()
    }

    /// Returns the median of the values that were added.
    pub fn get(&self, case: &str, subject: &str, metric: &str) -> Option<f64> {
        self.0
            .iter()
            .find(|r| r.case == case && r.subject == subject && r.metric == metric)
            .map(|r| median(r.values.clone()))
    }

    /// Returns the rows of the cases that `wanted` accepts.
    pub fn rows_where(&self, wanted: impl Fn(&str) -> bool) -> Vec<Figure<'_>> {
        let rows = self.0.iter().filter(|r| wanted(&r.case));
        rows.map(Row::figure).collect()
    }

    /// Loads `results/NAME.json` without the cases that `again` says are measured again. Medians
    /// take the place of their values.
    pub fn load(name: &str, again: impl Fn(&str, &str) -> bool) -> anyhow::Result<Self> {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(format!("{name}.json"));
        let Ok(text) = fs::read(path) else { return Ok(Self::default()) };
        let value: Value = serde_json::from_slice(&text)?;
        let mut rows = Vec::new();
        for row in value["rows"].as_array().into_iter().flatten() {
            let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            if again(&word("case"), &word("metric")) {
                continue;
            }
            let count = row["n"].as_u64().unwrap_or(1) as usize;
            rows.push(Row {
                case: word("case"),
                subject: word("subject"),
                // A few dozen names are leaked, once in the life of the program.
                metric: word("metric").leak(),
                unit: word("unit").leak(),
                values: vec![row["value"].as_f64().unwrap_or(f64::NAN); count],
            });
        }
        Ok(Self(rows))
    }

    /// Prints the rows as a table, with ratios to `yardstick` where it has the same case and
    /// metric.
    pub fn print(&self, yardstick: &str) {
        println!("| case | subject | metric | median | min..max | ratio to {yardstick} |");
        println!("|---|---|---|---|---|---|");
        for row in &self.0 {
            let middle = median(row.values.clone());
            let (min, max) =
                row.values.iter().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
            let ratio = self
                .get(&row.case, yardstick, row.metric)
                .filter(|_| row.subject != yardstick)
                .map_or(String::new(), |y| format!("{:.3}", middle / y));
            println!(
                "| {} | {} | {} | {middle:.3} {} | {min:.3}..{max:.3} | {ratio} |",
                row.case, row.subject, row.metric, row.unit
            );
        }
    }

    /// Writes `results/NAME.json`: the machine, and the median of each row on one line.
    pub fn save(&self, name: &str) -> anyhow::Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join(format!("{name}.json")), self.to_json(&machine()))?)
    }

    fn to_json(&self, machine: &Value) -> String {
        let line = |row: &Row| {
            let text = |word: &str| Value::from(word).to_string();
            format!(
                "  {{\"case\": {}, \"subject\": {}, \"metric\": {}, \"value\": {}, \"unit\": {}, \"n\": {}}}",
                text(&row.case),
                text(&row.subject),
                text(row.metric),
                Value::from(median(row.values.clone())),
                text(row.unit),
                row.values.len()
            )
        };
        let rows: Vec<String> = self.0.iter().map(line).collect();
        format!("{{\"machine\": {machine}, \"rows\": [\n{}\n]}}\n", rows.join(",\n"))
    }
}

/// Describes the machine of the measurements.
fn machine() -> Value {
    let field = |file: &str, key: &str| {
        fs::read_to_string(file).ok().and_then(|text| {
            let line = text.lines().find(|l| l.starts_with(key))?.to_owned();
            Some(line.split(':').nth(1)?.trim().to_owned())
        })
    };
    let kernel = rustix::system::uname();
    json!({
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory": field("/proc/meminfo", "MemTotal"),
        "kernel": kernel.release().to_string_lossy(),
        "load": fs::read_to_string("/proc/loadavg").unwrap_or_default().trim(),
    })
}

/// Returns true if a short run was asked for.
pub fn quick() -> bool {
    wanted("QUICK")
}

/// Returns true if the environment asks for it: `NAME=1`.
pub fn wanted(name: &str) -> bool {
    std::env::var(name).is_ok_and(|q| q != "0" && !q.is_empty())
}
