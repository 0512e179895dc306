//! Installed packages: state documents of the dataset `inventory-packages` and the packages in
//! events.
//!
//! Field names: ECS 8 `package.*`, extended by `vendor`, `source`, `category`, `priority` and
//! `multiarch`; `checksum.hash.sha1` as in documents of files; `holdfast.item` is the item's key,
//! which takes the place of a file's path.

use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

use crate::document::ChecksumBody;

/// One installed package. Absent means unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct PackageBody {
    pub name: String,
    /// Its whole version, epoch and revision included.
    pub version: String,
    /// Architecture as the packager names it.
    pub architecture: String,
    /// Kind of package: `deb`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Maintainer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// One-line description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Installed size as the packager estimates it, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Time at which its files were installed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// Source package, if its name or version differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Section of the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Importance for the distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Support for several architectures at once: `same`, `foreign`, `allowed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiarch: Option<String>,
    /// State in dpkg's words, such as `half-configured`, unless it is `installed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl PackageBody {
    /// Returns the item's key: `name:architecture`.
    pub fn key(&self) -> String {
        format!("{}:{}", self.name, self.architecture)
    }

    /// Returns the names of the fields that differ between `self` (before) and `after`, in a fixed
    /// order.
    pub fn difference(&self, after: &Self) -> Vec<&'static str> {
        let fields = [
            ("version", self.version == after.version),
            ("type", self.kind == after.kind),
            ("vendor", self.vendor == after.vendor),
            ("description", self.description == after.description),
            ("size", self.size == after.size),
            ("installed", self.installed == after.installed),
            ("source", self.source == after.source),
            ("category", self.category == after.category),
            ("priority", self.priority == after.priority),
            ("multiarch", self.multiarch == after.multiarch),
            ("state", self.state == after.state),
        ];
        fields.iter().filter(|(_, same)| !same).map(|(name, _)| *name).collect()
    }
}

/// `holdfast.*` of a document that does not describe a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ItemBody {
    /// The item's key.
    pub item: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct PackageDocument {
    pub package: PackageBody,
    #[serde(default)]
    pub holdfast: ItemBody,
    /// `hash.sha1`: SHA-1, lower-case hex, of `package` as JSON, fields in the order of
    /// [`PackageBody`].
    #[serde(default)]
    pub checksum: ChecksumBody,
}

impl PackageDocument {
    /// Builds the document of this package.
    pub fn new(package: PackageBody) -> Self {
        // A struct of strings and numbers always serialises.
        let json = serde_json::to_vec(&package).unwrap_or_default();
        let mut checksum = ChecksumBody::default();
        checksum.hash.sha1 = hex::encode(Sha1::digest(json));
        Self { holdfast: ItemBody { item: package.key() }, package, checksum }
    }

    /// Returns the document as JSON bytes.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Parses JSON bytes; `None` if they are not a document of a package.
    pub fn from_json(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }
}
