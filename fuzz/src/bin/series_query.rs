#![no_main]
#![allow(dead_code, unused_imports, reason = "the readers' own crate uses the rest")]

#[path = "../query.rs"]
mod fuzzed;

use query::answer_all;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzed::query(data));
