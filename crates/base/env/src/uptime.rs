//! The time since the machine was booted, which does not depend on the wall clock. It distinguishes
//! a jump of the wall clock from a time when the agent was not running.

use std::fs;
use std::time::Duration;

/// File with a random id of the present boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// File with the seconds since the boot, including suspension (`proc_uptime(5)`).
const UPTIME: &str = "/proc/uptime";

/// A point in time of one boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uptime {
    boot: String,
    since_boot: Duration,
}

impl Uptime {
    /// Returns the present time; `None` if the system does not provide it.
    pub fn now() -> Option<Self> {
        let boot = fs::read_to_string(BOOT_ID).ok()?.trim().to_owned();
        let text = fs::read_to_string(UPTIME).ok()?;
        let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
        Some(Self { boot, since_boot: Duration::try_from_secs_f64(seconds).ok()? })
    }

    /// Returns the time from `earlier` to `self`; `None` if the machine was booted in between, or a
    /// container was restarted that counts its own uptime.
    pub fn since(&self, earlier: &Self) -> Option<Duration> {
        let same = self.boot == earlier.boot;
        if same { self.since_boot.checked_sub(earlier.since_boot) } else { None }
    }

    /// Returns the text `BOOT MILLISECONDS`.
    pub fn to_text(&self) -> String {
        format!("{} {}", self.boot, self.since_boot.as_millis())
    }

    /// Reads the text of [`Uptime::to_text`].
    pub fn parse(text: &str) -> Option<Self> {
        let (boot, millis) = text.split_once(' ')?;
        let since_boot = Duration::from_millis(millis.parse().ok()?);
        Some(Self { boot: boot.to_owned(), since_boot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes_of_one_boot_are_compared() {
        let of = |boot: &str, seconds| Uptime {
            boot: boot.into(),
            since_boot: Duration::from_secs(seconds),
        };
        assert_eq!(of("a", 9).since(&of("a", 2)), Some(Duration::from_secs(7)));
        assert_eq!(of("a", 9).since(&of("b", 2)), None);
        assert_eq!(of("a", 2).since(&of("a", 9)), None);
        let now = Uptime::now().unwrap();
        let again = Uptime::parse(&now.to_text()).unwrap();
        assert!(now.since(&again).unwrap() < Duration::from_millis(1));
    }
}
