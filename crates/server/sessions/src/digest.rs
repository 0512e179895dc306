//! `POST /digest`: sums of ranges of the asking agent's documents, or the documents of small
//! ranges, so that it finds what differs without a listing of everything.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::{Extension, Json};
use link::digest::{KeyRange, SPLIT_DIGITS_MAX, Sum, hash, key};
use link::{DigestAnswer, DigestItem, DigestPart, DigestRequest};
use model::{AgentId, Dataset};
use state::{StateError, StateStore};

use crate::answer::Refusal;
use crate::body;
use crate::identity::Peer;
use crate::options::{
    DIGEST_BODY_BYTES_MAX, DIGEST_ITEMS_MAX, DIGEST_PARTS_MAX, DIGEST_RANGES_MAX,
    SMALL_BODY_BYTES_MAX,
};
use crate::plan::documents;
use crate::server::App;

pub(crate) async fn digest(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Json<DigestAnswer>, Refusal> {
    let (parts, incoming) = request.into_parts();
    let caller = app.caller(&peer, &parts.headers)?;
    app.seated(&peer, &parts.headers, &caller).await?;
    let agent = caller.agent;
    let length = body::length(&parts.headers, SMALL_BODY_BYTES_MAX)?;
    let bytes = body::read(incoming, length, app.options.timeouts.body).await?;
    let asked: DigestRequest = body::json(&bytes)?;
    let dataset = documents(&asked.index).ok_or_else(|| {
        Refusal::invalid(format!("index {:?} holds no documents here", asked.index))
    })?;
    let ranges = ranges(&asked)?;
    let place =
        app.lanes.join(agent).ok_or_else(|| app.busy("too many requests of this agent at once"))?;
    let _turn = place.turn().await;
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
        let detail = format!("the range holds more than {DIGEST_ITEMS_MAX} documents: split it");
        return Err(Refusal::too_large(detail));
    }
    Ok(Json(DigestAnswer { store, ..answer }))
}

fn ranges(asked: &DigestRequest) -> Result<Vec<KeyRange>, Refusal> {
    if asked.split > SPLIT_DIGITS_MAX {
        let detail = format!("ranges are split by at most {SPLIT_DIGITS_MAX} digits");
        return Err(Refusal::invalid(detail));
    }
    let n = asked.ranges.len();
    let parts = n.saturating_mul(1 << (4 * u32::from(asked.split)));
    if n == 0 || n > DIGEST_RANGES_MAX || parts > DIGEST_PARTS_MAX {
        return Err(Refusal::invalid(format!(
            "a question is about 1 to {DIGEST_RANGES_MAX} ranges and up to {DIGEST_PARTS_MAX} parts"
        )));
    }
    let parse = |name: &String| {
        let bad = || Refusal::invalid("a range is named by up to 16 lower-case hex digits");
        KeyRange::parse(name).ok_or_else(bad)
    };
    asked.ranges.iter().map(parse).collect()
}

fn sums(
    state: &dyn StateStore,
    agent: AgentId,
    dataset: &Dataset,
    ranges: &[KeyRange],
    split: u8,
) -> Result<DigestAnswer, StateError> {
    let mut parts = Vec::new();
    for range in ranges {
        let mut sums: Vec<Sum> = range.split(split).map(|_| Sum::default()).collect();
        state.each_in_range(
            agent,
            dataset,
            range.first,
            range.last(),
            &mut |id, _, checksum| {
                let key = key(id);
                let part = range.contains(key).then(|| range.place(key, split));
                if let Some(sum) = part.and_then(|place| sums.get_mut(place)) {
                    sum.add(hash(id, checksum));
                }
                true
            },
        )?;
        parts.extend(sums.into_iter().map(DigestPart::from));
    }
    Ok(DigestAnswer { ranges: ranges.len() as u32, parts, ..DigestAnswer::default() })
}

/// As many whole ranges as fit.
fn listing(
    state: &dyn StateStore,
    agent: AgentId,
    dataset: &Dataset,
    ranges: &[KeyRange],
    bodies: bool,
) -> Result<DigestAnswer, StateError> {
    let mut items: Vec<DigestItem> = Vec::new();
    let (mut whole, mut bytes) = (0, 0);
    for range in ranges {
        if bytes > DIGEST_BODY_BYTES_MAX {
            break;
        }
        let before = items.len();
        let mut fits = true;
        state.each_in_range(
            agent,
            dataset,
            range.first,
            range.last(),
            &mut |id, version, sum| {
                if !range.contains(key(id)) {
                    return true;
                }
                fits = items.len() < DIGEST_ITEMS_MAX;
                let (id, checksum) = (id.to_owned(), sum.to_owned());
                let body = String::new();
                items.extend(fits.then_some(DigestItem { id, version, checksum, body }));
                fits
            },
        )?;
        if !fits {
            items.truncate(before);
            break;
        }
        for item in items.iter_mut().skip(before).filter(|_| bodies) {
            if let Some(found) = state.document(agent, dataset, &item.id)? {
                item.body = String::from_utf8(found.body).unwrap_or_default();
                bytes += item.body.len();
            }
        }
        whole += 1;
    }
    Ok(DigestAnswer { ranges: whole, items, ..DigestAnswer::default() })
}
