//! All singular values: reflections reduce the rows to a triangular matrix as they arrive, then
//! reduce that to a bidiagonal matrix, whose singular values are found by bisection.

use statelens_checkpoint::{Result, try_alloc};

use super::columns::{Columns, add, dot, reflect, reflector};

/// The triangular matrix that rows are reduced to, one block of rows at a time.
#[derive(Debug)]
pub(super) enum Triangle {
    /// For matrices with at least as many rows as columns: the rows of the triangle, stored as
    /// columns.
    Tall { triangle: Columns, block: Vec<f64> },
    /// For matrices with fewer rows than columns: the reflected rows, stored as columns. A column
    /// holds the part above the diagonal, then the vector of its reflection.
    Wide { columns: Columns, diagonal: Vec<f64>, scales: Vec<f64> },
}

impl Triangle {
    /// Creates the triangle of a matrix of this size.
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

    /// Processes the next rows.
    pub(super) fn take(&mut self, rows: &[f64], width: usize) -> Result<()> {
        match self {
            Self::Tall { triangle, block } => take_tall(triangle, block, rows, width),
            Self::Wide { columns, diagonal, scales } => {
                take_wide(columns, diagonal, scales, rows, width)
            }
        }
    }

    /// Returns a square matrix with the same nonzero singular values.
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

/// Reflects a block of rows into the triangle, column by column.
fn take_tall(
    triangle: &mut Columns,
    block: &mut Vec<f64>,
    rows: &[f64],
    width: usize,
) -> Result<()> {
    let high = rows.len() / width.max(1);
    if block.len() < rows.len() {
        *block = try_alloc::filled(0.0, rows.len())?;
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

/// Applies all earlier reflections to a block of rows, then their own.
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

/// A square matrix that is being reduced to bidiagonal form, one row and one column per step.
#[derive(Debug)]
pub(super) struct TwoDiagonals {
    square: Columns,
    /// The values of the diagonal and of the superdiagonal, alternating.
    found: Vec<f64>,
    at: usize,
}

impl TwoDiagonals {
    pub(super) fn new(square: Columns) -> Self {
        Self { square, found: Vec::new(), at: 0 }
    }

    /// Reduces one more row and column; returns `false` at the end.
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
                let mut products = try_alloc::filled(0.0, count - at - 1)?;
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

    /// Starts the bisection with the values of the diagonal and the superdiagonal, alternating.
    pub(super) fn into_counting(self) -> SturmBisection {
        SturmBisection::new(&self.found)
    }
}

/// The singular values of a bidiagonal matrix, found by bisection. The number of singular values
/// below a given number follows from the signs of a recurrence (Sturm) on the symmetric tridiagonal
/// matrix with a zero diagonal and these values next to it (Golub and Kahan).
#[derive(Debug)]
pub(super) struct SturmBisection {
    /// Squares of the values next to the diagonal, divided by the square of the upper bound of the
    /// singular values.
    squares: Vec<f64>,
    most: f64,
    /// The singular values found so far, in descending order.
    pub(super) values: Vec<f64>,
    count: usize,
}

/// Number of values that are searched for at once.
const TOGETHER: usize = 4;

impl SturmBisection {
    fn new(found: &[f64]) -> Self {
        let next_to = |at: usize| found.get(at).map_or(0.0, |value| value.abs());
        let most = (0..found.len()).map(|at| next_to(at) + next_to(at + 1)).fold(0.0, f64::max);
        let scaled = |value: &f64| (value / most) * (value / most);
        let squares = if most > 0.0 { found.iter().map(scaled).collect() } else { Vec::new() };
        Self { squares, most, values: Vec::new(), count: found.len().div_ceil(2) }
    }

    /// Finds the next few values; returns `false` at the end.
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
        // For each value: the number of values below it, and its lower and upper bounds.
        let mut sought: [(usize, f64, f64); TOGETHER] =
            std::array::from_fn(|lane| ((left - 1).saturating_sub(lane), 0.0, top));
        // 56 halvings reach half a unit in the last place of the largest value, the limit of
        // precision.
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

    /// Returns how many singular values are smaller than each of these numbers.
    fn counts(&self, than: [f64; TOGETHER]) -> [usize; TOGETHER] {
        let kept = |term: f64| if term.abs() < SMALLEST { -SMALLEST } else { term };
        let mut lanes = than.map(|than| (than, kept(-than), 1usize));
        for square in &self.squares {
            for (than, last, count) in &mut lanes {
                *last = kept(-*than - square / *last);
                *count += usize::from(*last < 0.0);
            }
        }
        // Half of the eigenvalues are the negatives of the others.
        lanes.map(|(_, _, count)| count.saturating_sub(self.count))
    }
}

/// Minimum magnitude of a term of the recurrence, to avoid division by zero.
const SMALLEST: f64 = 1e-290;
