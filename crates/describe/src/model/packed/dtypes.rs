//! Facts about the values of a tensor that follow from its dtype.

use super::super::leaf::ModelLeaf;
use super::PackedTensor;

/// The facts of a dtype that count here.
pub(super) struct DTypeFacts<'a> {
    pub(super) dtype: &'a str,
    /// The number of bits and the values that share a scale, if it is one of GGUF's block types.
    blocks: Option<(Option<u64>, u64)>,
    pub(super) trained: bool,
    /// Number of values in an element.
    pub(super) each: u64,
}

impl<'a> DTypeFacts<'a> {
    pub(super) fn of(dtype: &'a str) -> Self {
        // The quantised dtypes of PyTorch (`qint8`, `quint4x2`, …) stand for real numbers.
        let real = ["float", "complex", "qint", "quint"];
        Self {
            dtype,
            blocks: block_type(dtype),
            trained: real.iter().any(|part| dtype.contains(part)),
            each: if dtype == "float4_e2m1fn_x2" { 2 } else { 1 },
        }
    }

    /// Returns the layout that the dtype determines: GGUF's blocks.
    pub(super) fn blocks<'l>(&self, leaf: &'l ModelLeaf<'l>) -> Option<PackedTensor<'l>> {
        let (bits, block) = self.blocks?;
        Some(PackedTensor {
            name: self.dtype.to_owned(),
            bits,
            block: format!("{block} in a row"),
            values: leaf,
            shape: None,
        })
    }
}

/// Returns the number of bits of one of GGUF's block types, and the values that share a scale.
fn block_type(name: &str) -> Option<(Option<u64>, u64)> {
    let kind = name.trim_start_matches(['I', 'T']);
    let of_blocks =
        kind.strip_prefix('Q').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            || name.starts_with("MXFP")
            || name.starts_with("NVFP");
    if !of_blocks || name.starts_with("QI") {
        return None;
    }
    let digits: String =
        name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    let of_256 = name.ends_with("_K")
        || name.starts_with("TQ")
        || name.starts_with("IQ") && name != "IQ4_NL";
    let block = match name {
        "NVFP4" => 16,
        _ if of_256 => 256,
        _ => 32,
    };
    Some((digits.parse().ok(), block))
}
