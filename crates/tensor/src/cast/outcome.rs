//! Counts the effects of a cast on elements, block by block, without branches.

use super::CastReport;
use crate::widest::widest;

/// Elements that are counted in 32 bits before the counts are widened.
const BLOCK: usize = 4096;

#[derive(Clone, Copy)]
pub(super) struct Outcome {
    pub zero: bool,
    pub changed: bool,
    /// The element was out of range; implies `changed`.
    pub overflowed: bool,
    pub zero_now: bool,
    /// The relative error; ignored unless the element was rounded.
    pub error: f32,
}

/// Casts each value and counts the outcomes.
#[inline(always)]
pub(super) fn convert<T: Copy, const N: usize>(
    values: &[T],
    out: &mut [u8],
    cast: impl Fn(T) -> ([u8; N], Outcome),
) -> CastReport {
    widest(
        #[inline(always)]
        move || count(values, out, cast),
    )
}

#[inline(always)]
fn count<T: Copy, const N: usize>(
    values: &[T],
    out: &mut [u8],
    cast: impl Fn(T) -> ([u8; N], Outcome),
) -> CastReport {
    let mut report = CastReport::default();
    for (values, out) in values.chunks(BLOCK).zip(out.as_chunks_mut::<N>().0.chunks_mut(BLOCK)) {
        let (mut changed, mut overflowed, mut nonzero, mut flushed) = (0u32, 0u32, 0u32, 0u32);
        // The bits of non-negative floats have the same order as the floats, and a maximum of
        // integers can be vectorised.
        let mut worst = 0u32;
        for (value, out) in values.iter().zip(out) {
            let (bytes, outcome) = cast(*value);
            *out = bytes;
            let kept = outcome.changed & !outcome.overflowed;
            let is_flushed = kept & outcome.zero_now & !outcome.zero;
            let rounded = kept & !is_flushed & !outcome.zero;
            changed += u32::from(outcome.changed);
            overflowed += u32::from(outcome.overflowed);
            nonzero += u32::from(!outcome.zero);
            flushed += u32::from(is_flushed);
            let error = outcome.error.to_bits() & 0x7fff_ffff;
            worst = worst.max(if rounded { error } else { 0 });
        }
        report.add(CastReport {
            elements: 0,
            changed: changed.into(),
            overflowed: overflowed.into(),
            nonzero: nonzero.into(),
            flushed: flushed.into(),
            worst: f32::from_bits(worst).into(),
        });
    }
    report
}

/// Converts to a dtype that holds every number of the source; counts nonzero elements.
#[inline(always)]
pub(super) fn widen<T: Copy + PartialEq + Default, const N: usize>(
    values: &[T],
    out: &mut [u8],
    cast: impl Fn(T) -> [u8; N],
) -> CastReport {
    let zero = T::default();
    widest(
        #[inline(always)]
        move || {
            let mut nonzero = 0u64;
            let out = out.as_chunks_mut::<N>().0.chunks_mut(BLOCK);
            for (values, out) in values.chunks(BLOCK).zip(out) {
                let mut in_block = 0u32;
                for (value, out) in values.iter().zip(out) {
                    in_block += u32::from(*value != zero);
                    *out = cast(*value);
                }
                nonzero += u64::from(in_block);
            }
            CastReport { nonzero, ..CastReport::default() }
        },
    )
}
