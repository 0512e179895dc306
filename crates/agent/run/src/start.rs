//! Starts an agent with the configuration of its groups, or with an earlier one that works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

use anyhow::Context as _;
use detect::{Cancel, SystemNames};
use env::clock::Clock;
use env::random::SystemRandom;
use link::json::ControlConfig;
use model::Dataset;
use parking_lot::Mutex;
use queue::{Queue, QueueOpenReport, QueueOptions};
use service::Console;
use sync::{IdentityFolder, SyncOptions, Syncer};
use telemetry::{HostMetrics, RealtimeCounters, TelemetryPorts};
use tokio::sync::{Notify, mpsc, watch};
use tracing::warn;

use crate::config::{AgentSettings, QueueConfig};
use crate::scan::History;
use crate::shared::{Begin, Leftovers, Part, ScanCommand, Shared};
use crate::{Agent, group, heartbeats, notes, packages, reporter, scan};

/// Most scans that are requested but have not begun.
const SCAN_COMMANDS_MAX: usize = 16;

/// The arguments of a start.
pub(super) struct Start<'a> {
    /// Settings of the agent itself, without its groups' configuration.
    pub(super) own: &'a AgentSettings,
    pub(super) console: Console,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) begin: Begin,
    pub(super) left: Leftovers,
}

/// A queue and the report of its opening.
struct OpenQueue {
    queue: Queue,
    report: QueueOpenReport,
}

impl Start<'_> {
    /// Starts the agent with the stored configuration of its groups. If that does not work, it
    /// starts with the one that ran before, or with the agent's own settings alone, and reports the
    /// stored one as refused.
    pub(super) fn run(mut self) -> anyhow::Result<Agent> {
        let own = self.own;
        let texts = group::texts(&own.folder)?;
        let wanted = settings::sum(texts.first().map_or("", String::as_str));
        let mut refusal: Option<anyhow::Error> = None;
        for text in &texts {
            let config_report = group::config_report(text, &wanted, refusal.as_ref());
            let started =
                group::effective(own, text).and_then(|all| self.with(&all, config_report));
            match started {
                Ok(agent) => {
                    group::note_running(&own.folder, text);
                    return Ok(agent);
                }
                Err(error) => {
                    warn!("the agent does not start with this configuration: {error:#}");
                    refusal.get_or_insert(error);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| anyhow::anyhow!("no configuration")))
    }

    /// Opens the queue and starts the agent with these settings. Closes the queue if the start
    /// fails.
    fn with(&mut self, settings: &AgentSettings, config: ControlConfig) -> anyhow::Result<Agent> {
        let path = settings.folder.join("agent.db");
        let options = queue_options(&settings.queue);
        let opened = Queue::open(&path, options, self.clock.clone(), Arc::new(SystemRandom));
        let (queue, report) = opened.context("agent's queue")?;
        announce(&self.console, &report);
        let started = self.on(OpenQueue { queue: queue.clone(), report }, settings, config);
        if started.is_err() {
            let _ = queue.close();
        }
        started
    }

    /// Starts the agent's thread and tasks on an open queue.
    fn on(
        &mut self,
        OpenQueue { queue, report }: OpenQueue,
        settings: &AgentSettings,
        config: ControlConfig,
    ) -> anyhow::Result<Agent> {
        notes::note_comparison_due(&queue)?;
        let reason = check_reason(&report);
        if reason.is_some() {
            packages::look_again(&queue)?;
        }
        let names = Arc::new(SystemNames::new());
        let identity = IdentityFolder::new(&settings.folder);
        let options = sync_options(settings);
        let syncer =
            Syncer::open(queue.clone(), identity, options, names.clone(), self.clock.clone())?;
        syncer.note_config(config);
        if reason.is_some() {
            syncer.set_check_due(reason);
        }
        let (scan_commands, inbox) = std::sync::mpsc::sync_channel(SCAN_COMMANDS_MAX);
        let (ended, ended_inbox) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            queue,
            syncer: Arc::new(syncer),
            names,
            dataset: Dataset::fim_files(),
            packages: Dataset::inventory_packages(),
            rules: settings.rules.clone(),
            inventory: settings.inventory.packages,
            console: self.console.clone(),
            clock: self.clock.clone(),
            cancel: Cancel::new(),
            scan_commands,
            report: Notify::new(),
            beat: Notify::new(),
            outcomes: Mutex::new(std::mem::take(&mut self.left.outcomes)),
            rescans: Mutex::new(std::mem::take(&mut self.left.rescans)),
            settled: AtomicBool::new(false),
            ended,
            restarting: AtomicU64::new(0),
            scanned: AtomicBool::new(false),
            // A reload follows an answer of the server.
            realtime_counters: RealtimeCounters::default(),
            connected: watch::Sender::new(self.begin == Begin::Reload),
            printed_failure: Mutex::default(),
        });
        let begin =
            || HostMetrics::open(&settings.folder, &settings.metrics, telemetry_ports(&shared));
        let metrics = settings.metrics.enabled.then(begin);
        let history = if report.created { History::None } else { History::Kept };
        let scanning =
            scan::Scanning::new(&shared, settings, self.begin, history, self.clock.clone())?;
        let part = |name| Part { shared: shared.clone(), name };
        let scanner = spawn_scanner(part("scan thread"), scanning, inbox)?;
        if let Some(why) = self.left.ended.take() {
            let _ = shared.ended.try_send(why);
        }
        let (stop, stopped) = watch::channel(false);
        let telling = reporter::run(shared.clone(), settings.sync.clone(), stopped.clone());
        let every = settings.sync.heartbeat;
        let beating =
            heartbeats::run(shared.clone(), self.own.clone(), every, self.begin, stopped.clone());
        let mut tasks = vec![
            tokio::spawn(guarded(part("telling task"), telling)),
            tokio::spawn(guarded(part("heartbeat task"), beating)),
        ];
        if let Some(metrics) = &metrics {
            let looking = metrics.clone().sample_until_stopped(stopped.clone());
            let sending = metrics.clone().send(stopped);
            tasks.push(tokio::spawn(guarded(part("task that looks at metrics"), looking)));
            tasks.push(tokio::spawn(guarded(part("task that sends metrics"), sending)));
        }
        Ok(Agent { shared, stop, tasks, metrics, scanner, ended: ended_inbox })
    }
}

/// Returns the reason to compare agent and server after such an opening, if there is one.
fn check_reason(report: &QueueOpenReport) -> Option<&'static str> {
    match &report.dropped {
        Some(_) => Some("items of agent.db could not be decoded"),
        None => report.needs_check().then_some("the agent did not stop cleanly"),
    }
}

fn spawn_scanner(
    part: Part,
    scanning: scan::Scanning,
    inbox: std::sync::mpsc::Receiver<ScanCommand>,
) -> anyhow::Result<thread::JoinHandle<()>> {
    let run = move || {
        let _part = part;
        scanning.run(&inbox);
    };
    thread::Builder::new().name("scan".into()).spawn(run).context("scan thread")
}

fn telemetry_ports(shared: &Shared) -> TelemetryPorts {
    TelemetryPorts {
        queue: shared.queue.clone(),
        dataset: shared.dataset.clone(),
        syncer: shared.syncer.clone(),
        console: shared.console.clone(),
        clock: shared.clock.clone(),
        realtime: shared.realtime_counters.clone(),
    }
}

async fn guarded(_part: Part, work: impl Future<Output = ()>) {
    work.await;
}

pub(super) fn sync_options(settings: &AgentSettings) -> SyncOptions {
    SyncOptions {
        module: "fim".into(),
        version: format!("Holdfast v{}", env!("CARGO_PKG_VERSION")),
        hostname: host::system::hostname(),
        os: host::system::os(),
        machine: sync::Machine::of_host(),
        heartbeat: settings.sync.heartbeat,
        session_bytes: model::limits::SESSION_BYTES_TARGET,
    }
}

pub(super) fn queue_options(config: &QueueConfig) -> QueueOptions {
    QueueOptions {
        durability: config.durability,
        transaction: config.transaction,
        byte_limit: u64::from(config.limit_mib) * 1024 * 1024,
        window: config.window,
        page_bytes: config.page_size,
        wal_autocheckpoint_pages: config.wal_autocheckpoint,
        journal_size_limit_bytes: config.journal_size_limit,
        ..QueueOptions::default()
    }
}

fn announce(console: &Console, report: &QueueOpenReport) {
    if let Some(rebuilt) = &report.rebuilt {
        console.line(&format!(
            "agent.db was damaged ({}); kept as {}, the next scan creates a new one",
            rebuilt.reason,
            rebuilt.moved_to.display()
        ));
    } else if let Some(dropped) = &report.dropped {
        console.line(&format!(
            "agent.db: items that could not be decoded were dropped ({}, the first of them {}); agent \
             and server will be compared",
            dropped.items, dropped.first
        ));
    } else if report.unclean {
        console.line("the last run did not end cleanly; agent and server will be compared");
    }
}
