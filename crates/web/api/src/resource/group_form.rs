//! A group's configuration in the format of the 4.x API: each `agent_config` block with the agents that
//! it applies to and its sections as an object. An element with attributes becomes an object of these
//! with its text as `item`, repeated elements become a list, and monitored folders a list of paths. The
//! TOML format is one block for all agents.

use roxmltree::{Document, Node, ParsingOptions};
use serde_json::{Map, Value, json};

/// Elements that are always lists; their texts hold several paths, separated by commas.
const PATHS: &[&str] = &["directories", "nodiff"];
/// Depth from which nested elements are omitted.
const DEPTH_MAX: usize = 64;

/// Returns the blocks of a group's configuration text.
pub(super) fn blocks(text: &str) -> Vec<Value> {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if start.is_empty() {
        return Vec::new();
    }
    let blocks = if settings::is_xml(start) { of_xml(start) } else { of_toml(start) };
    // Texts are validated when they are stored; one that cannot be parsed here is returned as text.
    blocks.unwrap_or_else(|| vec![block(&json!({}), &json!(text))])
}

fn block(filters: &Value, config: &Value) -> Value {
    json!({"filters": filters, "config": config})
}

fn of_toml(text: &str) -> Option<Vec<Value>> {
    let table: toml::Table = toml::from_str(text).ok()?;
    Some(vec![block(&json!({}), &serde_json::to_value(table).ok()?)])
}

fn of_xml(text: &str) -> Option<Vec<Value>> {
    let body = match text.strip_prefix("<?xml ") {
        Some(rest) => rest.split_once("?>")?.1,
        None => text,
    };
    // The text may have several root elements, so one is added around them.
    let whole = format!("<all>{body}</all>");
    let options = ParsingOptions {
        allow_dtd: false,
        nodes_limit: settings::limits::XML_NODES_MAX,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(&whole, options).ok()?;
    let roots = document.root_element().children().filter(Node::is_element);
    Some(roots.map(|root| block(&Value::Object(attributes(root)), &inside(root, 0))).collect())
}

fn attributes(node: Node<'_, '_>) -> Map<String, Value> {
    node.attributes().map(|a| (a.name().to_owned(), json!(a.value()))).collect()
}

/// Returns the child elements by name.
fn inside(node: Node<'_, '_>, depth: usize) -> Value {
    let mut fields = Map::new();
    if depth > DEPTH_MAX {
        return Value::Object(fields);
    }
    for child in node.children().filter(Node::is_element) {
        let name = child.tag_name().name();
        let value = if PATHS.contains(&name) { paths(child) } else { element(child, depth + 1) };
        match (fields.get_mut(name), value) {
            (None, value) => _ = fields.insert(name.to_owned(), value),
            (Some(Value::Array(items)), Value::Array(more)) => items.extend(more),
            (Some(Value::Array(items)), value) => items.push(value),
            (Some(first), value) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    Value::Object(fields)
}

fn paths(node: Node<'_, '_>) -> Value {
    let whole = text(node);
    let paths = whole.split(',').map(str::trim).filter(|path| !path.is_empty());
    let item = |path: &str| {
        let mut item = attributes(node);
        item.insert("path".into(), json!(path));
        Value::Object(item)
    };
    Value::Array(paths.map(item).collect())
}

fn element(node: Node<'_, '_>, depth: usize) -> Value {
    let mut fields = attributes(node);
    if node.children().any(|child| child.is_element()) {
        if let Value::Object(own) = inside(node, depth) {
            fields.extend(own);
        }
        return Value::Object(fields);
    }
    if fields.is_empty() {
        return json!(text(node));
    }
    fields.insert("item".into(), json!(text(node)));
    Value::Object(fields)
}

fn text(node: Node<'_, '_>) -> String {
    node.text().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_blocks_have_the_4x_json_shape() {
        let xml = "<?xml version=\"1.0\"?>
            <agent_config os=\"Linux\"><syscheck><frequency>60</frequency>
              <directories check_all=\"yes\">/etc, /usr/bin</directories>
              <directories>/srv</directories>
              <ignore>/a</ignore><ignore type=\"sregex\">.log$</ignore></syscheck></agent_config>
            <agent_config/>";
        let syscheck = json!({
            "frequency": "60",
            "directories": [
                {"check_all": "yes", "path": "/etc"},
                {"check_all": "yes", "path": "/usr/bin"},
                {"path": "/srv"},
            ],
            "ignore": ["/a", {"type": "sregex", "item": ".log$"}],
        });
        assert_eq!(
            blocks(xml),
            [
                json!({"filters": {"os": "Linux"}, "config": {"syscheck": syscheck}}),
                json!({"filters": {}, "config": {}}),
            ]
        );
        let toml = "[[watch]]\npath = \"/etc\"\n";
        let config = json!({"watch": [{"path": "/etc"}]});
        assert_eq!(blocks(toml), [json!({"filters": {}, "config": config})]);
        assert_eq!(blocks(" \n"), [Value::Null; 0]);
        assert_eq!(blocks("<a"), [json!({"filters": {}, "config": "<a"})]);
    }
}
