//! Metrics of the whole system: processors, load, memory, network, disks.

use super::Reading;

/// Clock ticks per second in the kernel's files (`USER_HZ`, proc(5)).
pub(super) const TICKS_PER_SECOND: f64 = 100.0;
/// Bytes of a sector in `/proc/diskstats`, which does not depend on the device.
const SECTOR_BYTES: f64 = 512.0;

fn numbers<'a>(words: impl Iterator<Item = &'a str>) -> Option<Vec<f64>> {
    words.map(|word| word.parse::<u64>().ok().map(|n| n as f64)).collect()
}

/// Adds rows of `/proc/stat`: processor time by mode in seconds, number of processors, forks,
/// processes and context switches. Like the functions below, returns `None` if the text is
/// malformed.
pub(super) fn stat(text: &str, look: &mut Reading) -> Option<()> {
    let line = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::trim))
    };
    let mut modes = numbers(line("cpu")?.split_ascii_whitespace())?;
    modes.truncate(8);
    if modes.len() < 8 {
        return None;
    }
    let processors = text
        .lines()
        .filter_map(|line| line.strip_prefix("cpu")?.chars().next())
        .filter(char::is_ascii_digit)
        .count();
    let mut values: Vec<f64> = modes.iter().map(|ticks| ticks / TICKS_PER_SECOND).collect();
    values.push(processors as f64);
    let names = [
        "cpu.user",
        "cpu.nice",
        "cpu.system",
        "cpu.idle",
        "cpu.iowait",
        "cpu.irq",
        "cpu.softirq",
        "cpu.steal",
        "cpu.count",
    ];
    let counts =
        [line("processes")?, line("procs_running")?, line("procs_blocked")?, line("ctxt")?];
    let counts = numbers(counts.into_iter())?;
    look.row(&names, ("cpu", "all"), values);
    let names = ["processes.forks", "processes.running", "processes.blocked", "processes.switches"];
    look.row(&names, ("cpu", "all"), counts);
    Some(())
}

/// Adds the row of `/proc/loadavg`, for example `0.20 0.18 0.12 1/80 11206`.
pub(super) fn load(text: &str, look: &mut Reading) -> Option<()> {
    let mut words = text.split_ascii_whitespace();
    let mut values = Vec::new();
    for _ in 0..3 {
        values.push(words.next()?.parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0)?);
    }
    values.extend(numbers(words.next()?.split_once('/')?.1.split(' '))?);
    look.row(&["load.1", "load.5", "load.15", "load.tasks"], ("cpu", "all"), values);
    Some(())
}

/// Adds the row of `/proc/meminfo`, in bytes.
pub(super) fn memory(text: &str, look: &mut Reading) -> Option<()> {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kib as f64 * 1024.0)
    };
    let kinds = [
        ("memory.total", "MemTotal"),
        ("memory.free", "MemFree"),
        ("memory.available", "MemAvailable"),
        ("memory.buffers", "Buffers"),
        ("memory.cached", "Cached"),
        ("memory.dirty", "Dirty"),
        ("swap.total", "SwapTotal"),
        ("swap.free", "SwapFree"),
    ];
    let values = kinds.iter().map(|(_, name)| value(name)).collect::<Option<Vec<_>>>()?;
    look.row(&kinds.map(|(name, _)| name), ("kind", "all"), values);
    Some(())
}

/// Adds a row for each interface in `/proc/net/dev` that matches none of `ignored`. After two
/// header lines, each line has a name, 8 numbers of receiving and 8 of sending. Rows before a
/// malformed line are kept.
pub(super) fn network(text: &str, ignored: &[String], look: &mut Reading) -> Option<()> {
    for line in text.lines().skip(2) {
        let (name, rest) = line.split_once(':')?;
        let n = numbers(rest.split_ascii_whitespace())?;
        let values = [0, 1, 2, 3, 8, 9, 10, 11].map(|i| n.get(i).copied());
        let values = values.into_iter().collect::<Option<Vec<_>>>()?;
        if ignored.iter().any(|pattern| matches(pattern, name.trim())) {
            continue;
        }
        let names = [
            "network.received_bytes",
            "network.received_packets",
            "network.received_errors",
            "network.received_dropped",
            "network.sent_bytes",
            "network.sent_packets",
            "network.sent_errors",
            "network.sent_dropped",
        ];
        look.row(&names, ("interface", name.trim()), values);
    }
    Some(())
}

/// Returns true if the name equals the pattern, or if the pattern ends in `*` and the name starts
/// with the part before it.
fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(name == pattern, |begin| name.starts_with(begin))
}

/// Adds a row for each whole device in `/proc/diskstats` that was used since boot, except loop and
/// RAM devices. Each line has major, minor, name and at least 11 numbers. Rows before a malformed
/// line are kept.
pub(super) fn disks(text: &str, whole: impl Fn(&str) -> bool, look: &mut Reading) -> Option<()> {
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        let name = words.next()?;
        let n = numbers(words)?;
        let at = |i: usize| n.get(i).copied();
        let values = vec![
            at(0)?,
            at(2)? * SECTOR_BYTES,
            at(4)?,
            at(6)? * SECTOR_BYTES,
            at(9)? / 1000.0,
            at(10)? / 1000.0,
        ];
        let used = values.iter().any(|v| *v > 0.0);
        if !used || ["loop", "ram"].iter().any(|kind| name.starts_with(kind)) || !whole(name) {
            continue;
        }
        let names = [
            "disk.reads",
            "disk.read_bytes",
            "disk.writes",
            "disk.written_bytes",
            "disk.busy_seconds",
            "disk.waited_seconds",
        ];
        look.row(&names, ("device", name), values);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(read: impl FnOnce(&mut Reading) -> Option<()>) -> Option<Vec<(String, Vec<f64>)>> {
        let mut look = Reading::default();
        read(&mut look)?;
        Some(look.rows.into_iter().map(|row| (row.name, row.values)).collect())
    }

    #[test]
    fn proc_files_are_parsed_into_rows() {
        let text = "cpu  100 200 300 400 500 600 700 800 0 0\ncpu0 1 1 1 1 1 1 1 1\ncpu1 1\n\
                    intr 5\nctxt 9\nbtime 1\nprocesses 7\nprocs_running 2\nprocs_blocked 1\n";
        let rows = of(|look| stat(text, look)).unwrap();
        assert_eq!(rows[0].1, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 2.0]);
        assert_eq!(rows[1].1, [7.0, 2.0, 1.0, 9.0]);
        let rows = of(|look| load("0.20 1.18 2.12 1/80 11206\n", look)).unwrap();
        assert_eq!(rows[0].1, [0.2, 1.18, 2.12, 80.0]);
        let text = "h\nh\n  lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                    veth1a2b3c: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let rows = of(|look| network(text, &["veth*".into()], look)).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].1, [1.0, 2.0, 3.0, 4.0, 9.0, 10.0, 11.0, 12.0]);
        assert!(rows[0].0.ends_with(" interface=lo"));
        let text = "8 0 sda 1 2 3 4 5 6 7 8 9 1000 2000\n8 1 sda1 1 1 1 1 1 1 1 1 1 1 1\n\
                    7 0 loop0 1 1 1 1 1 1 1 1 1 1 1\n";
        let rows = of(|look| disks(text, |name| name == "sda", look)).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].1, [1.0, 1536.0, 5.0, 3584.0, 1.0, 2.0]);
    }

    #[test]
    fn container_interfaces_are_ignored_by_default() {
        let names =
            ["eth0", "cali0a1b2c3d4e5", "lxc5f00", "eni0a1b2c3d4e5", "br-0a1b2c3d4e5f", "br0"];
        let line = |name| format!("{name}: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n");
        let text = "h\nh\n".to_owned() + &names.map(line).concat();
        let left = |ignored: &[String]| {
            let rows = of(|look| network(&text, ignored, look)).unwrap();
            let names = rows.iter().map(|(name, _)| name.rsplit_once('=').unwrap().1.to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(left(&super::super::ignored_interfaces()), ["eth0", "br0"]);
        assert_eq!(left(&[]).len(), names.len());
        assert_eq!(left(&["br0".into()]).len(), names.len() - 1, "a name is itself alone");
    }

    #[test]
    fn truncated_or_malformed_text_gives_no_row() {
        assert!(of(|look| stat("cpu  1 2 3\n", look)).is_none());
        assert!(of(|look| stat("cpu  1 2 3 4 5 6 7 x\nctxt 1\n", look)).is_none());
        assert!(of(|look| load("0.1 NaN 0.2 1/2 3", look)).is_none());
        assert!(of(|look| memory("MemTotal: 5 kB\n", look)).is_none());
        assert!(of(|look| network("h\nh\nlo: 1 2\n", &[], look)).is_none());
        assert!(of(|look| disks("8 0 sda 1 2\n", |_| true, look)).is_none());
    }
}
