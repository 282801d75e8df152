//! Weights that are stored as codes and scales.

use statelens_checkpoint::{FileSet, Layout, Limits, Memory, Unwatched};
use statelens_tensor::elements;

use crate::READ;

/// Opens a file, checks the scales of its quantised weights, and reads the beginning and the end of
/// each as numbers.
pub(crate) fn run(bytes: &[u8]) {
    let files = FileSet::single("model.safetensors", Memory::from(bytes.to_vec()));
    let opened = statelens_formats::open(files, &Limits::default(), &mut Unwatched);
    let Ok(checkpoint) = opened else { return };
    drop(statelens_quantised::scale_faults(&checkpoint, &|_| true, &mut Unwatched));
    drop(statelens_quantised::with_indices(&checkpoint));
    let Ok(Some(found)) = statelens_quantised::dequantise(&checkpoint, None) else { return };
    for tensor in found.checkpoint.tensors() {
        if !matches!(tensor.layout, Layout::Dequantised(_)) {
            continue;
        }
        let numel = tensor.numel().unwrap_or(0);
        let most = numel.min(READ / 64);
        for range in [0..most, numel - most..numel] {
            if let Ok(numbers) = elements(&found.checkpoint.files, tensor, range.clone()) {
                assert_eq!(numbers.len() as u64, 4 * (range.end - range.start));
            }
        }
    }
}
