//! Requests against the seats: a copy of an identity is refused by name and told of in a coverage
//! event that names both machines.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::HeaderMap;
use link::{HEADER_INSTANCE, Instance};
use model::{AgentId, Coverage, CoverageKind, EventBody, Record};
use tracing::warn;

use crate::answer::Refusal;
use crate::app::App;
use crate::identity::{Caller, Origin, Peer};
use crate::leases::{Cloned, Speaker, Verdict, Word};
use crate::meter::add;

/// Characters of a machine's and a boot's digest that are shown to people.
const SHOWN_CHARS: usize = 8;
/// Longest pause between two words of an agent that is believed.
const HEARTBEAT_MAX: Duration = Duration::from_hours(1);

impl App {
    /// Whether this request comes from the one instance that may speak as its agent. Local callers
    /// and senders that do not name an instance are not told apart.
    pub(crate) async fn seated(
        self: &Arc<Self>,
        peer: &Peer,
        headers: &HeaderMap,
        caller: &Caller,
    ) -> Result<Option<Instance>, Refusal> {
        let Origin::Tls { address, number, .. } = &peer.origin else { return Ok(None) };
        let Some(said) = headers.get(HEADER_INSTANCE) else { return Ok(None) };
        let (instance, heartbeat) =
            said.to_str().ok().and_then(read).ok_or_else(|| {
                Refusal::invalid(format!("{HEADER_INSTANCE} is malformed")).closing()
            })?;
        let (agent, life) = (caller.agent, caller.incarnation);
        let now = self.options.clock.monotonic();
        if !self.seats.knows(agent, life) {
            let last = self.last_session(caller).await?;
            if let Some(holder) = last.as_deref().and_then(Instance::of_session) {
                self.seats.recall(agent, life, holder, now);
            }
        }
        let word = Word {
            speaker: Speaker { instance: instance.clone(), address: address.ip().to_string() },
            here: instance.boot == self.options.boot && !instance.boot.is_empty(),
            heartbeat,
            connection: *number,
            newest: self.connections_seen.load(Ordering::Acquire),
            now,
        };
        match self.seats.hear(agent, life, &word) {
            Verdict::Go(found) => {
                self.tell_of(agent, found);
                Ok(Some(instance))
            }
            Verdict::InDoubt(wait) => {
                let detail = "another instance of this agent was heard a moment ago: come back \
                              when it has stopped, or enrol this machine anew";
                let seconds = wait.as_secs().max(1);
                Err(Refusal { error: "identity_in_doubt", ..Refusal::busy(detail, seconds) }
                    .closing())
            }
            Verdict::Copy(found, holder) => {
                self.tell_of(agent, found);
                add(&self.meter.copies_refused, 1);
                let detail = format!(
                    "the identity of agent {agent} is in use on {}: this copy of it is refused; \
                     enrol this machine anew with `holdfast enroll`",
                    shown(&holder)
                );
                Err(Refusal::forbidden("identity_cloned", detail).closing())
            }
        }
    }

    fn tell_of(self: &Arc<Self>, agent: AgentId, found: Option<Cloned>) {
        let Some(Cloned { holder, refused }) = found else { return };
        let name = self.registry.agent(agent).map(|a| a.name).unwrap_or_default();
        let detail = format!(
            "the identity of agent {agent} ({name}) runs twice: {} keeps it, {} was refused; enrol \
             that one anew with `holdfast enroll`",
            shown(&holder),
            shown(&refused)
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
        let i = &refused.instance;
        // A copy that starts again and again is told of once.
        let what = if i.machine == holder.instance.machine { &i.nonce } else { &i.boot };
        let id = format!("cloned-{agent}-{}-{what}", i.machine);
        let record = Record::ServerEvent { id, at_us: now_us, body: event.to_json() };
        let app = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = app.commit.submit(record).await {
                warn!(%agent, %error, "a copied identity could not be told of");
            }
        });
    }
}

/// `MACHINE.BOOT.NONCE.HEARTBEAT`, the last in milliseconds.
fn read(text: &str) -> Option<(Instance, Duration)> {
    let (instance, heartbeat) = text.rsplit_once('.')?;
    let heartbeat = Duration::from_millis(heartbeat.parse().ok()?).min(HEARTBEAT_MAX);
    Some((instance.parse().ok()?, heartbeat))
}

fn shown(speaker: &Speaker) -> String {
    let cut = |text: &str| match text.get(..SHOWN_CHARS.min(text.len())) {
        None | Some("") => "unknown".to_owned(),
        Some(cut) => cut.to_owned(),
    };
    let Instance { machine, boot, .. } = &speaker.instance;
    let at = match speaker.address.as_str() {
        "" => String::new(),
        address => format!(" at {address}"),
    };
    format!("machine {} (boot {}){at}", cut(machine), cut(boot))
}
