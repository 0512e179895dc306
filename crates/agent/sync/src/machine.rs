//! The machine and boot that the agent runs on, which distinguish a restart from a copied folder.

use std::fs;

use env::random::{Random, SystemRandom};
use link::Instance;
use queue::{Queue, QueueError};
use ring::digest;

use crate::SyncError;

/// Note: the process that last used the database, as `BOOT:PID:STARTED`.
const NOTE_PROCESS: &str = "sync.process";
/// Salt of the digests. The machine's id itself is never sent.
const SALT: &[u8] = b"holdfast instance 1\0";
/// Length of a digest as it is sent, bytes.
const PART_BYTES: usize = 8;
/// Files that hold the machine's id.
const MACHINE_ID_FILES: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
/// File with a random number that changes at each boot.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// A machine and its present boot, as digests. A digest is empty if the system does not provide the
/// id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// Digest of the machine's id, which a reboot does not change.
    pub id: String,
    /// Digest of the boot's id, which every reboot changes.
    pub boot: String,
}

impl Machine {
    pub fn of_host() -> Self {
        let id = MACHINE_ID_FILES.iter().find_map(|file| line(file)).unwrap_or_default();
        let boot = line(BOOT_ID_FILE).unwrap_or_default();
        Self { id: part(&id), boot: part(&boot) }
    }

    /// Returns the instance of a new start of the program on this machine.
    pub(crate) fn instance(&self) -> Result<Instance, SyncError> {
        let nonce = SystemRandom
            .next_u64()
            .map_err(|e| SyncError::Identity(format!("no random number: {e}")))?;
        let (machine, boot) = (self.id.clone(), self.boot.clone());
        Ok(Instance { machine, boot, nonce: format!("{nonce:016x}") })
    }

    /// Claims the database for this process. Fails if the process that last used it is still
    /// running: since the lock of the database is free, this folder must be a copy.
    pub(crate) fn claim(&self, queue: &Queue) -> Result<(), SyncError> {
        if let Some(pid) = self.living_owner(queue)? {
            return Err(SyncError::InUse { pid });
        }
        let pid = std::process::id();
        let note = format!("{}:{pid}:{}", self.boot, started(pid).unwrap_or_default());
        Ok(queue.meta_set(NOTE_PROCESS, note.as_bytes())?)
    }

    fn living_owner(&self, queue: &Queue) -> Result<Option<u32>, QueueError> {
        let note = queue.meta_get(NOTE_PROCESS)?.and_then(|n| String::from_utf8(n).ok());
        Ok(note.and_then(|note| {
            let mut parts = note.split(':');
            let (boot, pid, begun) = (parts.next()?, parts.next()?, parts.next()?);
            let (pid, begun): (u32, u64) = (pid.parse().ok()?, begun.parse().ok()?);
            let here = !boot.is_empty() && boot == self.boot && pid != std::process::id();
            (here && started(pid)? == begun).then_some(pid)
        }))
    }
}

/// Returns the start of a running process, clock ticks since the boot.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any characters; it ends at the last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next(), Some("Z" | "X"));
    if ended { None } else { fields.nth(18)?.parse().ok() }
}

fn line(file: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|t| !t.is_empty())
}

fn part(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let whole = digest::digest(&digest::SHA256, &[SALT, text.as_bytes()].concat());
    hex::encode(whole.as_ref().get(..PART_BYTES).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_of_one_boot_share_boot_id_but_differ() {
        let machine = Machine::of_host();
        assert_eq!(machine.boot.len(), 2 * PART_BYTES);
        assert_eq!(machine, Machine::of_host());
        let starts = [machine.instance().unwrap(), machine.instance().unwrap()];
        assert_ne!(starts[0], starts[1]);
        assert!(starts[0].same_boot(&starts[1]) && !starts[0].other_machine(&starts[1]));
        assert!(link::is_session_id(&format!("fim-{}-1", starts[0])));
    }

    #[test]
    fn start_time_exists_only_for_running_process() {
        assert!(started(std::process::id()).unwrap() > 0);
        assert_eq!(started(u32::MAX), None);
    }
}
