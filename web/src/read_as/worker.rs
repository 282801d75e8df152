//! Gives arrays that are stored without a dtype the one that the user chose.

use statelens_checkpoint::{Checkpoint, Result};
use statelens_convert::{read_as, read_as_rule};

use crate::read_as::message::ReadAs;

/// Returns the checkpoint with the chosen dtypes.
pub(crate) fn typed(checkpoint: Checkpoint, chosen: ReadAs) -> Result<Checkpoint> {
    let rules = chosen.dtypes().map(read_as_rule).collect::<Result<Vec<_>>>()?;
    match rules.is_empty() {
        true => Ok(checkpoint),
        false => Ok(read_as(&rules, &checkpoint)?.unwrap_or(checkpoint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_as::message::{ONE_BYTE, TWO_BYTES};

    #[test]
    fn every_dtype_on_offer_has_the_size_of_its_list() {
        for (dtypes, size) in [(&ONE_BYTE[..], 1), (&TWO_BYTES[..], 2)] {
            for dtype in dtypes {
                assert_eq!(read_as_rule(dtype).unwrap().dtype.itemsize(), size, "{dtype}");
            }
        }
    }
}
