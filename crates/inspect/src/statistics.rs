//! Statistics of a tensor, in one pass over its logical bytes, which may come in pieces of any
//! size: the result is the same to the last bit.

use statelens_checkpoint::DType;
use statelens_tensor::Cast;

/// What the values of a tensor are like. Complex numbers, records and quantised blocks have none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// All values.
    pub count: u64,
    /// Those that are no number.
    pub nan: u64,
    /// Those that are infinite.
    pub infinite: u64,
    /// Those that are zero, of either sign.
    pub zeros: u64,
    /// The smallest finite one; NaN if there is none, and so on for the others.
    pub min: f64,
    /// The largest finite one.
    pub max: f64,
    /// The mean of the finite ones.
    pub mean: f64,
    /// Their standard deviation, as numpy has it: divided by their number, not by one less.
    pub std: f64,
}

impl Statistics {
    /// How many values are finite.
    pub fn finite(&self) -> u64 {
        self.count.saturating_sub(self.nan).saturating_sub(self.infinite)
    }
}

/// Values that are summed up together: few enough that their sum loses little.
const BLOCK: usize = 1_024;

/// Computes [`Statistics`] of logical bytes as they come.
#[derive(Debug)]
pub struct Statistician {
    cast: Cast,
    size: usize,
    /// The beginning of an element whose end has not come yet.
    begun: Vec<u8>,
    doubles: Vec<u8>,
    /// Finite values of the block that is being filled. Blocks are cut by position, never by how
    /// bytes come.
    block: Vec<f64>,
    of: Statistics,
    /// Finite values in full blocks, and the sum of their squared distances from `of.mean`.
    done: u64,
    squares: f64,
}

impl Statistician {
    /// `None` for elements that are no real numbers.
    pub fn new(dtype: &DType) -> Option<Self> {
        let real = dtype.is_float() && *dtype != DType::F4E2M1FNX2;
        let small = statelens_tensor::plain(dtype).is_some();
        if !(real || small || dtype.is_int() || *dtype == DType::Bool) {
            return None;
        }
        Some(Self {
            cast: Cast::new(dtype, &DType::F64).ok()?,
            size: usize::try_from(dtype.itemsize().max(1)).ok()?,
            begun: Vec::new(),
            doubles: Vec::new(),
            block: Vec::with_capacity(BLOCK),
            of: Statistics {
                count: 0,
                nan: 0,
                infinite: 0,
                zeros: 0,
                min: f64::INFINITY,
                max: f64::NEG_INFINITY,
                mean: 0.0,
                std: 0.0,
            },
            done: 0,
            squares: 0.0,
        })
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if !self.begun.is_empty() {
            let missing = (self.size - self.begun.len()).min(rest.len());
            let (end, tail) = rest.split_at(missing);
            self.begun.extend_from_slice(end);
            rest = tail;
            if self.begun.len() < self.size {
                return;
            }
            let whole = std::mem::take(&mut self.begun);
            self.take(&whole);
        }
        let whole = rest.len() - rest.len() % self.size;
        // In pieces, so that the doubles stay in the cache and take little memory.
        for piece in rest[..whole].chunks(self.size * 4 * BLOCK) {
            self.take(piece);
        }
        self.begun.extend_from_slice(&rest[whole..]);
    }

    /// What they come to.
    pub fn finish(mut self) -> Statistics {
        self.fold();
        let mut of = self.of;
        if self.done == 0 {
            (of.min, of.max, of.mean, of.std) = (f64::NAN, f64::NAN, f64::NAN, f64::NAN);
        } else {
            of.std = (self.squares / self.done as f64).sqrt();
        }
        of
    }

    fn take(&mut self, elements: &[u8]) {
        let mut doubles = std::mem::take(&mut self.doubles);
        self.cast.run(elements, &mut doubles);
        for bytes in doubles.as_chunks().0 {
            let value = f64::from_le_bytes(*bytes);
            self.of.count += 1;
            if value.is_finite() {
                self.of.zeros += u64::from(value == 0.0);
                self.of.min = self.of.min.min(value);
                self.of.max = self.of.max.max(value);
                self.block.push(value);
                if self.block.len() == BLOCK {
                    self.fold();
                }
            } else if value.is_nan() {
                self.of.nan += 1;
            } else {
                self.of.infinite += 1;
            }
        }
        self.doubles = doubles;
    }

    /// Joins the block to what was before it (Chan, Golub and LeVeque, 1979).
    fn fold(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let count = self.block.len() as f64;
        let mut mean = self.block.iter().sum::<f64>() / count;
        if mean.is_infinite() {
            // The sum is too large for a float, the mean is not.
            mean = self.block.iter().map(|value| value / count).sum();
        }
        let squares: f64 = self.block.iter().map(|value| (value - mean) * (value - mean)).sum();
        let before = self.done as f64;
        let all = before + count;
        let apart = mean - self.of.mean;
        self.of.mean += apart * (count / all);
        self.squares += squares + apart * apart * (before * count / all);
        self.done += self.block.len() as u64;
        self.block.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dtype: &DType, bytes: &[u8], piece: usize) -> Statistics {
        let mut machine = Statistician::new(dtype).unwrap();
        bytes.chunks(piece).for_each(|piece| machine.feed(piece));
        machine.finish()
    }

    #[test]
    fn numbers_are_those_of_numpy() {
        // numpy.array([1, 2, 3, 4, 0, -2.5], dtype=numpy.float32): mean 1.25, std 2.1164…
        let values = [1f32, 2.0, 3.0, 4.0, 0.0, -2.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let found = of(&DType::F32, &bytes, 1_000);
        assert_eq!((found.count, found.nan, found.infinite, found.zeros), (9, 1, 2, 1));
        assert_eq!((found.min, found.max, found.mean), (-2.5, 4.0, 1.25));
        assert!((found.std - 2.116_404_183_200_049).abs() < 1e-12, "{}", found.std);
        assert_eq!(found.finite(), 6);
    }

    #[test]
    fn pieces_do_not_matter() {
        let mut seed = 7u32;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Floats of all sizes up to some millions.
            ((seed >> 8) as f32 / 1e4 - 800.0).to_le_bytes()
        })
        .take(5_000)
        .flatten()
        .collect();
        let whole = of(&DType::F32, &bytes, bytes.len());
        for piece in [1, 3, 7, 4_096, 5_001] {
            assert_eq!(of(&DType::F32, &bytes, piece), whole, "in pieces of {piece}");
        }
        let values: Vec<f64> =
            bytes.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect();
        let mean = values.iter().sum::<f64>() / 5_000.0;
        let std = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 5_000.0).sqrt();
        assert!((whole.mean / mean - 1.0).abs() < 1e-12, "{} {mean}", whole.mean);
        assert!((whole.std / std - 1.0).abs() < 1e-12, "{} {std}", whole.std);
    }

    #[test]
    fn other_types_and_none_at_all() {
        let ints: Vec<u8> = [-3i64, 5, 0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let found = of(&DType::I64, &ints, 5);
        assert_eq!((found.min, found.max, found.zeros), (-3.0, 5.0, 1));
        assert_eq!(of(&DType::Bool, &[0, 1, 1, 0], 3).mean, 0.5);
        assert_eq!(of(&DType::BF16, &[0xc0, 0xbf], 1).min, -1.5);
        let none = Statistician::new(&DType::F32).unwrap().finish();
        assert!(none.mean.is_nan() && none.min.is_nan() && none.count == 0);
        assert!(Statistician::new(&DType::C64).is_none());
        let large = [f64::MAX, f64::MAX].map(f64::to_le_bytes).concat();
        assert_eq!(of(&DType::F64, &large, 16).mean, f64::MAX);
    }
}
