#![no_main]
#![allow(dead_code, unreachable_pub, reason = "the decoder's own crate uses the rest")]
#[path = "../../../crates/agent/attribution/src/message.rs"]
mod message;
#[path = "../messages.rs"]
mod messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::messages(data));
