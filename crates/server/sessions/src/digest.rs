//! `POST /digest`: the server's listing of one dataset of the asking agent, so that it can send
//! what differs instead of everything.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::{Extension, Json};
use link::{DigestAnswer, DigestItem, DigestRequest};
use state::DocumentQuery;

use crate::answer::Refusal;
use crate::body;
use crate::identity::Peer;
use crate::options::{DIGEST_ITEMS_MAX, SMALL_BODY_BYTES_MAX};
use crate::plan::documents;
use crate::server::App;

pub(crate) async fn digest(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Json<DigestAnswer>, Refusal> {
    let (parts, incoming) = request.into_parts();
    let agent = app.caller(&peer, &parts.headers)?.agent;
    let length = body::length(&parts.headers, SMALL_BODY_BYTES_MAX)?;
    let bytes = body::read(incoming, length, app.options.timeouts.body).await?;
    let asked: DigestRequest = body::json(&bytes)?;
    let dataset = documents(&asked.index).ok_or_else(|| {
        Refusal::invalid(format!("index {:?} holds no documents here", asked.index))
    })?;
    let place =
        app.lanes.join(agent).ok_or_else(|| app.busy("too many requests of this agent at once"))?;
    let _turn = place.turn().await;
    app.commit.barrier().await?;
    let limit = match asked.limit {
        0 => DIGEST_ITEMS_MAX,
        n => n.min(DIGEST_ITEMS_MAX),
    };
    let query = DocumentQuery {
        limit: limit as usize,
        after: asked.after,
        ..DocumentQuery::new(agent, dataset)
    };
    let page = app.read(move |state| state.documents(&query)).await?;
    let item = |d: state::StoredDocument| DigestItem {
        id: d.id,
        version: d.version,
        checksum: d.checksum,
    };
    Ok(Json(DigestAnswer {
        items: page.items.into_iter().map(item).collect(),
        next: page.next,
        store: app.store.clone(),
    }))
}
