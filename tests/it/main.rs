//! The program as its users meet it: real processes, real files, real sockets.

#![allow(
    clippy::case_sensitive_file_extension_comparisons,
    clippy::expect_used,
    clippy::format_collect,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unnecessary_debug_formatting,
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod backup;
mod causes;
mod cli;
mod clock;
mod clock_pause;
mod common;
mod contract;
mod decisions;
mod everyday;
mod follow;
mod follow_numbers;
mod full_disk;
mod grafana;
mod groups;
mod host_metrics;
mod install;
mod large_tree;
mod lose_nothing;
mod memory;
mod notify;
mod old_data;
mod older_registry;
mod open_files;
mod orders;
mod owners;
mod packages;
mod platforms;
mod programs;
mod realtime;
mod registry_failure;
mod repair;
mod series;
mod series_disk;
mod series_documents;
mod series_ports;
mod series_tools;
mod silence;
mod two_servers;
mod undecodable;
mod up;
mod ways_past;
