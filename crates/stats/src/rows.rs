//! Statistics of the rows and columns of a matrix, computed on request.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use statelens_checkpoint::{DType, Result};
use statelens_tensor::{Receive, widen_f16, widest};

use crate::byte_hash::ByteHash;
use crate::kind::{Component, ElementKind, Half};
use crate::norm::Norm;

/// Statistics of a row or a column.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MatrixLine {
    /// The largest finite magnitude.
    pub abs_max: f64,
    /// The square root of the sum of squares of the finite values.
    pub norm: f64,
    /// Number of values that are NaN or infinite.
    pub not_finite: u64,
}

/// The result of [`Rows`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MatrixLines {
    /// The complete rows; empty if there are more than [`MAX_LINES`].
    pub rows: Vec<MatrixLine>,
    /// The columns; empty if there are more than [`MAX_LINES`].
    pub columns: Vec<MatrixLine>,
    /// Number of rows that are all zero.
    pub zero_rows: u64,
    /// The indices of the first [`NAMED`] of them.
    pub zero: Vec<u64>,
    /// Number of rows that equal an earlier row bit for bit, not counting rows of zeros.
    pub copied_rows: u64,
    /// The indices of the first [`NAMED`] of them, each with that of the earlier row.
    pub copied: Vec<(u64, u64)>,
}

impl MatrixLines {
    /// Returns the indices of rows or columns by descending norm; equal norms in ascending order.
    pub fn ranked(lines: &[MatrixLine]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..lines.len()).collect();
        order.sort_by(|one, other| {
            lines[*other].norm.total_cmp(&lines[*one].norm).then(one.cmp(other))
        });
        order
    }

    /// Returns the median norm, given the [ranking](Self::ranked) of the lines.
    pub fn median(lines: &[MatrixLine], ranked: &[usize]) -> Option<f64> {
        ranked.get(ranked.len() / 2).and_then(|at| lines.get(*at)).map(|line| line.norm)
    }
}

/// Maximum number of rows or columns that are reported individually.
pub const MAX_LINES: usize = 1 << 22;

/// Maximum number of zero rows, and of copied rows, that are listed by index.
pub const NAMED: usize = 1 << 12;

/// Reads a matrix row by row as its logical bytes arrive, in pieces of any size. Its sums depend on
/// the order of the values, so one instance must read the whole matrix.
#[derive(Debug)]
pub struct Rows {
    kind: ElementKind,
    /// Size of a row in bytes.
    width: usize,
    /// The bytes of a piece of the row that has not fully arrived.
    begun: Vec<u8>,
    lines: RowScan,
}

/// State of reading the rows.
#[derive(Debug)]
struct RowScan {
    /// The positions within the row of the next byte and of the next value.
    at: usize,
    value: usize,
    row: RowAccumulator,
    hash: ByteHash,
    columns: Vec<LineAccumulator>,
    seen: HashMap<u128, u64>,
    found: MatrixLines,
    rows: usize,
}

/// Running statistics of a column, or of a row of doubles.
#[derive(Debug, Clone, Copy, Default)]
struct LineAccumulator {
    norm: Norm,
    abs_max: f64,
    not_finite: u64,
}

/// Running statistics of a row.
#[derive(Debug, Clone, Copy, Default)]
struct RowAccumulator {
    /// The sums of the squares of every eighth value, their largest magnitudes, and how many are
    /// not finite.
    squares: [f64; LANES],
    most: [f64; LANES],
    not_finite: [u64; LANES],
    /// Statistics of doubles, whose squares may overflow.
    wide: LineAccumulator,
}

/// Values that are processed at once.
const LANES: usize = 8;

impl Rows {
    /// Returns a reader of rows of `columns` elements; `None` if the elements are not numeric or
    /// `columns` is 0.
    pub fn new(dtype: &DType, columns: u64) -> Option<Self> {
        let mut rows = Self::without_columns(dtype, columns)?;
        let values = usize::try_from(columns.checked_mul(rows.kind.values())?).ok()?;
        let reported = if values <= MAX_LINES { values } else { 0 };
        rows.lines.columns = vec![LineAccumulator::default(); reported];
        Some(rows)
    }

    /// Like [`Rows::new`], but does not report columns, which takes less time.
    pub fn without_columns(dtype: &DType, columns: u64) -> Option<Self> {
        let kind = ElementKind::of(dtype)?;
        let width = usize::try_from(columns).ok()?.checked_mul(kind.size())?;
        if width == 0 {
            return None;
        }
        let lines = RowScan {
            at: 0,
            value: 0,
            row: RowAccumulator::default(),
            hash: ByteHash::default(),
            columns: Vec::new(),
            seen: HashMap::new(),
            found: MatrixLines::default(),
            rows: 0,
        };
        Some(Self { kind, width, begun: Vec::new(), lines })
    }

    /// Processes the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        let Self { kind, width, begun, lines } = self;
        while !bytes.is_empty() {
            // Rows are divided in the same way however the bytes arrive.
            let size = (*width - lines.at).min(PIECE);
            let (piece, rest) = bytes.split_at(bytes.len().min(size - begun.len()));
            bytes = rest;
            if piece.len() == size {
                lines.take(kind, piece);
            } else {
                begun.extend_from_slice(piece);
                if begun.len() < size {
                    return;
                }
                lines.take(kind, begun);
                begun.clear();
            }
            if lines.at == *width {
                lines.end();
            }
        }
    }

    /// Returns the statistics.
    pub fn finish(self) -> MatrixLines {
        let mut found = self.lines.found;
        found.columns = self.lines.columns.iter().map(LineAccumulator::line).collect();
        found
    }
}

impl Receive for Rows {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        self.feed(bytes);
        Ok(())
    }
}

/// Number of bytes that are converted to values at a time; a multiple of every element size.
const PIECE: usize = 16 << 10;

impl RowScan {
    /// Processes elements of the current row.
    fn take(&mut self, kind: &ElementKind, elements: &[u8]) {
        self.hash.feed(elements);
        match kind {
            ElementKind::F32 => {
                self.row.add(elements.as_chunks().0, |bytes| f32::from_le_bytes(bytes).into());
            }
            ElementKind::Halves(Half::F16) => {
                self.row.add(elements.as_chunks().0, |bytes| {
                    widen_f16(u16::from_le_bytes(bytes)).into()
                });
            }
            ElementKind::Halves(Half::BF16) => {
                self.row.add(elements.as_chunks().0, |bytes| {
                    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16).into()
                });
            }
            ElementKind::F64 | ElementKind::Complex(Component::F64) => {
                kind.all(elements).iter().for_each(|value| self.row.wide.add(*value));
            }
            kind => self.row.add(&kind.all(elements), |value| value),
        }
        if !self.columns.is_empty() {
            let values = kind.all(elements);
            if let Some(columns) = self.columns.get_mut(self.value..self.value + values.len()) {
                columns.iter_mut().zip(&values).for_each(|(column, value)| column.add(*value));
            }
        }
        self.at += elements.len();
        self.value += elements.len() / kind.size() * kind.values() as usize;
    }

    fn end(&mut self) {
        let line = std::mem::take(&mut self.row).line();
        let hash = self.hash.finish();
        let (number, found) = (self.rows as u64, &mut self.found);
        (self.at, self.value) = (0, 0);
        self.rows += 1;
        if line.abs_max == 0.0 && line.not_finite == 0 {
            found.zero_rows += 1;
            if found.zero.len() < NAMED {
                found.zero.push(number);
            }
        } else if self.rows <= MAX_LINES {
            match self.seen.entry(hash) {
                Entry::Occupied(first) => {
                    found.copied_rows += 1;
                    if found.copied.len() < NAMED {
                        found.copied.push((number, *first.get()));
                    }
                }
                Entry::Vacant(place) => {
                    place.insert(number);
                }
            }
        }
        match self.rows <= MAX_LINES {
            true => found.rows.push(line),
            false => found.rows = Vec::new(),
        }
    }
}

impl RowAccumulator {
    /// Adds values whose squares are normal doubles or zero.
    fn add<T: Copy>(&mut self, values: &[T], double: impl Fn(T) -> f64) {
        let (vectors, rest) = values.as_chunks::<LANES>();
        let Self { squares, most, not_finite, .. } = self;
        let mut add = |lane: usize, value: T| {
            let size = double(value).abs();
            let finite = size <= f64::MAX;
            let size = if finite { size } else { 0.0 };
            squares[lane] += size * size;
            most[lane] = if size > most[lane] { size } else { most[lane] };
            not_finite[lane] += u64::from(!finite);
        };
        widest(
            #[inline(always)]
            || {
                for vector in vectors {
                    (0..LANES).for_each(|lane| add(lane, vector[lane]));
                }
            },
        );
        rest.iter().enumerate().for_each(|(lane, value)| add(lane, *value));
    }

    fn line(&self) -> MatrixLine {
        let wide = self.wide.line();
        let squares: f64 = self.squares.iter().sum();
        MatrixLine {
            abs_max: self.most.iter().copied().fold(wide.abs_max, f64::max),
            norm: wide.norm.max(squares.sqrt()),
            not_finite: wide.not_finite + self.not_finite.iter().sum::<u64>(),
        }
    }
}

impl LineAccumulator {
    fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.norm.add(value.abs());
            self.abs_max = self.abs_max.max(value.abs());
        } else {
            self.not_finite += 1;
        }
    }

    fn line(&self) -> MatrixLine {
        MatrixLine { abs_max: self.abs_max, norm: self.norm.root(), not_finite: self.not_finite }
    }
}
