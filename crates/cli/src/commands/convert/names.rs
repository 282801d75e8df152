//! That plain conversion keeps the names, said where somebody may think otherwise.

use std::path::Path;

use statelens_checkpoint::Checkpoint;
use statelens_convert::Edit;
use statelens_recipes::recognise;

use crate::print::complain;

/// More keys than any model has.
const MOST_KEYS: usize = 100_000;
/// Fewer keys may be those of a family by chance.
const FEWEST_KEYS: usize = 4;

/// Says that the names of a model stay those of Hugging Face in one of Cerebras's files, or the other
/// way round, and which command writes the other ones. Whoever chooses or changes keys knows.
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
        || !(FEWEST_KEYS..=MOST_KEYS).contains(&keys)
        || recognise::by_keys(checkpoint, !cerebras, false).is_empty()
    {
        return;
    }
    let input = input.display();
    complain(&format!(
        "the names stay {whose}, and {reader} has others: `statelens convert-model {input} --to {target}` writes those"
    ));
}
