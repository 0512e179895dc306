#![no_main]
#![allow(dead_code, reason = "each program uses one target")]
#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| readers::codec(data));
