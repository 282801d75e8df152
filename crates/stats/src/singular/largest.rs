//! The largest singular values of a matrix that is too large for all of them: what a few vectors by
//! chance become when they are multiplied with the matrix and its transpose, again and again (block
//! Lanczos, with all vectors kept orthogonal). What is found is never larger than the true one, and how
//! far away one is at most follows from what is left over.

use statelens_checkpoint::{Result, room};

use super::columns::{Columns, add, dot};
use super::spectrum::Spectrum;

/// Finds them in passes over the rows.
#[derive(Debug)]
pub(super) struct Largest {
    shape: (u64, u64),
    wanted: usize,
    /// Orthonormal vectors, of which the last `block` are those of this pass.
    basis: Columns,
    block: usize,
    /// What the vectors of this pass become: the transpose of the matrix times it times them.
    products: Columns,
    /// The inner products of vectors with what vectors become, a column for each.
    inner: Vec<Vec<f64>>,
    squares: f64,
    passes: u32,
    chance: Chance,
}

/// So much of the largest is nothing: rounding.
const ROUNDING: f64 = 1e-13;
/// What is known to this part of the largest is known well enough.
const ENOUGH: f64 = 1e-7;

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

    /// Takes the next rows.
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

    /// Ends a pass: what is known now, and whether that is all that can be.
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
            && found.errors.iter().all(|error| *error <= ENOUGH * most);
        if found.whole || known {
            return Ok((found, true));
        }
        if ended {
            // A value that the matrix has more often than there were vectors: others find it again.
            self.begin(block)?;
        }
        Ok((found, self.block == 0))
    }

    /// Begins with vectors by chance.
    fn begin(&mut self, count: usize) -> Result<()> {
        self.products = Columns::zeros(self.shape.1 as usize, count)?;
        for at in 0..count {
            let chance = &mut self.chance;
            self.products.get_mut(at).iter_mut().for_each(|value| *value = chance.next());
        }
        self.extend(ROUNDING).map(|_| ())
    }

    /// Makes what the vectors became into vectors that are orthogonal to all before, those left out
    /// that are nothing but rounding; what each one has of the new ones.
    fn extend(&mut self, nothing: f64) -> Result<Vec<Vec<f64>>> {
        let before = self.basis.count();
        let count = self.products.count();
        let mut over = Vec::new();
        for at in 0..count {
            let product = self.products.get_mut(at);
            let mut parts = vec![0.0; self.basis.count() - before];
            // Once more, for what rounding left of the others.
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
                // The upper half: rows of vectors that came later are known by what came before.
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
            // What the matrix and its transpose make of this vector, but for its own multiple.
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

/// The eigenvalues of a symmetric matrix without negative ones, and their vectors: its columns are
/// turned in pairs until they are orthogonal (Jacobi, Hestenes).
fn eigenvectors(mut square: Columns) -> Result<(Vec<f64>, Columns)> {
    const SWEEPS: u32 = 40;
    let count = square.count();
    let mut vectors = Columns::zeros(count, count)?;
    (0..count).for_each(|at| vectors.get_mut(at)[at] = 1.0);
    let mut norms: Vec<f64> =
        room::collect((0..count).map(|it| dot(square.get(it), square.get(it))))?;
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

/// The same numbers everywhere, by chance between -1 and 1 (SplitMix64).
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

/// Does about so many operations as a step has, to tell how fast they are; how many it did.
pub fn practise() -> u64 {
    const SIDE: usize = 256;
    let mut rows: Vec<f64> = Vec::new();
    let mut chance = Chance(1);
    rows.resize_with(16 * SIDE, || chance.next());
    let Ok(mut largest) = Largest::new(16, SIDE, 1, 16) else { return 1 };
    largest.take(&rows, SIDE);
    (4 * 16 * 16 * SIDE) as u64
}
