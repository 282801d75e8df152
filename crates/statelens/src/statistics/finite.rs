//! NaN and infinite values of everything without statistics: records, sparse tensors, long
//! doubles, blocks that are not decoded, arrays of objects, plain values.

use std::collections::HashSet;

use serde::Serialize;
use statelens_checkpoint::{Checkpoint, ErrorKind, Leaf, Progress, Result, TensorId};
use statelens_compare::verify::{
    NonFiniteTensor, PlainNumbers, ScaleFault, UnreadTensor, count_not_finite, may_have_floats,
    why_not_checked,
};
use statelens_values::reading::tensors_of;
use statelens_values::{Repetition, index, missing};

use super::MeasuredTensors;

/// The numbers of tensors without statistics.
#[derive(Debug, Default, Serialize)]
pub struct OtherNumbers {
    /// Tensors and plain values with numbers that are not finite.
    pub not_finite: Vec<NonFiniteTensor>,
    /// Tensors and objects that may have such numbers, but can't be read or decoded.
    pub not_checked: Vec<UnreadTensor>,
    /// Quantised weights whose scales or codes have faults. [`OtherNumbers::read`] leaves it empty;
    /// [`Checkpoint::scale_faults`](crate::Checkpoint::scale_faults) finds them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scales: Vec<ScaleFault>,
}

impl OtherNumbers {
    /// Reads the tensors of `leaves` that have floating-point numbers and no statistics in
    /// `measured`.
    pub fn read(
        checkpoint: &Checkpoint,
        leaves: &[Leaf],
        measured: &MeasuredTensors<'_>,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let mut numbers = Self::default();
        let mut met: HashSet<TensorId> = measured.tensors.keys().copied().collect();
        let mut repetition = Repetition::new(checkpoint);
        for leaf in leaves {
            for (id, part) in tensors_of(checkpoint, leaf.target) {
                let tensor = checkpoint.tensor(id)?;
                if !met.insert(id) || !may_have_floats(&tensor.dtype) {
                    continue;
                }
                let key = leaf.flat.to_lossy();
                let key = if part.is_empty() { key.into_owned() } else { format!("{key}: {part}") };
                let mut not_checked = |why: String| {
                    numbers.not_checked.push(UnreadTensor { key: key.clone(), why });
                };
                if let Some(why) = missing(tensor) {
                    not_checked(why.to_string());
                    continue;
                }
                if !repetition.allows(tensor) {
                    not_checked("a few bytes that are repeated too often".to_owned());
                    continue;
                }
                if let Some(why) = why_not_checked(&tensor.dtype) {
                    not_checked(why);
                }
                match count_not_finite(checkpoint, id, progress) {
                    Ok(found) => {
                        numbers.not_finite.extend(found.first.map(|first| NonFiniteTensor {
                            key,
                            nan: found.nan,
                            inf: found.inf,
                            params: tensor.numel().unwrap_or(0),
                            first: index(&tensor.shape, first),
                        }));
                    }
                    Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
                    Err(error) => not_checked(error.to_string()),
                }
            }
        }
        let plain = PlainNumbers::find(checkpoint, leaves);
        numbers.not_finite.extend(plain.not_finite);
        numbers.not_checked.extend(plain.not_checked);
        Ok(numbers)
    }
}
