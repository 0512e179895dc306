//! The table of operations in `docs/reference/` is made from the description that the server
//! itself gives; `HOLDFAST_BLESS=1` writes it anew.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::excessive_nesting,
    reason = "helpers of tests"
)]

mod common;

use std::fmt::Write as _;

use serde_json::Value;

#[test]
fn the_table_of_operations_is_the_committed_one() {
    let document: Value = serde_json::from_str(&api::openapi_json()).unwrap();
    let mut text = String::from(
        "# Operations of the REST API\n\nMade from `GET /openapi.json`; shapes, codes and `q` are \
         in [api.md](api.md). A name with * must be given.\n\n\
         | operation | what it does | parameters | body |\n|---|---|---|---|\n",
    );
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let names: Vec<String> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|p| !["pretty", "wait_for_complete"].contains(&p["name"].as_str().unwrap()))
                .map(|p| {
                    let star = if p["required"] == true && p["in"] == "query" { "*" } else { "" };
                    format!("`{}`{star}", p["name"].as_str().unwrap())
                })
                .collect();
            let body = operation["requestBody"]["content"]
                .as_object()
                .map(|content| content.keys().cloned().collect::<Vec<_>>().join(", "))
                .unwrap_or_default();
            writeln!(
                text,
                "| `{} {path}` | {} | {} | {body} |",
                method.to_uppercase(),
                operation["summary"].as_str().unwrap(),
                names.join(", ")
            )
            .unwrap();
        }
    }
    common::golden("../../../docs/reference/api-operations.md", &text);
}
