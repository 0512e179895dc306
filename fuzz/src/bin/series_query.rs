#![no_main]
#![allow(dead_code, unused_imports, reason = "the readers' own crate uses the rest")]

// The reader as the ingest crate has it, without its sockets, so that they need not be built.
#[path = "../query.rs"]
mod fuzzed;
#[path = "../../../crates/server/ingest/src/query/mod.rs"]
mod query;
#[path = "../../../crates/server/ingest/src/time.rs"]
mod time;

use query::answer_all;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzed::query(data));
