//! The casts between the dtypes that weights have, without branches, so that the compiler can
//! do many at once. Each returns what it did to them.

use super::CastReport;

/// Elements that are counted in 32 bits before the count is widened.
const BLOCK: usize = 4096;

const INFINITY: u32 = 0x7f80_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;

pub(super) fn f32_to_bf16(stored: &[u8], out: &mut [u8]) -> CastReport {
    narrow(stored, out, |bits| {
        let magnitude = bits & MAGNITUDE;
        let nan = magnitude > INFINITY;
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let changed = !nan & (bits & 0xffff != 0);
        let overflowed = !nan & (rounded & 0x7fff == 0x7f80) & (magnitude != INFINITY);
        // A NaN stays one, quiet, with its sign and the upper part of its payload.
        let half = if nan { bits >> 16 | 0x40 } else { rounded };
        let after = f32::from_bits((rounded & 0x7fff) << 16);
        Narrowed { half: half as u16, changed, overflowed, after }
    })
}

pub(super) fn f32_to_f16(stored: &[u8], out: &mut [u8]) -> CastReport {
    // The smallest normal number, and the distance between both exponents' biases.
    const NORMAL: u32 = (127 - 14) << 23;
    const BIAS: u32 = (127 - 15) << 23;
    narrow(stored, out, |bits| {
        let magnitude = bits & MAGNITUDE;
        let value = f32::from_bits(magnitude);
        let based = magnitude.wrapping_sub(BIAS);
        let normal = (based.wrapping_add(0xfff + (based >> 13 & 1)) >> 13).min(0x7c00);
        // Added to 0.5, a small number's last bits fall off where those of a 16-bit subnormal
        // end, and are rounded by the addition.
        let shifted = value + 0.5;
        let subnormal = shifted.to_bits().wrapping_sub(0.5f32.to_bits());
        let (nan, small) = (magnitude > INFINITY, magnitude < NORMAL);
        let half = if small { subnormal } else { normal };
        let half = if nan { 0x7e00 | (magnitude >> 13 & 0x3ff) } else { half };
        let overflowed = (half == 0x7c00) & (magnitude != INFINITY);
        let exact = if small { shifted - 0.5 == value } else { magnitude & 0x1fff == 0 };
        let changed = !nan & (!exact | overflowed);
        let kept = magnitude.wrapping_add(0xfff + (magnitude >> 13 & 1)) & !0x1fff;
        let after = if small { shifted - 0.5 } else { f32::from_bits(kept) };
        let half = (half | bits >> 16 & 0x8000) as u16;
        Narrowed { half, changed, overflowed, after }
    })
}

pub(super) fn bf16_to_f32(stored: &[u8], out: &mut [u8]) -> CastReport {
    widen(stored, out, |half| half << 16)
}

pub(super) fn f16_to_f32(stored: &[u8], out: &mut [u8]) -> CastReport {
    const EXPONENT: u32 = 0x7c00 << 13;
    const TINY: u32 = (127 - 14) << 23;
    widen(stored, out, |half| {
        let shifted = (half & 0x7fff) << 13;
        let exponent = shifted & EXPONENT;
        let normal = shifted + ((127 - 15) << 23);
        // Infinities and NaNs: the exponent is all ones in both; NaNs become quiet.
        let quiet = if shifted > EXPONENT { 0x40_0000 } else { 0 };
        let special = shifted | INFINITY | quiet;
        // Subnormals: as if they had the leading one, which is then taken away.
        let subnormal = (f32::from_bits(shifted + TINY) - f32::from_bits(TINY)).to_bits();
        let bits = if exponent == 0 { subnormal } else { normal };
        let bits = if exponent == EXPONENT { special } else { bits };
        bits | (half & 0x8000) << 16
    })
}

/// A number that was narrowed.
struct Narrowed {
    half: u16,
    /// Never of a NaN.
    changed: bool,
    overflowed: bool,
    /// The magnitude that it has now; of no matter where it is not changed or overflowed.
    after: f32,
}

fn narrow(stored: &[u8], out: &mut [u8], cast: impl Fn(u32) -> Narrowed) -> CastReport {
    let mut report = CastReport::default();
    for (stored, out) in stored.chunks(BLOCK * 4).zip(out.chunks_mut(BLOCK * 2)) {
        let (mut changed, mut overflowed, mut nonzero, mut flushed) = (0u32, 0u32, 0u32, 0u32);
        // The bits of floats that are not negative are in their order.
        let mut worst = 0u32;
        for (four, two) in stored.as_chunks::<4>().0.iter().zip(out.as_chunks_mut::<2>().0) {
            let bits = u32::from_le_bytes(*four);
            let narrowed = cast(bits);
            *two = narrowed.half.to_le_bytes();
            let is_zero = bits & MAGNITUDE == 0;
            let is_flushed = narrowed.changed & (narrowed.half & 0x7fff == 0) & !is_zero;
            changed += u32::from(narrowed.changed);
            overflowed += u32::from(narrowed.overflowed);
            nonzero += u32::from(!is_zero);
            flushed += u32::from(is_flushed);
            let before = f32::from_bits(bits & MAGNITUDE);
            let error = ((narrowed.after - before) / before).to_bits() & MAGNITUDE;
            let rounded = narrowed.changed & !narrowed.overflowed & !is_flushed;
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

/// To a dtype that holds all numbers of the other.
fn widen(stored: &[u8], out: &mut [u8], cast: impl Fn(u32) -> u32) -> CastReport {
    let mut nonzero = 0u64;
    for (stored, out) in stored.chunks(BLOCK * 2).zip(out.chunks_mut(BLOCK * 4)) {
        let mut in_block = 0u32;
        for (two, four) in stored.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<4>().0) {
            let half = u32::from(u16::from_le_bytes(*two));
            in_block += u32::from(half & 0x7fff != 0);
            *four = cast(half).to_le_bytes();
        }
        nonzero += u64::from(in_block);
    }
    CastReport { nonzero, ..CastReport::default() }
}
