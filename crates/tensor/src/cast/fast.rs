//! The casts between the dtypes that weights have, without branches, so that the compiler can
//! do many at once. Each returns how many elements are changed, and overflowed.

/// Elements that are counted in 32 bits before the count is widened.
const BLOCK: usize = 4096;

const INFINITY: u32 = 0x7f80_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;

pub(super) fn f32_to_bf16(stored: &[u8], out: &mut [u8]) -> (u64, u64) {
    narrow(stored, out, |bits| {
        let magnitude = bits & MAGNITUDE;
        let nan = magnitude > INFINITY;
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let changed = !nan & (bits & 0xffff != 0);
        let overflowed = !nan & (rounded & 0x7fff == 0x7f80) & (magnitude != INFINITY);
        // A NaN stays one, quiet, with its sign and the upper part of its payload.
        let half = if nan { bits >> 16 | 0x40 } else { rounded };
        (half as u16, changed, overflowed)
    })
}

pub(super) fn f32_to_f16(stored: &[u8], out: &mut [u8]) -> (u64, u64) {
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
        ((half | bits >> 16 & 0x8000) as u16, changed, overflowed)
    })
}

pub(super) fn bf16_to_f32(stored: &[u8], out: &mut [u8]) -> (u64, u64) {
    widen(stored, out, |half| half << 16)
}

pub(super) fn f16_to_f32(stored: &[u8], out: &mut [u8]) -> (u64, u64) {
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

fn narrow(stored: &[u8], out: &mut [u8], cast: impl Fn(u32) -> (u16, bool, bool)) -> (u64, u64) {
    let (mut changed, mut overflowed) = (0, 0);
    for (stored, out) in stored.chunks(BLOCK * 4).zip(out.chunks_mut(BLOCK * 2)) {
        let (mut block_changed, mut block_overflowed) = (0u32, 0u32);
        for (four, two) in stored.as_chunks::<4>().0.iter().zip(out.as_chunks_mut::<2>().0) {
            let (half, is_changed, is_overflowed) = cast(u32::from_le_bytes(*four));
            *two = half.to_le_bytes();
            block_changed += u32::from(is_changed);
            block_overflowed += u32::from(is_overflowed);
        }
        changed += u64::from(block_changed);
        overflowed += u64::from(block_overflowed);
    }
    (changed, overflowed)
}

/// To a dtype that holds all numbers of the other.
fn widen(stored: &[u8], out: &mut [u8], cast: impl Fn(u32) -> u32) -> (u64, u64) {
    for (two, four) in stored.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<4>().0) {
        *four = cast(u32::from(u16::from_le_bytes(*two))).to_le_bytes();
    }
    (0, 0)
}
