//! Unpacks quantised blocks and dtypes that torch lacks, for formats that have no such dtype.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, DType, Loss, LossCode, LossKind, Result, TensorId};

const BLOCKS: LossKind = LossCode::Blocks.harmless(
    "quantised blocks are dequantised to float32",
    "The target has no quantised blocks. The values are the same; they take more space.",
);
const WIDENED: LossKind = LossCode::Widened.harmless(
    "numbers below eight bits, and floats that torch lacks, become int8 or float16",
    "The target has no such dtype. The values are the same.",
);
const QUANTISED: LossKind = LossCode::Widened.lost(
    "quantised numbers of two or four bits become quint8",
    "Statelens writes no packed ones. The values are the same; a module that has packed weights \
     does not load them.",
);
const BLOCK_BYTES: LossKind = LossCode::BlockBytes.lost(
    "quantised blocks become their bytes, as uint8",
    "The target can't store this quantisation, and Statelens can't decode it.",
);

/// Returns the checkpoint with all dtypes unpacked that the target lacks, and the losses of that.
/// Blocks become numbers if their values are known, else bytes. Dtypes that only `ml_dtypes` has
/// become a torch dtype that holds their values. A checkpoint without such dtypes is unchanged.
pub(crate) fn expand(
    source: Arc<Checkpoint>,
    target_has: impl Fn(&DType) -> bool,
) -> Result<(Arc<Checkpoint>, Vec<Loss>)> {
    let is_foreign = |dtype: &DType| {
        (matches!(dtype, DType::Blocks(_) | DType::QUInt4x2 | DType::QUInt2x4)
            || statelens_tensor::plain(dtype).is_some())
            && !target_has(dtype)
    };
    if !source.tensors().iter().any(|tensor| is_foreign(&tensor.dtype)) {
        return Ok((source, Vec::new()));
    }
    let mut keys: Vec<Vec<String>> = vec![Vec::new(); source.tensors().len()];
    for leaf in source.leaves() {
        if let Some((id, _)) = source.tensor_of(leaf.id) {
            keys[id.0 as usize].push(leaf.flat.to_lossy().into_owned());
        }
    }
    let mut builder = source.edit();
    let (mut decoded, mut raw) = (Vec::new(), Vec::new());
    let (mut widened, mut quantised) = (Vec::new(), Vec::new());
    for (index, tensor) in source.tensors().iter().enumerate() {
        if !is_foreign(&tensor.dtype) {
            continue;
        }
        let id = TensorId(index as u32);
        let keys = std::mem::take(&mut keys[index]);
        let expanded = match (statelens_tensor::dequantized(tensor), &tensor.dtype) {
            (Some(numbers), dtype) => {
                let list =
                    if matches!(dtype, DType::Blocks(_)) { &mut decoded } else { &mut widened };
                list.extend(keys);
                numbers
            }
            (None, DType::Blocks(block)) => {
                raw.extend(keys);
                let mut bytes = tensor.clone();
                (bytes.dtype, bytes.stored) = (DType::U8, DType::U8);
                if let Some(last) = bytes.shape.last_mut() {
                    // Readers ensure that rows consist of whole blocks and that the number of bytes
                    // does not overflow.
                    *last = (*last / block.elements.max(1)).saturating_mul(block.bytes);
                }
                bytes
            }
            // One byte per number in both.
            (None, DType::QUInt4x2 | DType::QUInt2x4) => {
                quantised.extend(keys);
                let mut bytes = tensor.clone();
                (bytes.dtype, bytes.stored) = (DType::QUInt8, DType::QUInt8);
                bytes
            }
            (None, _) => continue,
        };
        if let Some(tensor) = builder.tensor_mut(id) {
            *tensor = expanded;
        }
    }
    let found = [(BLOCKS, decoded), (WIDENED, widened), (QUANTISED, quantised), (BLOCK_BYTES, raw)];
    let losses = found.into_iter().filter(|(_, keys)| !keys.is_empty());
    let losses = losses.map(|(kind, keys)| kind.of(keys)).collect();
    Ok((Arc::new(builder.rebuild(&source)?), losses))
}
