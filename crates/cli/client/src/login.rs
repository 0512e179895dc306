//! `holdfast login`: a token for a server on another machine.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use reqwest::Method;
use service::Console;

use crate::client::Client;
use crate::connect::TOKEN;

/// Arguments of `holdfast login`.
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// Address of the server's page and API, `https://HOST:PORT`.
    #[arg(long, value_name = "URL", env = "HOLDFAST_URL", hide_env_values = true)]
    url: String,
    /// Certificate that signed the server's: keys/ca.pem of its data folder. Default: the authorities
    /// that this system trusts.
    #[arg(long, value_name = "FILE", env = "HOLDFAST_CA", hide_env_values = true)]
    ca: Option<PathBuf>,
    /// Name of the user.
    #[arg(long, default_value = "admin")]
    user: String,
}

pub(crate) async fn run(args: &LoginArgs) -> anyhow::Result<()> {
    let client = Client::remote(&args.url, args.ca.as_deref(), None)?;
    let password = password(&args.user)?;
    let path = ["security", "user", "authenticate"];
    let request = client.request(Method::POST, &path, &[("raw", "true".to_owned())])?;
    let request = request.basic_auth(&args.user, Some(password));
    let token = client.send_for_text(request).await?;
    Console::new().line(&token);
    if std::io::stdout().is_terminal() {
        let _ = writeln!(std::io::stderr(), "set {TOKEN} to it; it is valid for a limited time");
    }
    Ok(())
}

/// Reads the password from the environment, the terminal without showing it, or a line of stdin.
fn password(user: &str) -> anyhow::Result<String> {
    if let Some(given) = std::env::var("HOLDFAST_PASSWORD").ok().filter(|some| !some.is_empty()) {
        return Ok(given);
    }
    if std::io::stdin().is_terminal() {
        return rpassword::prompt_password(format!("password of {user}: ")).context("password");
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("password from stdin")?;
    match line.trim_end_matches(['\r', '\n']) {
        "" => bail!("no password: set HOLDFAST_PASSWORD, or write it to stdin"),
        given => Ok(given.to_owned()),
    }
}
