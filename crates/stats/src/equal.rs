//! Equal bytes of two tensors: finding them, and the sums of their values.

/// Bytes that are compared at once: Wasm has no fast `memcmp`.
const BLOCK: usize = 64;

/// Returns whether both sides have the same bytes.
pub fn are_equal(left: &[u8], right: &[u8]) -> bool {
    let (of_left, left_rest) = left.as_chunks::<BLOCK>();
    let (of_right, right_rest) = right.as_chunks::<BLOCK>();
    let equal = |(left, right): (&[u8; BLOCK], &[u8; BLOCK])| {
        let pairs = left.as_chunks::<8>().0.iter().zip(right.as_chunks::<8>().0);
        pairs.fold(0, |all, (l, r)| all | (u64::from_le_bytes(*l) ^ u64::from_le_bytes(*r))) == 0
    };
    left.len() == right.len() && left_rest == right_rest && of_left.iter().zip(of_right).all(equal)
}

/// Sums over the finite elements of two sides.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct PairSums {
    /// The sum of `left * right`.
    pub dot: f64,
    /// The sums of the squares of the left and of the right side.
    pub squares: [f64; 2],
    /// The sums of the left and of the right side.
    pub sums: [f64; 2],
}

/// Numbers of elements that are equal on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EqualCounts {
    /// Number of elements.
    pub elements: u64,
    /// Number of finite elements.
    pub finite: u64,
    /// Number of NaNs.
    pub nan: u64,
    /// The index of the first NaN.
    pub first_nan: Option<u64>,
}

impl PairSums {
    /// Adds a pair of finite elements.
    pub fn add(&mut self, left: f64, right: f64) {
        self.dot += left * right;
        self.squares[0] += left * left;
        self.squares[1] += right * right;
        self.sums[0] += left;
        self.sums[1] += right;
    }

    /// Adds the sums of other elements.
    pub fn merge(&mut self, next: &Self) {
        self.dot += next.dot;
        for (all, next) in self.squares.iter_mut().zip(next.squares) {
            *all += next;
        }
        for (all, next) in self.sums.iter_mut().zip(next.sums) {
            *all += next;
        }
    }

    /// Adds float32 elements that are equal on both sides, one by one: the result does not depend
    /// on how the bytes are split.
    pub fn add_equal_f32(&mut self, bytes: &[u8]) -> EqualCounts {
        self.add_equal(bytes, |bytes| f32::from_le_bytes(bytes).into())
    }

    /// Adds float64 elements as [`PairSums::add_equal_f32`] does.
    pub fn add_equal_f64(&mut self, bytes: &[u8]) -> EqualCounts {
        self.add_equal(bytes, f64::from_le_bytes)
    }

    #[inline(always)]
    fn add_equal<const N: usize>(
        &mut self,
        bytes: &[u8],
        value: impl Fn([u8; N]) -> f64,
    ) -> EqualCounts {
        let elements = bytes.as_chunks().0;
        // Sums that are equal so far stay equal, and are computed once.
        let [left, right] = self.squares.map(f64::to_bits);
        let alike = self.dot.to_bits() == left
            && left == right
            && self.sums[0].to_bits() == self.sums[1].to_bits();
        if alike {
            let ([square], [sum], counts) =
                add([self.dot], [self.sums[0]], elements.iter().map(|bytes| value(*bytes)));
            *self = Self { dot: square, squares: [square; 2], sums: [sum; 2] };
            counts
        } else {
            let squares = [self.dot, self.squares[0], self.squares[1]];
            let ([dot, left, right], sums, counts) =
                add(squares, self.sums, elements.iter().map(|bytes| value(*bytes)));
            *self = Self { dot, squares: [left, right], sums };
            counts
        }
    }
}

/// Adds the squares of the finite values to each of the first sums, and the values to the others.
#[inline(always)]
fn add<const S: usize, const N: usize>(
    mut squares: [f64; S],
    mut sums: [f64; N],
    values: impl Iterator<Item = f64>,
) -> ([f64; S], [f64; N], EqualCounts) {
    let mut counts = EqualCounts::default();
    for value in values {
        if value.is_finite() {
            counts.finite += 1;
            let square = value * value;
            squares.iter_mut().for_each(|all| *all += square);
            sums.iter_mut().for_each(|all| *all += value);
        } else if value.is_nan() {
            counts.nan += 1;
            counts.first_nan.get_or_insert(counts.elements);
        }
        counts.elements += 1;
    }
    (squares, sums, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_every_byte() {
        let bytes: Vec<u8> = (0..200u8).collect();
        for len in [0, 1, 63, 64, 65, 200] {
            assert!(are_equal(&bytes[..len], &bytes.clone()[..len]), "{len}");
            for at in 0..len {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert!(!are_equal(&bytes[..len], &other[..len]), "{at} of {len}");
            }
        }
        assert!(!are_equal(&bytes, &bytes[..64]));
    }

    #[test]
    fn sums_are_those_of_single_additions() {
        let values = [0.1, f32::NAN, 3e20, -7.25, f32::INFINITY, 1e-30, f32::NAN, 0.3];
        let bytes = values.map(f32::to_le_bytes).concat();
        let wide = values.map(|value| f64::from(value).to_le_bytes()).concat();
        let other = PairSums { dot: 0.7, squares: [0.2, 5.0], sums: [-0.1, 0.4] };
        for before in [PairSums::default(), other] {
            let mut expected = before;
            for value in values.into_iter().map(f64::from).filter(|value| value.is_finite()) {
                expected.dot += value * value;
                expected.squares.iter_mut().for_each(|all| *all += value * value);
                expected.sums.iter_mut().for_each(|all| *all += value);
            }
            let counts = EqualCounts { elements: 8, finite: 5, nan: 2, first_nan: Some(1) };
            let (mut narrow, mut of_wide) = (before, before);
            assert_eq!(narrow.add_equal_f32(&bytes), counts);
            assert_eq!(of_wide.add_equal_f64(&wide), counts);
            assert_eq!([narrow, of_wide], [expected; 2]);
            // In pieces, too.
            let mut pieces = before;
            for piece in bytes.chunks(8) {
                pieces.add_equal_f32(piece);
            }
            assert_eq!(pieces, expected);
        }
    }
}
