//! The vectorised search for the bytes that a start must have.
//!
//! A place is a candidate if its byte and the next one are a pair of one of eight classes. A class
//! is described by the halves of both bytes, so four lookups in tables of 16 bytes decide about all
//! classes of 32 places. (Hyperscan's Teddy works like this.) A class may also have pairs that are
//! not searched for: the caller compares the bytes at each candidate. The ends of names are frequent
//! among weights, so the bytes before them count, too.

use std::ops::Range;

use fearless_simd::prelude::*;
use fearless_simd::{Level, dispatch, u8x16, u8x32};
use statelens_pickle::opcode as op;

/// The number of places in a mask.
pub(super) const LANES: usize = 32;

/// The number of bytes before a place that decide about it.
const BEFORE: usize = 5;

/// The first two bytes of everything with a magic number, but for NumPy: pickles, zlib, zip, bzip2,
/// HDF5, xz, gzip, zstd, LZ4, LZMA and tar. The pairs of a class have few halves of bytes.
const PAIRS: [&[[u8; 2]]; 7] = [
    &[[op::PROTO, 2], [op::PROTO, 3], [op::PROTO, 4], [op::PROTO, 5]],
    &[[0x78, 0x01], [0x78, 0x5e], [0x78, 0x9c], [0x78, 0xda]],
    &[*b"PK", *b"BZ"],
    &[[0x89, b'H'], [0xfd, b'7']],
    &[[0x1f, 0x8b], [0x28, 0xb5]],
    &[[0x04, 0x22], [0x5d, 0]],
    &[*b"us"],
];

/// The classes of a byte, by its lower and its upper half: a byte is in those that both have.
#[derive(Clone, Copy)]
struct Classes {
    low: [u8; 16],
    high: [u8; 16],
}

impl Classes {
    const fn add(&mut self, byte: u8, class: usize) {
        self.low[(byte & 15) as usize] |= 1 << class;
        self.high[(byte >> 4) as usize] |= 1 << class;
    }

    const fn of(&self, byte: u8) -> u8 {
        self.low[(byte & 15) as usize] & self.high[(byte >> 4) as usize]
    }
}

/// The classes of the first and of the second byte.
const TABLES: [Classes; 2] = {
    let mut tables = [Classes { low: [0; 16], high: [0; 16] }; 2];
    let mut class = 0;
    while class < PAIRS.len() {
        let mut pair = 0;
        while pair < PAIRS[class].len() {
            tables[0].add(PAIRS[class][pair][0], class);
            tables[1].add(PAIRS[class][pair][1], class);
            pair += 1;
        }
        class += 1;
    }
    // The last class: the end of a line, and a name on the next one.
    tables[0].add(b'\n', class);
    let mut byte = 0;
    while byte < 128 {
        if super::names::is_name(byte) {
            tables[1].add(byte, class);
        }
        byte += 1;
    }
    tables
};

/// The class of a line that ends before a name, the last one.
const LINE: u8 = 1 << PAIRS.len();

/// The bytes that a name may end with, or the opcode that stores it in the memo: the end of a line,
/// `MEMOIZE`, and letters. Each upper half is a class of its own.
const ENDS: Classes = {
    let mut ends = Classes { low: [0; 16], high: [0; 16] };
    let (mut byte, mut class, mut last) = (0, 0, 0);
    while byte < 255 {
        if is_end(byte) {
            if byte >> 4 != last {
                (class, last) = (class + 1, byte >> 4);
            }
            ends.add(byte, class);
        }
        byte += 1;
    }
    ends
};

const fn is_end(byte: u8) -> bool {
    super::names::is_name(byte) || matches!(byte, b'\\' | b'\n' | op::MEMOIZE)
}

/// Finds the candidates in a range. Bit `j` of mask `i` is the place `32 * i + j` in it.
pub(super) fn find(bytes: &[u8], range: &Range<usize>, masks: &mut Vec<u32>) {
    masks.clear();
    masks.resize(range.len().div_ceil(LANES), 0);
    // The last place of a vector needs the byte after it, the first one those before it.
    let mut vectors = range.len().min(bytes.len().saturating_sub(range.start + 1)) / LANES;
    match range.start.checked_sub(BEFORE) {
        Some(start) => {
            let (bytes, masks) = (&bytes[start..], &mut masks[..vectors]);
            dispatch!(Level::new(), simd => find_in_vectors(simd, bytes, masks));
        }
        None => vectors = 0,
    }
    for (place, at) in range.clone().enumerate().skip(vectors * LANES) {
        masks[place / LANES] |= u32::from(is_candidate(bytes, at)) << (place % LANES);
    }
}

#[inline(always)]
fn find_in_vectors<S: Simd>(simd: S, bytes: &[u8], masks: &mut [u32]) {
    let table = |table: &[u8; 16]| u8x32::block_splat(u8x16::from_slice(simd, table));
    let tables = |of: &Classes| (table(&of.low), table(&of.high));
    let [first, second] = TABLES;
    let (first, second, ends) = (tables(&first), tables(&second), tables(&ENDS));
    let classes = |bytes: u8x32<S>, (low, high): (u8x32<S>, u8x32<S>)| {
        low.swizzle_dyn_within_blocks(bytes & 15) & high.swizzle_dyn_within_blocks(bytes >> 4)
    };
    let len = LANES + BEFORE + 1;
    for (mask, bytes) in masks.iter_mut().zip(bytes.windows(len).step_by(LANES)) {
        let at = |place: usize| u8x32::from_slice(simd, &bytes[place..place + LANES]);
        let (here, next) = (at(BEFORE), at(BEFORE + 1));
        let pairs = classes(here, first) & classes(next, second);
        let is_pair = !(pairs & !LINE).simd_eq(0);
        let is_line = !(pairs & LINE).simd_eq(0);
        let is_stack = here.simd_eq(op::STACK_GLOBAL);
        let ends = !classes(at(BEFORE - 1), ends).simd_eq(0);
        let puts = at(BEFORE - 2).simd_eq(op::BINPUT) | at(0).simd_eq(op::LONG_BINPUT);
        let names = (is_line | is_stack) & ends;
        let found = is_pair | names | is_stack & (puts | next.simd_eq(b'N'));
        *mask = found.to_bitmask() as u32;
    }
}

fn is_candidate(bytes: &[u8], at: usize) -> bool {
    let byte = |at: Option<usize>| at.and_then(|at| bytes.get(at)).copied().unwrap_or_default();
    let before = |distance: usize| byte(at.checked_sub(distance));
    let (here, next) = (byte(Some(at)), byte(at.checked_add(1)));
    let pairs = TABLES[0].of(here) & TABLES[1].of(next);
    let is_stack = here == op::STACK_GLOBAL;
    let puts = before(2) == op::BINPUT || before(BEFORE) == op::LONG_BINPUT;
    pairs & !LINE != 0
        || (pairs & LINE != 0 || is_stack) && ENDS.of(before(1)) != 0
        || is_stack && (puts || next == b'N')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(bytes: &[u8], range: Range<usize>) -> Vec<usize> {
        let mut masks = vec![7];
        find(bytes, &range, &mut masks);
        let is_set = |place: &usize| masks[place / LANES] >> (place % LANES) & 1 == 1;
        (0..masks.len() * LANES).filter(is_set).map(|place| range.start + place).collect()
    }

    #[test]
    fn every_pair_is_a_candidate_and_few_others_are() {
        let is_wanted = |pair: [u8; 2]| PAIRS.iter().any(|class| class.contains(&pair));
        let pairs = (0..=u16::MAX).map(u16::to_be_bytes);
        assert!(pairs.clone().filter(|pair| is_wanted(*pair)).all(|pair| is_candidate(&pair, 0)));
        let candidates = pairs.filter(|pair| is_candidate(pair, 0)).count();
        assert!(candidates < 200, "{candidates}");
        assert!((0..=255).all(|byte| (ENDS.of(byte) != 0) == is_end(byte)));
    }

    /// Every way in which a name may end, see `names::stacked` and `Piece::lines`.
    #[test]
    fn ends_of_names_are_candidates() {
        let stack = op::STACK_GLOBAL;
        for (bytes, expected) in [
            (&[b'x', stack][..], true),
            (&[b'\\', stack], true),
            (&[b'\n', stack], true),
            (&[op::MEMOIZE, stack], true),
            (&[op::BINPUT, 0xff, stack], true),
            (&[op::LONG_BINPUT, 0, 0, 0, 0, stack], true),
            (&[0xff, stack], false),
            (&[stack], false),
            (b"x\ny", true),
            (b"\xff\ny", false),
            (b"x\n\xff", false),
        ] {
            let at = bytes.iter().rposition(|byte| [stack, b'\n'].contains(byte)).unwrap();
            assert_eq!(is_candidate(bytes, at), expected, "{}", bytes.escape_ascii());
        }
        assert!(is_candidate(b"\x93NUMPY", 0));
    }

    /// All pairs of bytes, at all places in a vector, and wherever the bytes and the range end.
    #[test]
    fn vectors_find_what_single_bytes_do() {
        let mut pairs: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_be_bytes).collect();
        pairs.extend(
            (0..=u16::MAX).flat_map(|pair| [pair as u8, op::STACK_GLOBAL, (pair >> 8) as u8]),
        );
        for (start, end) in [(0, pairs.len()), (1, pairs.len() - 1), (17, 60_000), (9, 9)] {
            let expected: Vec<_> = (start..end).filter(|at| is_candidate(&pairs, *at)).collect();
            assert_eq!(places(&pairs, start..end), expected, "{start}..{end}");
        }
        let bytes = b"us".repeat(50);
        for (start, len) in (0..9usize).flat_map(|start| (start..99).map(move |len| (start, len))) {
            let expected: Vec<_> =
                (start..len.saturating_sub(1)).filter(|at| at % 2 == 0).collect();
            assert_eq!(places(&bytes[..len], start..len), expected, "{start}..{len}");
        }
    }
}
