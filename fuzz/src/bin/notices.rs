#![no_main]
#![allow(dead_code, unreachable_pub, reason = "the decoder's own crate uses the rest")]
#[path = "../../../crates/agent/dirty/src/decode.rs"]
mod decode;
#[path = "../notices.rs"]
mod notices;

libfuzzer_sys::fuzz_target!(|data: &[u8]| notices::notices(data));
