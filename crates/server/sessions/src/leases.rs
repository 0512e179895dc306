//! One running agent per identity: a copy of an agent's folder on a second machine is refused
//! before it can overwrite or remove what the first one told.
//!
//! Each agent has one seat, held by the instance that spoke last with right:
//! - another machine never takes it: that identity was copied;
//! - a new start on the same boot takes it at once (the agent itself sees to it that the process
//!   before it has ended);
//! - so does one on the server's own boot: after a restart of a host that is both there is nobody
//!   to wait for;
//! - on another boot (a restart of the machine, or a copy that shares its machine id) a new start
//!   takes it once the holder has said goodbye or has been silent for three of its heartbeats.
//!   Until then it is told to come back; should the holder speak meanwhile, both run, and the
//!   newcomer is refused for good;
//! - a holder that lost its seat and comes back over a new connection lives: it gets the seat
//!   again, and who had taken it is refused. What comes over an older connection may be a late
//!   packet of a process that is no more, and proves nothing.
//!
//! # What survives
//! In memory only; after a restart of the server the holder is the instance that the agent's last
//! applied session names. Bounded by the number of agents.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use link::Instance;
use model::{AgentId, Incarnation};
use parking_lot::Mutex;

/// Silence of so many heartbeats says that the holder no longer runs.
const SILENT_BEATS: u32 = 3;
/// On top of them.
const SILENCE_MARGIN: Duration = Duration::from_millis(500);
/// Longest silence that is waited for.
const SILENCE_MAX: Duration = Duration::from_mins(5);
/// Heartbeat of a holder that has not said its own since the server started.
const HEARTBEAT_ASSUMED: Duration = Duration::from_secs(10);
/// Former holders, and refused instances, that are remembered of each agent.
const REMEMBERED_MAX: usize = 8;

/// An instance and where it was last heard from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Speaker {
    pub(crate) instance: Instance,
    pub(crate) address: String,
}

/// One request's word.
#[derive(Debug, Clone)]
pub(crate) struct Word {
    pub(crate) speaker: Speaker,
    /// It runs on the server's own host and boot.
    pub(crate) here: bool,
    /// How often it speaks unasked.
    pub(crate) heartbeat: Duration,
    /// Number of its connection; later ones have higher numbers.
    pub(crate) connection: u64,
    /// Number of the newest connection of all.
    pub(crate) newest: u64,
    pub(crate) now: Duration,
}

/// Two machines with one identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cloned {
    pub(crate) holder: Speaker,
    pub(crate) refused: Speaker,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may go on; another instance was just found to be a copy.
    Go(Option<Cloned>),
    /// Too early to say: come back after so long.
    InDoubt(Duration),
    /// A copy. `Some` when that was found out just now; the holder.
    Copy(Option<Cloned>, Speaker),
}

struct Seat {
    /// Which life of the agent's number sits there; a seat of another one is nobody's.
    life: Incarnation,
    holder: Speaker,
    heard: Duration,
    silence: Duration,
    left: bool,
    /// Number of the newest connection when the holder took the seat.
    taken_at: u64,
    former: VecDeque<Speaker>,
    refused: VecDeque<Instance>,
    /// Waits for the holder's silence, since that connection was the newest.
    candidate: Option<(Speaker, u64)>,
}

#[derive(Default)]
pub(crate) struct Seats(Mutex<HashMap<AgentId, Seat>>);

impl Seats {
    /// Whether it is known who holds the agent's seat.
    pub(crate) fn knows(&self, agent: AgentId, life: Incarnation) -> bool {
        self.0.lock().get(&agent).is_some_and(|seat| seat.life == life)
    }

    /// What the store says of an agent not heard of since the start: nothing is changed when its
    /// seat is known.
    pub(crate) fn recall(
        &self,
        agent: AgentId,
        life: Incarnation,
        instance: Instance,
        now: Duration,
    ) {
        let mut seats = self.0.lock();
        if seats.get(&agent).is_none_or(|seat| seat.life != life) {
            let holder = Speaker { instance, address: String::new() };
            seats.insert(agent, Seat::new(life, holder, silence(HEARTBEAT_ASSUMED), now));
        }
    }

    /// Whether somebody waits for the holder's silence: only what the holder says over a connection
    /// newer than that proves it alive, so it should make one.
    pub(crate) fn doubted(&self, agent: AgentId) -> bool {
        self.0.lock().get(&agent).is_some_and(|seat| seat.candidate.is_some())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// The agent was removed.
    pub(crate) fn forget(&self, agent: AgentId) {
        self.0.lock().remove(&agent);
    }

    /// The holder stops: whoever comes next need not wait for its silence.
    pub(crate) fn leave(&self, agent: AgentId, nonce: &str) {
        let mut seats = self.0.lock();
        if let Some(seat) = seats.get_mut(&agent).filter(|s| s.holder.instance.nonce == nonce) {
            seat.left = true;
        }
    }

    /// Judge a request.
    pub(crate) fn hear(&self, agent: AgentId, life: Incarnation, word: &Word) -> Verdict {
        let mut seats = self.0.lock();
        if let Some(seat) = seats.get_mut(&agent).filter(|seat| seat.life == life) {
            return seat.hear(word);
        }
        let seat = Seat::new(life, word.speaker.clone(), silence(word.heartbeat), word.now);
        seats.insert(agent, seat);
        Verdict::Go(None)
    }
}

fn silence(heartbeat: Duration) -> Duration {
    (heartbeat * SILENT_BEATS + SILENCE_MARGIN).min(SILENCE_MAX)
}

impl Seat {
    fn new(life: Incarnation, holder: Speaker, silence: Duration, now: Duration) -> Self {
        Self {
            life,
            holder,
            heard: now,
            silence,
            left: false,
            taken_at: 0,
            former: VecDeque::new(),
            refused: VecDeque::new(),
            candidate: None,
        }
    }

    fn hear(&mut self, word: &Word) -> Verdict {
        let speaker = &word.speaker;
        if self.holder.instance.nonce == speaker.instance.nonce {
            return Verdict::Go(self.holder_speaks(word));
        }
        if self.refused.contains(&speaker.instance) {
            return Verdict::Copy(None, self.holder.clone());
        }
        if self.holder.instance.other_machine(&speaker.instance) {
            return Verdict::Copy(Some(self.refuse(speaker.clone())), self.holder.clone());
        }
        if word.connection <= self.taken_at {
            return Verdict::InDoubt(SILENCE_MARGIN);
        }
        if let Some(place) = self.former.iter().position(|f| f.instance == speaker.instance) {
            self.former.remove(place);
            let copy = std::mem::replace(&mut self.holder, speaker.clone());
            self.sit(word);
            return Verdict::Go(Some(self.refuse(copy)));
        }
        let silent = word.now.saturating_sub(self.heard);
        let free = self.left || silent >= self.silence;
        if free || word.here || self.holder.instance.same_boot(&speaker.instance) {
            let former = std::mem::replace(&mut self.holder, speaker.clone());
            remember(&mut self.former, former);
            self.sit(word);
            return Verdict::Go(None);
        }
        if self.candidate.as_ref().is_none_or(|(c, _)| c.instance != speaker.instance) {
            self.candidate = Some((speaker.clone(), word.newest));
        }
        Verdict::InDoubt(self.silence.saturating_sub(silent))
    }

    fn sit(&mut self, word: &Word) {
        self.taken_at = word.newest;
        self.candidate = None;
        self.stay(word);
    }

    fn stay(&mut self, word: &Word) {
        self.heard = word.now;
        self.silence = silence(word.heartbeat);
        self.left = false;
        self.holder.address.clone_from(&word.speaker.address);
    }

    fn holder_speaks(&mut self, word: &Word) -> Option<Cloned> {
        self.stay(word);
        let (candidate, _) = self.candidate.take_if(|(_, since)| word.connection > *since)?;
        Some(self.refuse(candidate))
    }

    fn refuse(&mut self, refused: Speaker) -> Cloned {
        remember(&mut self.refused, refused.instance.clone());
        Cloned { holder: self.holder.clone(), refused }
    }
}

fn remember<T>(list: &mut VecDeque<T>, one: T) {
    if list.len() == REMEMBERED_MAX {
        list.pop_front();
    }
    list.push_back(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AgentId = AgentId(1);
    const LIFE: Incarnation = Incarnation(5);

    fn word(instance: &str, connection: u64, at_s: u64) -> Word {
        Word {
            speaker: Speaker { instance: instance.parse().unwrap(), address: "here".into() },
            here: false,
            heartbeat: Duration::from_secs(10),
            connection,
            newest: connection,
            now: Duration::from_secs(at_s),
        }
    }

    fn goes(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Go(None))
    }

    #[test]
    fn another_machine_is_refused_and_told_of_once() {
        let seats = Seats::default();
        assert!(goes(&seats.hear(A, LIFE, &word("aa.b1.1", 1, 0))));
        let Verdict::Copy(Some(cloned), _) = seats.hear(A, LIFE, &word("bb.b2.2", 2, 9_999)) else {
            panic!("taken");
        };
        assert_eq!(cloned.holder.instance.machine, "aa");
        assert_eq!(cloned.refused.instance.machine, "bb");
        assert!(matches!(seats.hear(A, LIFE, &word("bb.b2.2", 3, 9_999)), Verdict::Copy(None, _)));
        assert!(goes(&seats.hear(A, LIFE, &word("aa.b1.1", 4, 9_999))));
    }

    #[test]
    fn a_new_start_on_the_same_boot_takes_over_at_once() {
        let seats = Seats::default();
        seats.hear(A, LIFE, &word("aa.b1.1", 1, 0));
        assert!(goes(&seats.hear(A, LIFE, &word("aa.b1.2", 2, 0))));
        // A late packet of the process before, over its old connection, proves nothing.
        assert!(matches!(seats.hear(A, LIFE, &word("aa.b1.1", 1, 1)), Verdict::InDoubt(_)));
        assert!(goes(&seats.hear(A, LIFE, &word("aa.b1.2", 2, 1))));
        // Over a new connection it does: two processes run.
        let verdict = seats.hear(A, LIFE, &word("aa.b1.1", 3, 2));
        assert!(matches!(&verdict, Verdict::Go(Some(c)) if c.refused.instance.nonce == "2"));
        assert!(matches!(seats.hear(A, LIFE, &word("aa.b1.2", 4, 2)), Verdict::Copy(None, _)));
    }

    #[test]
    fn after_a_reboot_the_seat_is_free_once_the_holder_is_silent() {
        let seats = Seats::default();
        seats.hear(A, LIFE, &word("aa.b1.1", 1, 0));
        let Verdict::InDoubt(wait) = seats.hear(A, LIFE, &word("aa.b2.2", 2, 10)) else {
            panic!("judged");
        };
        assert_eq!(wait, Duration::from_millis(20_500));
        assert!(goes(&seats.hear(A, LIFE, &word("aa.b2.2", 3, 31))));
        // A goodbye frees it at once.
        seats.leave(A, "2");
        assert!(goes(&seats.hear(A, LIFE, &word("aa.b3.3", 4, 31))));
    }

    #[test]
    fn a_copy_that_shares_the_machine_id_is_refused_when_the_holder_speaks() {
        let seats = Seats::default();
        seats.hear(A, LIFE, &word("aa.b1.1", 1, 0));
        seats.hear(A, LIFE, &word("aa.b2.2", 2, 10));
        // Over its old connection it may be a late packet; it is made to take a new one.
        assert!(goes(&seats.hear(A, LIFE, &word("aa.b1.1", 1, 11))));
        assert!(seats.doubted(A));
        let verdict = seats.hear(A, LIFE, &word("aa.b1.1", 3, 12));
        assert!(matches!(&verdict, Verdict::Go(Some(c)) if c.refused.instance.nonce == "2"));
        assert!(!seats.doubted(A));
        assert!(matches!(seats.hear(A, LIFE, &word("aa.b2.2", 4, 99)), Verdict::Copy(None, _)));
    }

    #[test]
    fn what_the_store_recalls_holds_the_seat() {
        let seats = Seats::default();
        seats.recall(A, LIFE, "aa.b1.1".parse().unwrap(), Duration::ZERO);
        assert!(matches!(seats.hear(A, LIFE, &word("bb.b2.2", 1, 99)), Verdict::Copy(Some(_), _)));
        assert!(goes(&seats.hear(A, LIFE, &word("aa.b1.3", 2, 0))));
        seats.forget(A);
        assert!(goes(&seats.hear(A, LIFE, &word("bb.b2.2", 3, 0))));
    }

    #[test]
    fn a_new_life_of_a_number_sits_on_no_seat_of_the_former_one() {
        let seats = Seats::default();
        seats.hear(A, LIFE, &word("aa.b1.1", 1, 0));
        assert!(!seats.knows(A, Incarnation(6)));
        assert!(goes(&seats.hear(A, Incarnation(6), &word("bb.b2.2", 2, 0))));
        assert!(seats.knows(A, Incarnation(6)));
    }
}
