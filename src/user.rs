//! `holdfast users password` on the server's machine while no server runs.

use anyhow::Context as _;
use client::PasswordArgs;
use registry::{AuditOutcome, Reader};
use service::Console;

use crate::server;
use folder::DataFolder;

pub(crate) fn set_password(args: &PasswordArgs) -> anyhow::Result<()> {
    let name = &args.user;
    let folder = DataFolder::new(args.connect.data()?);
    folder.expect_server()?;
    let _lock = folder.claim()?;
    let registry = server::registry_despite_journal(&folder)?;
    let (password, is_random) = client::new_password()?;
    let detail = format!("password of user {name}");
    let context = registry.audited(Reader::server(), "local", "security:update", &detail);
    let set = registry.set_password(&context, name, &password);
    let outcome = if set.is_ok() { AuditOutcome::Done } else { AuditOutcome::Refused };
    let recorded = registry.end_audit(&context, outcome);
    set?;
    registry.close()?;
    Console::new().line(&if is_random {
        format!("new password of {name}: {password} (shown once)")
    } else {
        format!("password of {name} set")
    });
    recorded.context("the row of the audit log")
}
