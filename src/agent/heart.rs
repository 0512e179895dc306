//! The heartbeat: that the agent lives, what became of its orders, and new ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use link::ControlAction;
use link::json::{ControlCommand, ControlOutcome};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::scan::Order;
use super::{Ended, Shared};

/// Orders remembered as taken, so that one handed out twice is done once.
const TAKEN_MAX: usize = 1_000;

/// Beat until stopped.
pub(super) async fn run(shared: Arc<Shared>, every: Duration, mut stopped: watch::Receiver<bool>) {
    let mut heart = Heart { shared, taken: VecDeque::new(), silent: false };
    let mut action = ControlAction::Startup;
    loop {
        let answered = heart.beat(action).await;
        // The server calls an agent active from its second word on: say it at once.
        if answered
            && std::mem::replace(&mut action, ControlAction::Notify) == ControlAction::Startup
        {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = heart.shared.beat.notified() => {}
            _ = stopped.wait_for(|s| *s) => return,
        }
    }
}

struct Heart {
    shared: Arc<Shared>,
    taken: VecDeque<u64>,
    /// The server did not answer the last time.
    silent: bool,
}

impl Heart {
    /// One heartbeat; whether the server answered.
    async fn beat(&mut self, action: ControlAction) -> bool {
        let outcomes = std::mem::take(&mut *self.shared.outcomes.lock());
        match self.shared.syncer.heartbeat(action, &outcomes).await {
            Ok(answer) => {
                if std::mem::take(&mut self.silent) {
                    self.shared.console.line("the server answers again");
                }
                for command in answer.commands {
                    self.take(&command).await;
                }
                if self.shared.syncer.check_due().is_some() {
                    self.shared.tell.notify_one();
                }
                true
            }
            Err(error) => {
                self.shared.outcomes.lock().extend(outcomes);
                if !std::mem::replace(&mut self.silent, true) {
                    warn!("heartbeat: {error}");
                    self.shared.console.line(&format!("no heartbeat: {error}; changes are kept"));
                }
                false
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

fn failed(id: u64, detail: String) -> ControlOutcome {
    ControlOutcome { id, outcome: "failed".into(), detail }
}

fn done(id: u64, detail: &str) -> ControlOutcome {
    ControlOutcome { id, outcome: "done".into(), detail: detail.into() }
}
