//! The published tables, made from `results/series.json` and put into `bench/README.md`.

use std::path::Path;

use anyhow::Context as _;
use holdfast_bench::Results;

const OURS: &str = "holdfast";

/// Prints each table and replaces it in `bench/README.md`, between its two marks.
pub fn publish(results: &Results) -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let mut text = std::fs::read_to_string(&path)?;
    let tables = [("log", log(results)), ("long", long(results)), ("peers", peers(results))];
    for (name, table) in tables {
        println!("\n{table}");
        let (begins, ends) =
            (format!("<!-- series: {name} -->\n"), format!("<!-- series: {name}, end -->\n"));
        let place = text.split_once(&*begins).zip(text.split_once(&*ends));
        let ((before, _), (_, behind)) =
            place.with_context(|| format!("bench/README.md has no place for the table {name}"))?;
        text = format!("{before}{begins}{table}{ends}{behind}");
    }
    Ok(std::fs::write(path, text)?)
}

/// Formats a figure; `-` if it was not measured.
fn format_figure(value: Option<f64>, digits: usize, unit: &str) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.digits$}{unit}"))
}

/// Returns the names of the cases that ran with the log off.
fn with_log_off(results: &Results) -> Vec<&str> {
    let rows = results.rows_where(|case| case.contains(", wal off"));
    rows.into_iter().filter(|r| r.metric == "points_per_second").map(|r| r.case).collect()
}

/// Returns the table for every case that ran with the log off and on.
fn log(results: &Results) -> String {
    let mut table = String::from(
        "| what is written | log | n | 10 M points take | write rate | relative speed | CPU of the \
         server | relative CPU | written | log |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for off in with_log_off(results) {
        let without = results.get(off, OURS, "points_per_second").unwrap_or(f64::NAN);
        for (wal, ratio) in [("off", "off"), ("interval", "interval/off"), ("always", "on/off")] {
            let case = off.replace("wal off", &format!("wal {wal}"));
            let figure = |metric| results.get(&case, OURS, metric);
            let Some(speed) = figure("points_per_second") else { continue };
            let ratio = off.replace("wal off", &format!("wal {ratio}"));
            let runs = results.runs(&case, OURS, "points_per_second").len();
            let pairs = results.runs(&ratio, OURS, "speed_ratio");
            let (relative, n) = match pairs.len() {
                0 => (speed / without, runs),
                n => (holdfast_bench::median(pairs), n),
            };
            let limit = results.get(&ratio, "a bare program", "speed_ratio");
            let limit = limit.filter(|_| wal == "always");
            let limit = limit.map_or_else(String::new, |limit| format!(" ({limit:.2})"));
            let cpu = figure("cpu_us_per_point");
            let plain =
                results.get(off, OURS, "cpu_us_per_point").zip(cpu).map(|(off, on)| on / off);
            let paired = results.get(&ratio, OURS, "cpu_ratio").map(|ratio| 1.0 / ratio);
            table += &format!(
                "| {} | {wal} | {n} | {:.2} s | {:.2} M/s | {relative:.2}{limit} | {} | {} | {} | {} |\n",
                off.replace(", wal off", ""),
                1e7 / speed,
                speed / 1e6,
                format_figure(cpu, 3, " us"),
                format_figure(paired.or(plain), 2, ""),
                format_figure(figure("written_bytes_per_point"), 2, " B"),
                format_figure(figure("log_bytes_per_point").filter(|bytes| *bytes > 0.0), 2, " B"),
            );
        }
    }
    table + &backfill(results)
}

/// Returns a sentence on backfill during ingest, both until all is sealed.
fn backfill(results: &Results) -> String {
    let case = "backfill of a year, series by series";
    let ours = |case: &str, metric| results.get(case, OURS, metric).map(|v| v / 1e6);
    let Some(speed) = ours(case, "points_per_second") else { return String::new() };
    let ratios = results.runs(case, OURS, "speed_ratio");
    let beside = ours("in-process rows, wal always", "points_per_second_sealed");
    let beside = beside.filter(|_| !ratios.is_empty()).map_or_else(String::new, |ingest| {
        let (n, ratio) = (ratios.len(), holdfast_bench::median(ratios));
        format!(
            "; rows in the order of time, until as much is sealed, {ingest:.1} M points/s: the one is {ratio:.2} \
             of the other (n = {n})"
        )
    });
    format!(
        "\nBulk backfill, in process, the log on, until all is sealed: {speed:.1} M points/s of a year that \
         comes series by series, into 4,380 partitions{beside}.\n",
    )
}

/// Returns the table of the long case: the load on each side and its result.
fn long(results: &Results) -> String {
    let mut table = String::from(
        "| server on | log | served | turns | write rate | each core | seals | merges | trims | open \
         after a kill |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut ratios = String::new();
    for cores in ["1 core", "2 cores"] {
        for wal in ["off", "always"] {
            let case = format!("rows for long, wal {wal}, {cores}");
            let figure = |metric| results.get(&case, OURS, metric);
            let Some(speed) = figure("points_per_second") else { continue };
            let count = |metric| format_figure(figure(metric), 0, "");
            let each = figure("points_per_second_and_core").map(|v| v / 1e6);
            table += &format!(
                "| {cores} | {wal} | {} | {} | {:.2} M/s | {} | {} | {} | {} | {} |\n",
                format_figure(figure("seconds"), 0, " s"),
                count("turns"),
                speed / 1e6,
                format_figure(each, 2, " M/s"),
                count("seals"),
                count("merges"),
                if wal == "off" { "no log".into() } else { count("trims") },
                format_figure(figure("open_after_kill_s"), 2, " s"),
            );
        }
        let case = format!("rows for long, wal on/off, {cores}");
        let figure = |metric: &str| format_figure(results.get(&case, OURS, metric), 3, "");
        // The stored ratio is off/on, where above 1 is better; the table shows on/off.
        let cpu = |metric: &str| {
            format_figure(results.get(&case, OURS, metric).map(|ratio| 1.0 / ratio), 3, "")
        };
        let pairs = results.runs(&case, OURS, "speed_ratio").len();
        ratios += &format!(
            "\nOn to off on {cores}, median of {pairs} pairs of turns (quartiles): relative speed {} ({} to {}), \
             relative CPU {} ({} to {}).\n",
            figure("speed_ratio"),
            figure("speed_ratio_lower_quartile"),
            figure("speed_ratio_upper_quartile"),
            cpu("cpu_ratio"),
            cpu("cpu_ratio_upper_quartile"),
            cpu("cpu_ratio_lower_quartile"),
        );
    }
    table + &ratios
}

/// The durability that an answer of each subject means.
const ANSWERS: [(&str, &str); 3] = [
    ("victoriametrics", "in memory; on the disk within 5 s"),
    ("prometheus", "in its log, not flushed"),
    ("questdb", "in its log, not flushed; it can be queried"),
];

/// Returns the table of every case that peers take part in: ours with the log always and off, then
/// each of them.
fn peers(results: &Results) -> String {
    let mut table = String::from(
        "| what is written | by | taken means | n | write rate | CPU of the server | ours, log \
         always: its speed to theirs | its CPU to theirs |\n|---|---|---|---|---|---|---|---|\n",
    );
    let rows = results.rows_where(|_| true);
    let mut before = "";
    for row in rows {
        let (case, subject) = (row.case, row.subject);
        let Some((_, means)) = ANSWERS.iter().find(|a| a.0 == subject) else { continue };
        if row.metric != "points_per_second" {
            continue;
        }
        let mut line =
            |by: &str, means: &str, (case, subject): (&str, &str), beside: [String; 2]| {
                let speeds = results.runs(case, subject, "points_per_second");
                if speeds.is_empty() {
                    return;
                }
                let (n, [speed, cpu]) = (speeds.len(), beside);
                table += &format!(
                    "| {} | {by} | {means} | {n} | {:.2} M/s | {} | {speed} | {cpu} |\n",
                    case.split(", wal ").next().unwrap_or(case),
                    holdfast_bench::median(speeds) / 1e6,
                    format_figure(results.get(case, subject, "cpu_us_per_point"), 3, " us"),
                );
            };
        if case != before {
            let none = || ["".into(), "".into()];
            let [always, off] = ["always", "off"].map(|wal| format!("{case}, wal {wal}"));
            line("holdfast, log always", "on the disk, flushed", (&always, OURS), none());
            line("holdfast, log off", "in memory", (&off, OURS), none());
            before = case;
        }
        let pairs = format!("{case}, wal always beside");
        let paired = |metric: &str| results.get(&pairs, subject, metric);
        let always = format!("{case}, wal always");
        let plain = |metric: &str| {
            results.get(&always, OURS, metric).zip(results.get(case, subject, metric))
        };
        let speed = paired("speed_ratio").or(plain("points_per_second").map(|(a, b)| a / b));
        let cpu = paired("cpu_ratio").or(plain("cpu_us_per_point").map(|(a, b)| b / a));
        let cpu = cpu.map_or_else(|| "-".into(), |ratio| format!("1/{ratio:.1}"));
        line(subject, means, (case, subject), [format_figure(speed, 1, "x"), cpu]);
    }
    table
}
