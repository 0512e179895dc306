//! `POST /digest`: returns sums of ranges of the agent's documents, or the documents of small
//! ranges, so that the agent finds differences without a list of all documents.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use link::digest::{KeyRange, SPLIT_DIGITS_MAX, Sum, hash, key};
use link::{DigestAnswer, DigestItem, DigestPart, DigestRequest};
use model::{AgentId, Dataset};
use registry::Reader;
use state::{StateError, StateStore};

use crate::answer::Refusal;
use crate::app::App;
use crate::body;
use crate::identity::Peer;
use crate::options::{
    DIGEST_BODY_BYTES_MAX, DIGEST_ITEM_BYTES, DIGEST_ITEMS_MAX, DIGEST_PART_BYTES,
    DIGEST_PARTS_MAX, DIGEST_RANGE_BODY_BYTES_MAX, DIGEST_RANGES_MAX,
};
use crate::plan::documents;
use crate::unread;

pub(crate) async fn digest(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, incoming) = request.into_parts();
    let caller = app.caller(&peer, &parts.headers)?;
    app.admit_instance(&peer, &parts.headers, &caller).await?;
    let agent = caller.agent;
    let asked: DigestRequest = body::json(&app, &caller, incoming, &parts.headers).await?;
    let dataset = documents(&asked.index).ok_or_else(|| {
        Refusal::invalid(format!("index {:?} holds no documents here", asked.index))
    })?;
    let ranges = ranges(&asked)?;
    let permit = app.take_permit(agent)?;
    let lock = permit.lock_agent().await;
    // The answer is charged before the store is read, so that none is prepared and then refused.
    // It is charged with the lock, so that it holds no bytes while it waits for other requests of
    // this agent.
    let room = ranges.answer_bytes(&asked);
    let mut charge = app.reserve(&caller, room)?;
    app.commit.barrier().await?;
    let store = app.store.clone();
    let (split, bodies) = (asked.split, asked.bodies);
    let answer = app
        .read(move |state| match split {
            0 => listing(state, agent, &dataset, &ranges, bodies),
            _ => sums(state, agent, &dataset, &ranges, split),
        })
        .await?;
    if answer.ranges == 0 {
        let detail = format!(
            "the range holds more than {DIGEST_ITEMS_MAX} documents, or more than \
             {DIGEST_RANGE_BODY_BYTES_MAX} bytes of them: split it"
        );
        return Err(Refusal::too_large(detail));
    }
    let bytes = serde_json::to_vec(&DigestAnswer { store, ..answer })
        .map_err(|e| Refusal::internal(format!("digest: {e}")))?;
    // Until it is read, the answer counts towards the bytes in flight and this agent's requests.
    charge.resize(bytes.len());
    Ok(unread::json(bytes, charge, lock.release()))
}

/// Parses and checks the ranges of a request.
fn ranges(asked: &DigestRequest) -> Result<RequestedRanges, Refusal> {
    if asked.split > SPLIT_DIGITS_MAX {
        let detail = format!("ranges are split by at most {SPLIT_DIGITS_MAX} digits");
        return Err(Refusal::invalid(detail));
    }
    let n = asked.ranges.len();
    let parts = n.saturating_mul(1 << (4 * u32::from(asked.split)));
    if n == 0 || n > DIGEST_RANGES_MAX || parts > DIGEST_PARTS_MAX {
        return Err(Refusal::invalid(format!(
            "a digest request names 1 to {DIGEST_RANGES_MAX} ranges and up to {DIGEST_PARTS_MAX} parts"
        )));
    }
    let parse = |name: &String| {
        let bad = || Refusal::invalid("a range is named by up to 16 lower-case hex digits");
        KeyRange::parse(name).ok_or_else(bad)
    };
    RequestedRanges::new(asked.ranges.iter().map(parse).collect::<Result<_, _>>()?)
}

/// The ranges of a request, which do not overlap: each document is counted once.
struct RequestedRanges {
    /// The ranges in the order of the request.
    ranges: Vec<KeyRange>,
    /// Indexes into `ranges`, sorted by key.
    sorted: Vec<usize>,
}

/// One range of a request.
struct AskedRange {
    /// Its index in the request.
    index: usize,
    range: KeyRange,
}

impl RequestedRanges {
    fn new(ranges: Vec<KeyRange>) -> Result<Self, Refusal> {
        let mut by_key: Vec<(KeyRange, usize)> =
            ranges.iter().enumerate().map(|(place, range)| (*range, place)).collect();
        by_key.sort_unstable();
        let overlap = by_key.windows(2).any(|pair| match pair {
            [(before, _), (after, _)] => before.last() >= after.first,
            _ => false,
        });
        if overlap {
            return Err(Refusal::invalid("ranges of one question must not overlap"));
        }
        Ok(Self { ranges, sorted: by_key.into_iter().map(|(_, place)| place).collect() })
    }

    /// Returns the range that contains a key.
    fn range_of(&self, key: u64) -> Option<AskedRange> {
        let range = |index: &usize| self.ranges.get(*index).copied();
        let after = self.sorted.partition_point(|i| range(i).is_some_and(|r| r.first <= key));
        let index = *self.sorted.get(after.checked_sub(1)?)?;
        let range = range(&index).filter(|range| range.contains(key))?;
        Some(AskedRange { index, range })
    }

    /// Returns the approximate size of the answer, bytes.
    fn answer_bytes(&self, asked: &DigestRequest) -> usize {
        match (asked.bodies, asked.split) {
            (true, 0) => DIGEST_RANGE_BODY_BYTES_MAX,
            (false, 0) => DIGEST_ITEMS_MAX * DIGEST_ITEM_BYTES,
            (_, split) => (self.ranges.len() << (4 * u32::from(split))) * DIGEST_PART_BYTES,
        }
    }

    /// Returns the first and last keys, in the order of the request.
    fn bounds(&self) -> Vec<(u64, u64)> {
        self.ranges.iter().map(|range| (range.first, range.last())).collect()
    }
}

/// Returns the sums of all parts of the ranges, each split by `split` hex digits.
fn sums(
    state: &StateStore,
    agent: AgentId,
    dataset: &Dataset,
    asked: &RequestedRanges,
    split: u8,
) -> Result<DigestAnswer, StateError> {
    let sums = |range: &KeyRange| vec![Sum::default(); range.split(split).count()];
    let mut parts: Vec<Vec<Sum>> = asked.ranges.iter().map(sums).collect();
    state.each_in_ranges(
        &Reader::server(),
        agent,
        dataset,
        &asked.bounds(),
        &mut |id, _, checksum| {
            let key = key(id);
            let sum = asked.range_of(key).and_then(|found| {
                parts.get_mut(found.index)?.get_mut(found.range.part_index(key, split))
            });
            if let Some(sum) = sum {
                sum.add(hash(id, checksum));
            }
            true
        },
    )?;
    let parts = parts.into_iter().flatten().map(DigestPart::from).collect();
    Ok(DigestAnswer { ranges: asked.ranges.len() as u32, parts, ..DigestAnswer::default() })
}

/// Lists as many whole ranges as fit, starting with the first.
fn listing(
    state: &StateStore,
    agent: AgentId,
    dataset: &Dataset,
    asked: &RequestedRanges,
    bodies: bool,
) -> Result<DigestAnswer, StateError> {
    let mut lists: Vec<Vec<DigestItem>> = vec![Vec::new(); asked.ranges.len()];
    let mut all = 0;
    state.each_in_ranges(
        &Reader::server(),
        agent,
        dataset,
        &asked.bounds(),
        &mut |id, version, checksum| {
            let Some(found) = asked.range_of(key(id)) else { return true };
            // This range was dropped because it did not fit.
            let Some(list) = lists.get_mut(found.index) else { return true };
            let (id, checksum, body) = (id.to_owned(), checksum.to_owned(), String::new());
            list.push(DigestItem { id, version, checksum, body });
            all += 1;
            while all > DIGEST_ITEMS_MAX {
                all -= lists.pop().map_or(0, |list| list.len());
            }
            !lists.is_empty()
        },
    )?;
    if bodies {
        let whole = with_bodies(state, agent, dataset, &mut lists)?;
        lists.truncate(whole);
    }
    let (ranges, items) = (lists.len() as u32, lists.into_iter().flatten().collect());
    Ok(DigestAnswer { ranges, items, ..DigestAnswer::default() })
}

/// Fills in the bodies; returns the number of lists that are complete.
fn with_bodies(
    state: &StateStore,
    agent: AgentId,
    dataset: &Dataset,
    lists: &mut [Vec<DigestItem>],
) -> Result<usize, StateError> {
    let mut bytes = 0;
    for (whole, list) in lists.iter_mut().enumerate() {
        if bytes > DIGEST_BODY_BYTES_MAX {
            return Ok(whole);
        }
        for item in list {
            if let Some(found) = state.document(&Reader::server(), agent, dataset, &item.id)? {
                item.body = String::from_utf8(found.body).unwrap_or_default();
                bytes += item.body.len();
            }
            if bytes > DIGEST_RANGE_BODY_BYTES_MAX {
                return Ok(whole);
            }
        }
    }
    Ok(lists.len())
}
