//! The largest singular values of a matrix that is too large to compute all of them: block Lanczos
//! with full reorthogonalisation. It starts with a few random vectors and multiplies them
//! repeatedly by the matrix and its transpose. A value found is never larger than the true one, and
//! the residual gives a bound on its error.

use statelens_checkpoint::{Result, try_alloc};

use super::columns::{Columns, add, dot};
use super::spectrum::Spectrum;

/// Computes the largest singular values in passes over the rows.
#[derive(Debug)]
pub(super) struct Largest {
    shape: (u64, u64),
    wanted: usize,
    /// Orthonormal vectors; the last `block` of them are those of the current pass.
    basis: Columns,
    block: usize,
    /// The vectors of this pass, multiplied by the matrix and then by its transpose.
    products: Columns,
    /// The inner products of all basis vectors with the products; one column per product.
    inner: Vec<Vec<f64>>,
    squares: f64,
    passes: u32,
    chance: Chance,
}

/// Values below this fraction of the largest are rounding errors.
const ROUNDING: f64 = 1e-13;
/// An error below this fraction of the largest value is small enough to stop.
const CONVERGED: f64 = 1e-7;

impl Largest {
    pub(super) fn new(rows: u64, columns: usize, wanted: usize, block: usize) -> Result<Self> {
        let mut new = Self {
            shape: (rows, columns as u64),
            wanted,
            basis: Columns::zeros(columns, 0)?,
            block: 0,
            products: Columns::default(),
            inner: Vec::new(),
            squares: 0.0,
            passes: 0,
            chance: Chance(0x5747_1e45),
        };
        new.begin(block)?;
        Ok(new)
    }

    /// Processes the next rows.
    pub(super) fn take(&mut self, rows: &[f64], width: usize) {
        if self.passes == 0 {
            self.squares += dot(rows, rows);
        }
        let first = self.basis.count() - self.block;
        for at in 0..self.block {
            let vector = self.basis.get(first + at);
            let product = self.products.get_mut(at);
            for row in rows.chunks_exact(width) {
                add(product, dot(row, vector), row);
            }
        }
    }

    /// Ends a pass. Returns the singular values found so far, and whether the computation is
    /// complete.
    pub(super) fn end(&mut self) -> Result<(Spectrum, bool)> {
        self.passes += 1;
        for at in 0..self.block {
            let product = self.products.get(at);
            self.inner
                .push((0..self.basis.count()).map(|it| dot(self.basis.get(it), product)).collect());
        }
        let block = self.block;
        let over = self.extend(self.squares * ROUNDING)?;
        let ended = self.block == 0;
        let found = self.spectrum(block, &over)?;
        let most = found.values.first().copied().unwrap_or(0.0);
        let known = found.values.len() >= self.wanted
            && found.errors.iter().all(|error| *error <= CONVERGED * most);
        if found.whole || known {
            return Ok((found, true));
        }
        if ended {
            // A value with a multiplicity above the block size: new random vectors find it again.
            self.begin(block)?;
        }
        Ok((found, self.block == 0))
    }

    /// Starts with random vectors.
    fn begin(&mut self, count: usize) -> Result<()> {
        self.products = Columns::zeros(self.shape.1 as usize, count)?;
        for at in 0..count {
            let chance = &mut self.chance;
            self.products.get_mut(at).iter_mut().for_each(|value| *value = chance.next());
        }
        self.extend(ROUNDING).map(|_| ())
    }

    /// Extends the basis by the products of this pass, orthogonalised against all earlier vectors;
    /// drops those that are rounding errors. Returns the components of each product along the new
    /// vectors.
    fn extend(&mut self, nothing: f64) -> Result<Vec<Vec<f64>>> {
        let before = self.basis.count();
        let count = self.products.count();
        let mut over = Vec::new();
        for at in 0..count {
            let product = self.products.get_mut(at);
            let mut parts = vec![0.0; self.basis.count() - before];
            // Twice, to remove what rounding left of the other vectors.
            for _ in 0..2 {
                for (other, vector) in (0..self.basis.count()).map(|it| (it, self.basis.get(it))) {
                    let part = dot(vector, product);
                    add(product, -part, vector);
                    if let Some(sum) = other.checked_sub(before).and_then(|it| parts.get_mut(it)) {
                        *sum += part;
                    }
                }
            }
            let norm = dot(product, product).sqrt();
            if norm > nothing {
                product.iter_mut().for_each(|value| *value /= norm);
                parts.push(norm);
                self.basis.push(self.products.get(at))?;
            }
            over.push(parts);
        }
        self.block = self.basis.count() - before;
        self.products = Columns::zeros(self.shape.1 as usize, self.block)?;
        Ok(over)
    }

    fn spectrum(&self, block: usize, over: &[Vec<f64>]) -> Result<Spectrum> {
        let count = self.inner.len();
        let mut square = Columns::zeros(count, count)?;
        for at in 0..count {
            let column = square.get_mut(at);
            for (other, part) in column.iter_mut().enumerate() {
                let (one, two) = (at.min(other), at.max(other));
                // Uses only the upper half: the matrix is symmetric, and products have no entries
                // for later vectors.
                *part = self.inner[two][one];
            }
        }
        let (squares, vectors) = eigenvectors(square)?;
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|one, other| squares[*other].total_cmp(&squares[*one]));
        let least = self.shape.0.min(self.shape.1) as usize;
        let most = order.first().map_or(0.0, |first| squares[*first]);
        let (mut values, mut errors) = (Vec::new(), Vec::new());
        for at in order.into_iter().take(least) {
            let vector = vectors.get(at);
            let last = &vector[count - block..];
            // The residual: the component of the product outside the basis.
            let rest: f64 = (0..self.block)
                .map(|row| {
                    let of = |parts: &Vec<f64>| parts.get(row).copied().unwrap_or(0.0);
                    over.iter().zip(last).map(|(parts, last)| of(parts) * last).sum::<f64>()
                })
                .map(|part| part * part)
                .sum();
            let rest = rest.sqrt() + most * ROUNDING;
            let value = squares[at].max(0.0).sqrt();
            errors.push(if value > 0.0 { rest.sqrt().min(rest / value) } else { rest.sqrt() });
            values.push(value);
        }
        let left = self.squares - values.iter().map(|value| value * value).sum::<f64>();
        let whole = self.block == 0 && left <= self.squares * ROUNDING * 100.0;
        match whole {
            true => {
                values.resize(least, 0.0);
                errors.resize(least, (most * ROUNDING).sqrt());
            }
            false => {
                values.truncate(self.wanted);
                errors.truncate(self.wanted);
            }
        }
        let (shape, squares, passes) = (self.shape, self.squares, self.passes);
        Ok(Spectrum { values, errors, shape, squares, whole, passes })
    }
}

/// Computes the eigenvalues and eigenvectors of a positive semidefinite matrix by rotating pairs of
/// columns until all are orthogonal (one-sided Jacobi, Hestenes).
fn eigenvectors(mut square: Columns) -> Result<(Vec<f64>, Columns)> {
    const SWEEPS: u32 = 40;
    let count = square.count();
    let mut vectors = Columns::zeros(count, count)?;
    (0..count).for_each(|at| vectors.get_mut(at)[at] = 1.0);
    let mut norms: Vec<f64> =
        try_alloc::collect((0..count).map(|it| dot(square.get(it), square.get(it))))?;
    for _ in 0..SWEEPS {
        let mut turned = false;
        for one in 0..count {
            for other in one + 1..count {
                let product = dot(square.get(one), square.get(other));
                let (least, most) = (norms[one], norms[other]);
                if product.abs() <= 1e-15 * (least * most).sqrt() || product == 0.0 {
                    continue;
                }
                turned = true;
                let ratio = (most - least) / (2.0 * product);
                let tangent = ratio.signum() / (ratio.abs() + (1.0 + ratio * ratio).sqrt());
                let cosine = 1.0 / (1.0 + tangent * tangent).sqrt();
                let sine = cosine * tangent;
                for columns in [&mut square, &mut vectors] {
                    let (one, other) = columns.two(one, other);
                    for (one, other) in one.iter_mut().zip(other) {
                        (*one, *other) =
                            (cosine * *one - sine * *other, sine * *one + cosine * *other);
                    }
                }
                norms[one] = dot(square.get(one), square.get(one));
                norms[other] = dot(square.get(other), square.get(other));
            }
        }
        if !turned {
            break;
        }
    }
    Ok((norms.into_iter().map(f64::sqrt).collect(), vectors))
}

/// A pseudo-random generator (SplitMix64) of numbers between -1 and 1, the same on every platform.
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as i64 as f64 / i64::MAX as f64
    }
}

/// Performs about as many operations as one step, so that their speed can be measured. Returns the
/// number of operations.
pub fn practise() -> u64 {
    const SIDE: usize = 256;
    let mut rows: Vec<f64> = Vec::new();
    let mut chance = Chance(1);
    rows.resize_with(16 * SIDE, || chance.next());
    let Ok(mut largest) = Largest::new(16, SIDE, 1, 16) else { return 1 };
    largest.take(&rows, SIDE);
    (4 * 16 * 16 * SIDE) as u64
}
