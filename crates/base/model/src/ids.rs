//! Identifiers: agents, datasets, positions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An agent's number. 000 is the server itself; printed with at least three digits.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct AgentId(pub u32);

impl AgentId {
    /// The server's own entry.
    pub const SERVER: Self = Self(0);
    /// The tag of metrics whose value is the number of the agent that they are of.
    pub const TAG: &str = "agent";
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03}", self.0)
    }
}

impl FromStr for AgentId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The incarnation of an agent number that a record belongs to. A new one is drawn each time the
/// number is enrolled, so that a late record of a removed agent cannot affect its successor.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// A record's number in the journal, from 1; 0 means before the first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Position(pub u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A named collection of state documents, such as `fim-files`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Dataset(String);

/// Prefix of state datasets on the wire (`docs/reference/wire.md`, "Sessions: index names").
const WIRE_PREFIX: &str = "wazuh-states-";

impl Dataset {
    /// Files watched for integrity.
    pub const FIM_FILES: &'static str = "fim-files";
    pub const INVENTORY_PACKAGES: &'static str = "inventory-packages";
    /// Immutable events: the same name on the wire.
    pub const EVENTS: &'static str = "holdfast-events";

    /// Returns the dataset of this name, without the wire's prefix.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Returns the dataset of files.
    pub fn fim_files() -> Self {
        Self::new(Self::FIM_FILES)
    }

    /// Returns the dataset of installed packages.
    pub fn inventory_packages() -> Self {
        Self::new(Self::INVENTORY_PACKAGES)
    }

    /// Returns the dataset of events.
    pub fn events() -> Self {
        Self::new(Self::EVENTS)
    }

    /// Returns the name without prefix.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Returns true if its values are events rather than documents.
    pub fn is_events(&self) -> bool {
        self.0 == Self::EVENTS
    }

    /// Returns the index name on the wire.
    pub fn wire(&self) -> String {
        if self.is_events() { self.0.clone() } else { format!("{WIRE_PREFIX}{}", self.0) }
    }

    /// Returns the dataset of an index name on the wire, if the server accepts writes for it:
    /// `wazuh-states-inventory-*`, `wazuh-states-fim-*`, `wazuh-states-sca`, `wazuh-states-sca-*`
    /// and `holdfast-events`.
    pub fn from_wire(index: &str) -> Option<Self> {
        if index == Self::EVENTS {
            return Some(Self::events());
        }
        let name = index.strip_prefix(WIRE_PREFIX)?;
        let allowed = name == "sca"
            || ["inventory-", "fim-", "sca-"].iter().any(|p| {
                name.strip_prefix(p).is_some_and(|rest| {
                    !rest.is_empty()
                        && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
                })
            });
        allowed.then(|| Self::new(name))
    }
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_numbers_are_padded_to_three_digits() {
        assert_eq!(AgentId(1).to_string(), "001");
        assert_eq!(AgentId(50_000).to_string(), "50000");
        assert_eq!("007".parse(), Ok(AgentId(7)));
        assert!("x".parse::<AgentId>().is_err());
    }

    #[test]
    fn only_accepted_index_names_map_to_datasets() {
        for ok in ["fim-files", "fim-registry-keys", "inventory-packages", "sca", "sca-x"] {
            let wire = Dataset::new(ok).wire();
            assert_eq!(Dataset::from_wire(&wire), Some(Dataset::new(ok)));
        }
        assert_eq!(Dataset::from_wire("holdfast-events"), Some(Dataset::events()));
        for bad in [
            "",
            "wazuh-states-",
            "wazuh-states-fim-",
            "wazuh-states-vulnerabilities",
            "fim-files",
            "wazuh-states-fim-a/b",
        ] {
            assert_eq!(Dataset::from_wire(bad), None, "{bad}");
        }
    }
}
