//! The arithmetic: values of codes, times scales.

use std::ops::Range;

use half::{bf16, f16};
use statelens_checkpoint::{CodeValues, DType, Dequantised, Error, Offset, Result};

use super::Lines;
use crate::Out;
use crate::cast::{Cast, plain};
use crate::widest::widest;

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
const SQUARE: usize = 64;

/// Swaps the rows and columns of each matrix.
pub(super) fn swapped(all: &[f32], shape: [usize; 3]) -> Vec<f32> {
    let [_, rows, columns] = shape;
    let mut out = vec![0.0; all.len()];
    let size = (rows * columns).max(1);
    for (from, to) in all.chunks_exact(size).zip(out.chunks_exact_mut(size)) {
        square(from, to, [rows, columns], [0..rows, 0..columns]);
    }
    out
}

/// Swaps the rows and columns of each matrix of codes, eight of both at a time.
///
/// Rows of matrices are often a power of two apart, so that a square of them shares a few lines of the
/// cache. Each square is therefore copied, swapped, and written row by row.
pub(super) fn swapped_codes(all: &[u8], shape: [usize; 3]) -> Vec<u8> {
    let [_, rows, columns] = shape;
    let mut out = vec![0; all.len()];
    let size = (rows * columns).max(1);
    let (even_rows, even_columns) = (rows - rows % SQUARE, columns - columns % SQUARE);
    let (mut tile, mut turned) = ([0; SQUARE * SQUARE], [0; SQUARE * SQUARE]);
    for (from, to) in all.chunks_exact(size).zip(out.chunks_exact_mut(size)) {
        for left in (0..even_columns).step_by(SQUARE) {
            for top in (0..even_rows).step_by(SQUARE) {
                for (line, from) in
                    tile.chunks_exact_mut(SQUARE).zip(from[top * columns..].chunks(columns))
                {
                    line.copy_from_slice(&from[left..left + SQUARE]);
                }
                for row in (0..SQUARE).step_by(8) {
                    for column in (0..SQUARE).step_by(8) {
                        let to = &mut turned[column * SQUARE + row..];
                        eight(&tile[row * SQUARE + column..], SQUARE, to, SQUARE);
                    }
                }
                for (line, to) in
                    turned.chunks_exact(SQUARE).zip(to[left * rows..].chunks_mut(rows))
                {
                    to[top..top + SQUARE].copy_from_slice(line);
                }
            }
        }
        square(from, to, [rows, columns], [even_rows..rows, 0..columns]);
        square(from, to, [rows, columns], [0..even_rows, even_columns..columns]);
    }
    out
}

/// Swaps the elements in a range of rows and columns, one by one.
fn square<T: Copy>(from: &[T], to: &mut [T], shape: [usize; 2], range: [Range<usize>; 2]) {
    let [rows, columns] = shape;
    let [down, across] = range;
    for top in down.clone().step_by(SQUARE) {
        let bottom = down.end.min(top + SQUARE);
        for column in across.clone() {
            let to = &mut to[column * rows..][top..bottom];
            let from = from[top * columns + column..].iter().step_by(columns);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
    }
}

/// Swaps the rows and columns of eight by eight bytes, by swapping halves of rows three times.
#[inline(always)]
fn eight(from: &[u8], columns: usize, to: &mut [u8], rows: usize) {
    let mut lines = [0u64; 8];
    for (line, from) in lines.iter_mut().zip(from.chunks(columns)) {
        *line = from.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    }
    // The distance of the rows, the upper row of each pair, the bytes that are swapped.
    for (distance, pairs, mask) in [
        (4, [0, 1, 2, 3], 0x0000_0000_ffff_ffff),
        (2, [0, 1, 4, 5], 0x0000_ffff_0000_ffff),
        (1, [0, 2, 4, 6], 0x00ff_00ff_00ff_00ff),
    ] {
        for at in pairs {
            let swap = (lines[at] >> (8 * distance) ^ lines[at + distance]) & mask;
            lines[at + distance] ^= swap;
            lines[at] ^= swap << (8 * distance);
        }
    }
    for (line, to) in lines.iter().zip(to.chunks_mut(rows)) {
        if let Some(to) = to.first_chunk_mut() {
            *to = line.to_le_bytes();
        }
    }
}

/// Numbers that are computed at once, so that they stay in the cache.
const AT_ONCE: usize = 16 << 10;

/// The parts of a band, in the order of the tensor.
pub(super) struct Compute<'a> {
    pub(super) of: &'a Dequantised,
    pub(super) values: &'a [f32; 256],
    /// For each matrix, row of groups and column of groups.
    pub(super) scales: &'a [f32],
    pub(super) offsets: Option<&'a [f32]>,
    /// Rows and columns of groups.
    pub(super) groups: [usize; 2],
    pub(super) row_groups: &'a Lines,
    pub(super) column_groups: &'a Lines,
}

impl Compute<'_> {
    /// Computes the numbers of all codes, and passes on their bytes.
    pub(super) fn run(&self, codes: &[u8], shape: [usize; 3], out: &mut Out<'_>) -> Result<()> {
        match self.of.values {
            CodeValues::Minus(zero) => {
                let zero = zero as f32;
                self.offset(codes, shape, move |code| f32::from(code) - zero, out)
            }
            _ => {
                let values = self.values;
                self.offset(codes, shape, move |code| values[usize::from(code)], out)
            }
        }
    }

    /// Computes the numbers from values and offsets. The closures capture values, not references: a
    /// captured reference might overlap with `out`, so it would be read again for each number.
    #[inline(always)]
    fn offset(
        &self,
        codes: &[u8],
        shape: [usize; 3],
        value: impl Fn(u8) -> f32 + Copy,
        out: &mut Out<'_>,
    ) -> Result<()> {
        match self.of.offset {
            Offset::None => self.each(codes, shape, move |code, scale, _| value(code) * scale, out),
            Offset::Zeros(..) => {
                self.each(codes, shape, move |code, scale, zero| (value(code) - zero) * scale, out)
            }
            Offset::Biases(_) => {
                self.each(codes, shape, move |code, scale, bias| value(code) * scale + bias, out)
            }
            Offset::Constant(number) => {
                self.each(codes, shape, move |code, scale, _| value(code) * scale + number, out)
            }
        }
    }

    #[inline(always)]
    fn each(
        &self,
        codes: &[u8],
        shape: [usize; 3],
        number: impl Fn(u8, f32, f32) -> f32 + Copy,
        out: &mut Out<'_>,
    ) -> Result<()> {
        let [_, rows, columns] = shape;
        if codes.is_empty() || columns == 0 {
            return Ok(());
        }
        let [group_rows, group_columns] = self.groups;
        let mut numbers = vec![0.0; AT_ONCE.min(codes.len())];
        let mut bytes = Vec::new();
        widest(
            #[inline(always)]
            || {
                let mut filled = 0;
                for (line, codes) in codes.chunks_exact(columns).enumerate() {
                    let (matrix, row) = (line / rows, line % rows);
                    let from = (matrix * group_rows + self.row_groups.group(row)) * group_columns;
                    let scales = &self.scales[from..from + group_columns];
                    let offsets = match self.offsets {
                        Some(offsets) => &offsets[from..from + group_columns],
                        None => scales,
                    };
                    let mut start = 0;
                    while start < columns {
                        let len = (columns - start).min(numbers.len() - filled);
                        let run = &mut numbers[filled..filled + len];
                        self.part(&codes[start..start + len], start, scales, offsets, number, run);
                        (start, filled) = (start + len, filled + len);
                        if filled == numbers.len() {
                            self.pass_on(&mut numbers, &mut bytes, out)?;
                            filled = 0;
                        }
                    }
                }
                numbers.truncate(filled);
                self.pass_on(&mut numbers, &mut bytes, out)
            },
        )
    }

    /// Computes the numbers of codes from column `start` on.
    #[inline(always)]
    fn part(
        &self,
        codes: &[u8],
        start: usize,
        scales: &[f32],
        offsets: &[f32],
        number: impl Fn(u8, f32, f32) -> f32 + Copy,
        out: &mut [f32],
    ) {
        match self.column_groups {
            Lines::Listed(list) => {
                for ((out, code), group) in out.iter_mut().zip(codes).zip(&list[start..]) {
                    *out = number(*code, scales[*group], offsets[*group]);
                }
            }
            Lines::Runs { each: 1, .. } => {
                let groups = scales[start..].iter().zip(&offsets[start..]);
                for ((out, code), (scale, offset)) in out.iter_mut().zip(codes).zip(groups) {
                    *out = number(*code, *scale, *offset);
                }
            }
            Lines::Runs { first, each } => {
                let group = self.column_groups.group(start);
                // Columns that are left in the first group.
                let mut len = match group {
                    0 => *first - start,
                    _ => each - (start - first) % each,
                };
                let (mut out, mut codes) = (out, codes);
                for (&scale, &offset) in scales[group..].iter().zip(&offsets[group..]) {
                    let now = len.min(codes.len());
                    let (run, rest) = out.split_at_mut(now);
                    let (of_run, after) = codes.split_at(now);
                    for (out, code) in run.iter_mut().zip(of_run) {
                        *out = number(*code, scale, offset);
                    }
                    (out, codes, len) = (rest, after, *each);
                    if codes.is_empty() {
                        break;
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn pass_on(&self, numbers: &mut [f32], bytes: &mut Vec<u8>, out: &mut Out<'_>) -> Result<()> {
        finish(numbers, self.of.factor, self.of.rounding.as_ref(), bytes);
        if bytes.is_empty() { Ok(()) } else { out(bytes) }
    }
}

impl Lines {
    /// Returns the group of a line.
    #[inline(always)]
    fn group(&self, line: usize) -> usize {
        match self {
            Self::Runs { first, .. } if line < *first => 0,
            Self::Runs { first, each } => 1 + (line - first) / each,
            Self::Listed(list) => list[line],
        }
    }
}

/// Multiplies and rounds numbers, and writes their bytes.
#[inline(always)]
fn finish(numbers: &mut [f32], factor: Option<f32>, rounding: Option<&DType>, bytes: &mut Vec<u8>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_matrices_of_any_size() {
        for (rows, columns) in [(1, 1), (8, 8), (64, 64), (7, 19), (70, 65), (9, 130), (128, 200)] {
            let codes: Vec<u8> =
                (0..2 * rows * columns).map(|at| (at * 7 + at / 251) as u8).collect();
            let floats: Vec<f32> = codes.iter().map(|code| f32::from(*code)).collect();
            let shape = [2, rows, columns];
            let (swapped_codes, swapped) = (swapped_codes(&codes, shape), swapped(&floats, shape));
            for matrix in 0..2 {
                for row in 0..rows {
                    for column in 0..columns {
                        let from = codes[(matrix * rows + row) * columns + column];
                        let to = (matrix * columns + column) * rows + row;
                        assert_eq!(swapped_codes[to], from, "{rows} × {columns}");
                        assert_eq!(swapped[to], f32::from(from), "{rows} × {columns}");
                    }
                }
            }
        }
    }
}
