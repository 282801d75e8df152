//! Bins for values that are too many to keep: each is 1/128 of its magnitude wide. A bin holds the
//! numbers of one sign with the same exponent and the same first seven bits after the leading one,
//! including subnormal numbers.

/// The number of a bin: 0 for zero, `1 + m` for positive and `-1 - m` for negative numbers, where
/// `m` is the index of the bin by magnitude. Bin numbers sort like the values.
pub(crate) type BinNumber = i32;

/// Bits of a magnitude that select its bin within an exponent.
pub(crate) const BITS: u32 = 7;

/// Number of bins of one sign: 52 exponents of subnormal numbers, and 2,046 others.
pub(crate) const BINS: usize = (52 + 2046) << BITS;

/// The first bin of normal numbers, minus the contribution of its exponent field of 1.
pub(crate) const NORMAL: u64 = 51 << BITS;

/// Returns the bin of a finite nonzero magnitude, given as the bits of a double.
pub(crate) fn bin(magnitude: u64) -> usize {
    let bin = match magnitude >> 52 {
        0 => {
            let leading = 63 - (magnitude | 1).leading_zeros();
            // Shifts the leading bit to just above the seven.
            let seven = match leading.checked_sub(BITS) {
                Some(down) => magnitude >> down,
                None => magnitude << (BITS - leading),
            };
            u64::from(leading) << BITS | seven & ((1 << BITS) - 1)
        }
        _ => (magnitude >> (52 - BITS)) + NORMAL,
    };
    bin as usize
}

/// Returns the bin number of a finite number.
pub(crate) fn key(value: f64) -> BinNumber {
    if value == 0.0 {
        return 0;
    }
    let key = 1 + bin(value.abs().to_bits()) as BinNumber;
    if value < 0.0 { -key } else { key }
}

/// Returns the smallest and the largest number of a bin.
pub(crate) fn range(key: BinNumber) -> (f64, f64) {
    if key == 0 {
        return (0.0, 0.0);
    }
    let bin = u64::from(key.unsigned_abs()) - 1;
    let (low, high) = (edge(bin), edge(bin + 1).max(edge(bin) + 1) - 1);
    let (low, high) = (f64::from_bits(low), f64::from_bits(high));
    if key > 0 { (low, high) } else { (-high, -low) }
}

/// Returns the bits of the smallest magnitude of a bin, as a double.
fn edge(bin: u64) -> u64 {
    let (exponent, seven) = (bin >> BITS, bin & ((1 << BITS) - 1));
    match exponent.checked_sub(52) {
        Some(_) => (bin - NORMAL) << (52 - BITS),
        None => match (exponent as u32).checked_sub(BITS) {
            Some(up) => (1 << BITS | seven) << up,
            None => (1 << BITS | seven) >> (BITS - exponent as u32),
        },
    }
}

/// Counts per bin in ascending order: each bin once, none with a count of 0.
pub(crate) type Counts<K> = Vec<(K, u64)>;

/// Returns the sum of two sets of counts.
pub(crate) fn merged<K: Ord + Copy>(one: &Counts<K>, other: &Counts<K>) -> Counts<K> {
    let mut all = Vec::with_capacity(one.len().max(other.len()));
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    loop {
        let next = match (one.peek(), other.peek()) {
            (Some(a), Some(b)) if a.0 == b.0 => {
                let sum = (a.0, a.1 + b.1);
                one.next();
                other.next();
                sum
            }
            (Some(a), Some(b)) if a.0 > b.0 => {
                let item = **b;
                other.next();
                item
            }
            (Some(a), _) => {
                let item = **a;
                one.next();
                item
            }
            (None, Some(b)) => {
                let item = **b;
                other.next();
                item
            }
            (None, None) => return all,
        };
        all.push(next);
    }
}

/// Sorts counts and adds up those of the same bin.
pub(crate) fn sorted<K: Ord + Copy>(mut counts: Counts<K>) -> Counts<K> {
    counts.sort_unstable();
    counts.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0 };
        same
    });
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_narrow_and_contain_their_numbers() {
        let mut bits = 1u64;
        let mut before = 0;
        while bits < f64::INFINITY.to_bits() {
            let value = f64::from_bits(bits);
            let at = key(value);
            assert!(at >= before && at as usize <= BINS, "{value:e}");
            before = at;
            let (low, high) = range(at);
            assert!(low <= value && value <= high, "{low:e} {value:e} {high:e}");
            assert!(high - low <= low / 128.0, "{low:e} {high:e}");
            assert_eq!((range(-at), key(-value)), ((-high, -low), -at));
            bits += bits / 1000 + 1;
        }
        assert_eq!((key(0.0), key(-0.0)), (0, 0));
        assert_eq!(range(key(f64::MAX)).1, f64::MAX);
        assert_eq!(range(key(5e-324)), (5e-324, 5e-324));
    }

    #[test]
    fn merges_counts() {
        let one = vec![(-3, 1), (0, 2), (5, 3)];
        let other = vec![(0, 5), (4, 1)];
        assert_eq!(merged(&one, &other), [(-3, 1), (0, 7), (4, 1), (5, 3)]);
        assert_eq!(merged(&one, &Vec::new()), one);
        assert_eq!(sorted(vec![(5, 1), (0, 2), (5, 2)]), [(0, 2), (5, 3)]);
    }
}
