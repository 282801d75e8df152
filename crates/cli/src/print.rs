//! Standard output: buffered, and silent once its reader has closed it; or what takes its place for
//! a program that runs the command as a function.

use std::cell::RefCell;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;
pub(crate) use statelens::parts::checkpoint::{counted, grouped, size_text};
use statelens::parts::checkpoint::{listed, try_alloc, visible};
use statelens::parts::describe::grade_word;
use statelens::parts::values::report_json;
use statelens::{Error, Grade};

/// The reason why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error to report.
    Error(Error),
    /// An error that was reported already.
    Reported,
    /// Nothing is wrong, but a part of the input could not be checked, as was reported.
    Incomplete,
    /// The reader closed standard output (`statelens ls … | head`), which is not an error.
    Closed,
}

/// The result of a command: whether the input passes.
pub(crate) type CommandResult = Result<bool, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Standard output.
pub(crate) struct Printer {
    out: io::BufWriter<Box<dyn Write>>,
    /// Keep going when standard output is closed, because the exit status still reports the
    /// verdict.
    verdict: bool,
    closed: bool,
}

impl Printer {
    pub(crate) fn new() -> Self {
        let out: Box<dyn Write> = match CAPTURED.with_borrow(Option::is_some) {
            true => Box::new(Captured),
            false => Box::new(io::stdout().lock()),
        };
        let out = io::BufWriter::with_capacity(64 << 10, out);
        Self { out, verdict: false, closed: false }
    }

    /// Creates a printer for a command whose exit status is its result, which must be computed even
    /// after standard output was closed.
    pub(crate) fn for_verdict() -> Self {
        Self { verdict: true, ..Self::new() }
    }

    /// Prints text unchanged.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.text(text)?;
        self.text("\n")
    }

    /// Prints bytes unchanged.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.closed {
            return Ok(());
        }
        let written = self.out.write_all(bytes);
        self.check_written(written)
    }

    /// Prints a report as a JSON object on one line, after the version of its structure.
    pub(crate) fn report(&mut self, report: &impl Serialize) -> Result<(), Failure> {
        self.line(&report_json(report))
    }

    /// Flushes the buffer; returns the result of a command that succeeded.
    pub(crate) fn success(self) -> CommandResult {
        self.finish().map(|()| true)
    }

    /// Flushes the buffer.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        if self.closed {
            return Ok(());
        }
        let flushed = self.out.flush();
        self.check_written(flushed)
    }

    fn check_written(&mut self, written: io::Result<()>) -> Result<(), Failure> {
        match written.map_err(failure) {
            Err(Failure::Closed) if self.verdict => {
                self.closed = true;
                Ok(())
            }
            told => told,
        }
    }
}

thread_local! {
    /// The output of this thread, while it is captured.
    static CAPTURED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    /// The lines for standard error of this thread, while they are captured.
    static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Takes the place of standard output.
struct Captured;

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        CAPTURED.with_borrow_mut(|captured| captured.get_or_insert_default().extend(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `work`; also returns what it printed, and its lines for standard error.
pub(crate) fn captured<T>(work: impl FnOnce() -> T) -> (T, String, Vec<String>) {
    let outer = (CAPTURED.replace(Some(Vec::new())), NOTES.take());
    let done = work();
    let printed = CAPTURED.replace(outer.0).unwrap_or_default();
    (done, String::from_utf8_lossy(&printed).into_owned(), NOTES.replace(outer.1))
}

/// Lists the first few keys, in backticks.
pub(crate) fn keys_text(keys: &[String]) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    listed(&keys, 3)
}

/// Returns the word of a grade, padded to `width` characters. It is coloured unless standard output
/// is not a terminal with colours or `NO_COLOR` is set.
pub(crate) fn grade_text(grade: Grade, width: usize) -> String {
    let word = format!("{:width$}", grade_word(grade));
    let style = match grade {
        Grade::Note => return word,
        Grade::Warning => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
        Grade::Damage | Grade::UnknownCode => Style::new().fg_color(Some(AnsiColor::Red.into())),
        Grade::Danger => Style::new().bold().fg_color(Some(AnsiColor::Red.into())),
    };
    match anstream::AutoStream::choice(&io::stdout()) {
        anstream::ColorChoice::Never => word,
        _ => format!("{style}{word}{style:#}"),
    }
}

/// Prints a line on standard error. Errors are ignored: there is nowhere to report them.
pub(crate) fn warn(text: &str) {
    if CAPTURED.with_borrow(Option::is_some) {
        return NOTES.with_borrow_mut(|notes| notes.push(visible(text)));
    }
    let _ = writeln!(io::stderr(), "statelens: {}", visible(text));
}

fn failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::Error(Error::io(format!("printing failed: {error}"))),
    }
}

/// Returns the number of characters in a cell.
fn width_of(cell: &str) -> usize {
    if cell.is_ascii() { cell.len() } else { cell.chars().count() }
}

/// A table. Each column is as wide as its widest cell; the last one is not padded.
pub(crate) struct TextTable {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
    /// Set if there was not enough memory for all rows.
    lack: Option<Error>,
}

impl TextTable {
    /// Sets the headings; a `>` in front aligns the column to the right.
    pub(crate) fn new(heads: &[&str]) -> Self {
        let right = heads.iter().map(|head| head.starts_with('>')).collect();
        let heads = heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        Self { right, rows: vec![heads], lack: None }
    }

    /// Adds a row; control characters are made visible. If memory runs out, printing fails.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        if self.lack.is_none() {
            let is_plain = |cell: &str| cell.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            let shown = |cell: String| if is_plain(&cell) { cell } else { visible(&cell) };
            let row = cells.into_iter().map(shown).collect();
            self.lack = try_alloc::push(&mut self.rows, row).err();
        }
    }

    /// Returns the width of a column.
    pub(crate) fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| width_of(cell).min(60)).max().unwrap_or(0)
    }

    /// Prints the table with its headings.
    pub(crate) fn print(self, printer: &mut Printer) -> Result<(), Failure> {
        self.print_from(0, printer)
    }

    /// Prints the table without its headings.
    pub(crate) fn print_body(self, printer: &mut Printer) -> Result<(), Failure> {
        self.print_from(1, printer)
    }

    fn print_from(self, first: usize, printer: &mut Printer) -> Result<(), Failure> {
        if let Some(lack) = self.lack {
            return Err(lack.into());
        }
        let mut widths = vec![0; self.right.len()];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                // A very long key must not push every other column off the screen.
                *width = (*width).max(width_of(cell).min(60));
            }
        }
        for row in self.rows.iter().skip(first) {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&self.right) {
                let gap = width.saturating_sub(width_of(cell));
                if *right {
                    line.extend(std::iter::repeat_n(' ', gap));
                }
                line.push_str(cell);
                if !*right {
                    line.extend(std::iter::repeat_n(' ', gap));
                }
                line.push_str("  ");
            }
            printer.line(line.trim_end())?;
        }
        Ok(())
    }
}
