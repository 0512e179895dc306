//! The ring of the server's latest log lines.

use api::{LogLine, LogRing};

#[test]
fn oldest_line_is_dropped_and_long_lines_are_cut() {
    let ring = LogRing::default();
    for at_us in 0..=2_000 {
        let text = "ä".repeat(1_024);
        ring.push(LogLine { at_us, level: "info", tag: "t".into(), text });
    }
    let lines = ring.newest_first();
    assert_eq!((lines.len(), lines[0].at_us), (2_000, 2_000));
    assert_eq!(lines[1_999].at_us, 1);
    assert_eq!(lines[0].text.len(), 1_024);
}
