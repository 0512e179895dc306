//! The table of routes: every operation, and every schema that the description names.

use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::resource::common::{ASSIGN, AgentRef};
use crate::resource::{
    agent_commands, agent_config, agent_list, agent_writes, agents, changes, clock, cluster,
    commands, configuration, enrolment, event_item, feed, file_item, fleet, group_item, groups,
    local, members, overview, reports, rules_files, scans, series, server, states, summary,
    syscheck, watched,
};
use rest::http::api::RequiredAction;
use rest::http::envelope::{FailedError, FailedItem, MessageAnswer, Problem};
use rest::http::operation::{Access, Operation};

/// Actions that an operation requires in addition to its own, depending on its input: the operation,
/// the action, the type of resource. The operation's code checks them.
const FURTHER: &[(&str, &str, &str)] = &[
    ("agents.group_add", ASSIGN, "group:id"),
    ("agents.group_remove", ASSIGN, "group:id"),
    ("agents.groups_remove", ASSIGN, "group:id"),
    ("agents.group_add_many", ASSIGN, "group:id"),
    ("agents.group_remove_many", ASSIGN, "group:id"),
    ("agents.restart_group", "group:read", "group:id"),
    ("agents.restart_node", "cluster:read", "node:id"),
    ("groups.agents", "group:read", "group:id"),
    ("overview.agents", "group:read", "group:id"),
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

/// Returns all operations, in the order of the description.
pub(crate) fn all() -> impl Iterator<Item = &'static Operation> {
    [
        server::OPERATIONS,
        clock::OPERATIONS,
        agents::OPERATIONS,
        fleet::OPERATIONS,
        agent_writes::OPERATIONS,
        members::OPERATIONS,
        agent_config::OPERATIONS,
        groups::OPERATIONS,
        summary::OPERATIONS,
        agent_commands::OPERATIONS,
        overview::OPERATIONS,
        syscheck::OPERATIONS,
        scans::OPERATIONS,
        reports::OPERATIONS,
        changes::OPERATIONS,
        watched::OPERATIONS,
        feed::OPERATIONS,
        states::OPERATIONS,
        commands::OPERATIONS,
        enrolment::OPERATIONS,
        rules_files::OPERATIONS,
        cluster::OPERATIONS,
        configuration::OPERATIONS,
        local::OPERATIONS,
        series::OPERATIONS,
        security::login::OPERATIONS,
        security::account::OPERATIONS,
        security::users::OPERATIONS,
        security::roles::OPERATIONS,
        security::policies::OPERATIONS,
        security::rules::OPERATIONS,
        security::links::OPERATIONS,
        security::catalogue::OPERATIONS,
        security::config::OPERATIONS,
        security::audit::OPERATIONS,
    ]
    .into_iter()
    .flatten()
}

/// Returns every action that an operation requires, with its type of resource. Prometheus' API, which
/// `docs/reference/promql.md` describes, is one entry.
pub(crate) fn required_actions() -> impl Iterator<Item = RequiredAction> {
    let promql = RequiredAction {
        action: "series:read",
        resource: "*:*",
        endpoint: "GET /series/prometheus/api/v1/{operation}".into(),
        about: "PromQL, as Prometheus answers it.",
    };
    let own = all().flat_map(|operation| {
        let own = match operation.access {
            Access::Action { action, resource } => Some((action, resource)),
            _ => None,
        };
        let further = FURTHER.iter().filter(move |(id, _, _)| *id == operation.id);
        let further = further.map(|(_, action, resource)| (*action, *resource));
        own.into_iter().chain(further).map(move |(action, resource)| RequiredAction {
            action,
            resource,
            endpoint: format!("{} {}", operation.verb.name(), operation.path),
            about: operation.about,
        })
    });
    own.chain([promql])
}

/// Returns all named schemas of the description.
pub(crate) fn schemas() -> Vec<(String, RefOr<Schema>)> {
    use schema_of as of;
    let simple = |kind| RefOr::T(Schema::Object(ObjectBuilder::new().schema_type(kind).build()));
    let (text, object) = (|| simple(Type::String), || simple(Type::Object));
    let numbers =
        || RefOr::T(Schema::Array(ArrayBuilder::new().items(simple(Type::Integer)).build()));
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
        of::<agent_list::AgentItem>(),
        of::<agent_list::OsItem>(),
        of::<summary::StatusCounts>(),
        of::<summary::ConfigurationCounts>(),
        of::<summary::StatusData>(),
        of::<summary::SummaryData>(),
        of::<summary::SummaryStatus>(),
        of::<overview::OverviewData>(),
        of::<overview::NodeCount>(),
        of::<group_item::GroupItem>(),
        of::<groups::NewGroup>(),
        of::<groups::GroupFile>(),
        of::<groups::GroupConfigItem>(),
        of::<agent_writes::NewAgent>(),
        of::<agent_writes::InsertedAgent>(),
        of::<agent_writes::Force>(),
        of::<agent_writes::DisconnectedTime>(),
        of::<agent_writes::AgentKey>(),
        of::<agent_config::SyscheckConfig>(),
        of::<agent_config::WatchedDirectory>(),
        of::<local::RestartInfo>(),
        of::<local::SyncBody>(),
        of::<local::SyncAgent>(),
        of::<local::SyncStatus>(),
        of::<overview::OsCount>(),
        of::<overview::OsKey>(),
        of::<overview::VersionCount>(),
        of::<file_item::FileItem>(),
        of::<scans::ScanTimes>(),
        of::<reports::ReportItem>(),
        of::<event_item::ChangeItem>(),
        of::<event_item::CoverageItem>(),
        of::<watched::WatchItem>(),
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
    schemas.extend(security_schemas());
    schemas
}

fn security_schemas() -> Vec<(String, RefOr<Schema>)> {
    use schema_of as of;
    use security::{account, audit, catalogue, config, login, policies, roles, rules, users};
    vec![
        of::<login::TokenData>(),
        of::<login::AuthorizationContext>(),
        of::<account::MeItem>(),
        of::<account::MyRole>(),
        of::<account::MyPolicy>(),
        of::<account::MyRule>(),
        of::<account::MyGrants>(),
        of::<account::PasswordChange>(),
        of::<users::UserItem>(),
        of::<users::NewUser>(),
        of::<users::UserChange>(),
        of::<roles::RoleItem>(),
        of::<roles::RoleBody>(),
        of::<policies::PolicyItem>(),
        of::<policies::PolicyBody>(),
        of::<policies::NewPolicy>(),
        of::<policies::PolicyChange>(),
        of::<rules::RuleItem>(),
        of::<rules::RuleBody>(),
        of::<rules::RuleChange>(),
        of::<catalogue::Catalogue>(),
        of::<config::ConfigData>(),
        of::<config::ConfigChange>(),
        of::<audit::AuditItem>(),
    ]
}

/// Returns the schema of a type with its name.
fn schema_of<T: ToSchema>() -> (String, RefOr<Schema>) {
    (T::name().into_owned(), <T as PartialSchema>::schema())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rest::http::operation::{Access, ParameterLocation, Shape, UNSEEN, Verb, is_content_type};

    #[test]
    fn operations_are_unique_and_fully_described() {
        let every: Vec<&Operation> = all().collect();
        let schemas: Vec<String> = schemas().into_iter().map(|(name, _)| name).collect();
        for operation in &every {
            let id = operation.id;
            let same = |o: &&&Operation| {
                o.id == id || (o.verb == operation.verb && o.path == operation.path)
            };
            assert_eq!(every.iter().filter(same).count(), 1, "{id} stands twice");
            let named: Vec<&str> = operation
                .path
                .split('/')
                .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
                .collect();
            let described: Vec<&str> = operation
                .parameters()
                .filter(|p| p.place == ParameterLocation::Path)
                .map(|p| p.name)
                .collect();
            assert_eq!(named, described, "{id}: path parameters");
            let mut names: Vec<&str> = operation.parameters().map(|p| p.name).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count, "{id}: a parameter stands twice");
            let shape = match operation.shape {
                Shape::List(name) | Shape::Plain(name) => Some(name),
                Shape::Message | Shape::Raw(_) => None,
            };
            let body = operation.body.filter(|body| !is_content_type(body));
            for schema in body.into_iter().chain(shape) {
                assert!(schemas.iter().any(|s| s == schema), "{id}: no schema {schema}");
            }
        }
    }

    #[test]
    fn operations_with_effects_on_others_count_as_writes() {
        for operation in all() {
            let asks = matches!(operation.access, Access::Action { action, .. } if action.ends_with(":read"));
            let own = operation.access == Access::Login || UNSEEN.contains(&operation.id);
            let reads = operation.verb == Verb::Get || own || asks;
            assert_eq!(operation.writes(), !reads, "{}", operation.id);
        }
    }

    #[test]
    fn catalogue_contains_the_resources_of_all_operations() {
        for need in required_actions() {
            let names = security::catalogue::RESOURCE_NAMES;
            assert!(names.contains(&need.resource), "{}: {}", need.endpoint, need.resource);
        }
    }
}
