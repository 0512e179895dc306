//! Scans and synchronises everything below /usr of this machine, and compares the server's
//! documents with an independent walk.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::missing_panics_doc,
    clippy::unnecessary_debug_formatting,
    missing_docs,
    reason = "a test that cannot go on fails"
)]

mod common;

use std::path::Path;

use common::{Api, Running, differences, disk, folder, stored};

#[test]
fn server_documents_of_usr_equal_the_disk() {
    let base = folder("usr");
    let data = base.join("data");
    let words = [
        "up",
        "--data",
        data.to_str().unwrap(),
        "--watch",
        "/usr",
        "--api",
        "127.0.0.1:0",
        "--scan-interval",
        "1h",
        "--plain-http",
    ];
    let up = Running::start(&words, &base.join("up.log"));
    let synchronised = up.line("synchronised: ");
    let api = Api::of(&data);
    let on_disk = disk(Path::new("/usr"));
    let told: usize = synchronised.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(told, on_disk.len(), "each entry once");
    differences(&on_disk, &stored(&api, "001")).unwrap();
    println!("{} entries; agent and server together peaked at {} KiB", told, up.peak_kib());

    // Nothing changed, so a rescan must report nothing.
    let before = up.lines();
    api.rescan("001");
    let (_, scan) = up.line_after(before, "scan: ");
    assert!(!scan.contains("created") && !scan.contains("in the baseline"), "{scan}");
    assert_eq!(up.stop(), 0);
}
