//! The server itself, presented as cluster and manager: one node, which is its own master.
//!
//! The daemons of the 4.x API are mapped to components of this server; those without a counterpart are
//! omitted.

use serde_json::{Map, Value, json};

use super::node::{CLUSTER, MANAGER, NODE, NODES, explicit, one, own_node, read, wanted};
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List};
use rest::http::listing::Listing;
use rest::http::operation::{
    COMMON, Handler, Kind, LISTED, Operation, PAGING, Parameter, Shape, Verb, action, query,
};

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        verb: Verb::Get,
        path: "/cluster/status",
        id: "cluster.status",
        about: "Whether there is a cluster.",
        access: action("cluster:status", "*:*"),
        parameters: &[COMMON],
        body: None,
        shape: Shape::Plain("Facts"),
        handler: Handler::Blocking(|_| {
            Ok(Answer::Plain(json!({"enabled": "no", "running": "no"})))
        }),
    },
    read("/cluster/local/info", "cluster.local_info", "This node.", CLUSTER, &[COMMON], local),
    read(
        "/cluster/local/config",
        "cluster.local_config",
        "This node's place in the cluster.",
        CLUSTER,
        &[COMMON],
        local_config,
    ),
    read(
        "/cluster/nodes",
        "cluster.nodes",
        "The nodes: this one.",
        CLUSTER,
        &[
            COMMON,
            PAGING,
            LISTED,
            &[query("type", Kind::Word(&["worker", "master"]), "Kind of the node."), NODES],
        ],
        nodes,
    ),
    read(
        "/cluster/healthcheck",
        "cluster.healthcheck",
        "The state of the nodes.",
        CLUSTER,
        &[COMMON, &[NODES]],
        health,
    ),
    read(
        "/cluster/{node_id}/status",
        "cluster.node_status",
        "The parts of a node.",
        CLUSTER,
        &[COMMON, &[NODE]],
        status,
    ),
    read(
        "/cluster/{node_id}/info",
        "cluster.node_info",
        "Version and components of a node.",
        CLUSTER,
        &[COMMON, &[NODE]],
        info,
    ),
    read(
        "/cluster/{node_id}/logs",
        "cluster.node_logs",
        "The latest lines of a node's log.",
        CLUSTER,
        &[COMMON, LOG_PAGE, LISTED, LOG_FILTERS, &[NODE]],
        logs,
    ),
    read(
        "/cluster/{node_id}/logs/summary",
        "cluster.node_logs_summary",
        "Lines of a node's log by part and level.",
        CLUSTER,
        &[COMMON, &[NODE]],
        logs_summary,
    ),
    read(
        "/manager/status",
        "manager.status",
        "The parts of the server.",
        MANAGER,
        &[COMMON],
        status,
    ),
    read(
        "/manager/info",
        "manager.info",
        "Version and components of the server.",
        MANAGER,
        &[COMMON],
        info,
    ),
    read(
        "/manager/logs",
        "manager.logs",
        "The latest lines of the log.",
        MANAGER,
        &[COMMON, LOG_PAGE, LISTED, LOG_FILTERS],
        logs,
    ),
    read(
        "/manager/logs/summary",
        "manager.logs_summary",
        "Lines of the log by part and level.",
        MANAGER,
        &[COMMON],
        logs_summary,
    ),
];

/// `offset` and `limit` of the log, which has smaller pages.
const LOG_PAGE: &[Parameter] = &[
    query("offset", Kind::Offset, "First line to return, from 0."),
    query("limit", Kind::Whole { min: 1, max: 500, default: 500 }, "Most lines to return."),
];

const LOG_FILTERS: &[Parameter] = &[
    query("tag", Kind::Alphanumeric, "Part of the server that wrote the line."),
    query(
        "level",
        Kind::Word(&["critical", "debug", "debug2", "error", "info", "warning"]),
        "Level of the line.",
    ),
];

const INFO: [&str; 3] = [
    "Basic information was successfully read",
    "Could not read basic information in some nodes",
    "Could not read basic information in any node",
];

fn local(call: &Call) -> Result<Answer, Failure> {
    call.require(call.action, "node:id", call.api.node())?;
    let cluster = &call.api.registry.options().cluster_name;
    one(call, json!({"node": call.api.node(), "cluster": cluster, "type": "master"}), INFO)
}

fn local_config(call: &Call) -> Result<Answer, Failure> {
    call.require(call.action, "node:id", call.api.node())?;
    let cluster = &call.api.registry.options().cluster_name;
    let item = json!({
        "name": cluster, "node_name": call.api.node(), "node_type": "master", "disabled": true,
        "nodes": [],
    });
    one(call, item, INFO)
}

fn node_item(call: &Call) -> Value {
    json!({
        "name": call.api.node(), "type": "master", "version": call.api.options.version,
        "ip": call.api.options.hostname,
    })
}

const NODE_LIST: Listing = Listing {
    fields: &["name", "type", "version", "ip"],
    always: &[],
    messages: [
        "All selected nodes information was returned",
        "Some nodes information was not returned",
        "No information was returned",
    ],
};

fn nodes(call: &Call) -> Result<Answer, Failure> {
    let wanted = wanted(call) && call.parameters.text("type").is_none_or(|kind| kind == "master");
    let items = if wanted { vec![node_item(call)] } else { Vec::new() };
    let mut list = NODE_LIST.page(call, items)?;
    explicit(call, &mut list);
    Ok(Answer::List(list))
}

fn health(call: &Call) -> Result<Answer, Failure> {
    let mut info = node_item(call);
    let active = call.registry().status_summary()?.active;
    if let Value::Object(fields) = &mut info {
        fields.insert("n_active_agents".into(), json!(active));
    }
    let messages = [
        "All selected nodes healthcheck information was returned",
        "Some nodes healthcheck information was not returned",
        "No healthcheck information was returned",
    ];
    one(call, json!({"info": info}), messages)
}

/// Returns the components of this server, each running or stopped.
fn status(call: &Call) -> Result<Answer, Failure> {
    let word = |runs: bool| if runs { "running" } else { "stopped" };
    let sessions = call.api.is_ready() && call.commit().available().is_ok();
    let item = json!({
        "holdfast-api": word(true),
        "holdfast-sessions": word(sessions),
        "holdfast-commit": word(call.commit().available().is_ok()),
        "holdfast-state": word(call.state().applied().is_ok()),
        "holdfast-registry": word(call.registry().summary(call.reader()).is_ok()),
    });
    let messages = [
        "Processes status was successfully read",
        "Could not read status in some nodes",
        "Could not read status in any node",
    ];
    one(call, item, messages)
}

fn info(call: &Call) -> Result<Answer, Failure> {
    let item = json!({
        "path": call.api.options.folder,
        "version": format!("v{}", call.api.options.version),
        "type": "server",
        "max_agents": "unlimited",
        "openssl_support": "no",
        "tz_offset": "+0000",
        "tz_name": "UTC",
    });
    one(call, item, INFO)
}

const LOG_LIST: Listing = Listing {
    fields: &["timestamp", "tag", "level", "description"],
    always: &[],
    messages: [
        "Logs were successfully read",
        "Could not read logs in some nodes",
        "Could not read logs in any node",
    ],
};

fn logs(call: &Call) -> Result<Answer, Failure> {
    own_node(call)?;
    let (tag, level) = (call.parameters.text("tag"), call.parameters.text("level"));
    let mut items = Vec::new();
    for line in call.api.options.log.newest_first() {
        if tag.is_none_or(|tag| line.tag == tag) && level.is_none_or(|level| line.level == level) {
            items.push(json!({
                "timestamp": super::common::seconds_z(&model::timestamp::micros(line.at_us)),
                "tag": line.tag,
                "level": line.level,
                "description": line.text,
            }));
        }
    }
    Ok(Answer::List(LOG_LIST.page(call, items)?))
}

fn logs_summary(call: &Call) -> Result<Answer, Failure> {
    own_node(call)?;
    let mut tags: Map<String, Value> = Map::new();
    for line in call.api.options.log.newest_first() {
        let counts = tags.entry(line.tag.clone()).or_insert_with(
            || json!({"all": 0, "critical": 0, "debug": 0, "error": 0, "info": 0, "warning": 0}),
        );
        for name in ["all", line.level] {
            let count = counts.get(name).and_then(Value::as_u64).unwrap_or(0) + 1;
            if let Value::Object(fields) = counts {
                fields.insert(name.into(), json!(count));
            }
        }
    }
    let items: Vec<Value> = tags.into_iter().map(|(tag, counts)| json!({tag: counts})).collect();
    let total = items.len() as u64;
    let messages = [
        "Log was successfully summarized",
        "Could not summarize the log in some nodes",
        "Could not summarize the log in any node",
    ];
    Ok(Answer::List(List::new(items, total, messages)))
}
