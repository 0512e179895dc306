//! The heartbeat. It reports that the agent runs and the outcomes of commands, and receives
//! commands.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use env::random::{Random as _, SystemRandom};
use link::ControlAction;
use link::json::{ControlCommand, ControlConfig, ControlOutcome};
use sync::{SyncError, backoff};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::config::AgentSettings;
use crate::group;
use crate::shared::{Begin, EndReason, ScanCommand, Shared};

/// Most rescan commands that wait for a scan.
const RESCANS_MAX: usize = 16;
/// Most commands remembered as accepted, so that one that is sent twice is executed once.
const TAKEN_MAX: usize = 1_000;

/// The server's error word for an agent whose groups configure nothing.
const NO_CONFIGURATION: &str = "no_configuration";

/// Most bytes of outcomes in one heartbeat; the server accepts 64 KiB.
const OUTCOMES_BYTES_MAX: usize = 32 * 1024;
/// Bytes of an outcome in addition to its texts.
const OUTCOME_OVERHEAD_BYTES: usize = 80;

/// Sends heartbeats until stopped. `own` are the agent's settings without its groups'
/// configuration.
pub(super) async fn run(
    shared: Arc<Shared>,
    own: AgentSettings,
    every: Duration,
    begin: Begin,
    mut stopped: watch::Receiver<bool>,
) {
    let refused = Some(shared.syncer.config().refused).filter(|sum| !sum.is_empty());
    let taken = shared.rescans.lock().iter().copied().collect();
    let mut heart = Heartbeats {
        shared,
        own,
        taken,
        failures: 0,
        ending: false,
        refused,
        later: None,
        check_due: None,
    };
    let mut action = match begin {
        Begin::Start => ControlAction::Startup,
        Begin::Reload => ControlAction::Notify,
    };
    loop {
        let beaten = tokio::select! {
            beaten = heart.beat(action) => beaten,
            // If the connection drops all packets, a stop must not wait for the answer. The
            // outcomes stay queued.
            _ = stopped.wait_for(|s| *s) => return,
        };
        let wait = match beaten {
            // The server considers an agent active from its second heartbeat on, so send it at
            // once. Outcomes that did not fit are sent at once as well.
            Ok(outcomes) => {
                let before = std::mem::replace(&mut action, ControlAction::Notify);
                if before == ControlAction::Startup || outcomes == Outcomes::Left {
                    continue;
                }
                every
            }
            Err(error) => heart.pause(every, &error),
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = heart.shared.beat.notified(), if heart.failures == 0 => {}
            _ = stopped.wait_for(|s| *s) => return,
        }
    }
}

struct Heartbeats {
    shared: Arc<Shared>,
    /// Numbers of accepted commands, at most [`TAKEN_MAX`].
    taken: VecDeque<u64>,
    /// Consecutive heartbeats without an answer.
    failures: u32,
    /// The agent's settings without its groups' configuration.
    own: AgentSettings,
    /// True if the agent is about to restart with another configuration.
    ending: bool,
    /// Digest of a configuration that is not fetched again unless a command asks for it.
    refused: Option<String>,
    /// Configuration that could not be fetched or stored, and is retried.
    later: Option<ConfigRetry>,
    /// Reason why a check was due at the last heartbeat.
    check_due: Option<&'static str>,
}

/// The retry of a configuration that was not fetched, or not stored.
struct ConfigRetry {
    sum: String,
    /// Consecutive failures.
    failures: u32,
    due: Instant,
}

/// The result of fetching the groups' configuration.
enum ConfigFetch {
    /// It is in use already.
    Same,
    /// It was stored, and the agent must restart with it.
    Stored,
    /// It was refused.
    Refused(String),
    /// It could not be fetched.
    Later(NoConfig),
}

/// The server's answer when it sends no configuration.
enum NoConfig {
    /// The delay before the next request, if the server gave one.
    After(Option<Duration>),
    /// The server has none for this agent; the reason.
    None(String),
}

/// The outcomes of commands after a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcomes {
    AllSent,
    /// Some are still queued.
    Left,
}

impl Heartbeats {
    /// Returns the delay after a heartbeat without an answer: at least the interval, and at least
    /// the delay that the server asked for.
    fn pause(&mut self, every: Duration, error: &SyncError) -> Duration {
        let random = SystemRandom.next_u64().unwrap_or(u64::MAX);
        let wait = backoff::delay(self.failures, random, error.retry_after());
        self.failures = self.failures.saturating_add(1);
        wait.max(every)
    }

    /// Sends one heartbeat, executes the commands of its answer and follows its configuration.
    /// After an error the outcomes stay queued, and the caller retries after [`Heartbeats::pause`].
    async fn beat(&mut self, action: ControlAction) -> Result<Outcomes, SyncError> {
        let outcomes = first(&self.shared.outcomes.lock());
        match self.shared.syncer.heartbeat(action, &outcomes).await {
            Ok(answer) => {
                let left = self.drop_reported(outcomes.len());
                let restarting = self.shared.restarting.load(Ordering::SeqCst);
                if outcomes.iter().any(|outcome| outcome.id == restarting) {
                    let _ = self.shared.ended.try_send(EndReason::Restart);
                }
                let failures = std::mem::take(&mut self.failures);
                self.shared.printed_failure.lock().clear();
                if !self.shared.connected.send_replace(true) {
                    let client = self.shared.syncer.client();
                    let sync::Identity { id, name, server_url, .. } = client.identity();
                    let line = format!("connected: agent {id} {name} to {server_url}");
                    self.shared.console.line(&line);
                } else if failures > 0 {
                    self.shared.console.line("the server answers again");
                }
                for command in answer.commands {
                    self.accept_command(&command).await;
                }
                if let Some(wanted) = answer.config.as_ref().filter(|_| !self.ending) {
                    self.look_at(wanted).await;
                }
                let due = self.shared.syncer.check_due();
                if due.is_some() && due != self.check_due {
                    self.shared.report.notify_one();
                }
                self.check_due = due;
                Ok(left)
            }
            Err(error) => {
                if self.failures == 0 {
                    self.shared.print_failure("no heartbeat", &error);
                }
                Err(error)
            }
        }
    }

    /// Drops the first outcomes, which were acknowledged; others may have been added since.
    fn drop_reported(&self, count: usize) -> Outcomes {
        let mut outcomes = self.shared.outcomes.lock();
        outcomes.drain(..count);
        if outcomes.is_empty() { Outcomes::AllSent } else { Outcomes::Left }
    }

    async fn accept_command(&mut self, command: &ControlCommand) {
        if self.ending && command.kind != "rescan" {
            // The server sends the command again after the reload.
            return;
        }
        if self.taken.contains(&command.id) {
            debug!(command = command.id, "received again; it is being carried out");
            return;
        }
        if self.taken.len() == TAKEN_MAX {
            self.taken.pop_front();
        }
        info!(command = command.id, kind = command.kind, "command accepted");
        let accepted = match command.kind.as_str() {
            "rescan" => {
                let mut rescans = self.shared.rescans.lock();
                if rescans.len() == RESCANS_MAX {
                    // Not accepted: the server sends it again.
                    return;
                }
                rescans.push(command.id);
                drop(rescans);
                // If the channel is full, the scanner is about to look at the list anyway.
                let _ = self.shared.scan_commands.try_send(ScanCommand::Wake);
                Ok(())
            }
            "restart" => {
                // Restart only when the outcome is acknowledged; otherwise the server would send
                // the command again.
                self.shared.restarting.store(command.id, Ordering::SeqCst);
                self.report_outcome(done_outcome(command.id, "restarting"));
                Ok(())
            }
            "reconnect" => {
                let outcome = match self.shared.syncer.reconnect() {
                    Ok(()) => done_outcome(command.id, "reconnected"),
                    Err(error) => failed(command.id, error.to_string()),
                };
                // Reported over the new connection.
                self.report_outcome(outcome);
                Ok(())
            }
            "configure" => match self.follow().await {
                ConfigFetch::Same => {
                    self.report_outcome(done_outcome(command.id, "it runs already"));
                    Ok(())
                }
                ConfigFetch::Stored => {
                    // The restarted agent reports it.
                    self.report_outcome(done_outcome(command.id, "stored, and run from now on"));
                    let _ = self.shared.ended.try_send(EndReason::Configured);
                    Ok(())
                }
                ConfigFetch::Refused(detail) | ConfigFetch::Later(NoConfig::None(detail)) => {
                    Err(detail)
                }
                // Not accepted: the server sends it again.
                ConfigFetch::Later(NoConfig::After(_)) => return,
            },
            other => Err(format!("this agent knows no command {other}")),
        };
        self.taken.push_back(command.id);
        if let Err(detail) = accepted {
            self.report_outcome(failed(command.id, detail));
        }
    }
}

/// Returns true unless a retry for this digest is scheduled for later.
fn is_due(later: Option<&ConfigRetry>, wanted: &str) -> bool {
    later.is_none_or(|later| later.sum != wanted || Instant::now() >= later.due)
}

/// Returns a retry with a delay that grows with each failure, since the text may have megabytes.
fn put_off(
    before: Option<ConfigRetry>,
    wanted: &str,
    wish: Option<Duration>,
    random: u64,
) -> ConfigRetry {
    let before = before.filter(|later| later.sum == wanted);
    let failures = before.map_or(0, |later| later.failures.saturating_add(1));
    let due = Instant::now() + backoff::delay(failures, random, wish);
    ConfigRetry { sum: wanted.to_owned(), failures, due }
}

/// Returns the first outcomes, as many as one heartbeat holds.
pub(super) fn first(outcomes: &[ControlOutcome]) -> Vec<ControlOutcome> {
    outcomes.iter().take(fitting(outcomes)).cloned().collect()
}

/// Returns the number of outcomes, from the first on, that one heartbeat holds.
fn fitting(outcomes: &[ControlOutcome]) -> usize {
    let mut left = OUTCOMES_BYTES_MAX;
    let fits = |one: &&ControlOutcome| {
        let bytes = OUTCOME_OVERHEAD_BYTES + one.outcome.len() + 2 * one.detail.len();
        let fits = bytes <= left;
        left = left.saturating_sub(bytes);
        fits
    };
    outcomes.iter().take_while(fits).count().max(outcomes.len().min(1))
}

impl Heartbeats {
    fn report_outcome(&self, outcome: ControlOutcome) {
        self.shared.outcomes.lock().push(outcome);
        self.shared.beat.notify_one();
    }

    /// Fetches the configuration with this digest, which the server named, unless it is in use or
    /// refused.
    async fn look_at(&mut self, wanted: &str) {
        let config = self.shared.syncer.config();
        if config.sum == wanted {
            if !config.refused.is_empty() {
                // The refused configuration is not wanted any more.
                self.refused = None;
                let report = ControlConfig { sum: config.sum, ..ControlConfig::default() };
                self.shared.syncer.note_config(report);
            }
        } else if self.refused.as_deref() != Some(wanted) && is_due(self.later.as_ref(), wanted) {
            match self.follow().await {
                ConfigFetch::Stored => _ = self.shared.ended.try_send(EndReason::Configured),
                ConfigFetch::Later(NoConfig::After(wish)) => self.put_off(wanted, wish),
                ConfigFetch::Later(NoConfig::None(_)) => self.put_off(wanted, None),
                ConfigFetch::Same | ConfigFetch::Refused(_) => {}
            }
        }
    }

    /// Schedules a retry.
    fn put_off(&mut self, wanted: &str, wish: Option<Duration>) {
        let random = SystemRandom.next_u64().unwrap_or(u64::MAX);
        self.later = Some(put_off(self.later.take(), wanted, wish, random));
    }

    /// Logs the problem once per configuration, not with every attempt.
    fn not_had(&self, problem: &str) {
        if self.later.is_some() {
            debug!("the groups' configuration, again: {problem}");
        } else {
            warn!("the groups' configuration is tried again later: {problem}");
        }
    }

    /// Fetches the configuration of the groups, and stores it if this agent can run with it.
    async fn follow(&mut self) -> ConfigFetch {
        let answer = match self.shared.syncer.fetch_config().await {
            Ok(answer) => answer,
            Err(error) => {
                self.not_had(&error.to_string());
                return ConfigFetch::Later(match error {
                    SyncError::Refused { word, detail, .. } if word == NO_CONFIGURATION => {
                        NoConfig::None(detail)
                    }
                    other => NoConfig::After(other.retry_after()),
                });
            }
        };
        let config = self.shared.syncer.config();
        if answer.sum == config.sum {
            return ConfigFetch::Same;
        }
        if settings::sum(&answer.text) != answer.sum {
            self.not_had("it did not arrive as it was sent");
            return ConfigFetch::Later(NoConfig::After(None));
        }
        let own = self.own.clone();
        let taken =
            tokio::task::spawn_blocking(move || store_group_config(&own, &answer.text)).await;
        let (problem, again) = match taken {
            Ok(Ok(())) => {
                info!(sum = answer.sum, "the groups' configuration is stored");
                self.ending = true;
                return ConfigFetch::Stored;
            }
            Ok(Err(ConfigError::Unusable(problem))) => (problem, false),
            Ok(Err(ConfigError::NotStored(problem))) => (problem, true),
            Err(_) => return ConfigFetch::Later(NoConfig::After(None)),
        };
        let detail = format!("{problem:#}");
        if config.refused != answer.sum || config.detail != detail {
            warn!(sum = answer.sum, "the groups' configuration is not used: {detail}");
            let shown = model::path::show_terminal(detail.as_bytes());
            self.shared.console.line(&format!("the groups' configuration is not used: {shown}"));
        }
        // A disk that is full now may have space later.
        if again {
            self.put_off(&answer.sum, None);
        }
        self.refused = (!again).then(|| answer.sum.clone());
        let report = ControlConfig { sum: config.sum, refused: answer.sum, detail: detail.clone() };
        if report.refused != config.refused {
            self.shared.beat.notify_one();
        }
        self.shared.syncer.note_config(report);
        ConfigFetch::Refused(detail)
    }
}

/// The reason why a configuration is not used.
enum ConfigError {
    Unusable(anyhow::Error),
    NotStored(anyhow::Error),
}

fn store_group_config(own: &AgentSettings, text: &str) -> Result<(), ConfigError> {
    if !text.is_empty() {
        group::overlay(own, text).map_err(ConfigError::Unusable)?;
    }
    group::store(&own.folder, text).map_err(ConfigError::NotStored)
}

fn failed(id: u64, detail: String) -> ControlOutcome {
    ControlOutcome { id, outcome: "failed".into(), detail }
}

fn done_outcome(id: u64, detail: &str) -> ControlOutcome {
    ControlOutcome { id, outcome: "done".into(), detail: detail.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_config_fetch_backs_off_per_digest() {
        let mut later: Option<ConfigRetry> = None;
        let mut longest = Duration::ZERO;
        for failures in 0..20 {
            let next = put_off(later.take(), "a", None, u64::MAX);
            let wait = next.due.saturating_duration_since(Instant::now());
            assert!(next.failures == failures && wait + Duration::from_secs(1) >= longest);
            (longest, later) = (wait, Some(next));
        }
        assert!(longest > Duration::from_secs(50), "{longest:?}");
        assert!(!is_due(later.as_ref(), "a") && is_due(later.as_ref(), "b"));
        assert!(is_due(None, "a"));
        assert_eq!(put_off(later, "b", None, 0).failures, 0);
        let wish = Some(Duration::from_secs(90));
        let due = put_off(None, "a", wish, 0).due;
        assert!(due.saturating_duration_since(Instant::now()) > Duration::from_mins(1));
    }

    #[test]
    fn outcomes_are_split_into_heartbeats_within_the_size_limit() {
        let mut left: Vec<_> =
            (0..3000).map(|id| done_outcome(id, "1,000 files; nothing changed")).collect();
        left.insert(7, failed(7, "x".repeat(100_000)));
        let mut beats = 0;
        while !left.is_empty() {
            let rest = left.split_off(fitting(&left));
            let bytes = serde_json::to_vec(&left).unwrap_or_default().len();
            assert!(left.len() == 1 || bytes <= 64 * 1024, "{bytes}");
            (left, beats) = (rest, beats + 1);
        }
        assert!(beats > 5 && fitting(&[]) == 0);
    }
}
