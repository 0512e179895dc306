//! Instance leases: one running process at a time acts as an agent.
//!
//! A copy of an agent's folder on a second machine shows the same certificate as the original. If
//! both were served, each would overwrite and delete what the other one reported. Each agent
//! therefore has one lease, which is held by an instance: one start of the agent's program on one
//! boot of one machine ([`Instance`]).
//!
//! Each request claims the lease. A claim of the holder renews it. A claim of another instance is
//! decided by the first rule that applies:
//!
//! 1. An instance that was refused before is refused again.
//! 2. An instance on another machine than the holder's is a clone and is refused.
//! 3. A request over a connection that existed when the holder took the lease may be a late packet
//!    of a process that has ended. It proves nothing and has to be retried.
//! 4. A former holder that comes back over a newer connection is still running. It takes the lease
//!    back, and the holder is refused as a clone.
//! 5. The lease is taken over if the holder said goodbye or was silent for
//!    [`SILENT_HEARTBEATS`] of its heartbeats, and at once if the holder can no longer run:
//!    - on the holder's boot the agent program itself starts only after its predecessor ended;
//!    - on the server's own boot, an instance of an earlier boot of this host has ended.
//! 6. Otherwise the boots differ: the machine was restarted, or the instance is a clone with the
//!    same machine id. The instance becomes the candidate and has to retry until the holder was
//!    silent for long enough. If the holder sends a request over a connection that was made after
//!    the candidate appeared, both are running, and the candidate is refused as a clone.
//!
//! # Limits
//! One lease per agent, each with at most [`REMEMBERED_MAX`] former holders and refused instances.
//!
//! # What survives
//! Leases are kept in memory. After a restart of the server the holder is the instance that the id
//! of the agent's last applied session names ([`Leases::restore`]).
//!
//! # Locking
//! One mutex guards all leases. Each method holds it for one decision and calls nothing outside
//! this file, so the mutex comes last in every lock order.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use link::Instance;
use model::{AgentId, Incarnation};
use parking_lot::Mutex;

/// Number of missed heartbeats after which a holder counts as ended.
const SILENT_HEARTBEATS: u32 = 3;
/// Time added to the missed heartbeats, for delays on the way.
const SILENCE_MARGIN: Duration = Duration::from_millis(500);
/// Longest silence that a claim has to wait for.
const SILENCE_MAX: Duration = Duration::from_mins(5);
/// Heartbeat of a restored holder, which has not named its own yet.
const HEARTBEAT_ASSUMED: Duration = Duration::from_secs(10);
/// Former holders, and refused instances, remembered per lease.
const REMEMBERED_MAX: usize = 8;

/// An instance and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseClaimant {
    pub(crate) instance: Instance,
    /// Empty if the instance is known from a session id only.
    pub(crate) address: String,
}

/// The claim that one request makes.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) claimant: LeaseClaimant,
    /// True if the claimant runs on the server's own host and boot.
    pub(crate) on_server_boot: bool,
    /// The claimant's interval between heartbeats.
    pub(crate) heartbeat: Duration,
    /// Number of the request's connection. Later connections have higher numbers.
    pub(crate) connection: u64,
    /// Number of the newest connection of any agent.
    pub(crate) newest_connection: u64,
    /// Monotonic time of the request.
    pub(crate) now: Duration,
}

/// Two instances of one agent that run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CloneFound {
    pub(crate) holder: LeaseClaimant,
    pub(crate) refused: LeaseClaimant,
}

/// The decision about a claim. `found` is set once per clone, by the claim that reveals it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The claimant now holds the lease.
    Granted { found: Option<CloneFound> },
    /// The claim cannot be decided yet.
    RetryAfter(Duration),
    /// The claimant is a clone of the holder.
    Refused { holder: LeaseClaimant, found: Option<CloneFound> },
}

/// The leases of all agents.
#[derive(Default)]
pub(crate) struct Leases(Mutex<HashMap<AgentId, Lease>>);

impl Leases {
    /// Returns true if the lease of this incarnation of the agent has a holder.
    pub(crate) fn contains(&self, agent: AgentId, incarnation: Incarnation) -> bool {
        self.0.lock().get(&agent).is_some_and(|lease| lease.incarnation == incarnation)
    }

    /// Gives the lease to the instance of the agent's last applied session, unless it has a holder.
    pub(crate) fn restore(
        &self,
        agent: AgentId,
        incarnation: Incarnation,
        instance: Instance,
        now: Duration,
    ) {
        let mut leases = self.0.lock();
        if leases.get(&agent).is_none_or(|lease| lease.incarnation != incarnation) {
            let holder = LeaseClaimant { instance, address: String::new() };
            let silence_max = silence_max(HEARTBEAT_ASSUMED);
            leases.insert(agent, Lease::new(incarnation, holder, silence_max, now));
        }
    }

    /// Decides about a claim.
    pub(crate) fn claim(
        &self,
        agent: AgentId,
        incarnation: Incarnation,
        claim: &Claim,
    ) -> Decision {
        let mut leases = self.0.lock();
        if let Some(lease) = leases.get_mut(&agent).filter(|l| l.incarnation == incarnation) {
            return lease.claim(claim);
        }
        let silence_max = silence_max(claim.heartbeat);
        let lease = Lease::new(incarnation, claim.claimant.clone(), silence_max, claim.now);
        leases.insert(agent, lease);
        Decision::Granted { found: None }
    }

    /// Returns true if a candidate waits. The holder should then connect again: only a request over
    /// a new connection proves that it is still running.
    pub(crate) fn has_candidate(&self, agent: AgentId) -> bool {
        self.0.lock().get(&agent).is_some_and(|lease| lease.candidate.is_some())
    }

    /// Notes the holder's goodbye: the next claimant does not wait for its silence.
    pub(crate) fn release(&self, agent: AgentId, nonce: &str) {
        let mut leases = self.0.lock();
        if let Some(lease) = leases.get_mut(&agent).filter(|l| l.holder.instance.nonce == nonce) {
            lease.released = true;
        }
    }

    /// Forgets the lease of an agent that was removed.
    pub(crate) fn remove(&self, agent: AgentId) {
        self.0.lock().remove(&agent);
    }

    /// Returns the number of leases.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// Returns the silence after which a holder with this heartbeat counts as ended.
fn silence_max(heartbeat: Duration) -> Duration {
    (heartbeat * SILENT_HEARTBEATS + SILENCE_MARGIN).min(SILENCE_MAX)
}

/// The lease of one agent.
struct Lease {
    /// The incarnation that the lease belongs to. It says nothing about another one.
    incarnation: Incarnation,
    holder: LeaseClaimant,
    /// Monotonic time of the holder's last request.
    renewed_at: Duration,
    /// Silence after which the holder counts as ended.
    silence_max: Duration,
    /// True after the holder's goodbye.
    released: bool,
    /// Number of the newest connection when the holder took the lease over.
    taken_at_connection: u64,
    former: VecDeque<Instance>,
    refused: VecDeque<Instance>,
    candidate: Option<Candidate>,
}

/// An instance that waits for the holder's silence.
struct Candidate {
    claimant: LeaseClaimant,
    /// Number of the newest connection when the candidate appeared.
    since_connection: u64,
}

impl Lease {
    fn new(
        incarnation: Incarnation,
        holder: LeaseClaimant,
        silence_max: Duration,
        now: Duration,
    ) -> Self {
        Self {
            incarnation,
            holder,
            renewed_at: now,
            silence_max,
            released: false,
            taken_at_connection: 0,
            former: VecDeque::new(),
            refused: VecDeque::new(),
            candidate: None,
        }
    }

    /// Applies the rules of the module head, in their order.
    fn claim(&mut self, claim: &Claim) -> Decision {
        let instance = &claim.claimant.instance;
        if self.holder.instance.nonce == instance.nonce {
            self.renew(claim);
            return Decision::Granted { found: self.refuse_candidate_before(claim.connection) };
        }
        if self.refused.contains(instance) {
            return Decision::Refused { holder: self.holder.clone(), found: None };
        }
        if self.holder.instance.other_machine(instance) {
            let found = self.refuse(claim.claimant.clone());
            return Decision::Refused { holder: self.holder.clone(), found: Some(found) };
        }
        if claim.connection <= self.taken_at_connection {
            return Decision::RetryAfter(SILENCE_MARGIN);
        }
        if let Some(index) = self.former.iter().position(|former| former == instance) {
            self.former.remove(index);
            let replaced = self.take_over(claim);
            return Decision::Granted { found: Some(self.refuse(replaced)) };
        }
        let silence = claim.now.saturating_sub(self.renewed_at);
        let has_ended = self.released
            || silence >= self.silence_max
            || claim.on_server_boot
            || self.holder.instance.same_boot(instance);
        if has_ended {
            let replaced = self.take_over(claim);
            push_bounded(&mut self.former, replaced.instance);
            return Decision::Granted { found: None };
        }
        if self.candidate.as_ref().is_none_or(|c| c.claimant.instance != *instance) {
            self.candidate = Some(Candidate {
                claimant: claim.claimant.clone(),
                since_connection: claim.newest_connection,
            });
        }
        Decision::RetryAfter(self.silence_max.saturating_sub(silence))
    }

    fn renew(&mut self, claim: &Claim) {
        self.renewed_at = claim.now;
        self.silence_max = silence_max(claim.heartbeat);
        self.released = false;
        self.holder.address.clone_from(&claim.claimant.address);
    }

    /// Makes the claimant the holder and returns the holder before it.
    fn take_over(&mut self, claim: &Claim) -> LeaseClaimant {
        let replaced = std::mem::replace(&mut self.holder, claim.claimant.clone());
        self.taken_at_connection = claim.newest_connection;
        self.candidate = None;
        self.renew(claim);
        replaced
    }

    /// Refuses the candidate if the holder's connection is newer than it. An older connection may
    /// deliver a late packet of a holder that has ended.
    fn refuse_candidate_before(&mut self, connection: u64) -> Option<CloneFound> {
        let candidate = self.candidate.take_if(|c| connection > c.since_connection)?;
        Some(self.refuse(candidate.claimant))
    }

    /// Remembers the instance as refused.
    fn refuse(&mut self, refused: LeaseClaimant) -> CloneFound {
        push_bounded(&mut self.refused, refused.instance.clone());
        CloneFound { holder: self.holder.clone(), refused }
    }
}

/// Appends an instance; drops the oldest one if there are [`REMEMBERED_MAX`].
fn push_bounded(list: &mut VecDeque<Instance>, instance: Instance) {
    if list.len() == REMEMBERED_MAX {
        list.pop_front();
    }
    list.push_back(instance);
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AgentId = AgentId(1);
    const FIRST: Incarnation = Incarnation(5);

    fn claim(instance: &str, connection: u64, at_s: u64) -> Claim {
        Claim {
            claimant: LeaseClaimant { instance: instance.parse().unwrap(), address: "here".into() },
            on_server_boot: false,
            heartbeat: Duration::from_secs(10),
            connection,
            newest_connection: connection,
            now: Duration::from_secs(at_s),
        }
    }

    fn is_granted(decision: &Decision) -> bool {
        matches!(decision, Decision::Granted { found: None })
    }

    #[test]
    fn clone_on_another_machine_is_refused_and_found_once() {
        let leases = Leases::default();
        assert!(is_granted(&leases.claim(A, FIRST, &claim("aa.b1.1", 1, 0))));
        let Decision::Refused { found: Some(found), .. } =
            leases.claim(A, FIRST, &claim("bb.b2.2", 2, 9_999))
        else {
            panic!("taken");
        };
        assert_eq!(found.holder.instance.machine, "aa");
        assert_eq!(found.refused.instance.machine, "bb");
        assert!(matches!(
            leases.claim(A, FIRST, &claim("bb.b2.2", 3, 9_999)),
            Decision::Refused { found: None, .. }
        ));
        assert!(is_granted(&leases.claim(A, FIRST, &claim("aa.b1.1", 4, 9_999))));
    }

    #[test]
    fn new_start_on_the_same_boot_takes_over_at_once() {
        let leases = Leases::default();
        leases.claim(A, FIRST, &claim("aa.b1.1", 1, 0));
        assert!(is_granted(&leases.claim(A, FIRST, &claim("aa.b1.2", 2, 0))));
        // The old connection may deliver a late packet of the process before.
        assert!(matches!(leases.claim(A, FIRST, &claim("aa.b1.1", 1, 1)), Decision::RetryAfter(_)));
        assert!(is_granted(&leases.claim(A, FIRST, &claim("aa.b1.2", 2, 1))));
        // A new connection proves that two processes run.
        let decision = leases.claim(A, FIRST, &claim("aa.b1.1", 3, 2));
        assert!(
            matches!(&decision, Decision::Granted { found: Some(c) } if c.refused.instance.nonce == "2")
        );
        assert!(matches!(
            leases.claim(A, FIRST, &claim("aa.b1.2", 4, 2)),
            Decision::Refused { found: None, .. }
        ));
    }

    #[test]
    fn rebooted_machine_takes_the_lease_after_holder_silence() {
        let leases = Leases::default();
        leases.claim(A, FIRST, &claim("aa.b1.1", 1, 0));
        let Decision::RetryAfter(wait) = leases.claim(A, FIRST, &claim("aa.b2.2", 2, 10)) else {
            panic!("judged");
        };
        assert_eq!(wait, Duration::from_millis(20_500));
        assert!(is_granted(&leases.claim(A, FIRST, &claim("aa.b2.2", 3, 31))));
        // After a goodbye there is nothing to wait for.
        leases.release(A, "2");
        assert!(is_granted(&leases.claim(A, FIRST, &claim("aa.b3.3", 4, 31))));
    }

    #[test]
    fn clone_with_the_same_machine_id_is_refused_by_the_holder() {
        let leases = Leases::default();
        leases.claim(A, FIRST, &claim("aa.b1.1", 1, 0));
        leases.claim(A, FIRST, &claim("aa.b2.2", 2, 10));
        // The holder's old connection proves nothing, so it is made to connect again.
        assert!(is_granted(&leases.claim(A, FIRST, &claim("aa.b1.1", 1, 11))));
        assert!(leases.has_candidate(A));
        let decision = leases.claim(A, FIRST, &claim("aa.b1.1", 3, 12));
        assert!(
            matches!(&decision, Decision::Granted { found: Some(c) } if c.refused.instance.nonce == "2")
        );
        assert!(!leases.has_candidate(A));
        assert!(matches!(
            leases.claim(A, FIRST, &claim("aa.b2.2", 4, 99)),
            Decision::Refused { found: None, .. }
        ));
    }

    #[test]
    fn restored_instance_holds_the_lease() {
        let leases = Leases::default();
        leases.restore(A, FIRST, "aa.b1.1".parse().unwrap(), Duration::ZERO);
        assert!(matches!(
            leases.claim(A, FIRST, &claim("bb.b2.2", 1, 99)),
            Decision::Refused { found: Some(_), .. }
        ));
        assert!(is_granted(&leases.claim(A, FIRST, &claim("aa.b1.3", 2, 0))));
        leases.remove(A);
        assert!(is_granted(&leases.claim(A, FIRST, &claim("bb.b2.2", 3, 0))));
    }

    #[test]
    fn lease_of_an_earlier_incarnation_is_ignored() {
        let leases = Leases::default();
        leases.claim(A, FIRST, &claim("aa.b1.1", 1, 0));
        assert!(!leases.contains(A, Incarnation(6)));
        assert!(is_granted(&leases.claim(A, Incarnation(6), &claim("bb.b2.2", 2, 0))));
        assert!(leases.contains(A, Incarnation(6)));
    }
}
