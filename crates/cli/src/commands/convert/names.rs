//! A hint that plain conversion does not rename keys, for users who may expect it to.

use std::path::Path;

use statelens::PathText as _;
use statelens::parts::checkpoint::Checkpoint;
use statelens::parts::convert::Edit;
use statelens_recipes::recognise;

use crate::print::warn;

/// The keys of the largest model that is checked.
const MAX_KEYS: usize = 100_000;
/// With fewer keys than this, a match with a model family may be chance.
const MIN_KEYS: usize = 4;

/// Warns that the keys of a Hugging Face model stay the same in a Cerebras file, and the other way
/// round, and names the command that converts them. Says nothing if the user selects or edits keys.
pub(super) fn stay(input: &Path, checkpoint: &Checkpoint, edit: &Edit, to: &str) {
    let of_keys = Edit { casts: Vec::new(), states: Vec::new(), untie: false, ..edit.clone() };
    let keys = checkpoint.leaves().len();
    let cerebras = recognise::is_cerebras(checkpoint);
    let (whose, reader, target) = match to {
        "cerebras" if !cerebras => ("Hugging Face's", "the Model Zoo", "cs-current"),
        "safetensors" | "torch" if cerebras => ("Cerebras's", "Transformers", "hf"),
        _ => return,
    };
    if !of_keys.is_empty()
        || !(MIN_KEYS..=MAX_KEYS).contains(&keys)
        || recognise::by_keys(checkpoint, !cerebras, false).is_empty()
    {
        return;
    }
    let input = input.to_text();
    warn(&format!(
        "the keys stay {whose}, and {reader} uses others: `statelens convert-model {input} --to \
         {target}` writes those"
    ));
}
