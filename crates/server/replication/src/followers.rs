//! The followers: their positions, their lag and the segments that the journal keeps for them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use commit::Commit;
use env::clock::Clock;
use journal::{AppendError, Consumer, Journal, JournalReader, OpenError};
use model::{Coverage, CoverageKind, EventBody, Record};
use parking_lot::Mutex;
use serde::Serialize;

use crate::lag::PositionHistory;
use crate::protocol::{FOLLOWERS_MAX, is_follower_name};
use crate::refusal::FollowerRefusal;
use crate::seed_source::{self, SeedSource};

/// Prefix of the names of followers' consumers.
const CONSUMER_PREFIX: &str = "follow-";
/// Age at which an acknowledged position is stored.
const STORE_AFTER: Duration = Duration::from_secs(1);
/// Interval between measurements of what the journal keeps for followers.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// Gauges of each follower.
const GAUGES: [&str; 5] = [
    "holdfast_follow_connected",
    "holdfast_follow_lag_records",
    "holdfast_follow_lag_bytes",
    "holdfast_follow_lag_seconds",
    "holdfast_follow_held_bytes",
];

#[derive(Clone)]
pub struct ShipOptions {
    /// The journal's folder.
    pub journal_dir: PathBuf,
    /// The data folder; seeds are assembled in it.
    pub folder: PathBuf,
    /// File with the token that followers send, in hex.
    pub token_file: PathBuf,
    /// Bytes of segments that the journal may keep for followers alone.
    pub held_bytes_max: u64,
    /// The clock for reported times.
    pub clock: Arc<dyn Clock>,
    /// Makes the copies that a new follower needs.
    pub seed: Arc<dyn SeedSource>,
}

/// One follower, as reported by `GET /journal/followers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FollowerStatus {
    pub name: String,
    /// Everything up to this position is persisted in its folder.
    pub acknowledged: u64,
    pub connected: bool,
    /// Records it lacks.
    pub lag_records: u64,
    /// Bytes of records it lacks; a lower bound if it has been away since before the server
    /// started.
    pub lag_bytes: u64,
    /// Seconds since the first record that it lacks was persisted; a lower bound as for
    /// `lag_bytes`.
    pub lag_seconds: u64,
    /// Bytes of segments that the journal keeps for it.
    pub held_bytes: u64,
}

/// The request of a follower for records.
pub(crate) struct FollowRequest {
    /// The follower's name.
    pub(crate) name: String,
    /// The store that it follows.
    pub(crate) store: String,
    /// Position of the first record that it lacks.
    pub(crate) from: u64,
    /// CRC-32C of the record before `from`, if the follower holds it.
    pub(crate) last_crc: Option<u32>,
}

/// An accepted stream of records.
pub(crate) struct AttachedFollower {
    pub(crate) reader: JournalReader,
    /// Number of the stream. A later stream of the same follower ends it.
    pub(crate) stream: u64,
}

/// A segment that is complete: no more records are appended to it.
struct SealedSegment {
    last_position: u64,
    bytes: u64,
}

/// A follower for which the journal keeps more than the limit.
struct LaggingFollower {
    name: String,
    held_bytes: u64,
    acknowledged: u64,
}

struct Follower {
    consumer: Consumer,
    acknowledged: u64,
    /// The position in its consumer's checkpoint.
    stored: u64,
    stored_at: Instant,
    /// Number of its stream; 0 without a stream.
    stream: u64,
    held_bytes: u64,
}

impl Follower {
    /// Stores the follower's position in its consumer's checkpoint. The stored position is one
    /// lower, so that the journal keeps the last record that the follower has and both can be
    /// compared.
    fn store(&mut self) -> Result<(), AppendError> {
        let pin = self.acknowledged.saturating_sub(1);
        if pin != self.stored {
            self.consumer.checkpoint(pin)?;
            self.stored = pin;
        }
        self.stored_at = Instant::now();
        Ok(())
    }
}

pub(crate) struct Inner {
    pub(crate) journal: Journal,
    pub(crate) commit: Arc<Commit>,
    pub(crate) store: String,
    pub(crate) options: ShipOptions,
    pub(crate) seeding: AtomicBool,
    followers: Mutex<BTreeMap<String, Follower>>,
    trail: Mutex<PositionHistory>,
    measured: Mutex<Option<Instant>>,
    streams: AtomicU64,
    stopped: AtomicBool,
}

/// The server side of replication: ships a journal to followers. Cheap to clone.
#[derive(Clone)]
pub struct Shipping(pub(crate) Arc<Inner>);

impl Shipping {
    /// Loads the followers known to the journal's folder.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read.
    pub fn open(
        journal: Journal,
        commit: Arc<Commit>,
        store: String,
        options: ShipOptions,
    ) -> Result<Self, OpenError> {
        let known = journal::stat(&options.journal_dir)?.consumers;
        let mut followers = BTreeMap::new();
        for (name, pin) in known {
            let Some(name) = name.strip_prefix(CONSUMER_PREFIX) else { continue };
            let Ok(consumer) = journal.consumer(&format!("{CONSUMER_PREFIX}{name}")) else {
                continue;
            };
            let acknowledged = (pin + 1).min(journal.persisted_position());
            followers.insert(name.to_owned(), follower(consumer, acknowledged));
        }
        seed_source::clear_scratch(&options.folder);
        let shipping = Self(Arc::new(Inner {
            journal,
            commit,
            store,
            options,
            seeding: AtomicBool::new(false),
            followers: Mutex::new(followers),
            trail: Mutex::default(),
            measured: Mutex::default(),
            streams: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }));
        shipping.mark();
        Ok(shipping)
    }

    /// Ends every stream; new ones are refused.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::SeqCst)
    }

    /// Updates the followers' positions and metrics; call it about every second. Blocks.
    pub fn tick(&self) {
        self.mark();
        let measure = {
            let mut measured = self.0.measured.lock();
            let due = measured.is_none_or(|at| at.elapsed() >= MEASURE_EVERY);
            if due {
                *measured = Some(Instant::now());
            }
            due
        };
        if measure {
            self.measure();
        }
        for follower in self.0.followers.lock().values_mut() {
            if let Err(error) = follower.store() {
                tracing::warn!(%error, "a follower's position could not be stored");
            }
        }
        self.publish();
    }

    pub fn status(&self) -> Vec<FollowerStatus> {
        let now = Instant::now();
        let persisted = self.0.journal.persisted_position();
        let trail = self.0.trail.lock();
        let followers = self.0.followers.lock();
        let statuses = followers.iter().map(|(name, f)| {
            let lag = trail.lag(now, f.acknowledged);
            FollowerStatus {
                name: name.clone(),
                acknowledged: f.acknowledged,
                connected: f.stream != 0,
                lag_records: persisted.saturating_sub(f.acknowledged),
                lag_bytes: if lag.at_least { lag.bytes.max(f.held_bytes) } else { lag.bytes },
                lag_seconds: lag.seconds,
                held_bytes: f.held_bytes,
            }
        });
        statuses.collect()
    }

    /// Removes a follower; the journal keeps nothing for it from then on.
    ///
    /// # Errors
    /// [`FollowerRefusal::Unknown`] if there is no such follower; [`FollowerRefusal::Busy`] if the
    /// disk refuses.
    pub fn remove(&self, name: &str) -> Result<(), FollowerRefusal> {
        let unknown = || FollowerRefusal::Unknown(name.to_owned());
        // The lock is held until the checkpoint is removed: a follower that reconnects in between
        // would otherwise open the same checkpoint and lose it.
        let mut followers = self.0.followers.lock();
        let follower = followers.remove(name).ok_or_else(unknown)?;
        follower.consumer.remove()?;
        drop(followers);
        for metric in GAUGES {
            metrics::gauge!(metric, "follower" => name.to_owned()).set(0.0);
        }
        Ok(())
    }

    /// Makes the journal keep what the state has not applied, for a copy made after this call.
    pub(crate) fn keep_for_seed(&self, name: &str) -> Result<(), FollowerRefusal> {
        let applied = self.0.commit.stats().applied.0;
        let mut followers = self.0.followers.lock();
        let follower = self.follower_entry(&mut followers, name)?;
        follower.acknowledged = applied;
        Ok(follower.store()?)
    }

    /// Accepts a follower and begins its stream.
    pub(crate) fn attach(
        &self,
        request: &FollowRequest,
    ) -> Result<AttachedFollower, FollowerRefusal> {
        let FollowRequest { name, store, from, last_crc } = request;
        let (journal, from) = (&self.0.journal, *from);
        if *store != self.0.store {
            let (here, there) = (self.0.store.clone(), store.clone());
            return Err(FollowerRefusal::StoreDiffers { here, there });
        }
        let has = from.saturating_sub(1);
        let persisted = journal.persisted_position();
        if has > persisted {
            return Err(FollowerRefusal::Behind { here: persisted, there: has });
        }
        let mut followers = self.0.followers.lock();
        let first = match journal.first_position() {
            0 => persisted + 1,
            first => first,
        };
        if from < first {
            return Err(FollowerRefusal::Trimmed { from, first });
        }
        if let (Some(crc), true) = (*last_crc, has >= first) {
            match journal.read_from(has)?.next().transpose()? {
                Some((position, record)) if position == has && crc32c::crc32c(&record) == crc => {}
                _ => return Err(FollowerRefusal::Diverged(has)),
            }
        }
        let reader = journal.read_from(from)?;
        let follower = self.follower_entry(&mut followers, name)?;
        follower.acknowledged = has;
        follower.store()?;
        let stream = self.0.streams.fetch_add(1, Ordering::Relaxed) + 1;
        follower.stream = stream;
        Ok(AttachedFollower { reader, stream })
    }

    /// Returns the follower of this name; adds it if the limit of followers allows.
    fn follower_entry<'a>(
        &self,
        followers: &'a mut BTreeMap<String, Follower>,
        name: &str,
    ) -> Result<&'a mut Follower, FollowerRefusal> {
        if !is_follower_name(name) {
            return Err(FollowerRefusal::Name(name.to_owned()));
        }
        if !followers.contains_key(name) && followers.len() >= FOLLOWERS_MAX {
            return Err(FollowerRefusal::TooMany);
        }
        let consumer = self.0.journal.consumer(&format!("{CONSUMER_PREFIX}{name}"))?;
        let acknowledged = consumer.position();
        Ok(followers.entry(name.to_owned()).or_insert_with(|| follower(consumer, acknowledged)))
    }

    /// Returns true if this is still the follower's newest stream.
    pub(crate) fn is_current(&self, name: &str, stream: u64) -> bool {
        self.0.followers.lock().get(name).is_some_and(|f| f.stream == stream)
    }

    pub(crate) fn detach(&self, name: &str, stream: u64) {
        if let Some(follower) = self.0.followers.lock().get_mut(name)
            && follower.stream == stream
        {
            follower.stream = 0;
        }
    }

    /// Records that the follower has persisted everything up to `position`.
    pub(crate) fn acknowledge(&self, name: &str, position: u64) -> Result<(), FollowerRefusal> {
        if position > self.0.journal.persisted_position() {
            return Err(FollowerRefusal::NotSent(position));
        }
        let mut followers = self.0.followers.lock();
        let Some(follower) = followers.get_mut(name) else {
            return Err(FollowerRefusal::Unknown(name.to_owned()));
        };
        follower.acknowledged = follower.acknowledged.max(position);
        if follower.stored_at.elapsed() >= STORE_AFTER {
            follower.store()?;
        }
        Ok(())
    }

    /// Adds the current position of the journal to the trail.
    fn mark(&self) {
        let stats = self.0.journal.stats();
        self.0.trail.lock().mark(Instant::now(), stats.persisted_position, stats.payload_bytes);
    }

    /// Measures what the journal keeps for followers alone and drops each one above the limit.
    fn measure(&self) {
        if self.0.followers.lock().is_empty() {
            return;
        }
        // This fails if the journal is trimmed at the same time. The next measurement is soon
        // enough.
        let Ok(stat) = journal::stat(&self.0.options.journal_dir) else { return };
        let checkpointed = self.0.commit.stats().checkpointed.0;
        let mut segments: Vec<(u64, u64)> =
            stat.segments.iter().map(|(_, _, _, first, bytes)| (*first, *bytes)).collect();
        segments.sort_unstable();
        let lasts = segments.iter().skip(1).map(|(first, _)| first - 1);
        let sealed: Vec<SealedSegment> = lasts
            .zip(&segments)
            .map(|(last_position, (_, bytes))| SealedSegment { last_position, bytes: *bytes })
            .collect();
        let mut overdue = Vec::new();
        for (name, follower) in &mut *self.0.followers.lock() {
            let held = |s: &&SealedSegment| {
                s.last_position < checkpointed && s.last_position > follower.stored
            };
            follower.held_bytes = sealed.iter().filter(held).map(|s| s.bytes).sum();
            if follower.held_bytes > self.0.options.held_bytes_max {
                overdue.push(LaggingFollower {
                    name: name.clone(),
                    held_bytes: follower.held_bytes,
                    acknowledged: follower.acknowledged,
                });
            }
        }
        for follower in &overdue {
            self.give_up(follower);
        }
    }

    /// Removes a follower, trims the journal and records the removal as an event. Blocks for the
    /// commit. The caller must not hold `followers`.
    fn give_up(&self, follower: &LaggingFollower) {
        let LaggingFollower { name, held_bytes, acknowledged } = follower;
        let max = self.0.options.held_bytes_max;
        tracing::error!(
            follower = name.as_str(),
            held_bytes,
            max,
            acknowledged,
            "follower dropped: the journal kept too much for it; it must follow into a new folder"
        );
        metrics::counter!("holdfast_follow_dropped_total").increment(1);
        match self.remove(name) {
            Ok(()) | Err(FollowerRefusal::Unknown(_)) => {}
            Err(error) => tracing::error!(
                %error, follower = name.as_str(), "the follower's position could not be removed"
            ),
        }
        // Trim now: the follower may reconnect at once and must then get the error that its records
        // are gone.
        let checkpointed = self.0.commit.stats().checkpointed.0;
        if let Err(error) = self.0.journal.trim(checkpointed) {
            tracing::error!(%error, "the journal could not be trimmed");
        }
        let now_us = self.0.options.clock.guarded_us();
        let event = EventBody::of_coverage(Coverage {
            kind: CoverageKind::FollowerDropped,
            path: String::new(),
            from_us: now_us,
            to_us: now_us,
            found: None,
            lasting: None,
            detail: format!(
                "follower {name} was dropped at record {acknowledged}: the journal kept \
                 {held_bytes} bytes for it, more than {max}"
            ),
        });
        let record = Record::ServerEvent {
            id: format!("follower-dropped-{now_us}"),
            at_us: now_us,
            body: event.to_json(),
        };
        if let Err(error) = self.0.commit.submit_blocking(record) {
            tracing::warn!(%error, "a dropped follower could not be recorded");
        }
    }

    fn publish(&self) {
        for f in self.status() {
            let values =
                [u64::from(f.connected), f.lag_records, f.lag_bytes, f.lag_seconds, f.held_bytes];
            for (metric, value) in GAUGES.into_iter().zip(values) {
                metrics::gauge!(metric, "follower" => f.name.clone()).set(value as f64);
            }
        }
    }
}

fn follower(consumer: Consumer, acknowledged: u64) -> Follower {
    let stored = consumer.position();
    let stored_at = Instant::now();
    Follower { consumer, acknowledged, stored, stored_at, stream: 0, held_bytes: 0 }
}
