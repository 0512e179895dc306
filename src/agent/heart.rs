//! The heartbeat: that the agent lives, what became of its orders, and new ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use env::random::{Random as _, SystemRandom};
use link::ControlAction;
use link::json::{ControlCommand, ControlOutcome};
use sync::{SyncError, backoff};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::scan::Order;
use super::{Ended, Shared};

/// Orders remembered as taken, so that one handed out twice is done once.
const TAKEN_MAX: usize = 1_000;

/// Bytes of outcomes in one heartbeat, of which the server takes 64 KiB.
const OUTCOMES_BYTES_MAX: usize = 32 * 1024;
/// What an outcome takes beside its words, bytes.
const OUTCOME_OVERHEAD_BYTES: usize = 80;

/// Beat until stopped.
pub(super) async fn run(shared: Arc<Shared>, every: Duration, mut stopped: watch::Receiver<bool>) {
    let mut heart = Heart { shared, taken: VecDeque::new(), failures: 0 };
    let mut action = ControlAction::Startup;
    loop {
        let wait = match heart.beat(action).await {
            // The server calls an agent active from its second word on: say it at once. Outcomes
            // that found no room are told at once, too.
            Ok(more) => {
                let before = std::mem::replace(&mut action, ControlAction::Notify);
                if before == ControlAction::Startup || more {
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

struct Heart {
    shared: Arc<Shared>,
    taken: VecDeque<u64>,
    /// Heartbeats in a row that were not answered.
    failures: u32,
}

impl Heart {
    /// How long to wait after a heartbeat that was not answered: no shorter than the pace, and not
    /// before the server wishes.
    fn pause(&mut self, every: Duration, error: &SyncError) -> Duration {
        let random = SystemRandom.next_u64().unwrap_or(u64::MAX);
        let wait = backoff::delay(self.failures, random, error.retry_after());
        self.failures = self.failures.saturating_add(1);
        wait.max(every)
    }

    /// One heartbeat; whether outcomes are left that found no room in it.
    async fn beat(&mut self, action: ControlAction) -> Result<bool, SyncError> {
        let mut outcomes = std::mem::take(&mut *self.shared.outcomes.lock());
        let later = outcomes.split_off(fitting(&outcomes));
        let more = !later.is_empty();
        self.shared.outcomes.lock().extend(later);
        match self.shared.syncer.heartbeat(action, &outcomes).await {
            Ok(answer) => {
                if std::mem::take(&mut self.failures) > 0 {
                    self.shared.console.line("the server answers again");
                }
                for command in answer.commands {
                    self.take(&command).await;
                }
                if self.shared.syncer.check_due().is_some() {
                    self.shared.tell.notify_one();
                }
                Ok(more)
            }
            Err(error) => {
                self.shared.outcomes.lock().extend(outcomes);
                if self.failures == 0 {
                    warn!("heartbeat: {error}");
                    self.shared.console.line(&format!("no heartbeat: {error}; changes are kept"));
                }
                Err(error)
            }
        }
    }

    async fn take(&mut self, command: &ControlCommand) {
        if self.taken.contains(&command.id) {
            debug!(command = command.id, "handed out again; it is in hand");
            return;
        }
        if self.taken.len() == TAKEN_MAX {
            self.taken.pop_front();
        }
        info!(command = command.id, kind = command.kind, "order taken");
        let accepted = match command.kind.as_str() {
            "rescan" => match self.shared.orders.try_send(Order::Scan(command.id)) {
                Ok(()) => Ok(None),
                // Not taken: the server hands it out again.
                Err(_) => return,
            },
            "restart" => Ok(Some(Ended::Restart)),
            "reconnect" => {
                let outcome = match self.shared.syncer.reconnect() {
                    Ok(()) => done(command.id, "connected anew"),
                    Err(error) => failed(command.id, error.to_string()),
                };
                // Told over the new connection.
                self.shared.outcomes.lock().push(outcome);
                self.shared.beat.notify_one();
                Ok(None)
            }
            other => Err(format!("this agent knows no command {other}")),
        };
        self.taken.push_back(command.id);
        match accepted {
            Ok(None) => {}
            Ok(Some(ended)) => {
                let outcome = done(command.id, "restarting");
                // Told before the restart, or else the order would come again after it.
                if self.shared.syncer.heartbeat(ControlAction::Notify, &[outcome]).await.is_ok() {
                    let _ = self.shared.ended.try_send(ended);
                } else {
                    // Not carried out: done when it is handed out again.
                    self.taken.pop_back();
                }
            }
            Err(detail) => {
                self.shared.outcomes.lock().push(failed(command.id, detail));
            }
        }
    }
}

/// How many outcomes, from the first on, one heartbeat holds.
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

fn failed(id: u64, detail: String) -> ControlOutcome {
    ControlOutcome { id, outcome: "failed".into(), detail }
}

fn done(id: u64, detail: &str) -> ControlOutcome {
    ControlOutcome { id, outcome: "done".into(), detail: detail.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_told_in_heartbeats_that_the_server_takes() {
        let mut left: Vec<_> =
            (0..3000).map(|id| done(id, "1,000 files; nothing changed")).collect();
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
