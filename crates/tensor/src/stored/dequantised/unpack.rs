//! Packed codes.

use std::ops::Range;

use statelens_checkpoint::{CodePacking, MAX_FIELDS};

use crate::widest::widest;

/// The elements of a tensor that hold packed codes.
#[derive(Debug)]
pub(super) struct Grid {
    packing: CodePacking,
    /// Matrices, rows and columns of elements.
    pub(super) shape: [u64; 3],
    /// Bytes of an element.
    itemsize: u64,
}

impl Grid {
    /// Returns the elements for codes of `shape` in a tensor of `numel` elements; `None` if these are
    /// too few or too many.
    pub(super) fn new(
        packing: CodePacking,
        shape: [u64; 3],
        itemsize: u64,
        numel: u64,
    ) -> Option<Self> {
        let [matrices, rows, columns] = shape;
        let unit = itemsize.checked_mul(8).filter(|unit| *unit > 0)?;
        let fits = |bits: u32| (1..=8).contains(&bits);
        let shape = match packing {
            CodePacking::Bytes if unit == 8 => shape,
            CodePacking::AlongRow(bits) => {
                let bits = columns.checked_mul(bits.into()).filter(|_| fits(bits))?;
                [matrices, rows, bits.div_ceil(unit)]
            }
            CodePacking::AlongColumn(bits) => {
                let bits = rows.checked_mul(bits.into()).filter(|_| fits(bits) && unit == 32)?;
                [matrices, bits.div_ceil(unit), columns]
            }
            CodePacking::Interleaved if unit == 32 => [matrices, rows, columns.div_ceil(8)],
            CodePacking::HighFirst if unit == 8 => [matrices, rows, columns.div_ceil(2)],
            CodePacking::Fields(widths) if unit == 8 || unit == 16 => {
                let sum: u32 = widths.iter().map(|width| u32::from(*width)).sum();
                let fits = u64::from(sum) <= unit && widths.iter().all(|width| *width <= 8);
                let fields = fields(&widths);
                let whole = fields > 0 && matrices.is_multiple_of(fields);
                [matrices.checked_div(fields).filter(|_| fits && whole)?, rows, columns]
            }
            CodePacking::Bytes
            | CodePacking::Interleaved
            | CodePacking::HighFirst
            | CodePacking::Fields(_) => return None,
        };
        let count = shape.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim))?;
        (count == numel).then_some(Self { packing, shape, itemsize })
    }

    /// Returns the box of elements that hold a box of codes.
    pub(super) fn held(&self, codes: &[Range<u64>; 3]) -> [Range<u64>; 3] {
        let [matrices, rows, columns] = codes.clone();
        // No product overflows: that of the whole shape does not.
        let scaled = |range: &Range<u64>, by: u64, over: u64| {
            range.start * by / over..(range.end * by).div_ceil(over)
        };
        let unit = self.itemsize * 8;
        match self.packing {
            CodePacking::Bytes => [matrices, rows, columns],
            CodePacking::AlongRow(bits) => {
                let columns = scaled(&columns, bits.into(), unit);
                [matrices, rows, columns]
            }
            CodePacking::AlongColumn(bits) => {
                let rows = scaled(&rows, bits.into(), unit);
                [matrices, rows, columns]
            }
            CodePacking::Interleaved => {
                let columns = scaled(&columns, 1, 8);
                [matrices, rows, columns]
            }
            CodePacking::HighFirst => {
                let columns = scaled(&columns, 1, 2);
                [matrices, rows, columns]
            }
            CodePacking::Fields(widths) => {
                let matrices = scaled(&matrices, 1, fields(&widths).max(1));
                [matrices, rows, columns]
            }
        }
    }
}

/// Returns the number of fields in a word.
fn fields(widths: &[u8; MAX_FIELDS]) -> u64 {
    widths.iter().filter(|width| **width > 0).count() as u64
}

/// Unpacks a box of codes from the bytes of the elements that hold it: a byte each.
pub(super) fn unpack(grid: &Grid, codes: &[Range<u64>; 3], bytes: &[u8]) -> Vec<u8> {
    widest(
        #[inline(always)]
        || unpack_box(grid, codes, bytes),
    )
}

#[inline(always)]
fn unpack_box(grid: &Grid, codes: &[Range<u64>; 3], bytes: &[u8]) -> Vec<u8> {
    let held = grid.held(codes);
    let len = |range: &Range<u64>| (range.end - range.start) as usize;
    let (rows, columns) = (len(&codes[1]), len(&codes[2]));
    let mut out = vec![0; len(&codes[0]) * rows * columns];
    let row_bytes = len(&held[2]) * grid.itemsize as usize;
    if out.is_empty() || row_bytes == 0 {
        return out;
    }
    let skipped = |range: &Range<u64>, held: &Range<u64>, bits: u64, unit: u64| {
        (range.start * bits - held.start * unit) as usize
    };
    let unit = grid.itemsize * 8;
    match grid.packing {
        CodePacking::Bytes => return bytes.to_vec(),
        CodePacking::AlongRow(bits) => {
            let skip = skipped(&codes[2], &held[2], bits.into(), unit);
            for (out, row) in out.chunks_exact_mut(columns).zip(bytes.chunks_exact(row_bytes)) {
                stream(row, bits as usize, skip, out);
            }
        }
        CodePacking::AlongColumn(bits) => {
            let skip = skipped(&codes[1], &held[1], bits.into(), unit);
            let words: Vec<u32> =
                bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            let matrix = len(&held[1]) * columns;
            let matrices = words.chunks_exact(matrix.max(1));
            for (out, words) in out.chunks_exact_mut(rows * columns).zip(matrices) {
                columnwise(words, bits as usize, skip, columns, out);
            }
        }
        CodePacking::Interleaved => {
            let skip = skipped(&codes[2], &held[2], 1, 8);
            for (out, row) in out.chunks_exact_mut(columns).zip(bytes.chunks_exact(row_bytes)) {
                interleaved(row, skip, out);
            }
        }
        CodePacking::HighFirst => {
            let skip = skipped(&codes[2], &held[2], 1, 2);
            for (out, row) in out.chunks_exact_mut(columns).zip(bytes.chunks_exact(row_bytes)) {
                high_first(row, skip, out);
            }
        }
        CodePacking::Fields(widths) => {
            let count = fields(&widths).max(1);
            let size = rows * columns;
            let each = grid.itemsize as usize;
            for (matrix, out) in codes[0].clone().zip(out.chunks_exact_mut(size)) {
                // Both fit: a matrix of codes and the words that were read are in memory.
                let (field, stored) = ((matrix % count) as usize, matrix / count - held[0].start);
                let shift: u32 = widths[..field].iter().map(|width| u32::from(*width)).sum();
                let mask = (1u16 << widths[field]) - 1;
                let bytes = bytes.get(stored as usize * size * each..).unwrap_or_default();
                match each {
                    1 => {
                        for (out, byte) in out.iter_mut().zip(bytes) {
                            *out = (u16::from(*byte) >> shift & mask) as u8;
                        }
                    }
                    _ => {
                        for (out, word) in out.iter_mut().zip(bytes.as_chunks().0) {
                            *out = (u16::from_le_bytes(*word) >> shift & mask) as u8;
                        }
                    }
                }
            }
        }
    }
    out
}

/// Unpacks codes that follow each other, the lowest bits first, after `skip` bits.
#[inline(always)]
fn stream(bytes: &[u8], bits: usize, skip: usize, out: &mut [u8]) {
    match (bits, skip % 8) {
        (8, 0) => out.copy_from_slice(&bytes[skip / 8..][..out.len()]),
        (4, 0) => {
            let bytes = &bytes[skip / 8..];
            let (pairs, last) = out.as_chunks_mut::<2>();
            for (pair, byte) in pairs.iter_mut().zip(bytes) {
                *pair = [byte & 15, byte >> 4];
            }
            if let ([last], Some(byte)) = (last, bytes.get(pairs.len())) {
                *last = byte & 15;
            }
        }
        _ => {
            let mask = (1u16 << bits) - 1;
            for (index, out) in out.iter_mut().enumerate() {
                let at = skip + index * bits;
                let low = bytes.get(at / 8).copied().unwrap_or(0);
                let high = bytes.get(at / 8 + 1).copied().unwrap_or(0);
                *out = (u16::from_le_bytes([low, high]) >> (at % 8) & mask) as u8;
            }
        }
    }
}

/// Unpacks codes that follow each other in each column of words.
#[inline(always)]
fn columnwise(words: &[u32], bits: usize, skip: usize, columns: usize, out: &mut [u8]) {
    let mask = (1u32 << bits) - 1;
    for (row, out) in out.chunks_exact_mut(columns).enumerate() {
        let at = skip + row * bits;
        let (word, shift) = (at / 32, at % 32);
        let low = &words[word * columns..][..columns];
        if shift + bits <= 32 {
            for (out, low) in out.iter_mut().zip(low) {
                *out = (low >> shift & mask) as u8;
            }
        } else {
            let high = &words[(word + 1) * columns..][..columns];
            for (out, (low, high)) in out.iter_mut().zip(low.iter().zip(high)) {
                *out = ((low >> shift | high << (32 - shift)) & mask) as u8;
            }
        }
    }
}

#[inline(always)]
fn interleaved(row: &[u8], skip: usize, out: &mut [u8]) {
    // The four codes of the low half are at even places, those of the high half at odd ones.
    let spread = |half: u64| {
        let bytes = (half | half << 24) & 0x0000_00ff_0000_00ff;
        (bytes | bytes << 12) & 0x000f_000f_000f_000f
    };
    let codes = |word: [u8; 4]| {
        let word = u64::from(u32::from_le_bytes(word));
        (spread(word & 0xffff) | spread(word >> 16) << 8).to_le_bytes()
    };
    let mut words = row.as_chunks::<4>().0.iter();
    let mut out = out;
    if skip > 0
        && let Some(word) = words.next()
    {
        let codes = &codes(*word)[skip..];
        let len = codes.len().min(out.len());
        let (first, rest) = out.split_at_mut(len);
        first.copy_from_slice(&codes[..len]);
        out = rest;
    }
    let (whole, last) = out.as_chunks_mut::<8>();
    for (out, word) in whole.iter_mut().zip(&mut words) {
        *out = codes(*word);
    }
    if let Some(word) = words.next() {
        last.iter_mut().zip(codes(*word)).for_each(|(out, code)| *out = code);
    }
}

#[inline(always)]
fn high_first(row: &[u8], skip: usize, out: &mut [u8]) {
    let (first, rest) = match (skip, out) {
        (1, [first, rest @ ..]) => (Some(first), rest),
        (_, out) => (None, out),
    };
    let mut row = row;
    if let (Some(first), [byte, after @ ..]) = (first, row) {
        *first = byte & 15;
        row = after;
    }
    let (pairs, last) = rest.as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(row) {
        *pair = [byte >> 4, byte & 15];
    }
    if let ([last], Some(byte)) = (last, row.get(pairs.len())) {
        *last = byte >> 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_fields() -> [u8; MAX_FIELDS] {
        let mut widths = [0; MAX_FIELDS];
        widths[..2].copy_from_slice(&[3, 7]);
        widths
    }

    fn halves() -> [u8; MAX_FIELDS] {
        let mut widths = [0; MAX_FIELDS];
        widths[..2].copy_from_slice(&[4, 4]);
        widths
    }

    /// Fields are in the order of the matrices, the lowest bits first.
    #[test]
    fn fields_are_matrices() {
        let grid = Grid::new(CodePacking::Fields(two_fields()), [4, 1, 2], 2, 4).unwrap();
        let bytes: Vec<u8> =
            [5u16 | 99 << 3, 1, 2 | 1 << 3, 7].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(unpack(&grid, &[0..4, 0..1, 0..2], &bytes), [5, 1, 99, 0, 2, 7, 1, 0]);
        assert!(Grid::new(CodePacking::Fields([2; MAX_FIELDS]), [16, 1, 1], 2, 1).is_none());
        assert!(Grid::new(CodePacking::Fields(two_fields()), [3, 1, 2], 2, 4).is_none());
    }

    /// Every box of codes is the same part of all of them.
    #[test]
    fn boxes_are_parts_of_the_whole() {
        let bytes: Vec<u8> = (0u32..4096).map(|at| (at * 89 + at / 7) as u8).collect();
        let packings = (1..=8).flat_map(|bits| {
            [(CodePacking::AlongRow(bits), 4), (CodePacking::AlongColumn(bits), 4)]
        });
        let others = [
            (CodePacking::AlongRow(4), 1),
            (CodePacking::AlongRow(3), 2),
            (CodePacking::Bytes, 1),
            (CodePacking::Interleaved, 4),
            (CodePacking::HighFirst, 1),
            (CodePacking::Fields(two_fields()), 2),
            (CodePacking::Fields(halves()), 1),
        ];
        for (packing, itemsize) in packings.chain(others) {
            let shape = [2u64, 11, 13];
            let counts = (1..600).find_map(|numel| Grid::new(packing, shape, itemsize, numel));
            let grid = counts.unwrap();
            let all = shape.map(|dim| 0..dim);
            let numel: u64 = grid.shape.iter().product();
            let whole = unpack(&grid, &all, &bytes[..(numel * itemsize) as usize]);
            for wanted in [[0..1, 0..1, 0..1], [1..2, 3..11, 5..6], [0..2, 10..11, 1..13]] {
                let held = grid.held(&wanted);
                let mut part = Vec::new();
                let each = itemsize as usize;
                let [_, rows, columns] = grid.shape;
                for matrix in held[0].clone() {
                    for row in held[1].clone() {
                        for column in held[2].clone() {
                            let at = ((matrix * rows + row) * columns + column) as usize * each;
                            part.extend_from_slice(&bytes[at..at + each]);
                        }
                    }
                }
                let mut expected = Vec::new();
                for matrix in wanted[0].clone() {
                    for row in wanted[1].clone() {
                        for column in wanted[2].clone() {
                            expected.push(whole[((matrix * 11 + row) * 13 + column) as usize]);
                        }
                    }
                }
                assert_eq!(unpack(&grid, &wanted, &part), expected, "{packing:?} {wanted:?}");
            }
        }
    }

    /// The order of nibbles matters: the wrong one gives other codes.
    #[test]
    fn orders_of_nibbles_differ() {
        let bytes = [0x10, 0x32, 0x54, 0x76];
        let codes = |packing, itemsize, numel| {
            let grid = Grid::new(packing, [1, 1, 8], itemsize, numel).unwrap();
            unpack(&grid, &[0..1, 0..1, 0..8], &bytes)
        };
        assert_eq!(codes(CodePacking::AlongRow(4), 4, 1), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(codes(CodePacking::Interleaved, 4, 1), [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(codes(CodePacking::HighFirst, 1, 4), [1, 0, 3, 2, 5, 4, 7, 6]);
    }

    #[test]
    fn refuses_elements_that_do_not_fit() {
        let grid = |packing, itemsize, numel| Grid::new(packing, [1, 4, 16], itemsize, numel);
        assert!(grid(CodePacking::AlongRow(4), 4, 8).is_some());
        for (packing, itemsize, numel) in [
            (CodePacking::AlongRow(4), 4, 7),
            (CodePacking::AlongRow(4), 4, 9),
            (CodePacking::AlongRow(9), 4, 64),
            (CodePacking::AlongRow(0), 4, 64),
            (CodePacking::AlongColumn(4), 8, 16),
            (CodePacking::Bytes, 2, 64),
            (CodePacking::Bytes, 1, 63),
            (CodePacking::HighFirst, 2, 32),
            (CodePacking::AlongRow(4), 0, 8),
        ] {
            assert!(grid(packing, itemsize, numel).is_none(), "{packing:?} {itemsize} {numel}");
        }
        let huge = [u64::MAX, 2, 2];
        assert!(Grid::new(CodePacking::AlongRow(4), huge, 4, 8).is_none());
        assert!(Grid::new(CodePacking::Bytes, huge, 1, 0).is_none());
    }
}
