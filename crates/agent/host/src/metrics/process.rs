//! Metrics of the processes with a given name: number, processor time, memory, reads and writes.

use std::io::ErrorKind;
use std::path::Path;

use super::system::TICKS_PER_SECOND;
use super::{PROCESSES_MAX, Reading, text};

/// `ESRCH`: the error of reading an open `/proc/PID` file after the process has ended.
const GONE: i32 = 3;

/// Sums over the processes of one name.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: u64,
    ticks: u64,
    resident_bytes: u64,
    read_bytes: u64,
    written_bytes: u64,
    /// True if reads and writes of all of them could be read.
    io: bool,
}

/// Adds rows for the processes with these names. Processes that end in between are left out.
pub(super) fn named(proc: &Path, names: &[String], look: &mut Reading) -> Option<()> {
    let mut sums: Vec<Sum> = names.iter().map(|_| Sum { io: true, ..Sum::default() }).collect();
    let numbered = std::fs::read_dir(proc).ok()?.flatten().filter(|entry| {
        entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
    });
    for entry in numbered.take(PROCESSES_MAX) {
        let folder = entry.path();
        let Some(name) = text(&folder.join("comm")) else { continue };
        let place = names.iter().position(|n| n == name.trim_end());
        if let Some(sum) = place.and_then(|at| sums.get_mut(at)) {
            add(&folder, sum);
        }
    }
    for (name, sum) in names.iter().zip(sums) {
        let tag = ("name", name.as_str());
        let values =
            vec![sum.count as f64, sum.ticks as f64 / TICKS_PER_SECOND, sum.resident_bytes as f64];
        look.row(&["process.count", "process.cpu_seconds", "process.resident_bytes"], tag, values);
        if sum.io && sum.count > 0 {
            let values = vec![sum.read_bytes as f64, sum.written_bytes as f64];
            look.row(&["process.read_bytes", "process.written_bytes"], tag, values);
        }
    }
    Some(())
}

fn add(folder: &Path, sum: &mut Sum) {
    let stat = text(&folder.join("stat"));
    let Some(ticks) = stat.as_deref().and_then(ticks) else { return };
    let io = match std::fs::read_to_string(folder.join("io")) {
        Ok(text) => Some(text),
        // The process ended after its name was read.
        Err(e) if has_ended(&e, folder) => return,
        Err(_) => None,
    };
    sum.count += 1;
    sum.ticks += ticks;
    // Kernel threads have no `VmRSS`.
    let status = text(&folder.join("status")).unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok());
    sum.resident_bytes += resident.unwrap_or(0_u64) * 1024;
    let bytes = |name: &str| {
        let line = io.as_deref()?.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    match (bytes("read_bytes:"), bytes("write_bytes:")) {
        (Some(read), Some(written)) => {
            sum.read_bytes += read;
            sum.written_bytes += written;
        }
        _ => sum.io = false,
    }
}

/// Returns true if a process's file `io` could not be read because the process has ended. A kernel
/// without I/O accounting has no such file for any process.
fn has_ended(error: &std::io::Error, folder: &Path) -> bool {
    let missing = error.kind() == ErrorKind::NotFound;
    error.raw_os_error() == Some(GONE) || (missing && !folder.join("stat").exists())
}

/// Returns the ticks in user and kernel mode (fields 14 and 15 in proc(5)). The name in parentheses
/// may contain any characters, so the fields are counted after the last `)`.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(field(14)? + field(15)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_exiting_during_the_read_keeps_rows_of_the_others() {
        let proc = tempfile::tempdir().unwrap();
        let process = |number: &str| {
            let folder = proc.path().join(number);
            std::fs::create_dir(&folder).unwrap();
            let stat = "7 (a) S 1 1 1 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 5 1000 77 1844";
            for (name, text) in [("comm", "a\n"), ("stat", stat), ("status", "VmRSS:\t8 kB\n")] {
                std::fs::write(folder.join(name), text).unwrap();
            }
            folder.join("io")
        };
        let rows = || {
            let mut look = Reading::default();
            named(proc.path(), &["a".to_owned()], &mut look).unwrap();
            look.rows.into_iter().map(|row| row.values).collect::<Vec<_>>()
        };
        std::fs::write(process("7"), "read_bytes: 10\nwrite_bytes: 20\n").unwrap();
        assert_eq!(rows(), [vec![1.0, 0.42, 8192.0], vec![10.0, 20.0]]);
        let (missing, gone) = (ErrorKind::NotFound.into(), std::io::Error::from_raw_os_error(GONE));
        assert!(has_ended(&missing, &proc.path().join("6")) && has_ended(&gone, proc.path()));
        assert!(!has_ended(&missing, &proc.path().join("7")), "the kernel has no such file");
        // If `io` of one process cannot be read, the sum of the others is not reported as the
        // whole.
        std::fs::create_dir(process("9")).unwrap();
        assert_eq!(rows(), [[2.0, 0.84, 16384.0]]);
    }

    #[test]
    fn process_name_with_parentheses_does_not_shift_stat_fields() {
        let rest = "S 1 1 1 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 5 1000 77 1844";
        assert_eq!(ticks(&format!("42 (a) b) {rest}")), Some(42));
        assert_eq!(ticks("42 (a) S 1"), None);
        assert_eq!(ticks("nonsense"), None);
    }
}
