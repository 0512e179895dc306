//! Runs one operation: role, parameters, body type, code and audit on a blocking thread, a bounded
//! number at once, under the request's deadline.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use axum::response::Response;
use model::AgentId;
use registry::{AuditOutcome, PendingAudit, RegistryError};
use state::lend;
use state::meter::{self, Cost};

use super::headers;
use crate::api::Api;
use crate::call::{Body, Call, Caller, Source};
use crate::envelope::{Answer, JSON};
use crate::error::Failure;
use crate::operation::{Access, Answering, Handler, Operation, is_content_type};
use crate::parameters::{Parameters, flag_of};
use crate::room::Owner;
use crate::turns::Turn;

/// A request whose sender is known.
pub(super) struct Checked {
    pub(super) operation: &'static Operation,
    pub(super) caller: Caller,
    pub(super) source: Option<Source>,
    pub(super) authorization: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) encodings: Vec<HeaderValue>,
    pub(super) path: Vec<(String, String)>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Body,
    /// The request for the audit, secrets masked.
    pub(super) seen: String,
}

impl Checked {
    fn asks_for(&self, flag: &str) -> bool {
        flag_of(&self.query, flag)
    }
}

/// The response and the number of store requests it took.
pub(super) async fn run(api: &Arc<Api>, request: Checked) -> (Result<Response, Failure>, Cost) {
    let pretty = request.asks_for("pretty");
    let deadline = (!request.asks_for("wait_for_complete"))
        .then(|| Duration::from_millis(api.options.request_timeout_ms));
    let (writes, owner) = (request.operation.writes(), Owner::of(&request.caller));
    let outcome = match request.operation.handler {
        Handler::Blocking(code) => within(deadline, blocking(api, request, code)).await,
        Handler::Waiting(code) => within(deadline, on_its_own(api, request, code)).await,
    };
    match outcome {
        Ok((answer, cost)) => {
            (answer.and_then(|answer| headers::rendered(api, owner, answer, pretty, writes)), cost)
        }
        Err(failure) => (Err(failure), Cost::default()),
    }
}

/// What came of a request, and what its statements cost whatever that is.
type Outcome = (Result<Answer, Failure>, Cost);

/// A request that runs out of time goes on to its end, and to its audit. What writes has a turn until
/// then, of turns of its own: it may wait for passwords to be hashed, and nobody's question for it.
async fn on_its_own(
    api: &Arc<Api>,
    request: Checked,
    code: fn(Arc<Call>) -> Answering,
) -> Result<Outcome, Failure> {
    let owner = Owner::who(&request.caller, request.source);
    let mut turn = None;
    if request.operation.writes() {
        turn = Some(api.turns_to_write.take(owner).await.ok_or_else(crowded)?);
    }
    let task = tokio::spawn(waiting(Arc::clone(api), request, code, turn));
    task.await.map_err(|e| Failure::internal(&e))?
}

fn crowded() -> Failure {
    Failure::busy("too many requests are waiting", 1)
}

async fn waiting(
    api: Arc<Api>,
    request: Checked,
    code: fn(Arc<Call>) -> Answering,
    _turn: Option<Turn>,
) -> Result<Outcome, Failure> {
    let row = request.operation.writes().then(|| Row::of(&request));
    let call = match prepare(&api, request) {
        Ok(call) => Arc::new(call),
        Err(failure) => {
            if let Some(row) = row {
                let refused = tokio::task::spawn_blocking(move || row.refused(&api)).await;
                refused.map_err(|e| Failure::internal(&e))?;
            }
            return Err(failure);
        }
    };
    let Some(row) = row else {
        let answer = code(Arc::clone(&call)).await;
        return Ok((answer, call.cost()));
    };
    // What others see is changed on other threads: the row is durable before that.
    let row = Arc::new(row);
    let begun = Arc::clone(&row);
    let start =
        move |call: &Call| call.registry().start_audit(&begun.user, begun.action, &begun.detail);
    let id = call.blocking(start).await??;
    let answer = whole(code(Arc::clone(&call))).await;
    let (outcome, idle) = end_of(&answer, &call);
    let kept = !idle || row.counts(&api);
    let finish = move |call: &Call| {
        if kept {
            call.registry().finish_audit(id, outcome)
        } else {
            call.registry().leave_out_audit(id)
        }
    };
    told(call.blocking(finish).await?);
    Ok((answer, call.cost()))
}

/// A panic is a failure like others: the row of the audit log says so.
async fn whole(mut work: Answering) -> Result<Answer, Failure> {
    poll_fn(|context| {
        let step = AssertUnwindSafe(|| work.as_mut().poll(context));
        catch_unwind(step).unwrap_or_else(|_| Poll::Ready(Err(Failure::internal(&"a panic"))))
    })
    .await
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
) -> Result<Outcome, Failure> {
    let owner = Owner::who(&request.caller, request.source);
    let turn = api.turns.take(owner.clone()).await;
    let turn = turn.ok_or_else(crowded)?;
    let api = Arc::clone(api);
    // The turn goes along: a request that ran out of time keeps its own until it really ends.
    let work = move || {
        let _turn = turn;
        // What an earlier request on this thread left behind is not this one's.
        meter::take();
        let answer = lend::asked_by(owner.name(), || carry_out(&api, request, code));
        (answer, meter::take())
    };
    tokio::task::spawn_blocking(work).await.map_err(|cause| Failure::internal(&cause))
}

/// The row of the audit log goes along with the change itself, where that is the registry's.
fn carry_out(
    api: &Arc<Api>,
    request: Checked,
    code: fn(&Call) -> Result<Answer, Failure>,
) -> Result<Answer, Failure> {
    if !request.operation.writes() {
        return code(&prepare(api, request)?);
    }
    let row = Row::of(&request);
    let call = prepare(api, request).inspect_err(|_| row.refused(api))?;
    let pending = row.begin(api);
    let answer = code(&call);
    let (outcome, idle) = end_of(&answer, &call);
    if idle && !row.counts(api) {
        told(pending.leave_out(outcome));
    } else {
        told(pending.end(outcome));
    }
    answer
}

/// Who, what and with which values, for the audit log.
struct Row {
    user: String,
    action: &'static str,
    detail: String,
}

impl Row {
    fn of(request: &Checked) -> Self {
        let operation = request.operation;
        let action = match operation.access {
            Access::Action { action, .. } => action,
            _ => operation.id,
        };
        let detail = format!("{} {}", operation.verb.name(), request.seen);
        Self { user: request.caller.name(), action, detail: detail.trim_end().to_owned() }
    }

    /// Refused before anything was done.
    fn refused(&self, api: &Api) {
        if self.counts(api) {
            told(self.begin(api).end(AuditOutcome::Refused));
        }
    }

    /// Whether what changed nothing stands in the audit log: so many rows a minute of one user.
    fn counts(&self, api: &Api) -> bool {
        let counts = api.idle_rows.admit(&self.user, api.options.clock.monotonic());
        if !counts {
            let (user, action) = (&self.user, self.action);
            tracing::warn!(user, action, "changed nothing; not in the audit log");
        }
        counts
    }

    /// For what this thread does.
    fn begin<'a>(&self, api: &'a Api) -> PendingAudit<'a> {
        api.registry.begin_audit(&self.user, self.action, &self.detail)
    }
}

/// What the row of a request says in the end, and whether it left everything as it was.
fn end_of(answer: &Result<Answer, Failure>, call: &Call) -> (AuditOutcome, bool) {
    ended(outcome_of(answer), is_busy(answer), (call.is_unchanged(), call.is_begun()))
}

fn ended(
    outcome: AuditOutcome,
    busy: bool,
    (unchanged, begun): (bool, bool),
) -> (AuditOutcome, bool) {
    let outcome = match outcome {
        AuditOutcome::Done | AuditOutcome::Partly if unchanged => AuditOutcome::Unchanged,
        AuditOutcome::Refused if begun => AuditOutcome::Partly,
        outcome => outcome,
    };
    (outcome, outcome.is_idle() || (busy && !begun))
}

/// What an answer says of what was asked for.
fn outcome_of(answer: &Result<Answer, Failure>) -> AuditOutcome {
    match answer {
        Ok(Answer::List(list)) => match list.error() {
            0 => AuditOutcome::Done,
            1 => AuditOutcome::Refused,
            _ => AuditOutcome::Partly,
        },
        Ok(_) => AuditOutcome::Done,
        Err(failure) if failure.status.is_server_error() => AuditOutcome::Failed,
        Err(_) => AuditOutcome::Refused,
    }
}

/// Whether there was no time or room for it: it is asked for again and again.
fn is_busy(answer: &Result<Answer, Failure>) -> bool {
    answer.as_ref().is_err_and(|failure| failure.retry_after_s.is_some())
}

/// What is done is done: that its row could not be ended is an error of the server, not of the
/// caller.
fn told(ended: Result<(), RegistryError>) {
    if let Err(cause) = ended {
        tracing::error!("a row of the audit log was not ended: {cause}");
    }
}

/// What the operation's action is permitted on at all. A list is narrowed by its own code.
fn permitted(api: &Api, request: &Checked) -> Result<(), Failure> {
    let (Caller::User { grants, .. }, Access::Action { action, resource }) =
        (&request.caller, request.operation.access)
    else {
        return Ok(());
    };
    let fine = match (named(&request.path, resource), resource) {
        // The check of the parameters refuses what is no agent's number.
        (Some(value), "agent:id") if value.parse::<AgentId>().is_err() => {
            grants.permit_some(action, resource)
        }
        (Some(value), _) => {
            if !request.caller.may(api, action, resource, &value) {
                return Err(Failure::denied_on(resource, &[value]));
            }
            true
        }
        (None, NO_RESOURCE) => grants.permit(action, &[(NO_RESOURCE, "*")]),
        (None, _) => grants.permit_some(action, resource),
    };
    if fine { Ok(()) } else { Err(Failure::denied(resource)) }
}

/// The parameter of the query that lists resources of a type.
const LISTS: &[(&str, &str)] = &[
    ("agent:id", "agents_list"),
    ("group:id", "groups_list"),
    ("node:id", "nodes_list"),
    ("user:id", "user_ids"),
    ("role:id", "role_ids"),
    ("policy:id", "policy_ids"),
    ("rule:id", "rule_ids"),
    ("rule:file", "filename"),
];

/// Of the things that a list names, something must be permitted; then the others stand among what
/// failed.
fn some_named(call: &Call, access: Access) -> Result<(), Failure> {
    let (Caller::User { .. }, Access::Action { action, resource }) = (&call.caller, access) else {
        return Ok(());
    };
    let Some((_, name)) = LISTS.iter().find(|(kind, _)| *kind == resource) else { return Ok(()) };
    let names: Vec<String> = if let Some(ids) = call.parameters.agents(name) {
        let agents = resource == "agent:id";
        let scope = agents.then(|| call.scope());
        if scope.as_ref().is_some_and(|scope| ids.iter().any(|id| scope.holds(*id))) {
            return Ok(());
        }
        let shown = |id: &AgentId| if agents { id.to_string() } else { id.0.to_string() };
        ids.iter().map(shown).collect()
    } else {
        call.parameters.list(name).to_vec()
    };
    let allowed = |name: &String| name == "all" || call.may(action, resource, name);
    if names.is_empty() || (resource != "agent:id" && names.iter().any(allowed)) {
        return Ok(());
    }
    Err(Failure::denied_on(resource, &names))
}

/// The type of what an operation without a resource is about.
const NO_RESOURCE: &str = "*:*";

/// The parameter of the path that names a resource of a type.
const NAMED: &[(&str, &str)] = &[
    ("agent:id", "agent_id"),
    ("group:id", "group_id"),
    ("node:id", "node_id"),
    ("user:id", "user_id"),
    ("role:id", "role_id"),
    ("policy:id", "policy_id"),
    ("rule:id", "rule_id"),
    ("rule:file", "filename"),
];

/// What the request is about, as policies name it: numbers without further zeros in front, so that
/// those do not make another resource of it.
fn named(path: &[(String, String)], resource: &str) -> Option<String> {
    let (_, parameter) = NAMED.iter().find(|(kind, _)| *kind == resource)?;
    let (_, value) = path.iter().find(|(name, _)| name == parameter)?;
    let number = !matches!(resource, "group:id" | "node:id" | "rule:file");
    let number = number.then(|| value.parse::<u32>().ok()).flatten();
    Some(number.map_or_else(|| value.clone(), |number| number.to_string()))
}

/// Every request passes here before its code, of whatever kind that is.
fn prepare(api: &Arc<Api>, request: Checked) -> Result<Call, Failure> {
    permitted(api, &request)?;
    let parameters = Parameters::read(request.operation, &request.path, &request.query)?;
    if let Some(body) = request.operation.body {
        let wanted = if is_content_type(body) { body } else { JSON };
        let kind = request.content_type.as_deref().unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim();
        if !wanted.split(", ").any(|one| essence.eq_ignore_ascii_case(one)) {
            let kind: String = kind.chars().take(60).collect();
            let mut failure = Failure::detailed(6002, format!("Invalid content-type ({kind})"));
            let wanted = wanted.replace(", ", " or ");
            failure.remediation = Some(format!("send the body as {wanted}").into());
            return Err(failure);
        }
    }
    let action = match request.operation.access {
        Access::Action { action, .. } => action,
        _ => "",
    };
    let timed = !request.asks_for("wait_for_complete");
    let time = Duration::from_millis(api.options.request_timeout_ms);
    let mut call = Call::new(
        Arc::clone(api),
        request.caller,
        request.source,
        request.authorization,
        parameters,
        request.body,
        action,
    );
    call.encodings = request.encodings;
    call.deadline = timed.then(|| Instant::now() + time);
    some_named(&call, request.operation.access)?;
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_one_resource_however_its_number_is_written() {
        let of = |name: &str, id: &str, kind| named(&[(name.into(), id.into())], kind);
        for id in ["7", "007", "0007", "+007"] {
            assert_eq!(of("agent_id", id, "agent:id").as_deref(), Some("7"));
            assert_eq!(of("role_id", id, "role:id").as_deref(), Some("7"));
        }
        assert_eq!(of("group_id", "007", "group:id").as_deref(), Some("007"));
        assert_eq!(of("agent_id", "007", "group:id"), None);
        assert_eq!(named(&[], "agent:id"), None);
    }

    #[tokio::test]
    async fn an_operation_that_panics_has_failed_and_its_row_of_the_audit_log_says_so() {
        let panics: Answering = Box::pin(async { panic!("on purpose") });
        let answer = whole(panics).await;
        assert_eq!(outcome_of(&answer), AuditOutcome::Failed);
        assert_eq!(answer.err().and_then(|failure| failure.code), Some(1000));
    }

    #[test]
    fn what_was_begun_before_there_was_no_time_for_the_rest_is_not_left_out_of_the_audit_log() {
        use AuditOutcome::{Done, Failed, Partly, Refused, Unchanged};
        for (outcome, busy, begun, told) in [
            (Done, false, false, (Done, false)),
            (Refused, false, false, (Refused, true)),
            (Refused, false, true, (Partly, false)),
            (Failed, false, false, (Failed, false)),
            (Failed, true, false, (Failed, true)),
            (Failed, true, true, (Failed, false)),
        ] {
            assert_eq!(ended(outcome, busy, (false, begun)), told, "{outcome:?} {busy} {begun}");
        }
        assert_eq!(ended(Partly, false, (true, false)), (Unchanged, true));
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
