//! `docs/reference/api.md` is generated from the server's OpenAPI document and its table of errors;
//! `HOLDFAST_BLESS=1` rewrites it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::common;
use serde_json::{Map, Value};

const HEAD: &str = "# REST API\n\n\
    This page is generated from the OpenAPI document (`GET /openapi.json`) and the program's table of errors; \
    every test run compares them. [The guide](api-guide.md) explains how to log in, the envelopes, the limits, \
    `q` and the differences from the 4.x API, and has examples of answers.\n\n";

const ERRORS: &str = "\n## Errors\n\n\
    A failed request is answered with the status; `error` is the number. If a request names items one by one, \
    the status is 200, and `failed_items` lists those that failed with number, text and remedy. A text may be \
    more precise than the one below. Failures without a number are in \
    [the guide](api-guide.md#envelopes).\n\n\
    | number | status | text | remedy |\n|---|---|---|---|\n";

#[test]
fn generated_api_reference_equals_the_committed_one() {
    let document: Value = serde_json::from_str(&api::openapi_json()).unwrap();
    let mut text = String::from(HEAD);
    operations(&mut text, &document);
    parameters(&mut text, &document);
    shapes(&mut text, &document);
    text.push_str(ERRORS);
    for (code, status, said, remedy) in api::error_codes() {
        writeln!(text, "| {code} | {status} | {} | {} |", cell(said), cell(remedy)).unwrap();
    }
    common::golden("../../../docs/reference/api.md", &text);
}

/// Returns every operation of the description: its path, method and definition.
fn described(document: &Value) -> impl Iterator<Item = (&str, String, &Value)> {
    document["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(move |(method, said)| (path.as_str(), method.to_uppercase(), said))
    })
}

fn operations(text: &mut String, document: &Value) {
    text.push_str(
        "## Operations\n\nA parameter with * is required. `pretty` and `wait_for_complete`, which nearly every \
         operation takes, are left out. A shape with [] is returned in the envelope of a list.\n",
    );
    let mut sections: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, method, said) in described(document) {
        let row = format!(
            "| `{method} {path}` | {}{} | {} | {} | {} |",
            cell(said["summary"].as_str().unwrap()),
            if said["deprecated"] == true { " Deprecated." } else { "" },
            names_of_parameters(said).join(", "),
            content(&said["requestBody"]),
            content(&said["responses"]["200"]),
        );
        sections.entry(said["tags"][0].as_str().unwrap()).or_default().push(row);
    }
    for (section, rows) in sections {
        let head =
            "| operation | what it does | parameters | body | answer |\n|---|---|---|---|---|";
        writeln!(text, "\n### {section}\n\n{head}\n{}", rows.join("\n")).unwrap();
    }
}

fn parameters_of(said: &Value) -> impl Iterator<Item = &Value> {
    let common =
        |p: &&Value| ["pretty", "wait_for_complete"].contains(&p["name"].as_str().unwrap());
    said["parameters"].as_array().into_iter().flatten().filter(move |p| !common(p))
}

fn names_of_parameters(said: &Value) -> Vec<String> {
    let name = |p: &Value| {
        let star = if p["required"] == true && p["in"] == "query" { "*" } else { "" };
        format!("`{}`{star}", p["name"].as_str().unwrap())
    };
    parameters_of(said).map(name).collect()
}

/// Returns the schemas of a body or an answer, or its content type if it has none.
fn content(said: &Value) -> String {
    let Some(content) = said["content"].as_object() else { return String::new() };
    let shape = |(kind, media): (&String, &Value)| {
        let schema = &media["schema"];
        let items = &schema["properties"]["data"]["properties"]["affected_items"]["items"];
        match (items.is_null(), named(schema)) {
            (false, _) => format!("{}[]", kind_of(items)),
            (true, Some(name)) => name,
            (true, None) if schema["properties"]["data"].is_object() => {
                kind_of(&schema["properties"]["data"])
            }
            (true, None) => kind.clone(),
        }
    };
    content.iter().map(shape).collect::<Vec<_>>().join(", ")
}

/// Returns the name of a schema as a link within this page.
fn named(schema: &Value) -> Option<String> {
    let name = schema["$ref"].as_str()?.rsplit('/').next()?;
    Some(format!("[{name}](#{})", name.to_lowercase()))
}

fn kind_of(schema: &Value) -> String {
    if let Some(name) = named(schema) {
        return name;
    }
    if let Some(several) = schema["oneOf"].as_array() {
        return several.iter().map(kind_of).collect::<Vec<_>>().join(" or ");
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => {
            kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ")
        }
        Value::String(kind) => kind.clone(),
        _ => "anything".to_owned(),
    };
    if schema["items"].is_object() {
        return format!("{kinds} of {}", kind_of(&schema["items"]));
    }
    let words = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    if words.is_empty() { kinds } else { words.join(", ") }
}

/// Returns the limits and the default of a value.
fn bounds_of(schema: &Value) -> String {
    let mut bounds = Vec::new();
    for (key, said) in [
        ("minimum", "from"),
        ("maximum", "to"),
        ("minLength", "characters from"),
        ("maxLength", "characters to"),
        ("default", "default"),
    ] {
        if !schema[key].is_null() {
            bounds.push(format!("{said} {}", schema[key].to_string().trim_matches('"')));
        }
    }
    let pattern = schema["pattern"].as_str().or(schema["items"]["pattern"].as_str());
    bounds.extend(pattern.map(|pattern| format!("`{pattern}`")));
    bounds.join(", ")
}

fn parameters(text: &mut String, document: &Value) {
    text.push_str(
        "\n## Parameters\n\nA parameter with several meanings has one row for each. The first row is for all operations \
         that the others do not name. An array is one comma-separated value.\n\n\
         | parameter | what | value | bounds |\n|---|---|---|---|\n",
    );
    let mut meanings: BTreeMap<&str, BTreeMap<[String; 3], BTreeSet<String>>> = BTreeMap::new();
    for (path, method, said) in described(document) {
        for p in said["parameters"].as_array().into_iter().flatten() {
            let (name, schema) = (p["name"].as_str().unwrap(), &p["schema"]);
            let what = p["description"].as_str().unwrap().to_owned();
            let meaning = [what, kind_of(schema), bounds_of(schema)].map(|part| cell(&part));
            let takers = meanings.entry(name).or_default().entry(meaning).or_default();
            takers.insert(format!("`{method} {path}`"));
        }
    }
    for (name, meanings) in meanings {
        let mut meanings: Vec<_> = meanings.into_iter().collect();
        meanings.sort_by_key(|(_, takers)| std::cmp::Reverse(takers.len()));
        for (at, ([what, kind, bounds], takers)) in meanings.into_iter().enumerate() {
            let takers = takers.into_iter().collect::<Vec<_>>().join(", ");
            let whose = if at == 0 { String::new() } else { format!(" {takers}") };
            writeln!(text, "| `{name}` | {what}{whose} | {kind} | {bounds} |").unwrap();
        }
    }
}

fn shapes(text: &mut String, document: &Value) {
    text.push_str(
        "\n## Shapes\n\nA field with * is always present. The [guide](api-guide.md) describes the fields of a shape \
         that has none here.\n",
    );
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let about = schema["description"].as_str().unwrap_or_default();
        let of = if schema["type"] == "object" { String::new() } else { kind_of(schema) };
        let line = [about, &of].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        let line = if line.is_empty() { "An object.".to_owned() } else { line.join(" ") };
        writeln!(text, "\n### {name}\n\n{line}").unwrap();
        if let Some(fields) = schema["properties"].as_object() {
            text.push_str("\n| field | what | value | bounds |\n|---|---|---|---|\n");
            fields_of(text, fields, &schema["required"]);
        }
    }
}

fn fields_of(text: &mut String, fields: &Map<String, Value>, required: &Value) {
    let required: Vec<&str> =
        required.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, schema) in fields {
        let star = if required.contains(&name.as_str()) { "*" } else { "" };
        let what = cell(schema["description"].as_str().unwrap_or_default());
        let (kind, bounds) = (cell(&kind_of(schema)), cell(&bounds_of(schema)));
        writeln!(text, "| `{name}`{star} | {what} | {kind} | {bounds} |").unwrap();
    }
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
