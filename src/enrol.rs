//! `holdfast token` on the server's machine, `holdfast enroll` on the agent's.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv6Addr;
use std::path::Path;

use anyhow::Context as _;
use client::{Client, ImportArgs};
use registry::{AuditOutcome, Reader, TokenTerms, WriteContext};
use serde_json::{Value, json};
use service::Console;
use sync::{EnrollOptions, IdentityFolder, SyncError};

use crate::cli::{EnrollArgs, TokenArgs};
use crate::config::{self, AgentConfig, AgentsConfig, ServerConfig};
use crate::server;
use folder::{DataFolder, expect_no_server};

/// Creates an enrolment token: asks the server if one runs.
pub(crate) async fn token(args: &TokenArgs) -> anyhow::Result<()> {
    let folder = DataFolder::new(args.data.folder()?);
    server::expect_own(&folder)?;
    let terms = TokenTerms {
        groups: args.group.clone(),
        uses: args.uses,
        ttl_s: args.ttl.as_secs(),
        ephemeral_s: args.ephemeral.map(|silence| silence.as_secs()),
    };
    let (uses, ttl_s, ephemeral_s) = (terms.uses, terms.ttl_s, terms.ephemeral_s);
    let token = match Client::running(&folder.socket())? {
        Some(client) => {
            let body = json!({
                "groups": terms.groups, "uses": uses, "ttl_s": ttl_s, "ephemeral_s": ephemeral_s,
            });
            let made = client.post(&["enrolment", "tokens"], &body).await?;
            let token = made.pointer("/data/token").and_then(Value::as_str);
            token.context("the answer has no token")?.to_owned()
        }
        None => {
            tokio::task::spawn_blocking({
                let folder = folder.clone();
                move || token_alone(&folder, &terms)
            })
            .await??
        }
    };
    let told = enrolment(&folder, &token);
    let line = if args.json {
        json!({"token": token, "uses": uses, "ttl_s": ttl_s, "ephemeral_s": ephemeral_s})
            .to_string()
    } else {
        token
    };
    Console::new().line(&line);
    if let Some(text) = told.filter(|_| !args.json) {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    Ok(())
}

/// Creates an enrolment token in a folder without a server. Blocks.
fn token_alone(folder: &DataFolder, terms: &TokenTerms) -> anyhow::Result<String> {
    let _lock = folder.claim()?;
    let registry = server::registry_for_command(folder)?;
    let mut detail = format!("enrolment token: uses {}, ttl_s {}", terms.uses, terms.ttl_s);
    if let Some(silence_s) = terms.ephemeral_s {
        let _ = write!(detail, ", ephemeral_s {silence_s}");
    }
    for group in &terms.groups {
        detail.push_str(", group ");
        detail.push_str(group);
    }
    let context = registry.audited(Reader::server(), "local", "enrolment:create", &detail);
    let made = registry.create_enrolment_token(&context, terms);
    let outcome = if made.is_ok() { AuditOutcome::Done } else { AuditOutcome::Refused };
    registry.end_audit(&context, outcome).context("the row of the audit log")?;
    let token = made?;
    registry.close()?;
    Ok(token)
}

/// Takes over the agents of a 4.x server.
pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let name = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file).with_context(|| name.clone())?;
    let folder = DataFolder::new(args.data.folder()?);
    // A running server has the fleet in memory and would not see them.
    let _lock = folder.claim()?;
    let registry = server::registry_alone(&folder)?;
    let report = registry
        .import_client_keys(&WriteContext::server(), &text)
        .with_context(|| name.clone())?;
    let detail = format!("import of {} agents from {name}", report.added);
    registry.audit("local", "agent:create", &detail)?;
    registry.close()?;
    Console::new().line(&if args.json {
        json!({"added": report.added, "passed_over": report.passed_over}).to_string()
    } else {
        format!("added: {} agents; passed over: {} lines", report.added, report.passed_over)
    });
    Ok(())
}

/// Enrols this machine's agent. Writes its configuration if there is none.
pub(crate) async fn enroll(args: &EnrollArgs) -> anyhow::Result<()> {
    let console = Console::new();
    let file = args.config.clone().unwrap_or_else(config::agent_file);
    let new = args.server.as_deref().filter(|_| !file.exists());
    if let Some(server) = new {
        write_config(&file, server, args.data.as_deref())?;
    }
    if !file.exists() {
        anyhow::bail!("{}: there is none; name the server with --server", file.display());
    }
    let config: AgentConfig = config::load(&file)?;
    expect_no_server(&config.data)?;
    let folder = IdentityFolder::new(&config.data);
    if let Some(identity) = folder.enrolled()? {
        let (data, id, name) = (config.data.display(), identity.id, &identity.name);
        if args.if_needed {
            console.line(&format!("enrolled already: agent {id} {name}"));
            return Ok(());
        }
        anyhow::bail!(
            "{data}: enrolled already as agent {id} {name}; to enrol it again, remove that agent at \
             its server and agent.json here (what waits in agent.db is kept)"
        );
    }
    let Some(token) = args.token.clone() else {
        anyhow::bail!("not enrolled yet: name the token that `holdfast token` prints (--token)");
    };
    let name = args.name.clone().or_else(|| Some(config.name.clone()).filter(|n| !n.is_empty()));
    let server_url = args.server.clone().unwrap_or_else(|| config.server.clone());
    expect_url(&server_url)?;
    let options = EnrollOptions {
        server_url: server_url.clone(),
        token,
        name: name.unwrap_or_else(host::system::hostname),
        groups: args.group.clone(),
        folder,
    };
    let enrolled = sync::enroll(&options).await;
    if new.is_some() && enrolled.is_err() {
        // The next attempt may name another server.
        let _ = std::fs::remove_file(&file);
    }
    let identity = enrolled.map_err(|e| match e {
        SyncError::Refused { status: 404, .. } => anyhow::anyhow!(
            "{server_url}: this port does not enrol agents: name the agents' port (1517 unless configured), not \
             that of the page"
        ),
        file @ SyncError::File { .. } => anyhow::anyhow!(
            "{file}; once the file can be written, run the same command again: it completes the enrolment"
        ),
        other => other.into(),
    })?;
    console.line(&format!("enrolled: agent {} {}", identity.id, identity.name));
    if new.is_some() {
        let start = if config::is_units(&file) {
            "systemctl enable --now holdfast-agent".to_owned()
        } else {
            format!("holdfast agent --config {}", file.display())
        };
        console.line(&format!("written: {}\nstart it: {start}", file.display()));
    }
    if server_url != config.server {
        console.line(&format!(
            "{}: the agent will use server = {:?}, which it has there",
            file.display(),
            config.server
        ));
    }
    Ok(())
}

/// Writes the configuration of an agent. Its data folder is next to the file unless it is given, or
/// the file is the unit's.
fn write_config(file: &Path, server: &str, data: Option<&Path>) -> anyhow::Result<()> {
    expect_url(server)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let data = data.map_or_else(
        || if config::is_units(file) { config::UNITS_AGENT.into() } else { folder.join("agent") },
        Path::to_owned,
    );
    config::write_agent(file, server, &std::path::absolute(data)?)
}

fn expect_url(server: &str) -> anyhow::Result<()> {
    let parsed = reqwest::Url::parse(server);
    if parsed.is_ok_and(|url| url.scheme() == "https" && url.has_host()) {
        return Ok(());
    }
    anyhow::bail!(
        "{server}: name the agents' port of the server as https://HOST:PORT (--server, or `server` in \
         the configuration)"
    )
}

/// Returns the command that enrols an agent with a token; `None` if the server has not run with a
/// configuration.
fn enrolment(folder: &DataFolder, token: &str) -> Option<String> {
    let config: ServerConfig = config::load(&folder.recorded_config()?).ok()?;
    let AgentsConfig { listen, names, .. } = &config.agents;
    let host = match names.iter().find(|name| !name.contains('*')) {
        Some(name) => name.clone(),
        None if listen.ip().is_unspecified() => registry::reached_name(),
        None => listen.ip().to_string(),
    };
    let host = if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host };
    let port = listen.port();
    let mut text = format!(
        "on the machine to be watched:\n  holdfast enroll --server https://{host}:{port} --token {token}"
    );
    if listen.ip().is_loopback() {
        text.push_str("\nonly this machine reaches that port: agents.listen is a loopback address");
    }
    Some(text)
}
