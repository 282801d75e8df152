//! Element types by their numbers in the format.

use statelens_checkpoint::{Block, DType};

/// Returns the dtype for a type number; `None` if it is unknown or was removed.
pub(super) fn dtype(number: u32) -> Option<DType> {
    Some(match number {
        0 => DType::F32,
        1 => DType::F16,
        24 => DType::I8,
        25 => DType::I16,
        26 => DType::I32,
        27 => DType::I64,
        28 => DType::F64,
        30 => DType::BF16,
        _ => {
            let (_, block) = BLOCKS.iter().find(|row| row.0 == number)?;
            DType::Blocks(block)
        }
    })
}

const fn row(
    number: u32,
    name: &'static str,
    elements: u64,
    bytes: u64,
    words: &'static [(u64, u64)],
) -> (u32, Block) {
    (number, Block { name, elements, bytes, words })
}

/// Returns the byte ranges of a 16-bit float at the start of a block and of `N - 1` words from `at`.
const fn half_and_words<const N: usize>(at: u64) -> [(u64, u64); N] {
    let mut words = [(0, 2); N];
    let mut index = 1;
    while index < N {
        words[index] = (at + 2 * (index as u64 - 1), 2);
        index += 1;
    }
    words
}

/// Returns whether it is known how a big-endian file stores a block. The package gguf 0.19 converts
/// these types only; in others, the 16-bit fields are assumed to be big-endian as well.
pub(super) fn is_known_big_endian(name: &str) -> bool {
    matches!(name, "Q4_0" | "Q8_0" | "Q4_K" | "Q6_K" | "MXFP4" | "NVFP4")
}

const IQ2_XS: [(u64, u64); 33] = half_and_words(2);
const IQ1_S: [(u64, u64); 9] = half_and_words(34);

/// Number, name, elements per block, bytes per block, and the ranges of 16-bit fields in it, which
/// depend on the byte order. The facts are those of `ggml-common.h` in
/// <https://github.com/ggml-org/llama.cpp>.
static BLOCKS: [(u32, Block); 27] = [
    row(2, "Q4_0", 32, 18, &[(0, 2)]),
    row(3, "Q4_1", 32, 20, &[(0, 2), (2, 2)]),
    row(6, "Q5_0", 32, 22, &[(0, 2)]),
    row(7, "Q5_1", 32, 24, &[(0, 2), (2, 2)]),
    row(8, "Q8_0", 32, 34, &[(0, 2)]),
    row(9, "Q8_1", 32, 40, &[]),
    row(10, "Q2_K", 256, 84, &[(80, 2), (82, 2)]),
    row(11, "Q3_K", 256, 110, &[(108, 2)]),
    row(12, "Q4_K", 256, 144, &[(0, 2), (2, 2)]),
    row(13, "Q5_K", 256, 176, &[(0, 2), (2, 2)]),
    row(14, "Q6_K", 256, 210, &[(208, 2)]),
    row(15, "Q8_K", 256, 292, &[(0, 4)]),
    row(16, "IQ2_XXS", 256, 66, &[(0, 2)]),
    row(17, "IQ2_XS", 256, 74, &IQ2_XS),
    row(18, "IQ3_XXS", 256, 98, &[(0, 2)]),
    row(19, "IQ1_S", 256, 50, &IQ1_S),
    row(20, "IQ4_NL", 32, 18, &[(0, 2)]),
    row(21, "IQ3_S", 256, 110, &[(0, 2)]),
    row(22, "IQ2_S", 256, 82, &[(0, 2)]),
    row(23, "IQ4_XS", 256, 136, &[(0, 2), (2, 2)]),
    row(29, "IQ1_M", 256, 56, &[(48, 2), (50, 2), (52, 2), (54, 2)]),
    row(34, "TQ1_0", 256, 54, &[(52, 2)]),
    row(35, "TQ2_0", 256, 66, &[(64, 2)]),
    row(39, "MXFP4", 32, 17, &[]),
    row(40, "NVFP4", 64, 36, &[]),
    row(41, "Q1_0", 128, 18, &[(0, 2)]),
    row(42, "Q2_0", 64, 18, &[]),
];
