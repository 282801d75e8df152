//! A summary as bytes, for those who add up what others counted and share no memory with them.

use num_bigint::BigUint;

use crate::Summary;
use crate::exact::ExactSums;
use crate::spread::Spread;

impl Summary {
    /// All of it, for [`Summary::from_bytes`] of the same version of this crate.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out(Vec::new());
        let counts = [self.count, self.nan, self.pos_inf, self.neg_inf, self.zeros, self.subnormal];
        counts.into_iter().for_each(|count| out.whole(count));
        out.maybe(self.extremes, |out, (min, max)| {
            out.float(min);
            out.float(max);
        });
        out.maybe(self.whole, |out, (min, max)| {
            out.0.extend(min.to_le_bytes());
            out.0.extend(max.to_le_bytes());
        });
        out.maybe(self.largest, |out, (value, at)| {
            out.float(value);
            out.whole(at);
        });
        out.maybe(self.first_nan, Out::whole);
        out.maybe(self.first_inf, Out::whole);
        for sum in self.sums.parts() {
            let bytes = sum.to_bytes_le();
            out.whole(bytes.len() as u64);
            out.0.extend(bytes);
        }
        match &self.spread {
            Spread::Exact(counts) => {
                out.0.push(0);
                out.counts(counts.iter().copied());
            }
            Spread::Binned { counts, kept } => {
                out.0.push(1);
                out.maybe(kept.as_ref(), |out, kept| {
                    out.whole(kept.len() as u64);
                    kept.iter().for_each(|value| out.float(*value));
                });
                out.counts(counts.iter().map(|(key, count)| (i64::from(*key), *count)));
            }
        }
        out.0
    }

    /// What [`Summary::to_bytes`] made bytes of; `None` of any others.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = In(bytes);
        let mut summary = Self::default();
        for count in [
            &mut summary.count,
            &mut summary.nan,
            &mut summary.pos_inf,
            &mut summary.neg_inf,
            &mut summary.zeros,
            &mut summary.subnormal,
        ] {
            *count = from.whole()?;
        }
        summary.extremes = from.maybe(|from| Some((from.float()?, from.float()?)))?;
        let int = |from: &mut In<'_>| Some(i128::from_le_bytes(*from.take()?));
        summary.whole = from.maybe(|from| Some((int(from)?, int(from)?)))?;
        summary.largest = from.maybe(|from| Some((from.float()?, from.whole()?)))?;
        summary.first_nan = from.maybe(In::whole)?;
        summary.first_inf = from.maybe(In::whole)?;
        let mut sum = || {
            let len = usize::try_from(from.whole()?).ok()?;
            let (sum, rest) = from.0.split_at_checked(len)?;
            from.0 = rest;
            Some(BigUint::from_bytes_le(sum))
        };
        summary.sums = ExactSums::of_parts([sum()?, sum()?, sum()?]);
        let kept = from.maybe(|from| {
            from.maybe(|from| {
                // As many as there are bytes for: the number is only what the bytes say.
                let many = from.whole()?;
                (0..many).map(|_| from.float()).collect()
            })
        })?;
        let counts = from.counts()?;
        summary.spread = match kept {
            None => Spread::Exact(counts),
            Some(kept) => {
                let counts = counts.into_iter().map(|(key, n)| Some((key.try_into().ok()?, n)));
                Spread::Binned { counts: counts.collect::<Option<_>>()?, kept }
            }
        };
        from.0.is_empty().then_some(summary)
    }
}

/// Bytes that are written.
struct Out(Vec<u8>);

impl Out {
    /// Seven bits in each byte, the lowest first: most numbers are small.
    fn whole(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn float(&mut self, value: f64) {
        self.0.extend(value.to_bits().to_le_bytes());
    }

    fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.0.push(value.is_some().into());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Each key as what it is more than the one before.
    fn counts(&mut self, counts: impl ExactSizeIterator<Item = (i64, u64)>) {
        self.whole(counts.len() as u64);
        let mut before = 0;
        for (key, count) in counts {
            self.whole(key.wrapping_sub(before) as u64);
            self.whole(count);
            before = key;
        }
    }
}

/// Bytes that are read.
struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    fn whole(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.take()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn float(&mut self) -> Option<f64> {
        Some(f64::from_bits(u64::from_le_bytes(*self.take()?)))
    }

    /// Something or nothing; `None` if the bytes are no such thing.
    fn maybe<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.take()? {
            [0] => Some(None),
            [1] => read(self).map(Some),
            _ => None,
        }
    }

    fn counts(&mut self) -> Option<Vec<(i64, u64)>> {
        let many = self.whole()?;
        let mut before = 0i64;
        let mut next = || {
            before = before.wrapping_add(self.whole()? as i64);
            Some((before, self.whole()?))
        };
        let counts: Vec<(i64, u64)> = (0..many).map(|_| next()).collect::<Option<_>>()?;
        counts.is_sorted_by(|one, next| one.0 < next.0).then_some(counts)
    }
}
