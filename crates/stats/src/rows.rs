//! What the rows and columns of a matrix are like, on demand.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};

use statelens_checkpoint::DType;

use crate::begun::Begun;
use crate::kind::ElementKind;

/// A row or a column.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Line {
    /// The largest finite magnitude.
    pub abs_max: f64,
    /// The root of the sum of squares of the finite values.
    pub norm: f64,
    /// Values that are NaN or infinite.
    pub not_finite: u64,
}

/// What [`Rows`] found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lines {
    /// The rows, as far as they were whole; empty if there are more than [`MOST_LINES`].
    pub rows: Vec<Line>,
    /// The columns; empty if there are more than [`MOST_LINES`].
    pub columns: Vec<Line>,
    /// Rows that are all zero.
    pub zero_rows: u64,
    /// Rows that are equal, bit for bit, to one before them, those of zeros left out.
    pub copied_rows: u64,
}

impl Lines {
    /// The rows, or columns, by norm, the largest first; of equal ones, that of the lowest number.
    pub fn ranked(lines: &[Line]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..lines.len()).collect();
        order.sort_by(|one, other| {
            lines[*other].norm.total_cmp(&lines[*one].norm).then(one.cmp(other))
        });
        order
    }

    /// The norm in the middle of all.
    pub fn median(lines: &[Line], ranked: &[usize]) -> Option<f64> {
        ranked.get(ranked.len() / 2).and_then(|at| lines.get(*at)).map(|line| line.norm)
    }
}

/// Rows, or columns, that are told one by one.
pub const MOST_LINES: usize = 1 << 22;

/// Looks at a matrix row by row, as its logical bytes come, in pieces of any size. Its sums are those
/// of the order of the values, so it is one for the whole matrix.
#[derive(Debug)]
pub struct Rows {
    kind: ElementKind,
    /// Values in a row.
    width: usize,
    begun: Begun,
    /// Where in the row the next value is.
    at: usize,
    row: Sum,
    hasher: DefaultHasher,
    columns: Vec<Sum>,
    seen: HashMap<u64, ()>,
    found: Lines,
    rows: usize,
}

/// Sums of squares that neither overflow nor vanish: of the values over `scale`.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    scale: f64,
    squares: f64,
    not_finite: u64,
}

impl Rows {
    /// Of rows of so many elements; `None` if they are no numbers, or there are none in a row.
    pub fn new(dtype: &DType, columns: u64) -> Option<Self> {
        let kind = ElementKind::of(dtype)?;
        let width =
            usize::try_from(columns.checked_mul(kind.values())?).ok().filter(|it| *it > 0)?;
        let told = if width <= MOST_LINES { width } else { 0 };
        Some(Self {
            kind,
            width,
            begun: Begun::default(),
            at: 0,
            row: Sum::default(),
            hasher: DefaultHasher::new(),
            columns: vec![Sum::default(); told],
            seen: HashMap::new(),
            found: Lines::default(),
            rows: 0,
        })
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut begun = std::mem::take(&mut self.begun);
        begun.feed(self.kind.size(), bytes, &mut |whole| {
            whole.chunks(PIECE).for_each(|piece| self.take(piece));
        });
        self.begun = begun;
    }

    /// What was found.
    pub fn finish(mut self) -> Lines {
        self.found.columns = self.columns.iter().map(Sum::line).collect();
        self.found
    }

    fn take(&mut self, elements: &[u8]) {
        let each = self.kind.size() / self.kind.values() as usize;
        for (number, value) in self.kind.all(elements).into_iter().enumerate() {
            self.row.add(value);
            if let Some(column) = self.columns.get_mut(self.at) {
                column.add(value);
            }
            // The bytes of the value; of two in a byte, the byte twice.
            let start = number * self.kind.size() / self.kind.values() as usize;
            self.hasher.write(elements.get(start..start + each.max(1)).unwrap_or_default());
            self.at += 1;
            if self.at == self.width {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        let line = std::mem::take(&mut self.row).line();
        let hash = std::mem::take(&mut self.hasher).finish();
        self.at = 0;
        self.rows += 1;
        if line.abs_max == 0.0 && line.not_finite == 0 {
            self.found.zero_rows += 1;
        } else if self.rows <= MOST_LINES && self.seen.insert(hash, ()).is_some() {
            self.found.copied_rows += 1;
        }
        match self.rows <= MOST_LINES {
            true => self.found.rows.push(line),
            false => self.found.rows = Vec::new(),
        }
    }
}

/// Bytes whose values are held at a time.
const PIECE: usize = 16 << 10;

impl Sum {
    fn add(&mut self, value: f64) {
        let magnitude = value.abs();
        if !value.is_finite() {
            self.not_finite += 1;
        } else if magnitude > self.scale {
            let ratio = self.scale / magnitude;
            self.squares = 1.0 + self.squares * ratio * ratio;
            self.scale = magnitude;
        } else if magnitude > 0.0 {
            let ratio = magnitude / self.scale;
            self.squares += ratio * ratio;
        }
    }

    fn line(&self) -> Line {
        Line {
            abs_max: self.scale,
            norm: self.scale * self.squares.sqrt(),
            not_finite: self.not_finite,
        }
    }
}
