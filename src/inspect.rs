//! `holdfast queue` and `holdfast journal`: looking into stores without their owners' help.

use std::path::Path;

use anyhow::bail;

use crate::cli::JournalArgs;

/// `holdfast queue status`.
pub(crate) fn queue(_folder: &Path, _json: bool) -> anyhow::Result<()> {
    bail!("soon")
}
pub(crate) fn verify(_args: &JournalArgs) -> anyhow::Result<bool> {
    bail!("soon")
}
pub(crate) fn stat(_args: &JournalArgs) -> anyhow::Result<()> {
    bail!("soon")
}
pub(crate) fn dump(_args: &JournalArgs, _from: u64, _limit: u64) -> anyhow::Result<()> {
    bail!("soon")
}
pub(crate) fn repair(_args: &JournalArgs) -> anyhow::Result<bool> {
    bail!("soon")
}
