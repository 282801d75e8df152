//! The scales of quantised weights.

use statelens_checkpoint::{Checkpoint, DType, Error, Leaf, Progress, Result, Tensor};
use statelens_quantised::{ScaleFault, scale_faults};
use statelens_tensor::scales_in;
use statelens_values::reading::{of_one_tensor, tensors_of};

use super::{NonFinite, count_not_finite};

/// Reads the scales of the quantised weights among `leaves`, and returns the weights with faults.
/// Those in blocks come last. NaN and infinite scales of blocks are not counted here: the numbers of
/// the block are not finite either.
pub fn check_scales(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    wanted: &dyn Fn(&str) -> bool,
    progress: &mut dyn Progress,
) -> Result<Vec<ScaleFault>> {
    let mut faults = scale_faults(checkpoint, wanted, progress)?;
    for leaf in leaves {
        for (id, _) in tensors_of(checkpoint, leaf.target) {
            let tensor = checkpoint.tensor(id)?;
            if !matches!(tensor.dtype, DType::Blocks(_)) || tensor.numel() == Some(0) {
                continue;
            }
            let key = leaf.flat.to_lossy();
            match count_not_finite(checkpoint, id, progress) {
                Ok(found) => faults.extend(of_blocks(tensor, &key, &found)),
                // Other passes report what can't be read.
                Err(error) => drop::<Error>(of_one_tensor(error)?),
            }
        }
    }
    Ok(faults)
}

/// Returns the fault of a tensor of blocks, if the scale of any is zero although its codes are not.
pub(super) fn of_blocks(tensor: &Tensor, key: &str, found: &NonFinite) -> Option<ScaleFault> {
    let DType::Blocks(block) = tensor.dtype else { return None };
    (found.lost > 0).then(|| ScaleFault {
        key: key.to_owned(),
        scheme: block.name.to_owned(),
        scales: tensor.numel().unwrap_or(0) / block.elements.max(1) * scales_in(block),
        zero: found.lost,
        ..ScaleFault::default()
    })
}
