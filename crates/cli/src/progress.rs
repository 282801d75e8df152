//! Progress on standard error, if it is a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use statelens::{Progress, Result};

use crate::output::{report_to_caller, stop_signal};
use crate::print::{counted, grouped, size_text};

/// The unit that a job counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes, with a rate in bytes.
    Bytes,
    /// Keys of a checkpoint that is being opened.
    Keys,
    /// Files of a folder.
    Files,
    /// Work that takes roughly even time and has no unit that users know.
    Work,
}

/// A line that shows the progress of a job. Nothing is drawn at first, so that short jobs leave the
/// terminal alone.
pub(crate) struct Bar {
    bar: ProgressBar,
    unit: Unit,
    started: Instant,
    shown: Option<Instant>,
    stop: Option<Arc<AtomicBool>>,
}

const PATIENCE: Duration = Duration::from_millis(500);
const REDRAW: Duration = Duration::from_millis(125);
/// An estimate from less time than this is a guess.
const ETA_AFTER: Duration = Duration::from_secs(2);

impl Bar {
    /// Creates a bar; `job` describes the job in a word.
    pub(crate) fn new(job: &'static str, unit: Unit) -> Self {
        // Hidden until the job takes long enough to be worth showing.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        bar.set_prefix(job);
        Self { bar, unit, started: Instant::now(), shown: None, stop: None }
    }

    /// Creates a bar for a job that a signal stops.
    pub(crate) fn stoppable(job: &'static str, unit: Unit) -> Result<Self> {
        Ok(Self::new(job, unit).stopped_by(stop_signal()?))
    }

    /// Stops the job once `flag` is set.
    #[must_use]
    pub(crate) fn stopped_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.stop = Some(flag);
        self
    }

    fn draw(&self, done: u64, total: u64) {
        // A template that does not parse would show in every test that draws; the default style is
        // good enough then.
        if let Ok(style) = ProgressStyle::with_template(template(width(), total > 0)) {
            self.bar.set_style(style);
        }
        if self.bar.is_hidden() {
            // Stays hidden if standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_length(total.max(1));
        self.bar.set_position(done);
        self.bar.set_message(self.message(done, total));
    }

    fn message(&self, done: u64, total: u64) -> String {
        let spent = self.started.elapsed();
        let rate = done as f64 / spent.as_secs_f64().max(1e-3);
        let count = match self.unit {
            Unit::Keys => return counted(done, "key"),
            Unit::Files => return format!("{} of {}", grouped(done), counted(total, "file")),
            Unit::Bytes if total > 0 => format!("{} of {}", size_text(done), size_text(total)),
            Unit::Bytes | Unit::Work => size_text(done),
        };
        let eta = if total > done && rate > 0.0 && spent >= ETA_AFTER {
            let left = Duration::from_secs((((total - done) as f64) / rate).ceil() as u64);
            format!(", {} left", HumanDuration(left))
        } else {
            String::new()
        };
        if self.unit == Unit::Work {
            return format!("{:.0} %{eta}", done as f64 / total.max(1) as f64 * 100.0);
        }
        format!("{count}, {}/s{eta}", size_text(rate as u64))
    }
}

/// Returns the columns of the terminal; 80 if unknown.
fn width() -> u16 {
    let size = terminal_size::terminal_size_of(std::io::stderr());
    size.map_or(80, |(terminal_size::Width(width), _)| width)
}

/// Returns the template for a width in columns. The message is cut at the end of the line, so that
/// it never wraps; the bar takes only the space that the message leaves.
fn template(width: u16, bar: bool) -> &'static str {
    match width {
        0..72 => "{prefix} {wide_msg}",
        _ if bar => "{prefix} {bar:24} {wide_msg}",
        _ => "{prefix} {wide_msg}",
    }
}

impl Progress for Bar {
    fn report(&mut self, done: u64, total: u64) -> bool {
        let now = Instant::now();
        let due = match self.shown {
            None => now - self.started >= PATIENCE,
            Some(shown) => now - shown >= REDRAW,
        };
        if due {
            self.shown = Some(now);
            self.draw(done, total);
        }
        report_to_caller(done, total)
            && !self.stop.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.shown.is_some() {
            self.bar.finish_and_clear();
        }
    }
}
