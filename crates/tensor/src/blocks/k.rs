//! Blocks of 256 elements with scales of their own for runs of 16 or 32 (`Q2_K` to `Q8_K`), and the
//! ternary types.

use super::{half, signed};

/// Two bits for each element: byte `32 * (e / 128) + e % 32` of `codes` has those of element `e`.
#[inline(always)]
fn two_bits(codes: &[u8]) -> impl Iterator<Item = (usize, &[u8], u32)> {
    (0..8).map(|run| (run, &codes[32 * (run / 4)..][..32], 2 * (run as u32 % 4)))
}

/// Decodes `Q2_K`: the low half of a scale's byte is the scale, the high half the minimum.
#[inline(always)]
pub(super) fn q2(block: &[u8], out: &mut [f32]) {
    let (scales, codes) = (&block[..16], &block[16..80]);
    let (scale, minimum) = (half(block, 80), half(block, 82));
    for (run, bytes, shift) in two_bits(codes) {
        for part in 0..2 {
            let byte = scales[2 * run + part];
            let (scale, minimum) = (scale * low(byte), minimum * high(byte));
            let out = &mut out[32 * run + 16 * part..][..16];
            for (out, byte) in out.iter_mut().zip(&bytes[16 * part..][..16]) {
                *out = scale * f32::from(byte >> shift & 3) - minimum;
            }
        }
    }
}

/// Decodes `Q3_K`: a third bit that is not set subtracts 4.
#[inline(always)]
pub(super) fn q3(block: &[u8], out: &mut [f32]) {
    let (thirds, codes, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let all = half(block, 108);
    for (run, bytes, shift) in two_bits(codes) {
        for part in 0..2 {
            let at = 2 * run + part;
            let four = if at < 8 { scales[at] & 15 } else { scales[at - 8] >> 4 };
            let two = scales[8 + at % 4] >> (2 * (at / 4)) & 3;
            let scale = all * f32::from(i16::from(four | two << 4) - 32);
            let out = &mut out[32 * run + 16 * part..][..16];
            let from = 16 * part..16 * part + 16;
            let bytes = bytes[from.clone()].iter().zip(&thirds[from]);
            for (out, (byte, third)) in out.iter_mut().zip(bytes) {
                let code = (byte >> shift & 3) | (third >> run & 1) << 2;
                *out = scale * (f32::from(code) - 4.0);
            }
        }
    }
}

/// Returns the scale and the minimum of run `run` in `Q4_K` and `Q5_K`, six bits each.
#[inline(always)]
fn six_bits(scales: &[u8], run: usize) -> (f32, f32) {
    let (scale, minimum) = match run {
        0..4 => (scales[run] & 63, scales[run + 4] & 63),
        _ => (
            scales[run + 4] & 15 | scales[run - 4] >> 6 << 4,
            scales[run + 4] >> 4 | scales[run] >> 6 << 4,
        ),
    };
    (f32::from(scale), f32::from(minimum))
}

/// Decodes `Q4_K`.
#[inline(always)]
pub(super) fn q4(block: &[u8], out: &mut [f32]) {
    let (scale, minimum) = (half(block, 0), half(block, 2));
    let (scales, codes) = (&block[4..16], &block[16..144]);
    for pair in 0..4 {
        let bytes = &codes[32 * pair..][..32];
        let (even, odd) = out[64 * pair..][..64].split_at_mut(32);
        let (step, least) = six_bits(scales, 2 * pair);
        let (step, least) = (scale * step, minimum * least);
        for (out, byte) in even.iter_mut().zip(bytes) {
            *out = step * low(*byte) - least;
        }
        let (step, least) = six_bits(scales, 2 * pair + 1);
        let (step, least) = (scale * step, minimum * least);
        for (out, byte) in odd.iter_mut().zip(bytes) {
            *out = step * high(*byte) - least;
        }
    }
}

/// Decodes `Q5_K`: as `Q4_K`, with the fifth bits in 32 bytes before the others.
#[inline(always)]
pub(super) fn q5(block: &[u8], out: &mut [f32]) {
    let (scale, minimum) = (half(block, 0), half(block, 2));
    let (scales, fifths, codes) = (&block[4..16], &block[16..48], &block[48..176]);
    for run in 0..8 {
        let (step, least) = six_bits(scales, run);
        let (step, least) = (scale * step, minimum * least);
        let shift = 4 * (run as u32 % 2);
        let bytes = codes[32 * (run / 2)..][..32].iter().zip(fifths);
        for (out, (byte, fifth)) in out[32 * run..][..32].iter_mut().zip(bytes) {
            let code = byte >> shift & 15 | (fifth >> run & 1) << 4;
            *out = step * f32::from(code) - least;
        }
    }
}

/// Decodes `Q6_K`: the low four bits of two runs share a byte, the high two bits of four.
#[inline(always)]
pub(super) fn q6(block: &[u8], out: &mut [f32]) {
    let scale = half(block, 208);
    for run in 0..8 {
        let (whole, run_of) = (run / 4, run % 4);
        let lows = &block[64 * whole + 32 * (run_of & 1)..][..32];
        let highs = &block[128 + 32 * whole..][..32];
        let (shift, above) = (4 * (run_of as u32 / 2), 2 * run_of as u32);
        for part in 0..2 {
            let scale = scale * signed(block[192 + 2 * run + part]);
            let out = &mut out[32 * run + 16 * part..][..16];
            let from = 16 * part..16 * part + 16;
            let bytes = lows[from.clone()].iter().zip(&highs[from]);
            for (out, (low, high)) in out.iter_mut().zip(bytes) {
                let code = low >> shift & 15 | (high >> above & 3) << 4;
                *out = scale * (f32::from(code) - 32.0);
            }
        }
    }
}

/// Decodes `Q8_K`: the only type with a scale of 32 bits. Sums of runs follow the codes.
#[inline(always)]
pub(super) fn q8(block: &[u8], out: &mut [f32]) {
    let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    for (out, byte) in out.iter_mut().zip(&block[4..260]) {
        *out = scale * signed(*byte);
    }
}

/// Decodes `TQ1_0`: five digits of base three in a byte, as a fraction of 256.
#[inline(always)]
pub(super) fn tq1(block: &[u8], out: &mut [f32]) {
    let scale = half(block, 52);
    let mut out = out.iter_mut();
    for (bytes, digits) in [(&block[..32], 5), (&block[32..48], 5), (&block[48..52], 4)] {
        let mut power = 1u8;
        for _ in 0..digits {
            for (byte, out) in bytes.iter().zip(&mut out) {
                let digit = (u16::from(byte.wrapping_mul(power)) * 3) >> 8;
                *out = scale * (f32::from(digit) - 1.0);
            }
            power = power.wrapping_mul(3);
        }
    }
}

/// Decodes `TQ2_0`.
#[inline(always)]
pub(super) fn tq2(block: &[u8], out: &mut [f32]) {
    let scale = half(block, 64);
    for (run, bytes, shift) in two_bits(&block[..64]) {
        for (out, byte) in out[32 * run..][..32].iter_mut().zip(bytes) {
            *out = scale * (f32::from(byte >> shift & 3) - 1.0);
        }
    }
}

#[inline(always)]
fn low(byte: u8) -> f32 {
    f32::from(byte & 15)
}

#[inline(always)]
fn high(byte: u8) -> f32 {
    f32::from(byte >> 4)
}
