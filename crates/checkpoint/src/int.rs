//! Python's integers, which have arbitrary size.

use std::fmt;
use std::sync::Arc;

use num_bigint::BigInt;

/// An integer of any size.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Int(Repr);

/// Invariant: a value that fits in an `i64` is always `Small`, so that equality is structural.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Small(i64),
    Big(Arc<BigInt>),
}

impl Int {
    /// Decodes two's complement bytes, least significant first; no bytes mean zero.
    pub fn from_le_bytes(bytes: &[u8]) -> Self {
        if let ([.., last], ..=8) = (bytes, bytes.len()) {
            let mut word = [if last & 0x80 == 0 { 0 } else { 0xff }; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            return i64::from_le_bytes(word).into();
        }
        BigInt::from_signed_bytes_le(bytes).into()
    }

    /// Parses decimal digits with an optional sign, as written in JSON and text pickles.
    pub fn parse(digits: &str) -> Option<Self> {
        match digits.parse::<i64>() {
            Ok(small) => Some(small.into()),
            Err(_) => digits.parse::<BigInt>().ok().map(Self::from),
        }
    }

    /// Returns the value, if it fits.
    pub fn to_i64(&self) -> Option<i64> {
        match &self.0 {
            Repr::Small(small) => Some(*small),
            Repr::Big(_) => None,
        }
    }

    /// Returns the value, if it fits.
    pub fn to_u64(&self) -> Option<u64> {
        match &self.0 {
            Repr::Small(small) => u64::try_from(*small).ok(),
            Repr::Big(big) => u64::try_from(&**big).ok(),
        }
    }

    /// Returns the shortest two's complement bytes, least significant first; no bytes for zero, as
    /// in pickle's `LONG1`.
    pub fn to_le_bytes(&self) -> Vec<u8> {
        match &self.0 {
            Repr::Small(0) => Vec::new(),
            Repr::Small(small) => BigInt::from(*small).to_signed_bytes_le(),
            Repr::Big(big) => big.to_signed_bytes_le(),
        }
    }
}

impl From<i64> for Int {
    fn from(small: i64) -> Self {
        Self(Repr::Small(small))
    }
}

impl From<u64> for Int {
    fn from(value: u64) -> Self {
        BigInt::from(value).into()
    }
}

impl From<BigInt> for Int {
    fn from(big: BigInt) -> Self {
        match i64::try_from(&big) {
            Ok(small) => Self(Repr::Small(small)),
            Err(_) => Self(Repr::Big(Arc::new(big))),
        }
    }
}

impl fmt::Display for Int {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Small(small) => small.fmt(f),
            Repr::Big(big) => big.fmt(f),
        }
    }
}

impl fmt::Debug for Int {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_digits_round_trip() {
        for digits in
            ["0", "-1", "127", "-128", "128", "18446744073709551616", "-9223372036854775809"]
        {
            let int = Int::parse(digits).unwrap();
            assert_eq!(int.to_string(), digits);
            assert_eq!(Int::from_le_bytes(&int.to_le_bytes()), int);
        }
        assert_eq!(Int::from_le_bytes(&[0xff; 9]), Int::from(-1i64));
        assert_eq!(Int::parse("18446744073709551615").unwrap().to_u64(), Some(u64::MAX));
        assert_eq!(Int::parse("x"), None);
    }
}
