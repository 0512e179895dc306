#![no_main]
#![allow(dead_code, unused_imports, reason = "the readers' own crate uses the rest")]
#[path = "../../../crates/server/ingest/src/collector.rs"]
mod collector;
#[path = "../../../crates/server/ingest/src/influx.rs"]
mod influx;
#[path = "../ingest.rs"]
mod ingest;
#[path = "../../../crates/server/ingest/src/number.rs"]
mod number;
#[path = "../../../crates/server/ingest/src/protobuf.rs"]
mod protobuf;
#[path = "../readers.rs"]
mod readers;
#[path = "../../../crates/server/ingest/src/remote.rs"]
mod remote;
#[path = "../../../crates/server/ingest/src/resp.rs"]
mod resp;
#[path = "../../../crates/server/ingest/src/telnet.rs"]
mod telnet;

libfuzzer_sys::fuzz_target!(|data: &[u8]| readers::codec(data));
