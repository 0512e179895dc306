//! Configurations that the program writes: the commented default, with the values that were given.

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use service::Console;

use super::{DEFAULT_AGENT, DEFAULT_SERVER, ServerConfig, parse};
use crate::cli::{ReachArgs, SetupArgs};

/// Folder of the configurations of installed units.
const UNITS_CONFIG: &str = "/etc/holdfast";
/// Configuration of the installed server, which `/etc/holdfast/server.toml` links to.
const UNITS_SERVER: &str = "/var/lib/holdfast-server/server.toml";
/// Data folder of the installed agent.
pub(crate) const UNITS_AGENT: &str = "/var/lib/holdfast-agent/agent";

/// Returns the default configuration of this machine's agent.
pub(crate) fn agent_file() -> PathBuf {
    let units = Path::new(UNITS_CONFIG);
    if units.is_dir() { units.join("agent.toml") } else { "agent.toml".into() }
}

/// Returns true if the installed agent's unit reads this file.
pub(crate) fn is_units(agent_file: &Path) -> bool {
    agent_file == Path::new(UNITS_CONFIG).join("agent.toml")
}

impl ServerConfig {
    /// Sets the address and the names of page and agents' port, as far as they are given.
    pub(crate) fn reach(&mut self, reach: &ReachArgs) {
        let listeners = [
            (&mut self.api.listen, &mut self.api.names),
            (&mut self.agents.listen, &mut self.agents.names),
        ];
        for (listen, names) in listeners {
            listen.set_ip(reach.listen.unwrap_or(listen.ip()));
            names.extend_from_slice(&reach.name);
        }
    }
}

/// Returns the names for the certificate of a listener: the configured ones, and its address unless
/// that stands for all.
pub(crate) fn names_of(listen: SocketAddr, names: &[String]) -> Vec<String> {
    let address = Some(listen.ip()).filter(|ip| !ip.is_unspecified());
    names.iter().cloned().chain(address.map(|ip| ip.to_string())).collect()
}

/// Runs `holdfast server setup`.
pub(crate) fn setup(args: &SetupArgs) -> anyhow::Result<()> {
    let listen = Some(args.reach.listen.unwrap_or(Ipv4Addr::UNSPECIFIED.into()));
    let reach = ReachArgs { listen, name: args.reach.name.clone() };
    let is_installed = Path::new(UNITS_CONFIG).is_dir();
    let default = if is_installed { UNITS_SERVER } else { "server.toml" };
    let file = args.config.clone().unwrap_or_else(|| default.into());
    write_server(&file, &reach, args.data.as_deref())?;
    let start = if file == Path::new(UNITS_SERVER) {
        "systemctl enable --now holdfast-server".to_owned()
    } else {
        format!("holdfast server --config {}", file.display())
    };
    Console::new().line(&format!("written: {}\nstart it: {start}", file.display()));
    Ok(())
}

/// Writes the configuration of a server that is reached under this address and these names. Fails if
/// there is a file.
pub(crate) fn write_server(
    file: &Path,
    reach: &ReachArgs,
    data: Option<&Path>,
) -> anyhow::Result<()> {
    let mut config = ServerConfig::default();
    config.reach(reach);
    let address = |address: SocketAddr| string(&address.to_string());
    let names = toml::Value::from(reach.name.clone()).to_string();
    let mut values = vec![
        ("api.listen", address(config.api.listen)),
        ("api.names", names.clone()),
        ("agents.listen", address(config.agents.listen)),
        ("agents.names", names),
    ];
    if let Some(data) = data {
        let data = std::path::absolute(data).with_context(|| data.display().to_string())?;
        values.push(("data", string(&data.display().to_string())));
    }
    let text = filled(DEFAULT_SERVER, &values);
    parse::<ServerConfig>(&text)?.validate()?;
    write_new(file, &text)
}

/// Writes the configuration of an agent of this server. Fails if there is a file.
pub(crate) fn write_agent(file: &Path, server: &str, data: &Path) -> anyhow::Result<()> {
    let values = [("server", string(server)), ("data", string(&data.display().to_string()))];
    write_new(file, &filled(DEFAULT_AGENT, &values))
}

fn string(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Returns a commented configuration with these values in place of the defaults. A key is named as
/// `section.key`.
fn filled(template: &str, values: &[(&str, String)]) -> String {
    let (mut section, mut text) = (String::new(), String::with_capacity(template.len()));
    for line in template.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
        }
        let key = line.split_once(" = ").map(|(key, _)| key);
        let wanted = key.map(|key| format!("{section}{key}"));
        let value = values.iter().find(|(name, _)| Some(*name) == wanted.as_deref());
        match key.zip(value) {
            Some((key, (_, value))) => text.extend([key, " = ", value]),
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

fn write_new(file: &Path, text: &str) -> anyhow::Result<()> {
    let what = || file.display().to_string();
    if file.symlink_metadata().is_ok() {
        bail!("{}: exists; edit it, or name another file", file.display());
    }
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut new = File::create_new(file).with_context(what)?;
    let written = new.write_all(text.as_bytes()).and_then(|()| new.sync_all());
    // Half a file, left by a full disk, would be in the way of the next attempt.
    written.inspect_err(|_| drop(std::fs::remove_file(file))).with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AgentConfig;

    #[test]
    fn written_configurations_have_the_values_and_the_comments() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/server.toml");
        let reach =
            ReachArgs { listen: Some("192.0.2.1".parse().unwrap()), name: vec!["fleet".into()] };
        write_server(&file, &reach, Some(folder.path())).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let config: ServerConfig = parse(&text).unwrap();
        let mut expected =
            ServerConfig { data: folder.path().to_owned(), ..ServerConfig::default() };
        expected.reach(&reach);
        assert_eq!(config, expected);
        assert_eq!(text.lines().count(), DEFAULT_SERVER.lines().count());
        let again = write_server(&file, &reach, None).unwrap_err();
        assert!(again.to_string().contains("server.toml: exists"), "{again}");

        let file = folder.path().join("agent.toml");
        write_agent(&file, "https://fleet:1517", folder.path()).unwrap();
        let config: AgentConfig = parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(
            (config.server.as_str(), config.data.as_path()),
            ("https://fleet:1517", folder.path())
        );
    }
}
