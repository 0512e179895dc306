//! The tables of operations and of errors in `docs/reference/` are made from what the server itself
//! answers; `HOLDFAST_BLESS=1` writes them anew.

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

#[test]
fn the_table_of_errors_is_the_committed_one() {
    let mut text = String::from(
        "# Errors of the REST API\n\nMade from the program's own table. A failed request answers with \
         the status, and the number stands in `error`; of things named one by one, those that fail \
         stand under `failed_items` with number, text and remedy, and the status is 200. A request \
         may have a text of its own where it can be more precise. Failures without a number, and all \
         else: [api.md](api.md).\n\n\
         | number | status | text | remedy |\n|---|---|---|---|\n",
    );
    for (code, status, said, remedy) in api::error_codes() {
        let cell = |text: &str| text.replace('|', "\\|");
        writeln!(text, "| {code} | {status} | {} | {} |", cell(said), cell(remedy)).unwrap();
    }
    common::golden("../../../docs/reference/api-errors.md", &text);
}
