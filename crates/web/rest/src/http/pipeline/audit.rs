//! The audit log row of a request that writes: its content and its outcome.

use registry::{AuditOutcome, Reader, WriteContext};

use crate::error::Failure;
use crate::http::api::Api;
use crate::http::call::{Call, Effect};
use crate::http::envelope::Answer;
use crate::http::operation::{Access, Operation};

/// Returns the context of a request, with a row of the audit log if the operation writes. `request` is
/// the text of the request, with secrets masked.
pub(super) fn context(
    api: &Api,
    operation: &Operation,
    user: &str,
    request: &str,
    reader: Reader,
) -> WriteContext {
    if !operation.writes() {
        return WriteContext::unaudited(reader);
    }
    let detail = format!("{} {request}", operation.verb.name());
    api.registry.audited(reader, user, action(operation), detail.trim_end())
}

fn action(operation: &Operation) -> &'static str {
    match operation.access {
        Access::Action { action, .. } => action,
        _ => operation.id,
    }
}

/// The outcome of a request, for its row of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    outcome: AuditOutcome,
    /// True if the request changed nothing, so that its row counts towards the limit of such rows.
    idle: bool,
}

impl End {
    pub(super) fn of(answer: &Result<Answer, Failure>, effect: &Effect) -> Self {
        Self::new(outcome_of(answer), is_busy(answer), effect)
    }

    fn new(outcome: AuditOutcome, busy: bool, effect: &Effect) -> Self {
        let outcome = match outcome {
            AuditOutcome::Done | AuditOutcome::Partly if effect.is_unchanged() => {
                AuditOutcome::Unchanged
            }
            AuditOutcome::Refused if effect.is_begun() => AuditOutcome::Partly,
            outcome => outcome,
        };
        Self { outcome, idle: outcome.is_idle() || (busy && !effect.is_begun()) }
    }

    /// Writes the outcome into the row of a request that writes. The change itself is already made, so
    /// a failure here is logged and not sent to the caller.
    pub(super) fn write(self, call: &Call, operation: &Operation) {
        let registry = call.registry();
        let written = if self.idle && !admits_idle_row(call, operation) {
            registry.leave_out_audit(&call.context, self.outcome)
        } else {
            registry.end_audit(&call.context, self.outcome)
        };
        if let Err(cause) = written {
            tracing::error!("a row of the audit log was not ended: {cause}");
        }
    }
}

/// Returns true if the user's limit per minute allows another row for a request that changed nothing.
fn admits_idle_row(call: &Call, operation: &Operation) -> bool {
    let user = call.caller.name();
    let admits = call.api.idle_rows.admit(&user, call.api.options.clock.monotonic()).is_ok();
    if !admits {
        let action = action(operation);
        tracing::warn!(user, action, "changed nothing; not in the audit log");
    }
    admits
}

fn outcome_of(answer: &Result<Answer, Failure>) -> AuditOutcome {
    match answer {
        Ok(Answer::List(list)) if list.is_empty() => AuditOutcome::Unchanged,
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

/// Returns true if the request was refused for lack of time or capacity and clients should repeat it.
fn is_busy(answer: &Result<Answer, Failure>) -> bool {
    answer.as_ref().is_err_and(|failure| failure.retry_after_s.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_error_is_recorded_as_failed_in_the_audit_log() {
        let failed = End::of(&Err(Failure::internal(&"a panic")), &Effect::default());
        assert_eq!(failed, End { outcome: AuditOutcome::Failed, idle: false });
    }

    #[test]
    fn request_started_before_overload_keeps_its_audit_row() {
        use AuditOutcome::{Done, Failed, Partly, Refused, Unchanged};
        for (outcome, busy, begun, expected, idle) in [
            (Done, false, false, Done, false),
            (Refused, false, false, Refused, true),
            (Refused, false, true, Partly, false),
            (Failed, false, false, Failed, false),
            (Failed, true, false, Failed, true),
            (Failed, true, true, Failed, false),
        ] {
            let effect = Effect::default();
            if begun {
                effect.set_begun();
            }
            let end = End::new(outcome, busy, &effect);
            assert_eq!(end, End { outcome: expected, idle }, "{outcome:?} {busy} {begun}");
        }
        let effect = Effect::default();
        effect.set_unchanged();
        let end = End::new(Partly, false, &effect);
        assert_eq!(end, End { outcome: Unchanged, idle: true });
    }
}
