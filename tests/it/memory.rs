//! Memory after a burst of large requests.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread;

use crate::common::series::{Alone, post};
use crate::common::{eventually, folder};

/// Requests at once.
const CLIENTS: u64 = 16;
/// Lines of a request.
const LINES: u64 = 120_000;

/// Returns one request's lines. Each client writes one series, so that the store itself stays small.
fn lines(client: u64) -> String {
    let mut body = String::new();
    for line in 0..LINES {
        let at_ns = 1_700_000_000_000_000_000 + line * 1_000_000;
        let _ = writeln!(body, "burst,client=c{client},padding={:064} value={line} {at_ns}", 0);
    }
    body
}

fn burst(to: SocketAddr) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                // Some are refused while others are read; the burst is large enough.
                post(to, "/write", &[], lines(client).as_bytes());
            });
        }
    });
}

#[test]
fn memory_of_a_burst_is_returned() {
    let data = folder("memory");
    let store = Alone::start(&data, &[]);
    burst(store.http);
    assert_eq!(store.process.stop(), 0);
    let store = Alone::start(&data, &[]);
    let fresh = store.process.resident_kib();
    burst(store.http);
    let peak = store.process.peak_kib();
    assert!(peak > 3 * fresh, "no burst: {fresh} KiB after a start, {peak} KiB at most");
    eventually("the memory is returned", || {
        let now = store.process.resident_kib();
        if now * 2 <= fresh * 3 {
            return Ok(());
        }
        Err(format!("{fresh} KiB after a start, {peak} KiB at most, {now} KiB now"))
    });
}
