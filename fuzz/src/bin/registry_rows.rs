#![no_main]
#[path = "../rows.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|data: &[u8]| target::registry_rows(data));
