//! The `IQ` types: groups of elements are rows of a codebook, with signs next to them or in it.

use std::sync::OnceLock;

use super::small::{NON_LINEAR, tabled};
use super::{grids, half, word};
use crate::cast::widen_f16;

/// A codebook whose rows have `N` values.
struct Grid<const N: usize> {
    packed: &'static [u16],
    bits: u32,
    values: &'static [i8],
    rows: OnceLock<Vec<[i8; N]>>,
}

impl<const N: usize> Grid<N> {
    const fn new(packed: &'static [u16], bits: u32, values: &'static [i8]) -> Self {
        Self { packed, bits, values, rows: OnceLock::new() }
    }

    /// Returns the rows, unpacked when they are first needed.
    fn rows(&self) -> &[[i8; N]] {
        self.rows.get_or_init(|| {
            let mask = (1u16 << self.bits) - 1;
            let value = |row: u16, at: usize| {
                let code = row >> (self.bits * at as u32) & mask;
                self.values.get(usize::from(code)).copied().unwrap_or(0)
            };
            let row = |row: &u16| std::array::from_fn(|at| value(*row, at));
            self.packed.iter().map(row).collect()
        })
    }
}

const THREE: &[i8] = &[8, 25, 43];
const TERNARY: &[i8] = &[-1, 0, 1];

static IQ2_XXS: Grid<8> = Grid::new(&grids::IQ2_XXS, 2, THREE);
static IQ2_XS: Grid<8> = Grid::new(&grids::IQ2_XS, 2, THREE);
static IQ2_S: Grid<8> = Grid::new(&grids::IQ2_S, 2, THREE);
static IQ3_XXS: Grid<4> = Grid::new(&grids::IQ3_XXS, 3, &[4, 12, 20, 28, 36, 44, 52, 62]);
static IQ3_S: Grid<4> = Grid::new(&grids::IQ3_S, 3, &[1, 3, 5, 7, 9, 11, 13, 15]);
static IQ1: Grid<8> = Grid::new(&grids::IQ1, 2, TERNARY);

/// Writes a row times `scale`; a set bit of `signs` is minus, but does not change the sign of NaN.
#[inline(always)]
fn put(out: &mut [f32], scale: f32, row: &[i8], signs: u8) {
    if scale.is_nan() {
        return out.fill(scale);
    }
    for (at, (out, value)) in out.iter_mut().zip(row).enumerate() {
        let sign = if signs >> at & 1 == 1 { -1.0 } else { 1.0 };
        *out = scale * f32::from(*value) * sign;
    }
}

/// Returns seven signs and an eighth that makes the number of minus signs even.
#[inline(always)]
fn even(signs: u32) -> u8 {
    let seven = (signs & 127) as u8;
    seven | ((seven.count_ones() & 1) as u8) << 7
}

#[inline(always)]
fn long(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Returns `scale * (0.5 + code) * by`, rounded after each operation.
#[inline(always)]
fn stepped(scale: f32, code: u32, by: f32) -> f32 {
    scale * (0.5 + code as f32) * by
}

/// Decodes `IQ2_XXS`: for 32 elements four rows, and a word with their signs and the scale.
#[inline(always)]
pub(super) fn iq2_xxs(block: &[u8], out: &mut [f32]) {
    let (scale, rows) = (half(block, 0), IQ2_XXS.rows());
    for run in 0..8 {
        let at = 2 + 8 * run;
        let word = long(block, at + 4);
        let scale = stepped(scale, word >> 28, 0.25);
        for group in 0..4 {
            let row = &rows[usize::from(block[at + group])];
            put(&mut out[32 * run + 8 * group..][..8], scale, row, even(word >> (7 * group)));
        }
    }
}

/// Decodes `IQ2_XS`: nine bits of a word are the row, seven the signs.
#[inline(always)]
pub(super) fn iq2_xs(block: &[u8], out: &mut [f32]) {
    let (scale, rows) = (half(block, 0), IQ2_XS.rows());
    for group in 0..32 {
        let word = word(block, 2 + 2 * group);
        let code = block[66 + group / 4] >> (4 * (group / 2 % 2)) & 15;
        let scale = stepped(scale, code.into(), 0.25);
        let row = &rows[usize::from(word & 511)];
        put(&mut out[8 * group..][..8], scale, row, even((word >> 9).into()));
    }
}

/// Decodes `IQ2_S`.
#[inline(always)]
pub(super) fn iq2_s(block: &[u8], out: &mut [f32]) {
    let (scale, rows) = (half(block, 0), IQ2_S.rows());
    for group in 0..32 {
        let high = block[66 + group / 4] >> (2 * (group % 4)) & 3;
        let code = block[74 + group / 4] >> (4 * (group / 2 % 2)) & 15;
        let scale = stepped(scale, code.into(), 0.25);
        let row = &rows[usize::from(block[2 + group]) | usize::from(high) << 8];
        put(&mut out[8 * group..][..8], scale, row, block[34 + group]);
    }
}

/// Decodes `IQ3_XXS`.
#[inline(always)]
pub(super) fn iq3_xxs(block: &[u8], out: &mut [f32]) {
    let (scale, rows) = (half(block, 0), IQ3_XXS.rows());
    for run in 0..8 {
        let word = long(block, 66 + 4 * run);
        let scale = stepped(scale, word >> 28, 0.5);
        for group in 0..8 {
            let signs = even(word >> (7 * (group / 2))) >> (4 * (group % 2));
            let row = &rows[usize::from(block[2 + 8 * run + group])];
            put(&mut out[32 * run + 4 * group..][..4], scale, row, signs);
        }
    }
}

/// Decodes `IQ3_S`.
#[inline(always)]
pub(super) fn iq3_s(block: &[u8], out: &mut [f32]) {
    let (scale, rows) = (half(block, 0), IQ3_S.rows());
    for group in 0..64 {
        let high = block[66 + group / 8] >> (group % 8) & 1;
        let code = block[106 + group / 16] >> (4 * (group / 8 % 2)) & 15;
        let scale = scale * f32::from(1 + 2 * code);
        let signs = block[74 + group / 2] >> (4 * (group % 2));
        let row = &rows[usize::from(block[2 + group]) | usize::from(high) << 8];
        put(&mut out[4 * group..][..4], scale, row, signs);
    }
}

/// Writes a row of -1, 0 and 1, moved by `delta`, times `scale`.
#[inline(always)]
fn put_moved(out: &mut [f32], scale: f32, row: &[i8], minus: bool) {
    let delta = if minus { -0.125 } else { 0.125 };
    for (out, value) in out.iter_mut().zip(row) {
        *out = scale * (f32::from(*value) + delta);
    }
}

/// Decodes `IQ1_S`.
#[inline(always)]
pub(super) fn iq1_s(block: &[u8], out: &mut [f32]) {
    let (scale, rows) = (half(block, 0), IQ1.rows());
    for group in 0..32 {
        let word = word(block, 34 + 2 * (group / 4));
        let scale = scale * f32::from(2 * (word >> 12 & 7) + 1);
        let high = word >> (3 * (group % 4)) & 7;
        let row = &rows[usize::from(block[2 + group]) | usize::from(high) << 8];
        put_moved(&mut out[8 * group..][..8], scale, row, word & 0x8000 != 0);
    }
}

/// Decodes `IQ1_M`: the scale is spread over the highest four bits of four words.
#[inline(always)]
pub(super) fn iq1_m(block: &[u8], out: &mut [f32]) {
    let words: [u16; 4] = std::array::from_fn(|at| word(block, 48 + 2 * at));
    let bits = words[0] >> 12 | words[1] >> 12 << 4 | words[2] >> 12 << 8 | words[3] >> 12 << 12;
    let (scale, rows) = (widen_f16(bits), IQ1.rows());
    for group in 0..32 {
        let code = words[group / 8] >> (3 * (group / 2 % 4)) & 7;
        let scale = scale * f32::from(2 * code + 1);
        let four = block[32 + group / 2] >> (4 * (group % 2)) & 15;
        let row = &rows[usize::from(block[group]) | usize::from(four & 7) << 8];
        put_moved(&mut out[8 * group..][..8], scale, row, four & 8 != 0);
    }
}

/// Decodes `IQ4_XS`: runs of 32 with a scale of six bits each.
#[inline(always)]
pub(super) fn iq4_xs(block: &[u8], out: &mut [f32]) {
    let (scale, highs) = (half(block, 0), word(block, 2));
    for run in 0..8 {
        let low = block[4 + run / 2] >> (4 * (run % 2)) & 15;
        let high = (highs >> (2 * run) & 3) as u8;
        let scale = scale * f32::from(i16::from(low | high << 4) - 32);
        tabled(&block[8 + 16 * run..][..16], scale, &NON_LINEAR, &mut out[32 * run..][..32]);
    }
}
