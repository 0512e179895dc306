//! `holdfast user`: managing users on the server's machine.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use console::Console;
use env::random::{Random as _, SystemRandom};
use registry::{AuditOutcome, Reader};

use crate::cli::UserCommand;
use crate::folder::DataFolder;
use crate::server;

/// Random bytes of a generated password.
const PASSWORD_BYTES: usize = 18;

pub(crate) fn run(command: &UserCommand) -> anyhow::Result<()> {
    let UserCommand::Password { name, data } = command;
    let registry = server::registry_beside(&DataFolder::new(&data.data))?;
    let given = std::env::var("HOLDFAST_NEW_PASSWORD").ok().filter(|p| !p.is_empty());
    let password = given.clone().map_or_else(random_password, Ok)?;
    let detail = format!("password of user {name}");
    let context = registry.audited(Reader::server(), "local", "security:update", &detail);
    let set = registry.set_password(&context, name, &password);
    let outcome = if set.is_ok() { AuditOutcome::Done } else { AuditOutcome::Refused };
    let recorded = registry.end_audit(&context, outcome);
    set?;
    registry.close()?;
    Console::new().line(&match given {
        Some(_) => format!("password of {name} set"),
        None => format!("new password of {name}: {password} (shown once)"),
    });
    recorded.context("the row of the audit log")
}

/// Returns a random password that contains a lower-case and an upper-case letter, a digit and a
/// symbol, as the password rule requires.
fn random_password() -> anyhow::Result<String> {
    let mut bytes = [0; PASSWORD_BYTES];
    SystemRandom.fill_bytes(&mut bytes)?;
    Ok(format!("{}-aA1", URL_SAFE_NO_PAD.encode(bytes)))
}
