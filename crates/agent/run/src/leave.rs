//! The goodbye of an agent that leaves the fleet.

use std::sync::Arc;

use anyhow::Context as _;
use detect::SystemNames;
use env::clock::{Clock, SystemClock};
use env::random::SystemRandom;
use queue::Queue;
use sync::{IdentityFolder, Syncer};
use tokio::time::{Duration, timeout};

use crate::config::AgentSettings;
use crate::group;
use crate::start::{queue_options, sync_options};

/// Longest time that the server may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Tells the server that a stopped agent leaves the fleet: it is neither silent nor down from then on.
/// Returns the number of changes and events that stay in its queue because the server does not have
/// them.
///
/// # Errors
/// Returns an error if the agent is running, or the server does not accept the goodbye.
pub async fn leave(settings: &AgentSettings) -> anyhow::Result<u64> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let path = settings.folder.join("agent.db");
    let options = queue_options(&settings.queue);
    let opened = Queue::open(&path, options, clock.clone(), Arc::new(SystemRandom));
    let (queue, _) = opened.context("agent's queue")?;
    let said = say(settings, &queue, clock).await;
    queue.close().context("agent's queue")?;
    said
}

async fn say(
    settings: &AgentSettings,
    queue: &Queue,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<u64> {
    let (identity, names) = (IdentityFolder::new(&settings.folder), Arc::new(SystemNames::new()));
    let syncer = Syncer::open(queue.clone(), identity, sync_options(settings), names, clock)?;
    let texts = group::texts(&settings.folder)?;
    let running = texts.first().map_or("", String::as_str);
    syncer.note_config(group::config_report(running, &settings::sum(running), None));
    let answered = timeout(ANSWER_TIME_MAX, syncer.leave()).await;
    let answered = answered.map_err(|_| anyhow::anyhow!("no answer within {ANSWER_TIME_MAX:?}"));
    answered.and_then(|answer| Ok(answer?)).with_context(|| {
        "the server does not know that this agent leaves: run the command again, or `holdfast agents \
         remove` at the server"
    })
}
