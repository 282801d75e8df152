//! Element types by the numbers that the format gives them.

use statelens_checkpoint::{Block, DType};

/// The dtype of a type number; `None` for one that is not known or was removed.
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
            let (_, name, elements, bytes, words) = *BLOCKS.iter().find(|row| row.0 == number)?;
            DType::Blocks(Block { name, elements, bytes, words })
        }
    })
}

type Row = (u32, &'static str, u64, u64, &'static [(u64, u64)]);

/// Number, name, elements in a block, bytes in a block, and the 16-bit floats in it, which have a
/// byte order; those of the `IQ`, `TQ`, `MXFP4`, `NVFP4` and `Q1_0` blocks are not told: nobody
/// writes them big-endian.
const BLOCKS: &[Row] = &[
    (2, "Q4_0", 32, 18, &[(0, 2)]),
    (3, "Q4_1", 32, 20, &[(0, 2), (2, 2)]),
    (6, "Q5_0", 32, 22, &[(0, 2)]),
    (7, "Q5_1", 32, 24, &[(0, 2), (2, 2)]),
    (8, "Q8_0", 32, 34, &[(0, 2)]),
    (9, "Q8_1", 32, 40, &[]),
    (10, "Q2_K", 256, 84, &[(80, 2), (82, 2)]),
    (11, "Q3_K", 256, 110, &[(108, 2)]),
    (12, "Q4_K", 256, 144, &[(0, 2), (2, 2)]),
    (13, "Q5_K", 256, 176, &[(0, 2), (2, 2)]),
    (14, "Q6_K", 256, 210, &[(208, 2)]),
    (15, "Q8_K", 256, 292, &[]),
    (16, "IQ2_XXS", 256, 66, &[]),
    (17, "IQ2_XS", 256, 74, &[]),
    (18, "IQ3_XXS", 256, 98, &[]),
    (19, "IQ1_S", 256, 50, &[]),
    (20, "IQ4_NL", 32, 18, &[]),
    (21, "IQ3_S", 256, 110, &[]),
    (22, "IQ2_S", 256, 82, &[]),
    (23, "IQ4_XS", 256, 136, &[]),
    (29, "IQ1_M", 256, 56, &[]),
    (34, "TQ1_0", 256, 54, &[]),
    (35, "TQ2_0", 256, 66, &[]),
    (39, "MXFP4", 32, 17, &[]),
    (40, "NVFP4", 64, 36, &[]),
    (41, "Q1_0", 128, 18, &[]),
];
