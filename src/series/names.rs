//! Stores the names and groups of agents in the series store: `agent_info`, with the value 1, so that
//! a query can show names in place of numbers.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::AgentId;
use registry::{Permitted, Registry};

use series::{Ack, Batch, END_OF_SERIES, Row, RowName, Store, WriteError};
use tokio::sync::watch;
use tracing::warn;

/// Interval at which the samples are repeated. A query looks back five minutes.
const REPEAT_EVERY: Duration = Duration::from_mins(2);
/// Interval at which new and changed agents are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The metric.
const METRIC: &str = "agent_info";

/// Stores the names until stopped. A failed write is logged.
pub(crate) async fn store(store: Store, registry: Registry, mut stopped: watch::Receiver<bool>) {
    let (mut names, mut repeated) = (Names::default(), None);
    loop {
        let is_due = repeated.is_none_or(|at: Instant| at.elapsed() >= REPEAT_EVERY);
        if is_due {
            repeated = Some(Instant::now());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for batch in names.batches(&store, &registry, now.as_nanos() as i64, is_due) {
            if let Err(error) = store.write_async(batch, Ack::Flushed).await {
                warn!("the names of agents were not stored as metrics: {error}");
                // A row may have been deleted.
                (names, repeated) = (Names::default(), None);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = stopped.wait_for(|s| *s) => return,
        }
    }
}

/// The names and groups that were stored last.
#[derive(Default)]
struct Names(HashMap<AgentId, Stored>);

struct Stored {
    name: String,
    groups: Vec<String>,
    row: Row,
}

impl Names {
    /// Returns samples of the new and the changed agents, or of all. The series with the former name
    /// or groups of an agent ends.
    fn batches(
        &mut self,
        store: &Store,
        registry: &Registry,
        time_ns: i64,
        all: bool,
    ) -> Vec<Batch> {
        let mut agents = Vec::with_capacity(self.0.len());
        // The store is not asked while the registry is locked.
        registry.for_each_agent(&Permitted::All, |agent| {
            agents.push((agent.id, agent.name.clone(), agent.groups.clone()));
        });
        // The series of a removed agent is not continued.
        let mut former = std::mem::take(&mut self.0);
        let mut due = Vec::new();
        for (id, name, groups) in agents {
            let known = former.remove(&id);
            let same = known.as_ref().filter(|s| s.name == name && s.groups == groups);
            let (same, is_due) = (same.map(|same| same.row), all || same.is_none());
            let Some(row) = same.or_else(|| row(store, id, &name, &groups)) else { continue };
            let other = known.filter(|_| same.is_none());
            due.extend(other.map(|other| (other.row, f64::from_bits(END_OF_SERIES))));
            due.extend(is_due.then_some((row, 1.0)));
            self.0.insert(id, Stored { name, groups, row });
        }
        batches(due, time_ns)
    }
}

fn batches(due: Vec<(Row, f64)>, time_ns: i64) -> Vec<Batch> {
    let (mut full, mut batch) = (Vec::new(), Batch::new());
    for (row, value) in due {
        if let Err(WriteError::TooLarge { .. }) = batch.push(row, time_ns, &[value]) {
            full.push(std::mem::take(&mut batch));
            // An empty batch has room.
            let _ = batch.push(row, time_ns, &[value]);
        }
    }
    if batch.samples() > 0 {
        full.push(batch);
    }
    full
}

/// Returns the row of an agent's name; `None` if the store takes no more series.
fn row(store: &Store, id: AgentId, name: &str, groups: &[String]) -> Option<Row> {
    let mut tags =
        vec![(AgentId::TAG.to_owned(), id.to_string()), ("name".to_owned(), name.to_owned())];
    if !groups.is_empty() {
        tags.push(("groups".to_owned(), groups.join(",")));
    }
    store.row_of(&RowName::new(vec![METRIC.to_owned()], tags).ok()?).ok()
}
