//! This process's limit of open files, and the numbers of connections that fit it. Each connection
//! is an open file. If connections could use up the limit, no listener could accept another one, and
//! no database could open a file.

use anyhow::bail;
use tracing::warn;

use crate::config::{SeriesConfig, ServerConfig};

/// Files that are not connections, at most: 512 parts of the series store, databases, journal,
/// listeners, backups and temporary files.
const OWN_FILES_MAX: u64 = 768;
/// Files that are not connections, at least: about 70 are open in an idle server.
const OWN_FILES_MIN: u64 = 192;
/// Fewest files for connections. Every listener then has at least two.
const CONNECTION_FILES_MIN: u64 = 64;
/// Files of a reader beyond the default number of them, in both databases.
const READER_FILES: u64 = 4;

/// Raises this process's limit of open files as far as the system allows and returns the new limit.
fn raise() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` means that there is no limit.
    let Some(now) = current else { return u64::MAX };
    let raised = Rlimit { current: maximum, maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum.unwrap_or(u64::MAX),
        Err(_) => now,
    }
}

/// Raises the limit of open files, and lowers the limits on a server's connections to what fits.
///
/// # Errors
/// Fails if not even a few connections fit.
pub(crate) fn fit_server(config: &ServerConfig) -> anyhow::Result<ServerConfig> {
    let files = raise();
    let fitted = fit(config, files)?;
    if fitted != *config {
        warn!(
            open_files = files,
            agents = fitted.agents.connections_max,
            local = fitted.agents.local_connections_max,
            api = fitted.api.max_connections,
            series_port = fitted.series.connections_max,
            "fewer connections than configured fit the limit of open files: raise it (LimitNOFILE, ulimit -n)"
        );
    }
    Ok(fitted)
}

/// Does the same as [`fit_server`] for a series store without a server.
///
/// # Errors
/// As there.
pub(crate) fn fit_series(config: &SeriesConfig) -> anyhow::Result<SeriesConfig> {
    let files = raise();
    // Two line protocols, and HTTP twice: callers on this machine have a limit of their own.
    let each = connection_files(files, 0)? / 4;
    let connections_max = config.connections_max.min(count(each));
    if connections_max < config.connections_max {
        warn!(
            open_files = files,
            series_port = connections_max,
            "fewer connections than usual fit the limit of open files: raise it (LimitNOFILE, ulimit -n)"
        );
    }
    Ok(SeriesConfig { connections_max, ..config.clone() })
}

/// Returns the files that are left for connections. `more` files are open besides the usual ones.
fn connection_files(files: u64, more: u64) -> anyhow::Result<u64> {
    let own = (files / 2).clamp(OWN_FILES_MIN, OWN_FILES_MAX) + more;
    let left = files.saturating_sub(own);
    if left < CONNECTION_FILES_MIN {
        bail!(
            "the limit of open files is {files}, at least {} are needed: raise it (LimitNOFILE of the \
             service, `ulimit -n` in a shell)",
            OWN_FILES_MIN + more + CONNECTION_FILES_MIN
        );
    }
    Ok(left)
}

fn fit(config: &ServerConfig, files: u64) -> anyhow::Result<ServerConfig> {
    let readers = ServerConfig::default().db.readers;
    let more = READER_FILES * config.db.readers.saturating_sub(readers) as u64;
    let left = connection_files(files, more)?;
    let mut fitted = config.clone();
    // Callers of an HTTP port that are on this machine have a limit of their own.
    let api = fitted.api.max_connections.min(count(left / 8));
    let series = fitted.series.connections_max.min(count(left / 16));
    let local = (fitted.agents.local_connections_max).min(count(left / 16));
    let others = 2 * api + 4 * series + local + sessions::refused_max(local);
    // The agents' listener has what the others leave. It also answers some connections beyond its
    // limit with the request to come back later.
    let rest = left.saturating_sub(others as u64);
    let agents = rest - rest.div_ceil(3).clamp(4, sessions::refused_max(usize::MAX) as u64);
    fitted.api.max_connections = api;
    fitted.series.connections_max = series;
    fitted.agents.local_connections_max = local;
    fitted.agents.connections_max = fitted.agents.connections_max.min(count(agents));
    Ok(fitted)
}

fn count(files: u64) -> usize {
    usize::try_from(files).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_file_limit_is_raised_to_the_hard_limit() {
        use rustix::process::{Resource, getrlimit};
        let most = raise();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), most);
        assert_eq!(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX), most);
    }

    /// Returns the most files that connections can use, with those that are answered and closed.
    fn files_of(config: &ServerConfig) -> u64 {
        let with_told = |max: usize| max + sessions::refused_max(max);
        let all = 2 * config.api.max_connections
            + 4 * config.series.connections_max
            + with_told(config.agents.local_connections_max)
            + with_told(config.agents.connections_max);
        all as u64
    }

    #[test]
    fn connections_and_own_files_fit_every_limit() {
        let config = ServerConfig::default();
        for files in (256..5_000).chain([10_000, 20_000, 27_000, 30_000]) {
            let fitted = fit(&config, files).unwrap();
            assert!(files_of(&fitted) + OWN_FILES_MIN <= files, "{files}: {fitted:?}");
            let agents = fitted.agents.connections_max;
            assert!(agents >= 16 && fitted.agents.local_connections_max >= 4, "{files}");
            assert!(fitted.api.max_connections >= 8, "{files}");
            assert!(fitted.series.connections_max >= 4, "{files}");
        }
        assert_eq!(fit(&config, 65_536).unwrap(), config, "the limit of the shipped unit");
        assert_eq!(fit(&config, u64::MAX).unwrap(), config);
    }

    #[test]
    fn limit_too_low_for_connections_is_refused_with_the_number() {
        for files in [0, 64, 255] {
            let refused = fit(&ServerConfig::default(), files).unwrap_err().to_string();
            assert!(refused.contains(&format!("is {files}, at least 256 are needed")), "{refused}");
        }
        let mut config = ServerConfig::default();
        config.db.readers += 10;
        let refused = fit(&config, 256).unwrap_err().to_string();
        assert!(refused.contains("at least 296 are needed"), "{refused}");
        fit(&config, 296).unwrap();
    }
}
