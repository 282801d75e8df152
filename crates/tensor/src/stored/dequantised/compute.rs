//! The arithmetic: values of codes, times scales.

use half::{bf16, f16};
use statelens_checkpoint::{CodeValues, DType, Error, Offset, Result};

use super::Lines;
use crate::cast::{Cast, plain};

/// Returns the value of each code, and the number of codes that have one.
pub(super) fn table(values: &CodeValues, stored: &[f32]) -> Result<([f32; 256], usize)> {
    let mut table = [0.0; 256];
    let entries = match values {
        CodeValues::Minus(zero) => {
            for (code, value) in (0..).zip(&mut table) {
                *value = (code - *zero) as f32;
            }
            return Ok((table, 256));
        }
        CodeValues::As(dtype) => {
            let codes: Vec<u8> = (0..=255).collect();
            let mut bytes = Vec::new();
            let dtype = plain(dtype).unwrap_or_else(|| dtype.clone());
            if dtype.itemsize() != 1 {
                return Err(Error::unsupported(format!("codes that are {dtype}")));
            }
            Cast::new(&dtype, &DType::F32)?.run(&codes, &mut bytes);
            table.iter_mut().zip(floats(&bytes)).for_each(|(value, float)| *value = float);
            return Ok((table, 256));
        }
        CodeValues::Table(entries) => &**entries,
        CodeValues::Stored(_) => stored,
    };
    table.iter_mut().zip(entries).for_each(|(value, entry)| *value = *entry);
    Ok((table, entries.len().min(256)))
}

/// Returns little-endian floats.
pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|float| f32::from_le_bytes(*float)).collect()
}

/// Returns scales from their bytes: floats, or exponents of two that are moved by 127.
pub(super) fn scales(bytes: &[u8], exponents: bool, divisor: Option<f32>) -> Vec<f32> {
    let mut scales = match exponents {
        false => floats(bytes),
        true => bytes.iter().map(|byte| power(*byte)).collect(),
    };
    if let Some(divisor) = divisor {
        scales.iter_mut().for_each(|scale| *scale /= divisor);
    }
    scales
}

/// Returns 2 to the power of the byte minus 127; that of 255 is infinite.
fn power(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(1 << 22),
        byte => f32::from_bits(u32::from(byte) << 23),
    }
}

/// Side of the squares in which elements are transposed, so that rows and columns stay in the cache.
const SQUARE: usize = 32;

/// Swaps the rows and columns of each matrix.
pub(super) fn swapped<T: Copy + Default>(all: &[T], shape: [usize; 3]) -> Vec<T> {
    let [_, rows, columns] = shape;
    let mut out = vec![T::default(); all.len()];
    let size = (rows * columns).max(1);
    for (from, to) in all.chunks_exact(size).zip(out.chunks_exact_mut(size)) {
        for top in (0..rows).step_by(SQUARE) {
            let bottom = rows.min(top + SQUARE);
            for left in (0..columns).step_by(SQUARE) {
                for column in left..columns.min(left + SQUARE) {
                    let to = &mut to[column * rows..][top..bottom];
                    let from = from[top * columns + column..].iter().step_by(columns);
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }
    out
}

/// The parts of a band, in the order of the tensor.
pub(super) struct Compute<'a> {
    pub(super) values: &'a [f32; 256],
    /// For each matrix, row of groups and column of groups.
    pub(super) scales: &'a [f32],
    pub(super) offsets: Option<&'a [f32]>,
    pub(super) offset: &'a Offset,
    /// Rows and columns of groups.
    pub(super) groups: [usize; 2],
    pub(super) row_groups: &'a Lines,
    pub(super) column_groups: &'a Lines,
}

impl Compute<'_> {
    /// Computes the numbers of all codes.
    pub(super) fn run(&self, codes: &[u8], shape: [usize; 3], out: &mut Vec<f32>) {
        match self.offset {
            Offset::None => self.each(codes, shape, out, |value, scale, _| value * scale),
            Offset::Zeros(..) => {
                self.each(codes, shape, out, |value, scale, zero| (value - zero) * scale);
            }
            Offset::Biases(_) => {
                self.each(codes, shape, out, |value, scale, bias| value * scale + bias);
            }
            Offset::Constant(number) => {
                self.each(codes, shape, out, |value, scale, _| value * scale + number);
            }
        }
    }

    #[inline(always)]
    fn each(
        &self,
        codes: &[u8],
        shape: [usize; 3],
        out: &mut Vec<f32>,
        number: impl Fn(f32, f32, f32) -> f32,
    ) {
        let [_, rows, columns] = shape;
        out.clear();
        out.resize(codes.len(), 0.0);
        if out.is_empty() {
            return;
        }
        let [group_rows, group_columns] = self.groups;
        let lines = out.chunks_exact_mut(columns).zip(codes.chunks_exact(columns));
        for (line, (out, codes)) in lines.enumerate() {
            let (matrix, row) = (line / rows, line % rows);
            let from = (matrix * group_rows + self.row_groups.group(row)) * group_columns;
            let scales = &self.scales[from..from + group_columns];
            let offsets = match self.offsets {
                Some(offsets) => &offsets[from..from + group_columns],
                None => scales,
            };
            match self.column_groups {
                Lines::Listed(list) => {
                    for ((out, code), group) in out.iter_mut().zip(codes).zip(list) {
                        let value = self.values[usize::from(*code)];
                        *out = number(value, scales[*group], offsets[*group]);
                    }
                }
                Lines::Runs { each: 1, .. } => {
                    let groups = scales.iter().zip(offsets);
                    for ((out, code), (scale, offset)) in out.iter_mut().zip(codes).zip(groups) {
                        *out = number(self.values[usize::from(*code)], *scale, *offset);
                    }
                }
                Lines::Runs { first, each } => {
                    let (mut out, mut codes, mut len) = (out, codes, *first);
                    for (scale, offset) in scales.iter().zip(offsets) {
                        let now = len.min(codes.len());
                        let (run, rest) = out.split_at_mut(now);
                        let (of_run, after) = codes.split_at(now);
                        for (out, code) in run.iter_mut().zip(of_run) {
                            *out = number(self.values[usize::from(*code)], *scale, *offset);
                        }
                        (out, codes, len) = (rest, after, *each);
                    }
                }
            }
        }
    }
}

impl Lines {
    /// Returns the group of a line.
    fn group(&self, line: usize) -> usize {
        match self {
            Self::Runs { first, .. } if line < *first => 0,
            Self::Runs { first, each } => 1 + (line - first) / each,
            Self::Listed(list) => list[line],
        }
    }
}

/// Multiplies and rounds numbers, and writes their bytes.
pub(super) fn finish(
    numbers: &mut [f32],
    factor: Option<f32>,
    rounding: Option<&DType>,
    bytes: &mut Vec<u8>,
) {
    if let Some(factor) = factor {
        numbers.iter_mut().for_each(|number| *number *= factor);
    }
    match rounding {
        Some(DType::BF16) => {
            numbers.iter_mut().for_each(|number| *number = bf16::from_f32(*number).to_f32());
        }
        Some(DType::F16) => {
            numbers.iter_mut().for_each(|number| *number = f16::from_f32(*number).to_f32());
        }
        _ => {}
    }
    bytes.resize(4 * numbers.len(), 0);
    for (bytes, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
        *bytes = number.to_le_bytes();
    }
}
