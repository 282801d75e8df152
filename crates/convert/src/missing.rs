//! Leaves out tensors without data and reports them as a loss.

use std::collections::HashSet;

use statelens_checkpoint::{Checkpoint, Layout, Loss, LossCode, Result, ValueId};

/// Returns the checkpoint without the tensors that have no data, and the loss; `None` if all
/// tensors have data, or none has.
pub(crate) fn without_missing(source: &Checkpoint) -> Result<Option<(Checkpoint, Loss)>> {
    let missing = |id: ValueId| match &source.tensor_of(id)?.1.layout {
        Layout::Missing(why) => Some(why.clone()),
        _ => None,
    };
    let (mut keys, mut gone) = (Vec::new(), HashSet::new());
    let (mut first, mut others) = (None, false);
    for leaf in source.each_leaf() {
        match missing(leaf.target) {
            Some(why) => {
                first.get_or_insert(why);
                gone.insert(leaf.id);
                keys.push(leaf.flat.to_lossy().into_owned());
            }
            None => others |= source.tensor_of(leaf.target).is_some(),
        }
    }
    let Some(why) = first.filter(|_| others) else { return Ok(None) };
    let mut builder = source.edit();
    let keep = |id: &ValueId| !gone.contains(id);
    for index in 0..source.values().len() {
        if let Some(value) = builder.value_mut(ValueId(index as u32)) {
            value.retain_children(keep);
        }
    }
    let loss = Loss {
        code: LossCode::MissingData,
        keys,
        what: "tensors without data are left out".into(),
        why: format!("The first of them: {why}.").into(),
        harmless: false,
    };
    builder.rebuild(source).map(|rest| Some((rest, loss)))
}
