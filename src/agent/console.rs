//! What a person sees of an agent: plain lines on stdout, a progress bar on a terminal.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use detect::{Progress, RootState, ScanReport};
use indicatif::{ProgressBar, ProgressStyle};

/// How often the progress bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// The first failure to print.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Where lines for people go. A clone writes to the same place.
#[derive(Debug, Clone)]
pub(crate) struct Console {
    bar: bool,
}

impl Console {
    /// Lines on stdout; a progress bar on stderr when that is a terminal.
    pub(crate) fn new() -> Self {
        Self { bar: io::stderr().is_terminal() }
    }

    #[expect(clippy::unused_self, reason = "a console is where lines go, whichever it is")]
    pub(crate) fn line(&self, text: &str) {
        // A closed stdout is no reason to stop watching.
        let mut out = io::stdout().lock();
        if let Err(e) = writeln!(out, "{text}").and_then(|()| out.flush()) {
            let _ = LOST.set(e);
        }
    }

    /// Why a line could not be printed, if one could not.
    pub(crate) fn lost() -> Option<&'static io::Error> {
        LOST.get()
    }

    /// Show a running scan until the result is dropped.
    pub(crate) fn scanning(&self, progress: &Progress) -> Option<ShownProgress> {
        self.bar.then(|| ShownProgress::start(progress.clone()))
    }

    /// The result of a scan.
    pub(crate) fn scanned(&self, report: &ScanReport) {
        self.line(&scan_line(report));
        for root in &report.roots {
            if let RootState::Gap { detail, .. } = &root.state {
                self.line(&format!("gap: {}: {detail}", root.path));
            }
        }
    }
}

/// One line of a scan's result.
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

/// Bytes for people, in binary units.
fn human_bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// A progress bar that lives as long as this.
pub(crate) struct ShownProgress {
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
            while !flag.load(Ordering::Relaxed) {
                let now = progress.counts();
                bar.set_message(format!(
                    "scanning: {} files, {} read",
                    now.files,
                    human_bytes(now.bytes_hashed)
                ));
                bar.tick();
                std::thread::park_timeout(DRAW_EVERY);
            }
            bar.finish_and_clear();
        };
        // Without a thread there is no bar, which is no reason not to scan.
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
