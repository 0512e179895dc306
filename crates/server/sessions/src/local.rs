//! Handles requests on the unix socket for other routes than the agents'.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use tower::ServiceExt as _;

use crate::answer::Refusal;
use crate::app::App;
use crate::identity::{Origin, Peer};
use crate::options::LocalCaller;

/// Passes a local operator's request to the other router, if there is one; refuses
/// all others.
pub(crate) async fn hand_over(
    app: &App,
    peer: &Peer,
    mut request: Request,
    refusal: Refusal,
) -> Response {
    match (&peer.origin, &app.options.local) {
        (Origin::Unix { uid, allowed: true }, Some(_))
            if !app.options.operator_uids.contains(uid) =>
        {
            let detail = format!(
                "user {uid} may send for agents here; everything else is for root and the \
                 server's own user, or for a login over https"
            );
            Refusal::new(StatusCode::FORBIDDEN, "operators_only", detail).closing().into_response()
        }
        (Origin::Unix { uid, allowed: true }, Some(local)) => {
            request.extensions_mut().insert(LocalCaller { uid: *uid });
            local.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
        }
        _ => refusal.closing().into_response(),
    }
}
