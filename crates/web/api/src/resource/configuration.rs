//! The server's configuration: reading the file, validating it, and replacing it. The server reads the
//! file at start, so changes wait for the next start; the answer lists the affected keys.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::node::{CLUSTER, MANAGER, NODE, NODES, one, own_node, read};
use rest::code::Code;
use rest::error::Failure;
use rest::http::api::ConfigFile;
use rest::http::call::Call;
use rest::http::envelope::{Answer, JSON, List, to_bytes};
use rest::http::operation::{
    Access, COMMON, Handler, Kind, Operation, Parameter, Shape, Verb, action, query,
};

const SECTION: &[Parameter] = &[
    query("section", Kind::Word(SECTIONS), "One section alone."),
    query("field", Kind::Name, "One field of the section alone."),
    query("raw", Kind::Flag, "The file as it is."),
];

/// Content type of an uploaded file.
const OCTETS: &str = "application/octet-stream";
/// Content type of the file itself.
const TOML: &str = "application/toml; charset=utf-8";

/// Sections of the 4.x server's file, followed by those that only this server has.
const SECTIONS: &[&str] = &[
    "active-response",
    "agentless",
    "alerts",
    "auth",
    "client",
    "client_buffer",
    "cluster",
    "command",
    "database_output",
    "email_alerts",
    "global",
    "integration",
    "labels",
    "localfile",
    "logging",
    "remote",
    "reports",
    "rootcheck",
    "ruleset",
    "sca",
    "socket",
    "syscheck",
    "syslog_output",
    "vulnerability-detection",
    "indexer",
    "aws-s3",
    "azure-logs",
    "cis-cat",
    "docker-listener",
    "open-scap",
    "osquery",
    "syscollector",
    "agents",
    "api",
    "cache",
    "db",
    "journal",
    "retention",
    "series",
];

const fn put_operation(
    path: &'static str,
    id: &'static str,
    access: Access,
    parameters: &'static [&'static [Parameter]],
) -> Operation {
    Operation {
        verb: Verb::Put,
        path,
        id,
        about: "Replace the server's configuration file; checked first, durable when answered, read at the next start.",
        access,
        parameters,
        body: Some(OCTETS),
        shape: Shape::List("NodeName"),
        handler: Handler::Blocking(configure),
    }
}

pub(crate) const OPERATIONS: &[Operation] = &[
    read(
        "/manager/configuration",
        "manager.configuration",
        "The configuration of the server.",
        MANAGER,
        &[COMMON, SECTION, &[query("distinct", Kind::Flag, "Each different item once.")]],
        configuration,
    ),
    put_operation(
        "/manager/configuration",
        "manager.configure",
        action("manager:update_config", "*:*"),
        &[COMMON],
    ),
    read(
        "/manager/configuration/validation",
        "manager.validation",
        "Whether the server can start with its configuration file as it is now.",
        MANAGER,
        &[COMMON],
        validation,
    ),
    read(
        "/manager/api/config",
        "manager.api_config",
        "The configuration of the API.",
        action("manager:read_api_config", "*:*"),
        &[COMMON],
        api_config,
    ),
    read(
        "/cluster/{node_id}/configuration",
        "cluster.node_configuration",
        "The configuration of a node.",
        CLUSTER,
        &[COMMON, &[NODE], SECTION],
        configuration,
    ),
    put_operation(
        "/cluster/{node_id}/configuration",
        "cluster.node_configure",
        action("cluster:update_config", "node:id"),
        &[COMMON, &[NODE]],
    ),
    read(
        "/cluster/configuration/validation",
        "cluster.validation",
        "Whether the nodes can start with their configuration files as they are now.",
        CLUSTER,
        &[COMMON, &[NODES]],
        validation,
    ),
    read(
        "/cluster/api/config",
        "cluster.api_config",
        "The configuration of the API.",
        action("cluster:read_api_config", "node:id"),
        &[COMMON, &[NODES]],
        api_config,
    ),
];

const READ: [&str; 3] = [
    "Configuration was successfully read",
    "Could not read configuration in some nodes",
    "Could not read configuration in any node",
];

/// Returns a list in which this node failed.
fn failed(call: &Call, code: Code, text: String, messages: [&'static str; 3]) -> Answer {
    let mut list = List::new(Vec::new(), 0, messages);
    list.fail_detailed(code, text, call.api.node().to_owned());
    Answer::List(list)
}

/// Returns the configuration by section: the file with its defaults, or the settings of a server
/// without a file.
fn sections(call: &Call) -> Result<Value, String> {
    let registry = call.api.registry.options();
    let mut sections = match &call.api.options.config {
        Some(file) => file.values(&file.read()?)?,
        None => json!({
            "agents": {"disconnection_time_s": registry.disconnection_s},
            "cache": {"ttl_s": registry.cache_ttl.as_secs()},
            "api": api_facts(call),
        }),
    };
    if let Value::Object(sections) = &mut sections {
        let cluster = json!({
            "name": registry.cluster_name, "node_name": registry.node_name, "disabled": "yes",
        });
        sections.insert("cluster".into(), cluster);
    }
    Ok(sections)
}

fn api_facts(call: &Call) -> Value {
    let (options, registry) = (&call.api.options, call.api.registry.options());
    json!({
        "authentication_pool_size": registry.login_workers,
        "intervals": {"request_timeout": options.request_timeout_ms / 1_000},
        "max_upload_size": rest::limits::BODY_BYTES_MAX,
        "access": {
            "max_login_attempts": registry.login_attempts_max,
            "block_time": registry.login_block_s,
            "max_request_per_minute": options.requests_per_minute_max,
        },
    })
}

fn configuration(call: &Call) -> Result<Answer, Failure> {
    own_node(call)?;
    if call.parameters.flag("raw") {
        return Ok(raw(call));
    }
    let mut item = match sections(call) {
        Ok(sections) => sections,
        Err(cause) => return Ok(failed(call, Code::ConfigurationInvalid, cause, READ)),
    };
    if let Some(name) = call.parameters.text("section") {
        let Some(found) = item.get(name).cloned() else {
            let text = format!("the configuration has no section {name}");
            return Ok(failed(call, Code::SectionMissing, text, READ));
        };
        item = json!({name: found});
        if let Some(field) = call.parameters.text("field") {
            let Some(value) = found.get(field) else {
                let text = format!("section {name} has no field {field}");
                return Ok(failed(call, Code::FieldMissing, text, READ));
            };
            item = json!({name: {field: value}});
        }
    }
    one(call, item, READ)
}

/// Returns the unmodified file, or the output of [`sections`] if there is none.
fn raw(call: &Call) -> Answer {
    let text = match &call.api.options.config {
        Some(file) => file.read().map(|text| (TOML, text.into_bytes())),
        None => sections(call).map(|sections| (JSON, to_bytes(&sections, true))),
    };
    match text {
        Ok((content_type, body)) => Answer::Raw { status: StatusCode::OK, content_type, body },
        Err(cause) => failed(call, Code::FileInaccessible, cause, READ),
    }
}

fn api_config(call: &Call) -> Result<Answer, Failure> {
    let item = json!({"node_name": call.api.node(), "node_api_config": api_facts(call)});
    let messages = [
        "API configuration was successfully read",
        "Could not read API configuration in some nodes",
        "Could not read API configuration in any node",
    ];
    one(call, item, messages)
}

fn validation(call: &Call) -> Result<Answer, Failure> {
    let checked = match &call.api.options.config {
        Some(file) => file.read().and_then(|text| file.values(&text).map(drop)),
        // The configuration the server was started with is valid, or it would not be running.
        None => Ok(()),
    };
    let mut item = json!({"name": call.api.node(), "status": "OK"});
    if let (Err(cause), Value::Object(fields)) = (checked, &mut item) {
        fields.insert("status".into(), json!("KO"));
        fields.insert("details".into(), json!([cause]));
    }
    let messages = [
        "Validation was successfully checked",
        "Could not check validation in some nodes",
        "Could not check validation in any node",
    ];
    one(call, item, messages)
}

fn configure(call: &Call) -> Result<Answer, Failure> {
    own_node(call)?;
    let messages = [
        "Configuration was successfully updated",
        "",
        "Could not update configuration in any node",
    ];
    let Some(file) = &call.api.options.config else {
        let text = "this server was started without a configuration file".to_owned();
        return Ok(failed(call, Code::FileMissing, text, messages));
    };
    if call.body.is_empty() {
        let text = "the configuration is empty".to_owned();
        return Ok(failed(call, Code::ConfigurationInvalid, text, messages));
    }
    let waiting = match checked(file.as_ref(), &call.body) {
        Ok((text, waiting)) => {
            call.begun()?;
            if let Err(cause) = file.store(text) {
                return Ok(failed(call, Code::FileInaccessible, cause, messages));
            }
            waiting
        }
        Err(cause) => return Ok(failed(call, Code::ConfigurationInvalid, cause, messages)),
    };
    let list = List::new(vec![json!(call.api.node())], 1, messages);
    Ok(Answer::List(list.with("restart_needed", json!(waiting))))
}

/// Validates a text; returns it with the keys that take effect at the next start.
fn checked<'a>(file: &dyn ConfigFile, body: &'a [u8]) -> Result<(&'a str, Vec<String>), String> {
    let text = std::str::from_utf8(body).map_err(|_| "not UTF-8 text".to_owned())?;
    Ok((text, file.waiting(text)?))
}
