//! The settings of detection in the groups of an agent, in the form of the 4.x API.

use serde::Serialize;
use settings::{HashAlgorithm, Settings, WatchSettings, WatchedAttribute};
use utoipa::ToSchema;

use super::members::member;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::Answer;
use rest::http::operation::{AGENT_ID, COMMON, Handler, Operation, Shape, Verb, action};

pub(crate) const OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Get,
    path: "/agents/{agent_id}/config/syscheck/syscheck",
    id: "agents.config_syscheck",
    about: "The settings of detection in the groups of an agent; those of its own configuration are not known here.",
    access: action("agent:read", "agent:id"),
    parameters: &[COMMON, &[AGENT_ID]],
    body: None,
    shape: Shape::Plain("SyscheckConfig"),
    handler: Handler::Blocking(syscheck),
}];

/// Settings of detection.
#[derive(Serialize, ToSchema)]
pub(crate) struct SyscheckConfig {
    #[schema(inline)]
    syscheck: Syscheck,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Syscheck {
    /// `no`: a group cannot turn detection off.
    disabled: &'static str,
    scan_on_start: &'static str,
    /// Time between two scans, seconds; absent if no group sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency: Option<u64>,
    directories: Vec<WatchedDirectory>,
    /// Patterns of the entries that are not watched, each below the path of its directory.
    ignore: Vec<String>,
}

/// A watched path.
#[derive(Serialize, ToSchema)]
pub(crate) struct WatchedDirectory {
    dir: String,
    /// `check_...` for each attribute whose difference is a change, and further options.
    opts: Vec<&'static str>,
    /// Levels of folders below the path; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    recursion_level: Option<u32>,
    /// Patterns of the entries that alone are watched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    restrict: Vec<String>,
    /// Joined with commas.
    #[serde(skip_serializing_if = "String::is_empty")]
    tags: String,
}

fn syscheck(call: &Call) -> Result<Answer, Failure> {
    let (_, groups) = member(call)?;
    let merged = call.registry().merged_config(&groups)?;
    let settings = Settings::from_toml(&merged.text).map_err(|error| Failure::internal(&error))?;
    let ignored = |watch: &WatchSettings| {
        let below = watch.path.trim_end_matches('/').to_owned();
        let patterns = watch.ignore.clone().unwrap_or_default();
        patterns.into_iter().map(move |name| format!("{below}/{}", name.trim_start_matches('/')))
    };
    let syscheck = Syscheck {
        disabled: "no",
        scan_on_start: "yes",
        frequency: settings.scan.interval.map(|interval| interval.0.as_secs()),
        ignore: settings.watch.iter().flat_map(ignored).collect(),
        directories: settings.watch.into_iter().map(directory).collect(),
    };
    Answer::data(&SyscheckConfig { syscheck })
}

fn directory(watch: WatchSettings) -> WatchedDirectory {
    let hashes = watch.hashes.unwrap_or_else(|| vec![HashAlgorithm::Sha256]);
    let attributes = watch.attributes.unwrap_or_else(|| WatchedAttribute::ALL.to_vec());
    let content = attributes.contains(&WatchedAttribute::Hash);
    let hashes = hashes.into_iter().filter(|_| content).filter_map(|hash| match hash {
        HashAlgorithm::Md5 => Some("check_md5sum"),
        HashAlgorithm::Sha1 => Some("check_sha1sum"),
        HashAlgorithm::Sha256 => Some("check_sha256sum"),
        HashAlgorithm::Blake3 => None,
    });
    let attributes = attributes.into_iter().filter_map(|attribute| match attribute {
        WatchedAttribute::Size => Some("check_size"),
        WatchedAttribute::Mode => Some("check_perm"),
        WatchedAttribute::Uid => Some("check_owner"),
        WatchedAttribute::Gid => Some("check_group"),
        WatchedAttribute::Mtime => Some("check_mtime"),
        WatchedAttribute::Inode => Some("check_inode"),
        _ => None,
    });
    let flags = [
        ("realtime", watch.realtime != Some(false)),
        ("whodata", watch.attribution != Some(false)),
        ("follow_symbolic_link", watch.follow_symlinks == Some(true)),
    ];
    let flags = flags.into_iter().filter_map(|(name, set)| set.then_some(name));
    WatchedDirectory {
        dir: watch.path,
        opts: hashes.chain(attributes).chain(flags).collect(),
        // The entries of a folder are one level of `max_depth`.
        recursion_level: watch.max_depth.map(|depth| depth.saturating_sub(1)),
        restrict: watch.restrict.unwrap_or_default(),
        tags: watch.tags.unwrap_or_default().join(","),
    }
}
