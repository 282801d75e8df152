//! Blocks of at most 128 elements with one scale, and one that is four of them.

use super::{half, signed};

/// Twice the values of FP4 E2M1. The negative zero of E2M1 is positive here, as in ggml.
const FP4: [f32; 16] = [0., 1., 2., 3., 4., 6., 8., 12., 0., -1., -2., -3., -4., -6., -8., -12.];

/// Values of four bits in `IQ4_NL` and `IQ4_XS`.
pub(super) const NON_LINEAR: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// Decodes bytes of two codes each: the low halves come first.
#[inline(always)]
pub(super) fn tabled(bytes: &[u8], scale: f32, values: &[f32; 16], out: &mut [f32]) {
    let (low, high) = out.split_at_mut(bytes.len());
    for (out, byte) in low.iter_mut().zip(bytes) {
        *out = scale * values[usize::from(byte & 15)];
    }
    for (out, byte) in high.iter_mut().zip(bytes) {
        *out = scale * values[usize::from(byte >> 4)];
    }
}

/// Writes the codes in the halves of `bytes`, the low ones first, as `number` computes them.
#[inline(always)]
fn halves(bytes: &[u8], out: &mut [f32], number: impl Fn(usize, u8) -> f32) {
    let (low, high) = out.split_at_mut(bytes.len());
    for (at, (out, byte)) in low.iter_mut().zip(bytes).enumerate() {
        *out = number(at, byte & 15);
    }
    for (at, (out, byte)) in high.iter_mut().zip(bytes).enumerate() {
        *out = number(at + bytes.len(), byte >> 4);
    }
}

/// Decodes `Q4_0`: centred on 8.
#[inline(always)]
pub(super) fn q4_0(block: &[u8], out: &mut [f32]) {
    let scale = half(block, 0);
    halves(&block[2..18], out, |_, code| (f32::from(code) - 8.0) * scale);
}

/// Decodes `Q4_1`: with a minimum.
#[inline(always)]
pub(super) fn q4_1(block: &[u8], out: &mut [f32]) {
    let (scale, minimum) = (half(block, 0), half(block, 2));
    halves(&block[4..20], out, |_, code| f32::from(code) * scale + minimum);
}

/// Adds the fifth bit of element `at`, which is in four bytes.
#[inline(always)]
fn five(fifths: &[u8], at: usize, code: u8) -> f32 {
    f32::from(code | (fifths[at / 8] >> (at % 8) & 1) << 4)
}

/// Decodes `Q5_0`: as `Q4_0`, centred on 16.
#[inline(always)]
pub(super) fn q5_0(block: &[u8], out: &mut [f32]) {
    let (scale, fifths) = (half(block, 0), &block[2..6]);
    halves(&block[6..22], out, |at, code| (five(fifths, at, code) - 16.0) * scale);
}

/// Decodes `Q5_1`: as `Q4_1`.
#[inline(always)]
pub(super) fn q5_1(block: &[u8], out: &mut [f32]) {
    let (scale, minimum, fifths) = (half(block, 0), half(block, 2), &block[4..8]);
    halves(&block[8..24], out, |at, code| five(fifths, at, code) * scale + minimum);
}

/// Decodes `Q8_0`.
#[inline(always)]
pub(super) fn q8_0(block: &[u8], out: &mut [f32]) {
    let scale = half(block, 0);
    for (out, byte) in out.iter_mut().zip(&block[2..34]) {
        *out = signed(*byte) * scale;
    }
}

/// Decodes `Q1_0`: a set bit is the scale, the others minus the scale.
#[inline(always)]
pub(super) fn q1_0(block: &[u8], out: &mut [f32]) {
    let scale = half(block, 0);
    for (at, out) in out.iter_mut().enumerate() {
        let set = block[2 + at / 8] >> (at % 8) & 1 == 1;
        *out = if set { scale } else { -scale };
    }
}

/// Decodes `IQ4_NL`.
#[inline(always)]
pub(super) fn iq4_nl(block: &[u8], out: &mut [f32]) {
    tabled(&block[2..18], half(block, 0), &NON_LINEAR, out);
}

/// Decodes `MXFP4`: the scale is half a power of two, because the codes stand for twice their
/// values.
#[inline(always)]
pub(super) fn mxfp4(block: &[u8], out: &mut [f32]) {
    let exponent = u32::from(block[0]);
    let bits = if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 };
    tabled(&block[1..17], f32::from_bits(bits), &FP4, out);
}

/// Decodes `NVFP4`: four runs of 16 with a scale of eight bits each, an unsigned E4M3.
#[inline(always)]
pub(super) fn nvfp4(block: &[u8], out: &mut [f32]) {
    for run in 0..4 {
        let code = block[run];
        let (exponent, mantissa) = (code >> 3 & 15, f32::from(code & 7));
        let scale = match (code, exponent) {
            (0 | 0x7f, _) => 0.0,
            (_, 0) => mantissa / 512.0,
            _ => (1.0 + mantissa / 8.0) * 2f32.powi(i32::from(exponent) - 7),
        };
        tabled(&block[4 + 8 * run..][..8], scale / 2.0, &FP4, &mut out[16 * run..][..16]);
    }
}
