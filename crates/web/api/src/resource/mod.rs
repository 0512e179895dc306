//! The operations, one file per resource, and what several of them share.

mod agent_writes;
mod agents;
mod changes;
mod clock;
mod cluster;
mod commands;
mod configuration;
mod enrolment;
mod feed;
mod file_item;
mod fleet;
mod group_form;
mod groups;
mod local;
mod members;
mod orders;
mod overlay;
mod overview;
mod rules_files;
mod scans;
mod security;
mod series;
mod server;
mod states;
mod summary;
mod syscheck;

use std::sync::Arc;

use model::AgentId;
use registry::{Permitted, RegistryError, RegistryStoreError};
use serde::Serialize;
use state::StateError;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::call::Call;
use crate::envelope::{Answer, List};
use crate::error::Failure;
use crate::operation::Operation;

pub(crate) use feed::ID as STREAM;

/// The agents to look at: those named that are there and permitted, the others with their codes; or
/// all that are permitted.
fn named_agents(call: &Call) -> (Permitted, Vec<(u16, AgentId)>) {
    let scope = call.scope();
    let Some(named) = call.parameters.agents("agents_list") else { return (scope, Vec::new()) };
    let mut named = named.to_vec();
    named.sort_unstable();
    named.dedup();
    let mut failed = Vec::new();
    named.retain(|id| {
        let code = if !scope.holds(*id) {
            4000
        } else if call.api.registry.agent(*id).is_none() {
            1701
        } else {
            return true;
        };
        failed.push((code, *id));
        false
    });
    (Permitted::Only(Arc::new(named)), failed)
}

/// What operations ask beside their own action, of what they are given: the operation, the action,
/// the type of resource. The code of each asks.
pub(crate) const FURTHER: &[(&str, &str, &str)] = &[
    ("agents.group_add", ASSIGN, "group:id"),
    ("agents.group_remove", ASSIGN, "group:id"),
    ("agents.groups_remove", ASSIGN, "group:id"),
    ("agents.group_add_many", ASSIGN, "group:id"),
    ("agents.group_remove_many", ASSIGN, "group:id"),
    ("agents.restart_node", "cluster:read", "node:id"),
    ("agents.insert", "agent:delete", "agent:id"),
    ("commands.list", "agent:read", "agent:id"),
    ("commands.one", "agent:read", "agent:id"),
    ("commands.cancel", "agent:restart", "agent:id"),
    ("commands.cancel", "agent:reconnect", "agent:id"),
    ("commands.cancel", "syscheck:run", "agent:id"),
    ("enrolment.create_token", ASSIGN, "group:id"),
    ("events.stream", "coverage:read", "agent:id"),
    ("rules.put_file", "rules:delete", "rule:file"),
    ("security.user_roles_add", "security:update", "role:id"),
    ("security.user_roles_remove", "security:delete", "role:id"),
    ("security.role_policies_add", "security:update", "policy:id"),
    ("security.role_policies_remove", "security:delete", "policy:id"),
    ("security.role_rules_add", "security:update", "rule:id"),
    ("security.role_rules_remove", "security:delete", "rule:id"),
];

/// Which groups somebody may put agents into and take them out of.
const ASSIGN: &str = "group:modify_assignments";

/// A list without items, of which this agent alone was asked for and failed.
fn only_failed(code: u16, agent: AgentId, messages: [&'static str; 3]) -> Answer {
    let mut list = List::new(Vec::new(), 0, messages);
    list.fail(code, agent.to_string());
    Answer::List(list)
}

/// Every operation, in the order of the description.
pub(crate) fn all() -> impl Iterator<Item = &'static Operation> {
    [
        server::OPERATIONS,
        clock::OPERATIONS,
        agents::OPERATIONS,
        fleet::OPERATIONS,
        agent_writes::OPERATIONS,
        members::OPERATIONS,
        groups::OPERATIONS,
        summary::OPERATIONS,
        orders::OPERATIONS,
        overview::OPERATIONS,
        syscheck::OPERATIONS,
        scans::OPERATIONS,
        changes::OPERATIONS,
        feed::OPERATIONS,
        states::OPERATIONS,
        commands::OPERATIONS,
        enrolment::OPERATIONS,
        rules_files::OPERATIONS,
        cluster::OPERATIONS,
        configuration::OPERATIONS,
        local::OPERATIONS,
        series::OPERATIONS,
    ]
    .into_iter()
    .flatten()
    .chain(security::operations())
}

/// Every named schema of the description.
pub(crate) fn schemas() -> Vec<(String, RefOr<Schema>)> {
    use schema_of as of;
    let text = || RefOr::T(Schema::Object(ObjectBuilder::new().schema_type(Type::String).build()));
    let object =
        || RefOr::T(Schema::Object(ObjectBuilder::new().schema_type(Type::Object).build()));
    let numbers = || {
        let number = ObjectBuilder::new().schema_type(Type::Integer).build();
        RefOr::T(Schema::Array(ArrayBuilder::new().items(RefOr::T(Schema::Object(number))).build()))
    };
    let mut schemas = vec![
        ("AgentNumber".into(), text()),
        ("Platform".into(), text()),
        ("GroupName".into(), text()),
        ("NodeName".into(), text()),
        ("DistinctItem".into(), object()),
        ("SyncItem".into(), object()),
        ("Facts".into(), object()),
        ("RulesFileName".into(), text()),
        ("RulesFileContent".into(), object()),
        ("AgentNumbers".into(), numbers()),
        ("SeriesQuery".into(), object()),
        of::<Problem>(),
        of::<FailedItem>(),
        of::<FailedError>(),
        of::<MessageAnswer>(),
        of::<AgentRef>(),
        of::<server::ServerInfo>(),
        of::<clock::ClockData>(),
        of::<clock::HeldData>(),
        of::<agents::AgentItem>(),
        of::<agents::OsItem>(),
        of::<summary::StatusCounts>(),
        of::<summary::ConfigurationCounts>(),
        of::<summary::StatusData>(),
        of::<summary::SummaryData>(),
        of::<summary::SummaryStatus>(),
        of::<overview::OverviewData>(),
        of::<overview::NodeCount>(),
        of::<groups::GroupItem>(),
        of::<groups::NewGroup>(),
        of::<groups::GroupFile>(),
        of::<groups::GroupConfigItem>(),
        of::<agent_writes::NewAgent>(),
        of::<agent_writes::InsertedAgent>(),
        of::<agent_writes::Force>(),
        of::<agent_writes::DisconnectedTime>(),
        of::<agent_writes::AgentKey>(),
        of::<local::RestartInfo>(),
        of::<local::SyncBody>(),
        of::<local::SyncAgent>(),
        of::<local::SyncStatus>(),
        of::<overview::OsCount>(),
        of::<overview::OsKey>(),
        of::<overview::VersionCount>(),
        of::<file_item::FileItem>(),
        of::<scans::ScanTimes>(),
        of::<changes::ChangeItem>(),
        of::<changes::CauseItem>(),
        of::<changes::CoverageItem>(),
        of::<states::StateItem>(),
        of::<commands::CommandItem>(),
        of::<commands::CommandData>(),
        of::<commands::CountsItem>(),
        of::<commands::OutcomeItem>(),
        of::<rules_files::RulesFileItem>(),
        of::<enrolment::NewToken>(),
        of::<enrolment::NewTokenData>(),
        of::<enrolment::TokenItem>(),
    ];
    schemas.extend(security::schemas());
    schemas
}

/// A named schema.
fn schema_of<T: ToSchema>() -> (String, RefOr<Schema>) {
    (T::name().into_owned(), <T as PartialSchema>::schema())
}

/// An error of the API, `application/problem+json`.
#[derive(Serialize, ToSchema)]
pub(crate) struct Problem {
    /// Class of the error.
    title: String,
    /// What is wrong with this request.
    detail: String,
    /// What to do about it.
    remediation: Option<String>,
    /// The code, where there is one.
    error: Option<u16>,
    /// The same by node, where there is a code.
    dapi_errors: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Ids that failed with one error.
#[derive(Serialize, ToSchema)]
pub(crate) struct FailedItem {
    error: FailedError,
    id: Vec<String>,
}

/// Why ids failed.
#[derive(Serialize, ToSchema)]
pub(crate) struct FailedError {
    code: u16,
    message: String,
    remediation: String,
}

/// An answer without data.
#[derive(Serialize, ToSchema)]
pub(crate) struct MessageAnswer {
    message: String,
    error: u8,
}

/// An agent by number and name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentRef {
    /// At least three digits.
    pub(crate) id: String,
    /// Empty when it is not known any more.
    pub(crate) name: String,
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Cursor | StateError::Query(_) => Self::bad(error.to_string()),
            StateError::Busy { .. } | StateError::Full { .. } => {
                tracing::warn!("state: {error}");
                Self::busy("the state is too busy or its disk is full", 1)
            }
            StateError::TooLong { .. } => Self::code(3021),
            other => Self::internal(&other),
        }
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Store(RegistryStoreError::NotFound { what: "agent", .. }) => {
                Self::code(1701)
            }
            RegistryError::Store(RegistryStoreError::NotFound { what: "group", name }) => {
                Self::detailed(1710, format!("group does not exist: {name}"))
            }
            RegistryError::Store(
                ref refused @ (RegistryStoreError::Refused(_)
                | RegistryStoreError::Limit { .. }
                | RegistryStoreError::NotFound { .. }
                | RegistryStoreError::Exists { .. }),
            ) => Self::bad(refused.to_string()),
            RegistryError::Refused(text) => Self::bad(text),
            RegistryError::Settings(error) => Self::detailed(1114, error.to_string()),
            RegistryError::Password(rule) => Self::detailed(5007, rule.to_string()),
            RegistryError::Store(ref error) if error.is_too_long() => Self::code(3021),
            error if error.is_transient() => {
                tracing::warn!("registry: {error}");
                Self::busy("the registry is too busy or its disk is full", 1)
            }
            other => Self::internal(&other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_database_is_a_reason_to_come_back_and_a_long_query_is_not() {
        let sqlite = |code| {
            let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            Failure::from(RegistryError::from(RegistryStoreError::Sqlite(error)))
        };
        let what = || "read".to_owned();
        let busy = [
            sqlite(rusqlite::ffi::SQLITE_BUSY),
            sqlite(rusqlite::ffi::SQLITE_FULL),
            Failure::from(RegistryError::from(RegistryStoreError::Busy)),
            Failure::from(StateError::Busy { what: what() }),
        ];
        for failure in busy {
            assert_eq!((failure.code, failure.retry_after_s), (Some(1017), Some(1)), "{failure:?}");
        }
        for failure in [
            sqlite(rusqlite::ffi::SQLITE_INTERRUPT),
            Failure::from(StateError::TooLong { what: what() }),
        ] {
            assert_eq!((failure.code, failure.retry_after_s), (Some(3021), None), "{failure:?}");
        }
        assert_eq!(sqlite(rusqlite::ffi::SQLITE_CORRUPT).code, Some(1000));
    }
}
