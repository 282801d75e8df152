//! Measures the distance between two tensors.

use crate::differences::{Spread, SpreadCounts};
use crate::equal::{EqualCounts, PairSums, are_equal};

/// Number of floats that are first compared by their bytes.
const BLOCK: usize = 64;
/// Number of those that are compared at once.
const LANES: usize = 4;

/// When two numbers match.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Equality {
    /// Numbers within these bounds match; without them, numbers must be equal.
    pub tolerance: Option<Tolerance>,
    /// Two NaNs in the same place differ, as in `torch.equal`.
    pub nan_differs: bool,
}

/// `|left - right| <= absolute + relative * |right|`, as in `torch.allclose`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// `rtol`.
    pub relative: f64,
    /// `atol`.
    pub absolute: f64,
}

impl Default for Tolerance {
    /// The defaults of torch: `rtol` 1e-5, `atol` 1e-8.
    fn default() -> Self {
        Self { relative: 1e-5, absolute: 1e-8 }
    }
}

/// The distance between two tensors of the same shape.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Numbers {
    /// Number of elements of either tensor.
    pub elements: u64,
    /// Number of elements that do not match: unequal, or beyond the tolerance if there is one.
    pub differing: u64,
    /// Number of elements that are not equal, within the tolerance or not.
    pub unequal: u64,
    /// The index in C order of the first element that does not match.
    pub first: Option<u64>,
    /// The largest `|left - right|` of the elements that are finite on both sides.
    pub max_abs: f64,
    /// The largest `|left - right| / |right|` of the same elements; infinite where `right` is zero
    /// and `left` is not.
    pub max_rel: f64,
    /// Number of elements that are NaN on one side only, which do not have a distance.
    pub one_nan: u64,
    /// Number of elements without NaN that are infinite on one side, or on both with different
    /// signs: their distance is infinite.
    pub far: u64,
    /// Number of NaNs on the left.
    pub left_nan: u64,
    /// Number of NaNs on the right.
    pub right_nan: u64,
    /// Number of elements that are finite on both sides; errors, mean and cosine cover these.
    pub finite: u64,
    /// Whether the elements are numbers; otherwise they only match or don't.
    pub numeric: bool,
    /// The distribution of the differences; `None` until the comparison is complete, and if nothing
    /// differs or has a distance.
    pub spread: Option<Spread>,
    differences: SpreadCounts,
    squares: f64,
    pairs: PairSums,
}

impl Numbers {
    /// Starts with no elements.
    pub fn new(numeric: bool) -> Self {
        Self { numeric, ..Self::default() }
    }

    /// Adds the results of the elements that follow.
    pub fn merge(&mut self, next: Self) {
        self.first = self.first.or(next.first.map(|first| first + self.elements));
        self.elements += next.elements;
        self.differing += next.differing;
        self.unequal += next.unequal;
        self.max_abs = self.max_abs.max(next.max_abs);
        self.max_rel = self.max_rel.max(next.max_rel);
        self.one_nan += next.one_nan;
        self.far += next.far;
        self.left_nan += next.left_nan;
        self.right_nan += next.right_nan;
        self.finite += next.finite;
        self.differences.merge(next.differences);
        self.squares += next.squares;
        self.pairs.merge(&next.pairs);
    }

    /// Computes the distribution of the differences and drops the counts; called once all elements
    /// are added.
    pub fn settle(&mut self) {
        self.spread = std::mem::take(&mut self.differences).spread(self.squares);
    }

    /// Returns whether all elements have a distance, that is, none is NaN on one side only.
    fn defined(&self) -> bool {
        self.numeric && self.one_nan == 0 && (self.finite > 0 || self.far > 0)
    }

    /// Returns a figure that covers all elements: infinite if one of the distances is.
    fn of_all(&self, finite: f64) -> Option<f64> {
        self.defined().then_some(if self.far > 0 { f64::INFINITY } else { finite })
    }

    /// Returns the largest `|left - right|`; `None` if it is undefined.
    pub fn largest(&self) -> Option<f64> {
        self.of_all(self.max_abs)
    }

    /// Returns the largest `|left - right| / |right|`; `None` if it is undefined.
    pub fn largest_relative(&self) -> Option<f64> {
        self.of_all(self.max_rel)
    }

    /// Returns the mean of the squared differences; `None` if it is undefined.
    pub fn mse(&self) -> Option<f64> {
        self.of_all(self.squares / self.finite.max(1) as f64)
    }

    /// Returns the relative change, `‖left - right‖ / ‖right‖` with the Euclidean norm; infinite if
    /// `right` is zero and `left` is not; `None` if it is undefined.
    pub fn change(&self) -> Option<f64> {
        let change = (self.squares / self.pairs.squares[1]).sqrt();
        self.of_all(if self.squares == 0.0 { 0.0 } else { change })
    }

    /// Returns the Euclidean norms of both sides, for the elements that are finite on both.
    pub fn norms(&self) -> (f64, f64) {
        (self.pairs.squares[0].sqrt(), self.pairs.squares[1].sqrt())
    }

    /// Returns the standard deviations of both sides, for the elements that are finite on both.
    pub fn deviations(&self) -> (f64, f64) {
        let count = self.finite.max(1) as f64;
        let of = |sum: f64, squares: f64| {
            let (mean, square) = (sum / count, squares / count);
            // Variances below the precision of the sums count as zero.
            let variance = square - mean * mean;
            if variance > square * 1e-12 { variance.sqrt() } else { 0.0 }
        };
        (
            of(self.pairs.sums[0], self.pairs.squares[0]),
            of(self.pairs.sums[1], self.pairs.squares[1]),
        )
    }

    /// Returns the cosine of the angle between both sides as vectors; `None` if one of them is zero
    /// or too large, or if there are differing elements that are not finite.
    pub fn cosine(&self) -> Option<f64> {
        if !self.defined() || self.far > 0 {
            return None;
        }
        let lengths = self.pairs.squares[0].sqrt() * self.pairs.squares[1].sqrt();
        let cosine = self.pairs.dot / lengths;
        (lengths > 0.0 && cosine.is_finite()).then(|| cosine.clamp(-1.0, 1.0))
    }

    /// Compares float32 elements; both sides have the same number of them.
    pub fn compare_f32(&mut self, left: &[u8], right: &[u8], equality: Equality) {
        let value = |bytes| f64::from(f32::from_le_bytes(bytes));
        self.floats(left, right, equality, value, PairSums::add_equal_f32);
    }

    /// Compares float64 elements, as [`Numbers::compare_f32`] does.
    pub fn compare_f64(&mut self, left: &[u8], right: &[u8], equality: Equality) {
        self.floats(left, right, equality, f64::from_le_bytes, PairSums::add_equal_f64);
    }

    #[inline(always)]
    fn floats<const N: usize>(
        &mut self,
        left: &[u8],
        right: &[u8],
        equality: Equality,
        value: impl Fn([u8; N]) -> f64,
        add: impl Fn(&mut PairSums, &[u8]) -> EqualCounts,
    ) {
        if are_equal(left, right) {
            let counts = add(&mut self.pairs, left);
            return self.count_equal(counts, equality);
        }
        for (left, right) in left.chunks(BLOCK * N).zip(right.chunks(BLOCK * N)) {
            if are_equal(left, right) {
                let counts = add(&mut self.pairs, left);
                self.count_equal(counts, equality);
                continue;
            }
            let (left, right) = (left.as_chunks().0, right.as_chunks().0);
            let mut pairs = [[0.0; BLOCK]; 2];
            let [of_left, of_right] = &mut pairs;
            of_left.iter_mut().zip(left).for_each(|(to, from)| *to = value(*from));
            of_right.iter_mut().zip(right).for_each(|(to, from)| *to = value(*from));
            if left.len() < BLOCK || equality.tolerance.is_some() || !self.block(&pairs) {
                for (l, r) in pairs[0].iter().zip(&pairs[1]).take(left.len()) {
                    self.real(*l, *r, equality);
                }
            }
        }
    }

    /// Compares a block of numbers as [`Numbers::real`] does without a tolerance, in loops without
    /// branches. Returns false, without a change, if a number or a difference is not finite.
    #[inline(always)]
    fn block(&mut self, [left, right]: &[[f64; BLOCK]; 2]) -> bool {
        let mut differences = [0.0; BLOCK];
        for ((to, l), r) in differences.iter_mut().zip(left).zip(right) {
            *to = r - l;
        }
        if !differences.iter().fold(true, |all, difference| all & difference.is_finite()) {
            return false;
        }
        // Only ratios above the largest are divided; rounding may not hide one.
        let ratio = self.max_rel * (1.0 - 1e-12);
        let (mut most, mut unequal, mut is_above) = ([self.max_abs; LANES], 0, false);
        let lanes = differences.as_chunks::<LANES>().0.iter().zip(right.as_chunks::<LANES>().0);
        for (differences, right) in lanes {
            for ((most, difference), r) in most.iter_mut().zip(differences).zip(right) {
                let distance = difference.abs();
                *most = if distance > *most { distance } else { *most };
                unequal += u64::from(distance > 0.0);
                is_above |= distance > ratio * r.abs();
            }
        }
        if is_above {
            for (difference, r) in differences.iter().zip(right).filter(|(it, _)| **it != 0.0) {
                self.max_rel = self.max_rel.max(difference.abs() / r.abs());
            }
        }
        if self.first.is_none() && unequal > 0 {
            let first = (0..).zip(&differences).find(|(_, difference)| **difference != 0.0);
            self.first = first.map(|(at, _)| self.elements + at);
        }
        self.max_abs = most.into_iter().fold(self.max_abs, f64::max);
        self.unequal += unequal;
        self.differing += unequal;
        self.finite += BLOCK as u64;
        self.elements += BLOCK as u64;
        self.differences.add_all(&differences);
        let (mut pairs, mut squares) = (self.pairs, self.squares);
        for ((difference, l), r) in differences.iter().zip(left).zip(right) {
            pairs.add(*l, *r);
            squares += difference * difference;
        }
        (self.pairs, self.squares) = (pairs, squares);
        true
    }

    /// Counts elements that are bitwise equal on both sides.
    fn count_equal(&mut self, counts: EqualCounts, equality: Equality) {
        self.finite += counts.finite;
        self.left_nan += counts.nan;
        self.right_nan += counts.nan;
        if equality.nan_differs {
            self.unequal += counts.nan;
            self.differing += counts.nan;
            self.first = self.first.or(counts.first_nan.map(|first| self.elements + first));
        }
        self.elements += counts.elements;
    }

    /// Compares two numbers.
    #[inline(always)]
    pub fn real(&mut self, left: f64, right: f64, equality: Equality) {
        let both_nan = left.is_nan() && right.is_nan();
        let equal = left == right || both_nan && !equality.nan_differs;
        let finite = left.is_finite() && right.is_finite();
        self.count_without_distance(left.is_nan(), right.is_nan(), finite || left == right);
        self.left_nan += u64::from(left.is_nan());
        self.right_nan += u64::from(right.is_nan());
        let difference = if finite { right - left } else { 0.0 };
        self.count(equal, equal || finite && within(difference.abs(), right.abs(), equality));
        if finite {
            self.error(difference, right.abs());
            self.pairs.add(left, right);
        }
    }

    /// Compares two complex numbers.
    pub fn complex(&mut self, left: (f64, f64), right: (f64, f64), equality: Equality) {
        let nan = |value: (f64, f64)| value.0.is_nan() || value.1.is_nan();
        let same = |l: f64, r: f64| l == r || l.is_nan() && r.is_nan() && !equality.nan_differs;
        let equal = same(left.0, right.0) && same(left.1, right.1);
        let finite = [left.0, left.1, right.0, right.1].iter().all(|part| part.is_finite());
        let same_nan = |l: f64, r: f64| l == r || l.is_nan() && r.is_nan();
        match nan(left) && nan(right) {
            // NaNs in different components do not match.
            true if !(same_nan(left.0, right.0) && same_nan(left.1, right.1)) => self.one_nan += 1,
            _ => self.count_without_distance(nan(left), nan(right), finite || left == right),
        }
        self.left_nan += u64::from(nan(left));
        self.right_nan += u64::from(nan(right));
        let (size, distance) = match finite {
            true => (right.0.hypot(right.1), (left.0 - right.0).hypot(left.1 - right.1)),
            false => (0.0, 0.0),
        };
        self.count(equal, equal || finite && within(distance, size, equality));
        if finite {
            self.error(distance, size);
            self.pairs.dot += left.0 * right.0 + left.1 * right.1;
            self.pairs.squares[0] += left.0 * left.0 + left.1 * left.1;
            self.pairs.squares[1] += right.0 * right.0 + right.1 * right.1;
            // Deviations of complex numbers are those of their moduli, as in all statistics.
            self.pairs.sums[0] += left.0.hypot(left.1);
            self.pairs.sums[1] += right.0.hypot(right.1);
        }
    }

    /// Compares two integers.
    pub fn integer(&mut self, left: i128, right: i128, equality: Equality) {
        let (difference, size) = ((right - left) as f64, right.unsigned_abs() as f64);
        self.count(left == right, left == right || within(difference.abs(), size, equality));
        self.error(difference, size);
        self.pairs.add(left as f64, right as f64);
    }

    /// Counts two elements that are not numbers.
    pub fn raw(&mut self, equal: bool) {
        self.count(equal, equal);
    }

    /// Counts a pair without a finite distance; `near` means that the distance is finite.
    fn count_without_distance(&mut self, left_nan: bool, right_nan: bool, near: bool) {
        self.one_nan += u64::from(left_nan != right_nan);
        self.far += u64::from(!left_nan && !right_nan && !near);
    }

    fn count(&mut self, equal: bool, matches: bool) {
        self.unequal += u64::from(!equal);
        if !matches {
            self.differing += 1;
            self.first.get_or_insert(self.elements);
        }
        self.elements += 1;
    }

    fn error(&mut self, difference: f64, size: f64) {
        self.finite += 1;
        if difference != 0.0 {
            let distance = difference.abs();
            self.differences.add(difference);
            self.max_abs = self.max_abs.max(distance);
            self.max_rel = self.max_rel.max(distance / size);
            self.squares += distance * distance;
        }
    }
}

fn within(distance: f64, size: f64, equality: Equality) -> bool {
    equality
        .tolerance
        .is_some_and(|tolerance| distance <= tolerance.absolute + tolerance.relative * size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_like_single_elements() {
        let values = |scale: f64| {
            let each = (0..64 * 5).map(move |at| f64::from(at % 37 - 18) * scale + scale / 3.0);
            each.collect::<Vec<f64>>()
        };
        let (left, mut right) = (values(1.0), values(1.0 + 1e-9));
        right[5] = left[5];
        // A ratio without a finite value, differences that overflow, and a number that is not finite.
        right[70] = 0.0;
        (right[130], right[131]) = (-0.0, f64::MIN_POSITIVE / 4.0);
        let mut far = (left.clone(), right.clone());
        (far.0[200], far.1[200], far.1[270]) = (f64::MAX, f64::MIN, f64::INFINITY);
        // The largest ratio is finite, and grows from block to block.
        let near = (0..64 * 5).map(|at| 100.0 + f64::from(at % 37)).collect::<Vec<f64>>();
        let grown = near.iter().zip(1..).map(|(x, at)| x * (1.0 + f64::from(at) * 1e-9));
        let grown = (near.clone(), grown.collect());
        let bytes = |side: &[f64]| side.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        for (left, right, is_finite) in
            [(left, right, false), (far.0, far.1, false), (grown.0, grown.1, true)]
        {
            let (mut expected, mut found) = (Numbers::new(true), Numbers::new(true));
            for (l, r) in left.iter().zip(&right) {
                expected.real(*l, *r, Equality::default());
            }
            found.compare_f64(&bytes(&left), &bytes(&right), Equality::default());
            assert!(expected.differing > 300 && expected.max_rel.is_finite() == is_finite);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn blocks_of_equal_bytes_count_like_single_elements() {
        let left: Vec<f32> = (0..1000)
            .map(|at| match at % 211 {
                7 => f32::NAN,
                9 => f32::INFINITY,
                _ => at as f32 / 7.0 - 50.0,
            })
            .collect();
        let mut right = left.clone();
        for at in [3, 64, 127, 400, 401, 999] {
            right[at] += 0.25;
        }
        right[7] = 1.0;
        right[350] = -0.0;
        let bytes = |side: &[f32]| side.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let wide = |side: &[f32]| {
            side.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect::<Vec<u8>>()
        };
        for nan_differs in [false, true] {
            for tolerance in [None, Some(Tolerance::default())] {
                let equality = Equality { tolerance, nan_differs };
                let mut expected = Numbers::new(true);
                for (l, r) in left.iter().zip(&right) {
                    expected.real((*l).into(), (*r).into(), equality);
                }
                assert!(expected.first == Some(3) && expected.one_nan == 1);
                let (mut narrow, mut of_wide) = (Numbers::new(true), Numbers::new(true));
                narrow.compare_f32(&bytes(&left), &bytes(&right), equality);
                of_wide.compare_f64(&wide(&left), &wide(&right), equality);
                assert_eq!([&narrow, &of_wide], [&expected; 2]);
            }
        }
    }
}
