//! Admits requests only from the instance that holds its agent's lease. Records each detected copy
//! of an identity as a coverage event of its agent.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue};
use link::{HEADER_INSTANCE, Instance};
use model::{AgentEvent, AgentId, Coverage, CoverageKind, EventBody, Record};
use tracing::warn;

use crate::answer::{IN_DOUBT, Refusal};
use crate::app::App;
use crate::identity::{Caller, Origin, Peer};
use crate::leases::{Claim, CloneFound, Decision, LeaseClaimant};
use crate::meter::add;

/// Characters of a machine's and a boot's digest in messages.
const SHOWN_CHARS: usize = 8;
/// Longest accepted interval between heartbeats. A longer one counts as this.
const HEARTBEAT_MAX: Duration = Duration::from_hours(1);

impl App {
    /// Claims the agent's lease for the instance that the request names, and returns the request's
    /// header. Local callers need no lease. A sender over TLS may leave the header out only if the
    /// agent has never named an instance; otherwise a copy of its certificate could do so.
    pub(crate) async fn admit_instance(
        self: &Arc<Self>,
        peer: &Peer,
        headers: &HeaderMap,
        caller: &Caller,
    ) -> Result<Option<InstanceHeader>, Refusal> {
        let header = match &peer.origin {
            Origin::Tls { address, number, .. } => {
                let now = self.options.clock.monotonic();
                self.restore_lease(caller, now).await?;
                match headers.get(HEADER_INSTANCE) {
                    Some(header) => {
                        let from = ClaimSender { address: address.ip(), connection: *number, now };
                        Some(self.claim_lease(caller, header, &from)?)
                    }
                    None if self.leases.contains(caller.agent, caller.incarnation) => {
                        add(&self.meter.copies_refused, 1);
                        self.record_nameless(caller, address.ip());
                        return Err(instance_required(caller.agent));
                    }
                    None => None,
                }
            }
            Origin::Unix { .. } => None,
        };
        self.silence.heard(caller.agent);
        Ok(header)
    }

    fn claim_lease(
        self: &Arc<Self>,
        caller: &Caller,
        header: &HeaderValue,
        from: &ClaimSender,
    ) -> Result<InstanceHeader, Refusal> {
        let header = InstanceHeader::parse(header)
            .ok_or_else(|| Refusal::invalid(format!("{HEADER_INSTANCE} is malformed")).closing())?;
        let InstanceHeader { instance, heartbeat } = header.clone();
        let claim = Claim {
            claimant: LeaseClaimant {
                instance: instance.clone(),
                address: from.address.to_string(),
            },
            on_server_boot: instance.boot == self.options.boot && !instance.boot.is_empty(),
            heartbeat,
            connection: from.connection,
            newest_connection: self.connections_seen.load(Ordering::Acquire),
            now: from.now,
        };
        let agent = caller.agent;
        let (admitted, found) = match self.leases.claim(agent, caller.incarnation, &claim) {
            Decision::Granted { found } => (Ok(header), found),
            Decision::RetryAfter(wait) => (Err(in_doubt(wait)), None),
            Decision::Refused { holder, found } => {
                add(&self.meter.copies_refused, 1);
                (Err(cloned(agent, &holder)), found)
            }
        };
        if let Some(found) = found {
            self.record_clone(caller, &found);
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

    fn record_clone(self: &Arc<Self>, caller: &Caller, found: &CloneFound) {
        let detail = format!(
            "this identity runs twice: {} keeps it, {} was refused; enrol that machine under a \
             name of its own with `holdfast enroll`",
            describe(&found.holder),
            describe(&found.refused)
        );
        let Caller { agent, .. } = *caller;
        let name = self.registry.agent(agent).map(|a| a.name).unwrap_or_default();
        // A clone is found once, but a program may pretend to be many.
        if self.refusal_line(None).is_some() {
            warn!(%agent, name, "{detail}");
        }
        self.record_copy(caller, clone_id(found), detail);
    }

    fn record_nameless(self: &Arc<Self>, caller: &Caller, address: IpAddr) {
        let detail = format!(
            "a program at {address} used this identity without naming its instance, which the \
             agent always does; it was refused: find out who copied the agent's key, then remove \
             the agent and enrol its machine again"
        );
        self.record_copy(caller, format!("cloned-nameless-{address}"), detail);
    }

    /// Submits the event of a copied identity, without waiting for it.
    fn record_copy(self: &Arc<Self>, caller: &Caller, id: String, detail: String) {
        let Caller { agent, incarnation, .. } = *caller;
        let now_us = self.options.clock.guarded_us();
        let event = EventBody::of_coverage(Coverage {
            kind: CoverageKind::IdentityCloned,
            path: String::new(),
            from_us: now_us,
            to_us: now_us,
            found: None,
            lasting: None,
            detail,
        });
        let event = AgentEvent { agent, incarnation, id, body: event.to_json() };
        let record = Record::AgentEvents { at_us: now_us, events: vec![event] };
        let app = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = app.commit.submit(record).await {
                warn!(%agent, %error, "a copied identity could not be reported");
            }
        });
    }
}

/// The connection and the time of a claim.
struct ClaimSender {
    address: IpAddr,
    /// Number of the connection.
    connection: u64,
    /// Monotonic time of the request.
    now: Duration,
}

fn in_doubt(wait: Duration) -> Refusal {
    let detail = "another instance of this agent is connected: retry when it has stopped, or \
                  enrol this machine again";
    let busy = Refusal::busy(detail, wait.as_secs().max(1));
    Refusal { error: IN_DOUBT, ..busy }.closing()
}

fn cloned(agent: AgentId, holder: &LeaseClaimant) -> Refusal {
    let detail = format!(
        "the identity of agent {agent} is in use on {}: this copy of it is refused; enrol this \
         machine again with `holdfast enroll`",
        describe(holder)
    );
    Refusal::forbidden("identity_cloned", detail).closing()
}

fn instance_required(agent: AgentId) -> Refusal {
    let detail = format!(
        "agent {agent} names its instance in {HEADER_INSTANCE}; a request without it may be from a \
         copy of its certificate"
    );
    Refusal::forbidden("instance_required", detail).closing()
}

/// Returns the id of a clone's event. It is the same each time the clone starts, so that the store
/// keeps one event: a clone on another machine is named by its boot. On the holder's own machine
/// id the boot may be shared, and the start of the program is named.
fn clone_id(found: &CloneFound) -> String {
    let Instance { machine, boot, nonce } = &found.refused.instance;
    let start = if *machine == found.holder.instance.machine { nonce } else { boot };
    format!("cloned-{machine}-{start}")
}

/// The header [`HEADER_INSTANCE`]: `MACHINE.BOOT.NONCE.HEARTBEAT`, the last in milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct InstanceHeader {
    pub(crate) instance: Instance,
    pub(crate) heartbeat: Duration,
}

impl InstanceHeader {
    fn parse(value: &HeaderValue) -> Option<Self> {
        let (instance, heartbeat) = value.to_str().ok()?.rsplit_once('.')?;
        let heartbeat = Duration::from_millis(heartbeat.parse().ok()?).min(HEARTBEAT_MAX);
        Some(Self { instance: instance.parse().ok()?, heartbeat })
    }
}

/// Returns the machine, boot and address of an instance as messages show them.
fn describe(claimant: &LeaseClaimant) -> String {
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
