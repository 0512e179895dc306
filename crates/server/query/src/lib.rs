//! The query language of the query port: JSON objects in, rows as RESP or CSV out.
//!
//! [`Query::parse`] reads a query. `plan` finds the series and makes one lazy line of rows for each
//! name of the answer. [`run()`] orders, filters and writes the lines. Rows are read only as the client
//! consumes them. If a series cannot be read completely, the end of the answer reports it; the other
//! series are complete. A query keeps within its [`Budget`].

mod apply;
mod eval;
mod filter;
mod func;
mod merge;
mod meta;
mod output;
mod parse;
mod plan;
mod read;
mod row;
mod run;
mod steps;
pub mod time;

use series::Store;

pub use apply::FUNCTIONS;
pub use budget::{Budget, Memory, QUERY_TIME_MAX};
pub use meta::{DeleteError, delete};
pub use output::PIECE_BYTES;
pub use parse::Query;
pub use run::run;

/// Returns the answers to a body as a query, as a search and as a suggestion, for fuzzers.
#[doc(hidden)]
pub fn answer_all(store: &Store, body: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for query in [Query::parse(body), Query::parse_search(body), Query::parse_suggest(body)] {
        let budget = Budget::new(QUERY_TIME_MAX, Memory::default(), || false);
        match query {
            Err(e) => all.extend_from_slice(e.as_bytes()),
            Ok(query) => drop(run(store, &query, &budget, |piece| {
                all.extend_from_slice(&piece);
                true
            })),
        }
    }
    all
}

#[cfg(test)]
mod tests;
