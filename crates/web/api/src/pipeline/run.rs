//! Runs one operation: role, parameters, body type, code and audit on a blocking thread, a bounded
//! number at once, under the request's deadline.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use model::AgentId;
use tokio::sync::OwnedSemaphorePermit;

use super::headers;
use crate::api::Api;
use crate::call::{Call, Caller, Source};
use crate::envelope::Answer;
use crate::error::Failure;
use crate::operation::{Access, Handler, Operation};
use crate::parameters::Parameters;

/// A request whose sender is known.
pub(super) struct Checked {
    pub(super) operation: &'static Operation,
    pub(super) caller: Caller,
    pub(super) source: Option<Source>,
    pub(super) authorization: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) path: Vec<(String, String)>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Bytes,
    /// The request for the audit, secrets masked.
    pub(super) seen: String,
}

impl Checked {
    fn asks_for(&self, flag: &str) -> bool {
        self.query.iter().any(|(name, value)| name == flag && value == "true")
    }
}

/// The response and the number of store requests it took.
pub(super) async fn run(api: &Arc<Api>, request: Checked) -> (Result<Response, Failure>, u32) {
    let pretty = request.asks_for("pretty");
    let deadline = (!request.asks_for("wait_for_complete"))
        .then(|| Duration::from_millis(api.options.request_timeout_ms));
    let outcome = match request.operation.handler {
        Handler::Blocking(code) => within(deadline, blocking(api, request, code)).await,
        Handler::Waiting(code) => {
            within(deadline, async {
                let operation = request.operation;
                let (call, seen) = prepare(api, request)?;
                let call = Arc::new(call);
                let answer = code(Arc::clone(&call)).await?;
                if operation.writes() {
                    let call = Arc::clone(&call);
                    let work = move || audit(&call, operation, &seen);
                    tokio::task::spawn_blocking(work).await.map_err(|e| Failure::internal(&e))?;
                }
                Ok((answer, call.queries()))
            })
            .await
        }
    };
    match outcome {
        Ok((answer, queries)) => (Ok(headers::rendered(answer, pretty)), queries),
        Err(failure) => (Err(failure), 0),
    }
}

async fn within<T>(
    deadline: Option<Duration>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match deadline {
        None => work.await,
        Some(time) => match tokio::time::timeout(time, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::code(3021)),
        },
    }
}

async fn blocking(
    api: &Arc<Api>,
    request: Checked,
    code: fn(&Call) -> Result<Answer, Failure>,
) -> Result<(Answer, u32), Failure> {
    let places = admitted(api).await?;
    let api = Arc::clone(api);
    // The places go along: a request that ran out of time keeps its own until it really ends.
    let work = move || {
        let _places = places;
        permitted(&api, &request)?;
        let operation = request.operation;
        let (call, seen) = prepare(&api, request)?;
        let answer = code(&call)?;
        if operation.writes() {
            audit(&call, operation, &seen);
        }
        Ok((answer, call.queries()))
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(cause) => Err(Failure::internal(&cause)),
    }
}

/// A place among those that run, and one among those that run or wait.
async fn admitted(api: &Api) -> Result<[OwnedSemaphorePermit; 2], Failure> {
    let full = || Failure::busy("too many requests are waiting", 1);
    let waiting = Arc::clone(&api.waiting).try_acquire_owned().map_err(|_| full())?;
    let running = Arc::clone(&api.running).acquire_owned().await.map_err(|_| full())?;
    Ok([waiting, running])
}

fn permitted(api: &Api, request: &Checked) -> Result<(), Failure> {
    let (Caller::User { roles, .. }, Access::Action { action, resource }) =
        (&request.caller, request.operation.access)
    else {
        return Ok(());
    };
    let wanted = wanted(&request.path, resource);
    match api.registry.permits(roles, action, &wanted) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let detail = format!("Permission denied: Resource type: {resource}");
            Err(Failure::detailed(4000, detail))
        }
        Err(cause) => Err(Failure::internal(&cause)),
    }
}

/// What the request is about, as policies name it: an agent by its number as it is always
/// printed, so that further zeros in front do not make another resource of it.
fn wanted(path: &[(String, String)], resource: &str) -> String {
    match path.iter().find(|(name, _)| name == "agent_id") {
        Some((_, text)) => match text.parse::<AgentId>() {
            Ok(id) => format!("agent:id:{id}"),
            Err(_) => format!("agent:id:{text}"),
        },
        None => format!("{resource}:*"),
    }
}

fn prepare(api: &Arc<Api>, request: Checked) -> Result<(Call, String), Failure> {
    let parameters = Parameters::read(request.operation, &request.path, &request.query)?;
    if request.operation.body.is_some() {
        let kind = request.content_type.as_deref().unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/json") {
            let kind: String = kind.chars().take(60).collect();
            return Err(Failure::detailed(6002, format!("Invalid content-type ({kind})")));
        }
    }
    let call = Call::new(
        Arc::clone(api),
        request.caller,
        request.source,
        request.authorization,
        parameters,
        request.body,
    );
    Ok((call, request.seen))
}

/// The write is done and durable; that its row could not be written as well is an error of the
/// server, not of the caller.
fn audit(call: &Call, operation: &Operation, seen: &str) {
    let action = match operation.access {
        Access::Action { action, .. } => action,
        _ => operation.id,
    };
    let user = call.caller.name();
    let detail = format!("{} {seen}", operation.verb.name());
    if let Err(cause) = call.registry().audit(&user, action, detail.trim_end()) {
        tracing::error!("audit of {action} by {user} was not written: {cause}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_one_resource_however_its_number_is_written() {
        let of = |id: &str| wanted(&[("agent_id".into(), id.into())], "agent:id");
        assert_eq!(of("007"), "agent:id:007");
        assert_eq!(of("0007"), "agent:id:007");
        assert_eq!(of("+007"), "agent:id:007");
        assert_eq!(wanted(&[], "agent:id"), "agent:id:*");
    }

    #[tokio::test]
    async fn a_request_beyond_its_time_is_given_up_unless_it_wants_to_wait() {
        let never = std::future::pending::<Result<u8, Failure>>();
        let given_up = within(Some(Duration::from_millis(1)), never).await;
        assert_eq!(given_up.unwrap_err().code, Some(3021));
        let late = async {
            tokio::task::yield_now().await;
            Ok(7)
        };
        assert_eq!(within(None, late).await, Ok(7));
    }
}
