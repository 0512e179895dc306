//! Admits requests only from the instance that holds its agent's lease. Records each detected clone
//! as a coverage event of the server that names both machines.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use link::{HEADER_INSTANCE, Instance};
use model::{AgentId, Coverage, CoverageKind, EventBody, Record};
use tracing::warn;

use crate::answer::Refusal;
use crate::app::App;
use crate::identity::{Caller, Origin, Peer};
use crate::leases::{Claim, Claimant, CloneFound, Decision};
use crate::meter::add;

/// Characters of a machine's and a boot's digest in messages.
const SHOWN_CHARS: usize = 8;
/// Longest accepted interval between heartbeats. A longer one counts as this.
const HEARTBEAT_MAX: Duration = Duration::from_hours(1);

impl App {
    /// Claims the agent's lease for the instance that the request names, and returns the instance.
    /// Local callers, and senders that name no instance, need no lease.
    pub(crate) async fn admit_instance(
        self: &Arc<Self>,
        peer: &Peer,
        headers: &HeaderMap,
        caller: &Caller,
    ) -> Result<Option<Instance>, Refusal> {
        let Origin::Tls { address, number, .. } = &peer.origin else { return Ok(None) };
        let Some(header) = headers.get(HEADER_INSTANCE) else { return Ok(None) };
        let InstanceHeader { instance, heartbeat } = InstanceHeader::parse(header)
            .ok_or_else(|| Refusal::invalid(format!("{HEADER_INSTANCE} is malformed")).closing())?;
        let now = self.options.clock.monotonic();
        self.restore_lease(caller, now).await?;
        let claim = Claim {
            claimant: Claimant { instance: instance.clone(), address: address.ip().to_string() },
            on_server_boot: instance.boot == self.options.boot && !instance.boot.is_empty(),
            heartbeat,
            connection: *number,
            newest_connection: self.connections_seen.load(Ordering::Acquire),
            now,
        };
        let agent = caller.agent;
        let (admitted, found) = match self.leases.claim(agent, caller.incarnation, &claim) {
            Decision::Granted { found } => (Ok(Some(instance)), found),
            Decision::RetryAfter(wait) => (Err(in_doubt(wait)), None),
            Decision::Refused { holder, found } => {
                add(&self.meter.copies_refused, 1);
                (Err(cloned(agent, &holder)), found)
            }
        };
        if let Some(found) = found {
            self.record_clone(agent, &found);
        }
        admitted
    }

    /// Gives the lease to the instance of the agent's last session, if the server was restarted
    /// since.
    async fn restore_lease(&self, caller: &Caller, now: Duration) -> Result<(), Refusal> {
        let Caller { agent, incarnation, .. } = *caller;
        if self.leases.contains(agent, incarnation) {
            return Ok(());
        }
        let session = self.last_session(caller).await?;
        if let Some(holder) = session.as_deref().and_then(Instance::of_session) {
            self.leases.restore(agent, incarnation, holder, now);
        }
        Ok(())
    }

    /// Logs a clone and submits its coverage event, without waiting for it.
    fn record_clone(self: &Arc<Self>, agent: AgentId, found: &CloneFound) {
        let name = self.registry.agent(agent).map(|a| a.name).unwrap_or_default();
        let detail = format!(
            "the identity of agent {agent} ({name}) runs twice: {} keeps it, {} was refused; enrol \
             that machine under a name of its own with `holdfast enroll`",
            describe(&found.holder),
            describe(&found.refused)
        );
        warn!(%agent, "{detail}");
        let now_us = self.options.clock.guarded_us();
        let event = EventBody::of_coverage(Coverage {
            kind: CoverageKind::IdentityCloned,
            path: String::new(),
            from_us: now_us,
            to_us: now_us,
            found: None,
            detail,
        });
        let id = event_id(agent, found);
        let record = Record::ServerEvent { id, at_us: now_us, body: event.to_json() };
        let app = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = app.commit.submit(record).await {
                warn!(%agent, %error, "a copied identity could not be reported");
            }
        });
    }
}

fn in_doubt(wait: Duration) -> Refusal {
    let detail = "another instance of this agent is connected: retry when it has stopped, or \
                  enrol this machine again";
    let busy = Refusal::busy(detail, wait.as_secs().max(1));
    Refusal { error: "identity_in_doubt", ..busy }.closing()
}

fn cloned(agent: AgentId, holder: &Claimant) -> Refusal {
    let detail = format!(
        "the identity of agent {agent} is in use on {}: this copy of it is refused; enrol this \
         machine again with `holdfast enroll`",
        describe(holder)
    );
    Refusal::forbidden("identity_cloned", detail).closing()
}

/// Returns the id of a clone's event. It is the same each time the clone starts, so that the store
/// keeps one event: a clone on another machine is named by its boot. On the holder's own machine
/// id the boot may be shared, and the start of the program is named.
fn event_id(agent: AgentId, found: &CloneFound) -> String {
    let Instance { machine, boot, nonce } = &found.refused.instance;
    let start = if *machine == found.holder.instance.machine { nonce } else { boot };
    format!("cloned-{agent}-{machine}-{start}")
}

/// The header [`HEADER_INSTANCE`]: `MACHINE.BOOT.NONCE.HEARTBEAT`, the last in milliseconds.
struct InstanceHeader {
    instance: Instance,
    heartbeat: Duration,
}

impl InstanceHeader {
    fn parse(value: &HeaderValue) -> Option<Self> {
        let (instance, heartbeat) = value.to_str().ok()?.rsplit_once('.')?;
        let heartbeat = Duration::from_millis(heartbeat.parse().ok()?).min(HEARTBEAT_MAX);
        Some(Self { instance: instance.parse().ok()?, heartbeat })
    }
}

/// Returns the machine, boot and address of an instance as messages show them.
fn describe(claimant: &Claimant) -> String {
    let shorten = |text: &str| match text.get(..SHOWN_CHARS.min(text.len())) {
        None | Some("") => "unknown".to_owned(),
        Some(prefix) => prefix.to_owned(),
    };
    let Instance { machine, boot, .. } = &claimant.instance;
    let at = match claimant.address.as_str() {
        "" => String::new(),
        address => format!(" at {address}"),
    };
    format!("machine {} (boot {}){at}", shorten(machine), shorten(boot))
}
