//! `POST /enroll` enrols an agent with a token, before it has a certificate. `POST /renew` issues a
//! further certificate.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::{Extension, Json};
use link::{EnrollAnswer, EnrollRequest, RenewAnswer, RenewRequest};
use tracing::info;

use crate::answer::Refusal;
use crate::app::App;
use crate::body;
use crate::identity::{Origin, Peer};

pub(crate) async fn enroll(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Json<EnrollAnswer>, Refusal> {
    let (parts, incoming) = request.into_parts();
    let asked: EnrollRequest = body::json(&app, &peer, incoming, &parts.headers).await?;
    let _permit =
        app.enrolments.try_acquire().map_err(|_| app.busy("too many enrolments at once"))?;
    let address = peer.ip();
    let enrolled = app
        .decide(move |registry| {
            let request = registry::AgentEnrolment {
                name: asked.name,
                ip: asked.ip.unwrap_or_default(),
                groups: asked.groups,
                on_server: address.is_none_or(|address| registry.is_own_address(address)),
            };
            registry.enroll(&asked.token, &asked.csr, &request)
        })
        .await?;
    info!(agent = %enrolled.agent, peer = peer.name(), again = enrolled.again, "enrolled");
    Ok(Json(EnrollAnswer {
        agent: enrolled.agent.to_string(),
        certificate: enrolled.certificate_pem,
        ca: enrolled.ca_pem,
        cluster_name: enrolled.cluster_name,
    }))
}

pub(crate) async fn renew(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Json<RenewAnswer>, Refusal> {
    let (parts, incoming) = request.into_parts();
    let caller = app.caller(&peer, &parts.headers)?;
    app.admit_instance(&peer, &parts.headers, &caller).await?;
    let agent = caller.agent;
    let asked: RenewRequest = body::json(&app, &caller, incoming, &parts.headers).await?;
    let _permit =
        app.enrolments.try_acquire().map_err(|_| app.busy("too many enrolments at once"))?;
    let presented = match &peer.origin {
        Origin::Tls { certificate, .. } => certificate.clone(),
        Origin::Unix { .. } => None,
    };
    let renewed = app
        .decide(move |registry| match presented {
            Some(der) => registry.renew_presented(agent, &asked.csr, &der),
            None => registry.renew(agent, &asked.csr),
        })
        .await?;
    info!(%agent, peer = peer.name(), "certificate renewed");
    Ok(Json(RenewAnswer { certificate: renewed.certificate_pem, ca: renewed.ca_pem }))
}
