//! `holdfast audit`: who changed what on the server.

use clap::Args;
use serde_json::Value;

use crate::answer::{at, items, text};
use crate::arguments::ListArgs;
use crate::table;

/// Rows asked for in one page.
const PAGE_ROWS: usize = 1_000;

/// Arguments of `holdfast audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    #[command(flatten)]
    list: ListArgs,
}

pub(crate) async fn run(args: &AuditArgs) -> anyhow::Result<()> {
    let client = args.list.connect.client()?;
    let limit = args.list.limit();
    let mut rows: Vec<Value> = Vec::new();
    loop {
        let page = (limit - rows.len()).min(PAGE_ROWS);
        let before = rows.last().and_then(|row| at(row, "/id").as_u64());
        let mut query = vec![("limit", page.to_string())];
        query.extend(before.map(|number| ("before", number.to_string())));
        let got = items(&client.get(&["audit"], &query).await?);
        let is_last = got.len() < page;
        rows.extend(got);
        if is_last || rows.len() >= limit {
            break;
        }
    }
    rows.reverse();
    let columns: &[table::Column] = &[
        ("time", |row| text(at(row, "/timestamp"))),
        ("user", |row| text(at(row, "/user"))),
        ("action", |row| text(at(row, "/action"))),
        ("outcome", |row| text(at(row, "/outcome"))),
        ("detail", |row| text(at(row, "/detail"))),
    ];
    args.list.print_latest(&rows, columns);
    Ok(())
}
