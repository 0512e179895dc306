#![no_main]
#![allow(dead_code, reason = "the format's own crate uses the rest")]
#[path = "../frames.rs"]
mod frames;
#[path = "../../../crates/server/replication/src/wire.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|data: &[u8]| frames::frames(data));
