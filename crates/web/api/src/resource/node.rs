//! This node, as named in paths and lists of nodes.

use serde_json::Value;

use rest::code::Code;
use rest::error::Failure;
use rest::http::call::Call;
use rest::http::envelope::{Answer, List};
use rest::http::operation::{
    Access, Handler, Kind, Operation, Parameter, Shape, Verb, action, path, query,
};

pub(super) const NODE: Parameter = path("node_id", Kind::Name, "Name of the node.");
pub(super) const NODES: Parameter =
    query("nodes_list", Kind::Names, "Names, comma-separated; default all.");
pub(super) const CLUSTER: Access = action("cluster:read", "node:id");
pub(super) const MANAGER: Access = action("manager:read", "*:*");

pub(super) const fn read(
    path: &'static str,
    id: &'static str,
    about: &'static str,
    access: Access,
    parameters: &'static [&'static [Parameter]],
    handler: fn(&Call) -> Result<Answer, Failure>,
) -> Operation {
    Operation {
        verb: Verb::Get,
        path,
        id,
        about,
        access,
        parameters,
        body: None,
        shape: Shape::List("Facts"),
        handler: Handler::Blocking(handler),
    }
}

/// Fails if the node in the path is not this one.
pub(super) fn own_node(call: &Call) -> Result<(), Failure> {
    match call.parameters.text("node_id") {
        Some(name) if name != call.api.node() => {
            Err(Failure::detailed(Code::NodeMissing, format!("no such node: {name}")))
        }
        _ => Ok(()),
    }
}

/// Returns true if the caller may see a node; actions on the manager need no permission on a node.
pub(super) fn may_see_node(call: &Call, node: &str) -> bool {
    !call.action.starts_with("cluster:") || call.may(call.action, "node:id", node)
}

/// Returns true if the answer includes this node: the request names it or no node, and the caller may
/// see it.
pub(super) fn wanted(call: &Call) -> bool {
    let (named, own) = (call.parameters.list("nodes_list"), call.api.node());
    may_see_node(call, own) && (named.is_empty() || named.iter().any(|name| name == own))
}

/// Reports the named nodes that do not exist or that the caller may not see.
pub(super) fn explicit(call: &Call, list: &mut List) {
    for name in call.parameters.list("nodes_list") {
        if !may_see_node(call, name) {
            list.fail(Code::Denied, name.clone());
        } else if name != call.api.node() {
            list.fail(Code::NodeMissing, name.clone());
        }
    }
}

pub(super) fn one(
    call: &Call,
    item: Value,
    messages: [&'static str; 3],
) -> Result<Answer, Failure> {
    own_node(call)?;
    let items = if wanted(call) { vec![item] } else { Vec::new() };
    let total = items.len() as u64;
    let mut list = List::new(items, total, messages);
    explicit(call, &mut list);
    Ok(Answer::List(list))
}
