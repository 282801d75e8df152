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

/// Number, name, elements per block, bytes per block, and the ranges of 16-bit floats in it, which
/// depend on the byte order. The latter are omitted for the `IQ`, `TQ`, `MXFP4`, `NVFP4` and `Q1_0`
/// blocks: no program writes them big-endian.
static BLOCKS: [(u32, Block); 26] = [
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
    row(15, "Q8_K", 256, 292, &[]),
    row(16, "IQ2_XXS", 256, 66, &[]),
    row(17, "IQ2_XS", 256, 74, &[]),
    row(18, "IQ3_XXS", 256, 98, &[]),
    row(19, "IQ1_S", 256, 50, &[]),
    row(20, "IQ4_NL", 32, 18, &[]),
    row(21, "IQ3_S", 256, 110, &[]),
    row(22, "IQ2_S", 256, 82, &[]),
    row(23, "IQ4_XS", 256, 136, &[]),
    row(29, "IQ1_M", 256, 56, &[]),
    row(34, "TQ1_0", 256, 54, &[]),
    row(35, "TQ2_0", 256, 66, &[]),
    row(39, "MXFP4", 32, 17, &[]),
    row(40, "NVFP4", 64, 36, &[]),
    row(41, "Q1_0", 128, 18, &[]),
];
