//! The identity of a running agent: a machine, one boot of it, one start of the program. A copy of
//! an agent's folder has the same certificate, but not the same machine, boot or start.

use std::fmt;
use std::str::FromStr;

/// Longest of the three parts, characters.
const PART_CHARS_MAX: usize = 32;

/// One start of one agent's program on one boot of one machine. The text form is the three parts
/// with dots between them, each of up to 32 characters `0-9 a-f`. `nonce` is never empty; the
/// others are empty when unknown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Instance {
    /// Digest of the machine's id, unchanged by reboots.
    pub machine: String,
    pub boot: String,
    /// One start of the program; random.
    pub nonce: String,
}

impl Instance {
    /// Returns the instance in a session id (`module-MACHINE.BOOT.NONCE-number`), if it has one.
    pub fn of_session(id: &str) -> Option<Self> {
        id.rsplit('-').nth(1)?.parse().ok()
    }

    /// Returns true if both are known to run on the same boot of a machine.
    pub fn same_boot(&self, other: &Self) -> bool {
        !self.boot.is_empty() && self.boot == other.boot
    }

    /// Returns true if both are known to run on different machines.
    pub fn other_machine(&self, other: &Self) -> bool {
        !self.machine.is_empty() && !other.machine.is_empty() && self.machine != other.machine
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.machine, self.boot, self.nonce)
    }
}

/// The error of a text that is not an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not of the form MACHINE.BOOT.NONCE in lower-case hex: leave it out or fix it")]
pub struct NoInstance;

impl FromStr for Instance {
    type Err = NoInstance;

    fn from_str(text: &str) -> Result<Self, NoInstance> {
        let mut parts = text.split('.');
        let mut part = || {
            let part = parts.next().ok_or(NoInstance)?;
            let hex = part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            if hex && part.len() <= PART_CHARS_MAX { Ok(part.to_owned()) } else { Err(NoInstance) }
        };
        let instance = Self { machine: part()?, boot: part()?, nonce: part()? };
        let whole = parts.next().is_none() && !instance.nonce.is_empty();
        if whole { Ok(instance) } else { Err(NoInstance) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_parses_from_text_and_session_id() {
        let one: Instance = "aa.bb.cc".parse().unwrap();
        assert_eq!(one.to_string(), "aa.bb.cc");
        assert_eq!(Instance::of_session("fim-aa.bb.cc-17"), Some(one.clone()));
        assert_eq!(Instance::of_session("my-module-aa.bb.cc-17"), Some(one));
        assert_eq!("..1".parse::<Instance>().unwrap().machine, "");
        for bad in ["", "a.b", "a.b.", "a.b.c.d", "A.b.c", "a.b.g", &format!("{:033}.b.c", 0)] {
            assert!(bad.parse::<Instance>().is_err(), "{bad}");
        }
        for other in ["", "fim", "fim-17", "17-42", "fim-1.2-3"] {
            assert_eq!(Instance::of_session(other), None, "{other}");
        }
    }

    #[test]
    fn unknown_instance_is_neither_equal_nor_different() {
        let [a, b]: [Instance; 2] = ["..1".parse().unwrap(), "d.b.1".parse().unwrap()];
        assert!(!a.same_boot(&a) && !a.other_machine(&b) && !b.other_machine(&b));
    }
}
