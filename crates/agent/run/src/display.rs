//! The display of a scan: a progress bar on a terminal, and the lines of its result.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use detect::{Progress, RootState, ScanReport};
use indicatif::{ProgressBar, ProgressStyle};
use service::Console;

/// Interval at which the progress bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// Returns the result of a scan as one line.
pub(crate) fn scan_line(report: &ScanReport) -> String {
    let c = &report.counts;
    let mut line = format!(
        "scan: {} files, {} directories, {} others; {} read in {:.2} s",
        c.files,
        c.directories,
        c.others,
        human_bytes(c.bytes_hashed),
        report.seconds,
    );
    if c.baseline > 0 {
        let _ = write!(line, "; {} new in the baseline", c.baseline);
    }
    if c.changes() > 0 {
        let _ =
            write!(line, "; {} created, {} modified, {} deleted", c.created, c.modified, c.deleted);
    }
    let errors: Vec<String> = c.errors.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let errors = if errors.is_empty() { "none".into() } else { errors.join(", ") };
    let _ = write!(line, "; errors: {errors}");
    if report.cancelled {
        line.push_str("; stopped before its end");
    }
    line
}

/// Formats bytes in binary units.
fn human_bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// Shows a running scan on stderr, if that is a terminal, until the result is dropped.
pub fn show_progress(progress: &Progress) -> Option<ShownProgress> {
    io::stderr().is_terminal().then(|| ShownProgress::start(progress.clone()))
}

/// Prints the result of a scan.
pub fn print_scan(console: &Console, report: &ScanReport) {
    console.line(&scan_line(report));
    for root in &report.roots {
        if let RootState::Gap { detail, .. } = &root.state {
            console.line(&format!("gap: {}: {detail}", root.path));
        }
    }
}

/// A progress bar that is shown until it is dropped.
pub struct ShownProgress {
    done: Arc<AtomicBool>,
    drawer: Option<std::thread::JoinHandle<()>>,
}

impl ShownProgress {
    fn start(progress: Progress) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let flag = done.clone();
        let draw = move || {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            let show = || {
                let now = progress.counts();
                let read = human_bytes(now.bytes_hashed);
                bar.set_message(format!("scanning: {} files, {read} read", now.files));
                bar.tick();
            };
            // A short scan is shown once, too.
            show();
            while !flag.load(Ordering::Relaxed) {
                std::thread::park_timeout(DRAW_EVERY);
                show();
            }
            bar.finish_and_clear();
        };
        // Without a thread there is no bar; the scan runs anyway.
        let drawer = std::thread::Builder::new().name("progress".into()).spawn(draw).ok();
        Self { done, drawer }
    }
}

impl Drop for ShownProgress {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(drawer) = self.drawer.take() {
            drawer.thread().unpark();
            let _ = drawer.join();
        }
    }
}
