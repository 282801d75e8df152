//! Standard output: buffered, and silent once its reader has closed it. A program that runs the
//! command as a function can replace it.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;
pub(crate) use statelens::parts::checkpoint::{counted, grouped, size_text};
use statelens::parts::checkpoint::{listed, place_text, try_alloc, visible};
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
            other => other,
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
    let text = |key: &String| match key.is_empty() {
        true => place_text(key).to_owned(),
        false => format!("`{key}`"),
    };
    listed(&keys.iter().map(text).collect::<Vec<_>>(), 3)
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
///
/// All cells are in one text, since a table may have fifty thousand rows.
pub(crate) struct TextTable {
    right: Vec<bool>,
    /// The widths of the columns so far. A very long key must not push every other column off the
    /// screen, so each is at most [`MAX_WIDTH`].
    widths: Vec<usize>,
    /// The cells, row by row; the first row has the headings.
    text: String,
    /// The ends of the cells in `text`.
    ends: Vec<usize>,
    /// Set if there was not enough memory for all rows.
    lack: Option<Error>,
}

/// The maximum width of a column, in characters.
const MAX_WIDTH: usize = SPACES.len();

/// The widest gap between columns.
const SPACES: &str = "                                                            ";

impl TextTable {
    /// Sets the headings; a `>` in front aligns the column to the right.
    pub(crate) fn new(heads: &[&str]) -> Self {
        let right: Vec<bool> = heads.iter().map(|head| head.starts_with('>')).collect();
        let widths = vec![0; right.len()];
        let mut table = Self { right, widths, text: String::new(), ends: Vec::new(), lack: None };
        table.row(heads.iter().map(|head| head.trim_start_matches('>')));
        table
    }

    /// Adds a row; control characters are made visible, and missing cells are empty. If memory runs
    /// out, printing fails.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) {
        if self.lack.is_none() {
            self.lack = self.add(cells).err();
        }
    }

    fn add(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), Error> {
        let is_plain = |cell: &str| cell.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let mut cells = cells.into_iter();
        for width in &mut self.widths {
            let cell = cells.next();
            let cell = cell.as_ref().map_or("", AsRef::as_ref);
            let shown = match is_plain(cell) {
                true => Cow::Borrowed(cell),
                false => Cow::Owned(visible(cell)),
            };
            *width = (*width).max(width_of(&shown).min(MAX_WIDTH));
            try_alloc::make_room_in_text(&mut self.text, shown.len())?;
            self.text.push_str(&shown);
            try_alloc::push(&mut self.ends, self.text.len())?;
        }
        Ok(())
    }

    /// Adds the rows of another table with the same headings.
    pub(crate) fn followed_by(mut self, other: Self) -> Self {
        self.lack = self.lack.or(other.lack);
        let heads = other.ends.get(..self.right.len()).and_then(<[_]>::last).copied().unwrap_or(0);
        let (rows, start) = (other.text.get(heads..).unwrap_or_default(), self.text.len());
        let ends = other.ends.get(self.right.len()..).unwrap_or_default();
        let room = try_alloc::make_room_in_text(&mut self.text, rows.len())
            .and_then(|()| try_alloc::make_room(&mut self.ends, ends.len() as u64));
        match room {
            Ok(()) => {
                self.text.push_str(rows);
                self.ends.extend(ends.iter().map(|end| end - heads + start));
            }
            Err(lack) => self.lack = Some(lack),
        }
        for (width, other) in self.widths.iter_mut().zip(other.widths) {
            *width = (*width).max(other);
        }
        self
    }

    /// Returns the width of a column.
    pub(crate) fn width(&self, column: usize) -> usize {
        self.widths.get(column).copied().unwrap_or(0)
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
        let (mut start, mut line) = (0, String::new());
        for (number, ends) in self.ends.chunks(self.right.len().max(1)).enumerate() {
            line.clear();
            for ((end, width), right) in ends.iter().zip(&self.widths).zip(&self.right) {
                let cell = self.text.get(start..*end).unwrap_or_default();
                start = *end;
                let gap = SPACES.get(..width.saturating_sub(width_of(cell))).unwrap_or_default();
                let (before, after) = if *right { (gap, "") } else { ("", gap) };
                line.push_str(before);
                line.push_str(cell);
                line.push_str(after);
                line.push_str("  ");
            }
            if number >= first {
                printer.line(line.trim_end())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_pad_all_columns_but_the_last() {
        let (printed, text, _) = captured(|| {
            let mut table = TextTable::new(&["key", ">bytes", "value"]);
            table.row(["a", "1"]);
            table.row(vec!["\u{e9}".to_owned(), "1,000".to_owned(), "x".to_owned()]);
            assert_eq!((table.width(0), table.width(1), table.width(9)), (3, 5, 0));
            let mut printer = Printer::new();
            table.print(&mut printer).and_then(|()| printer.finish()).is_ok()
        });
        assert!(printed);
        assert_eq!(text, "key  bytes  value\na        1\n\u{e9}    1,000  x\n");
    }

    #[test]
    fn tables_with_the_same_headings_are_joined() {
        let table = |rows: &[[&str; 2]]| {
            let mut table = TextTable::new(&["key", ">bytes"]);
            rows.iter().for_each(|row| table.row(row));
            table
        };
        let printed = |table: TextTable| {
            let print = || {
                let mut printer = Printer::new();
                table.print(&mut printer).and_then(|()| printer.finish()).is_ok()
            };
            let (is_printed, text, _) = captured(print);
            assert!(is_printed);
            text
        };
        let (one, other) = ([["a", "1"], ["long", "20"]], [["b", "1,000"], ["\u{e9}", ""]]);
        let joined = table(&one).followed_by(table(&other)).followed_by(table(&[]));
        assert_eq!(printed(joined), printed(table(&[one, other].concat())));
    }
}
