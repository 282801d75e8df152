//! All singular values: reflections make a triangle of the rows as they come, of the triangle a
//! matrix of two diagonals, and whose singular values are counted.

use statelens_checkpoint::{Result, room};

use super::columns::{Columns, add, dot, reflect, reflector};

/// The triangle that rows come to, a block of them at a time.
#[derive(Debug)]
pub(super) enum Triangle {
    /// Of more rows than columns: the rows of the triangle, as columns.
    Tall { triangle: Columns, block: Vec<f64> },
    /// Of fewer rows than columns: the rows, as columns that were reflected. A column holds what is
    /// above the diagonal, then the vector of its reflection.
    Wide { columns: Columns, diagonal: Vec<f64>, scales: Vec<f64> },
}

impl Triangle {
    /// Of a matrix of so many rows and columns.
    pub(super) fn new(rows: usize, columns: usize) -> Result<Self> {
        Ok(match rows >= columns {
            true => Self::Tall { triangle: Columns::zeros(columns, columns)?, block: Vec::new() },
            false => Self::Wide {
                columns: Columns::zeros(columns, 0)?,
                diagonal: Vec::new(),
                scales: Vec::new(),
            },
        })
    }

    /// Takes the next rows.
    pub(super) fn take(&mut self, rows: &[f64], width: usize) -> Result<()> {
        match self {
            Self::Tall { triangle, block } => take_tall(triangle, block, rows, width),
            Self::Wide { columns, diagonal, scales } => {
                take_wide(columns, diagonal, scales, rows, width)
            }
        }
    }

    /// A square matrix of the same singular values, but for zeros.
    pub(super) fn square(self) -> Result<Columns> {
        match self {
            Self::Tall { triangle, .. } => Ok(triangle),
            Self::Wide { columns, diagonal, .. } => {
                let count = columns.count();
                let mut square = Columns::zeros(count, count)?;
                for at in 0..count {
                    let column = square.get_mut(at);
                    column[..at].copy_from_slice(&columns.get(at)[..at]);
                    column[at] = diagonal[at];
                }
                Ok(square)
            }
        }
    }
}

/// Rotates a block of rows into the triangle, column by column.
fn take_tall(
    triangle: &mut Columns,
    block: &mut Vec<f64>,
    rows: &[f64],
    width: usize,
) -> Result<()> {
    let high = rows.len() / width.max(1);
    if block.len() < rows.len() {
        *block = room::filled(0.0, rows.len())?;
    }
    let block = &mut block[..rows.len()];
    for (row, values) in rows.chunks_exact(width).enumerate() {
        values.iter().enumerate().for_each(|(column, value)| block[column * high + row] = *value);
    }
    for at in 0..width {
        let (vector, rest) = block[at * high..].split_at_mut(high);
        let below = dot(vector, vector);
        if below == 0.0 {
            continue;
        }
        let row = &mut triangle.get_mut(at)[at..];
        let norm = (row[0] * row[0] + below).sqrt();
        let kept = if row[0] > 0.0 { -norm } else { norm };
        let scale = 1.0 / (norm * (norm + row[0].abs()));
        let first = row[0] - kept;
        row[0] = kept;
        for (above, column) in row[1..].iter_mut().zip(rest.chunks_exact_mut(high)) {
            let times = -scale * (first * *above + dot(vector, column));
            *above += times * first;
            add(column, times, vector);
        }
    }
    Ok(())
}

/// Reflects a block of rows by all reflections so far, then by their own.
fn take_wide(
    columns: &mut Columns,
    diagonal: &mut Vec<f64>,
    scales: &mut Vec<f64>,
    rows: &[f64],
    width: usize,
) -> Result<()> {
    let before = columns.count();
    for row in rows.chunks_exact(width) {
        columns.push(row)?;
    }
    for at in 0..columns.count() {
        if at >= before {
            let (kept, scale) = reflector(&mut columns.get_mut(at)[at..]);
            diagonal.push(kept);
            scales.push(scale);
        }
        for other in before.max(at + 1)..columns.count() {
            let (vector, column) = columns.two(at, other);
            reflect(&mut column[at..], &vector[at..], scales[at]);
        }
    }
    Ok(())
}

/// A square matrix on its way to two diagonals, a row and a column at a time.
#[derive(Debug)]
pub(super) struct TwoDiagonals {
    square: Columns,
    /// The diagonal and what is beside it, in turn.
    found: Vec<f64>,
    at: usize,
}

impl TwoDiagonals {
    pub(super) fn new(square: Columns) -> Self {
        Self { square, found: Vec::new(), at: 0 }
    }

    /// Goes on by one; false at the end.
    pub(super) fn step(&mut self) -> Result<bool> {
        let (at, count) = (self.at, self.square.count());
        let square = &mut self.square;
        if at >= count {
            return Ok(false);
        }
        let (kept, scale) = reflector(&mut square.get_mut(at)[at..]);
        self.found.push(kept);
        for other in at + 1..count {
            let (vector, column) = square.two(at, other);
            reflect(&mut column[at..], &vector[at..], scale);
        }
        if at + 1 < count {
            let mut vector: Vec<f64> = (at + 1..count).map(|it| square.get(it)[at]).collect();
            let (kept, scale) = reflector(&mut vector);
            self.found.push(kept);
            if scale != 0.0 {
                let mut products = room::filled(0.0, count - at - 1)?;
                for (other, times) in (at + 1..count).zip(&vector) {
                    add(&mut products, *times, &square.get(other)[at + 1..]);
                }
                for (other, times) in (at + 1..count).zip(&vector) {
                    add(&mut square.get_mut(other)[at + 1..], -scale * times, &products);
                }
            }
        }
        self.at += 1;
        Ok(true)
    }

    /// The values of the diagonal and of the one beside it, in turn.
    pub(super) fn into_counting(self) -> SturmBisection {
        SturmBisection::new(&self.found)
    }
}

/// The singular values of a matrix of two diagonals, found by halving what lies between those that are
/// too small and those that are too large: how many are smaller than a number is counted by the signs
/// of a recurrence (Sturm), on the symmetric matrix that has the two diagonals beside its own of zeros
/// (Golub and Kahan).
#[derive(Debug)]
pub(super) struct SturmBisection {
    /// Squares of the values beside the diagonal, over the largest that a singular value may be.
    squares: Vec<f64>,
    most: f64,
    /// The largest first.
    pub(super) values: Vec<f64>,
    count: usize,
}

/// Values that are looked for at once.
const TOGETHER: usize = 4;

impl SturmBisection {
    fn new(found: &[f64]) -> Self {
        let beside = |at: usize| found.get(at).map_or(0.0, |value| value.abs());
        let most = (0..found.len()).map(|at| beside(at) + beside(at + 1)).fold(0.0, f64::max);
        let scaled = |value: &f64| (value / most) * (value / most);
        let squares = if most > 0.0 { found.iter().map(scaled).collect() } else { Vec::new() };
        Self { squares, most, values: Vec::new(), count: found.len().div_ceil(2) }
    }

    /// Finds the next few; false at the end.
    pub(super) fn step(&mut self) -> bool {
        let left = self.count - self.values.len();
        if left == 0 {
            return false;
        }
        if self.squares.is_empty() {
            self.values.resize(self.count, 0.0);
            return true;
        }
        let top = self.values.last().map_or(1.0, |last| (last / self.most).min(1.0));
        // Each with those that are below it, and what it is between.
        let mut sought: [(usize, f64, f64); TOGETHER] =
            std::array::from_fn(|lane| ((left - 1).saturating_sub(lane), 0.0, top));
        // Half a unit in the last place of the largest is as far as they are known.
        for _ in 0..56 {
            let middle = sought.map(|(_, low, high)| f64::midpoint(low, high));
            let counts = self.counts(middle);
            for (at, (middle, count)) in sought.iter_mut().zip(middle.into_iter().zip(counts)) {
                match count <= at.0 {
                    true => at.1 = middle,
                    false => at.2 = middle,
                }
            }
        }
        let found = sought.iter().take(left).map(|(_, _, high)| high * self.most);
        self.values.extend(found);
        true
    }

    /// How many singular values are smaller than each of these.
    fn counts(&self, than: [f64; TOGETHER]) -> [usize; TOGETHER] {
        let kept = |term: f64| if term.abs() < SMALLEST { -SMALLEST } else { term };
        let mut lanes = than.map(|than| (than, kept(-than), 1usize));
        for square in &self.squares {
            for (than, last, count) in &mut lanes {
                *last = kept(-*than - square / *last);
                *count += usize::from(*last < 0.0);
            }
        }
        // Half of all are the negative ones.
        lanes.map(|(_, _, count)| count.saturating_sub(self.count))
    }
}

/// What a term of the recurrence is at least, so that nothing is divided by zero.
const SMALLEST: f64 = 1e-290;
