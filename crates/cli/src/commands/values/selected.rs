//! The tensor, or the slice of one, that an argument selects: `KEY` or `KEY[SLICE]`.

use std::borrow::Cow;
use std::path::Path;

use statelens::parts::checkpoint::{Checkpoint, Leaf, Tensor};
use statelens::parts::tensor::{numbers, sliced};
use statelens::parts::values::missing;
use statelens::{Error, Result, Slice};

/// Memory limit, in bytes, of a slice of quantised blocks.
const MAX_SLICE_BYTES: u64 = 1 << 30;

/// A tensor of numbers, or a slice of one.
pub(super) struct SelectedTensor {
    pub(super) key: String,
    /// The key, with the slice if there is one.
    pub(super) title: String,
    pub(super) tensor: Tensor,
}

impl SelectedTensor {
    /// Finds the tensor of a key, and takes the slice that follows the key. A key that itself ends
    /// with the brackets takes precedence.
    pub(super) fn find(
        checkpoint: &Checkpoint,
        leaves: &[Leaf],
        argument: &str,
        file: &Path,
    ) -> Result<Self> {
        let parts = argument.strip_suffix(']').and_then(|text| text.rsplit_once('['));
        let (leaf, slice) = match (crate::commands::leaf(leaves, argument, file), parts) {
            (Ok(leaf), _) => (leaf, None),
            (Err(_), Some((key, slice))) => {
                (crate::commands::leaf(leaves, key, file)?, Some(slice))
            }
            (Err(error), None) => return Err(error),
        };
        let key = leaf.flat.to_lossy().into_owned();
        let tensor = checkpoint.tensor_of(leaf.target).map(|(_, tensor)| tensor);
        let tensor = tensor.ok_or_else(|| Error::refused(format!("`{key}` is not a tensor")))?;
        if let Some(why) = missing(tensor) {
            let why = why.to_lossy();
            return Err(Error::refused(format!("`{key}` has no data to write: {why}")));
        }
        let decoded = numbers(tensor).map(Cow::into_owned).ok_or_else(|| {
            let dtype = &tensor.dtype;
            Error::unsupported(format!("`{key}`: values of {dtype} can't be decoded"))
        })?;
        Ok(match slice {
            None => Self { title: key.clone(), key, tensor: decoded },
            Some(slice) => Self {
                title: format!("{key}[{slice}]"),
                key,
                tensor: sliced(
                    &checkpoint.files,
                    &decoded,
                    &slice.parse::<Slice>()?,
                    MAX_SLICE_BYTES,
                )?,
            },
        })
    }
}
