//! Runs the code of one operation under the request's deadline.
//!
//! Blocking code runs on a blocking thread, a bounded number at once. Code that waits runs in a task of
//! its own. In both cases, a request that exceeds its deadline is answered at once, while its code runs
//! to completion and writes the outcome to the audit log.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use axum::response::Response;
use listener::Source;
use registry::Reader;

use super::audit::{self, End};
use super::{headers, permission};
use crate::access::caller::Caller;
use crate::access::permits::RequestPermit;
use crate::code::Code;
use crate::error::Failure;
use crate::http::api::Api;
use crate::http::call::{Body, Call, Effect};
use crate::http::envelope::{Answer, JSON};
use crate::http::operation::{Access, Handler, Operation, OperationFuture, is_content_type};
use crate::http::parameters::{Parameters, flag_of};

/// An authenticated request.
pub(super) struct Checked {
    pub(super) operation: &'static Operation,
    pub(super) caller: Caller,
    pub(super) source: Option<Source>,
    /// The identity under which the stores are queried.
    pub(super) reader: Reader,
    pub(super) authorization: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) encodings: Vec<HeaderValue>,
    pub(super) path: Vec<(String, String)>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Body,
    /// The text of the request for the audit log, with secrets masked.
    pub(super) seen: String,
}

impl Checked {
    fn asks_for(&self, flag: &str) -> bool {
        flag_of(&self.query, flag)
    }
}

/// Runs the operation of a request and renders its answer.
pub(super) async fn run(api: &Arc<Api>, request: Checked) -> Result<Response, Failure> {
    let pretty = request.asks_for("pretty");
    let (writes, owner) = (request.operation.writes(), request.caller.owner());
    let time = (!request.asks_for("wait_for_complete"))
        .then(|| Duration::from_millis(api.options.request_timeout_ms));
    let answer = match request.operation.handler {
        Handler::Blocking(code) => within(time, blocking(api, request, code)).await,
        Handler::Waiting(code) => within(time, waiting(api, request, code)).await,
    }?;
    headers::rendered(api, owner, answer, pretty, writes)
}

async fn within<T>(
    time: Option<Duration>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match time {
        None => work.await,
        Some(time) => match tokio::time::timeout(time, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::code(Code::Timeout)),
        },
    }
}

fn overloaded() -> Failure {
    Failure::busy("too many requests are waiting", 1)
}

async fn blocking(
    api: &Arc<Api>,
    request: Checked,
    code: fn(&Call) -> Result<Answer, Failure>,
) -> Result<Answer, Failure> {
    let owner = request.caller.owner_at(request.source);
    let permit = api.permits.acquire(owner).await.ok_or_else(overloaded)?;
    let api = Arc::clone(api);
    let work = move || {
        // Held until the code ends, even if the request has been answered in the meantime.
        let _permit = permit;
        block(&api, request, code)
    };
    tokio::task::spawn_blocking(work).await.map_err(|cause| Failure::internal(&cause))?
}

fn block(
    api: &Arc<Api>,
    request: Checked,
    code: fn(&Call) -> Result<Answer, Failure>,
) -> Result<Answer, Failure> {
    let operation = request.operation;
    let Started { call, admitted } = start(api, request);
    let run = || {
        let answer = catch_unwind(AssertUnwindSafe(|| code(&call)));
        answer.unwrap_or_else(|_| Err(panicked()))
    };
    let answer = admitted.and_then(|()| run());
    if operation.writes() {
        End::of(&answer, &call.effect).write(&call, operation);
    }
    answer
}

/// Runs an operation that waits. Those that write have permits of their own, because they may wait for
/// password hashing, and queries must not wait for that.
async fn waiting(
    api: &Arc<Api>,
    request: Checked,
    code: fn(Arc<Call>) -> OperationFuture,
) -> Result<Answer, Failure> {
    let mut permit = None;
    if request.operation.writes() {
        let owner = request.caller.owner_at(request.source);
        permit = Some(api.write_permits.acquire(owner).await.ok_or_else(overloaded)?);
    }
    let task = tokio::spawn(wait(Arc::clone(api), request, code, permit));
    task.await.map_err(|e| Failure::internal(&e))?
}

async fn wait(
    api: Arc<Api>,
    request: Checked,
    code: fn(Arc<Call>) -> OperationFuture,
    _permit: Option<RequestPermit>,
) -> Result<Answer, Failure> {
    let operation = request.operation;
    let Started { call, admitted } = start(&api, request);
    let call = Arc::new(call);
    if !operation.writes() {
        admitted?;
        return code(call).await;
    }
    let answer = match admitted {
        Ok(()) => {
            // The code makes changes on other threads and in other stores, so the row must be durable
            // before it starts.
            call.blocking(|call| call.registry().write_audit(&call.context)).await??;
            caught(code(Arc::clone(&call))).await
        }
        Err(failure) => Err(failure),
    };
    let end = End::of(&answer, &call.effect);
    call.blocking(move |call| end.write(call, operation)).await?;
    answer
}

/// Converts a panic into a failure, so that the outcome is written to the audit log.
async fn caught(mut work: OperationFuture) -> Result<Answer, Failure> {
    poll_fn(|context| {
        let step = AssertUnwindSafe(|| work.as_mut().poll(context));
        catch_unwind(step).unwrap_or_else(|_| Poll::Ready(Err(panicked())))
    })
    .await
}

fn panicked() -> Failure {
    Failure::internal(&"a panic")
}

/// A call, with the reason to refuse it, if any.
struct Started {
    call: Call,
    admitted: Result<(), Failure>,
}

/// Checks permissions, parameters and the content type of the body, for both kinds of operations.
fn start(api: &Arc<Api>, request: Checked) -> Started {
    let operation = request.operation;
    let parameters = permission::on_path(&api.registry, &request.caller, operation, &request.path)
        .and_then(|()| Parameters::read(operation, &request.path, &request.query))
        .and_then(|parameters| has_content_type(&request).map(|()| parameters));
    let timed = !request.asks_for("wait_for_complete");
    let time = Duration::from_millis(api.options.request_timeout_ms);
    let (parameters, refused) = match parameters {
        Ok(parameters) => (parameters, None),
        Err(failure) => (Parameters::default(), Some(failure)),
    };
    let user = request.caller.name();
    let call = Call {
        api: Arc::clone(api),
        context: audit::context(api, operation, &user, &request.seen, request.reader),
        caller: request.caller,
        source: request.source,
        authorization: request.authorization,
        parameters,
        body: request.body,
        encodings: request.encodings,
        action: match operation.access {
            Access::Action { action, .. } => action,
            _ => "",
        },
        deadline: timed.then(|| Instant::now() + time),
        effect: Effect::default(),
    };
    let admitted = refused.map_or_else(|| permission::on_list(&call, operation.access), Err);
    Started { call, admitted }
}

fn has_content_type(request: &Checked) -> Result<(), Failure> {
    let Some(body) = request.operation.body else { return Ok(()) };
    let wanted = if is_content_type(body) { body } else { JSON };
    if request.content_type.is_none() && request.body.is_empty() {
        let wanted = wanted.replace(", ", " or ");
        return Err(Failure::bad(format!("the request has no body: send one as {wanted}")));
    }
    let kind = request.content_type.as_deref().unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if wanted.split(", ").any(|one| essence.eq_ignore_ascii_case(one)) {
        return Ok(());
    }
    let kind: String = kind.chars().take(60).collect();
    let mut failure =
        Failure::detailed(Code::ContentTypeInvalid, format!("Invalid content-type ({kind})"));
    let wanted = wanted.replace(", ", " or ");
    failure.remediation = Some(format!("send the body as {wanted}").into());
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_in_an_operation_becomes_an_internal_error() {
        let panics: OperationFuture = Box::pin(async { panic!("on purpose") });
        let failure = caught(panics).await.err();
        assert_eq!(failure.and_then(|failure| failure.code), Some(Code::Internal));
    }

    #[tokio::test]
    async fn deadline_applies_only_without_wait_for_complete() {
        let never = std::future::pending::<Result<u8, Failure>>();
        let given_up = within(Some(Duration::from_millis(1)), never).await;
        assert_eq!(given_up.unwrap_err().code, Some(Code::Timeout));
        let late = async {
            tokio::task::yield_now().await;
            Ok(7)
        };
        assert_eq!(within(None, late).await, Ok(7));
    }
}
