//! `holdfast token` on the server's machine, `holdfast enroll` on the agent's.

use anyhow::Context as _;
use console::Console;
use model::AgentId;
use registry::{AuditOutcome, Reader, WriteContext};
use sync::{EnrollOptions, IdentityFolder, SyncError};

use crate::cli::{EnrollArgs, ImportArgs, RemoveArgs, TokenArgs};
use crate::config::{self, AgentConfig};
use crate::folder::{DataFolder, expect_no_server};
use crate::local::Local;
use crate::server;

/// Creates an enrolment token. A server may be running.
pub(crate) fn token(args: &TokenArgs) -> anyhow::Result<()> {
    let registry = server::registry_beside(&DataFolder::new(&args.data.data))?;
    let mut detail = format!("enrolment token: uses {}, ttl_s {}", args.uses, args.ttl.as_secs());
    for group in &args.group {
        detail.push_str(", group ");
        detail.push_str(group);
    }
    let context = registry.audited(Reader::server(), "local", "enrolment:create", &detail);
    let made =
        registry.create_enrolment_token(&context, &args.group, args.uses, args.ttl.as_secs());
    let outcome = if made.is_ok() { AuditOutcome::Done } else { AuditOutcome::Refused };
    let recorded = registry.end_audit(&context, outcome);
    let token = made?;
    registry.close()?;
    let line = if args.json {
        serde_json::json!({ "token": token, "uses": args.uses, "ttl_s": args.ttl.as_secs() })
            .to_string()
    } else {
        token
    };
    Console::new().line(&line);
    recorded.context("the row of the audit log")
}

/// Takes over the agents of a 4.x server.
pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let name = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file).with_context(|| name.clone())?;
    let folder = DataFolder::new(&args.data.data);
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
        serde_json::json!({"added": report.added, "passed_over": report.passed_over}).to_string()
    } else {
        format!("added: {} agents; passed over: {} lines", report.added, report.passed_over)
    });
    Ok(())
}

/// Removes an agent from a running server.
pub(crate) async fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let agent: AgentId =
        args.agent.parse().with_context(|| format!("{}: not an agent's number", args.agent))?;
    let local = Local::open(&server::socket(&args.data.data))?;
    if !local.remove_agent(agent).await? {
        anyhow::bail!("{agent}: the server has no such agent; nothing was removed");
    }
    Console::new().line(&format!("removed: agent {agent}; its history is kept"));
    Ok(())
}

/// Enrols this machine's agent.
pub(crate) async fn enroll(args: &EnrollArgs) -> anyhow::Result<()> {
    let config: AgentConfig = config::load(&args.config.config)?;
    expect_no_server(&config.data)?;
    let folder = IdentityFolder::new(&config.data);
    if let Some(identity) = folder.enrolled()? {
        anyhow::bail!(
            "{}: enrolled already as agent {} {}; to enrol it again, remove that agent at its server and \
             agent.json here (what waits in agent.db is kept)",
            config.data.display(),
            identity.id,
            identity.name
        );
    }
    let name = args.name.clone().or_else(|| Some(config.name.clone()).filter(|n| !n.is_empty()));
    let server_url = args.server.clone().unwrap_or(config.server);
    if !reqwest::Url::parse(&server_url).is_ok_and(|url| url.scheme() == "https" && url.has_host())
    {
        anyhow::bail!(
            "{server_url}: name the agents' port of the server as https://HOST:PORT (--server, or \
             `server` in the configuration)"
        );
    }
    let options = EnrollOptions {
        server_url: server_url.clone(),
        token: args.token.clone(),
        name: name.unwrap_or_else(host::system::hostname),
        groups: args.group.clone(),
        folder,
    };
    let identity = sync::enroll(&options).await.map_err(|e| match e {
        SyncError::Refused { status: 404, .. } => anyhow::anyhow!(
            "{server_url}: this port does not enrol agents: name the agents' port (1517 unless configured), not \
             that of the page"
        ),
        file @ SyncError::File { .. } => anyhow::anyhow!(
            "{file}; once the file can be written, run the same command again: it completes the enrolment"
        ),
        other => other.into(),
    })?;
    Console::new().line(&format!("enrolled: agent {} {}", identity.id, identity.name));
    Ok(())
}
