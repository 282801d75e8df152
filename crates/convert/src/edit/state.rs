//! Whole modules: keeps the entries of their `state_dict()` and leaves out the rest.

use statelens_checkpoint::{Checkpoint, Error, Loss, LossCode, Result, Value, ValueId};

use super::{Edit, filter};

/// Returns the checkpoint with only the state dicts of its modules, and the loss; `None` if there
/// is nothing to leave out.
pub(crate) fn state_only(source: &Checkpoint) -> Result<Option<(Checkpoint, Loss)>> {
    if !source.has_outside_state() {
        return Ok(None);
    }
    let outside = source.each_leaf().filter(|leaf| leaf.outside_state);
    let keys: Vec<String> = outside.map(|leaf| leaf.flat.to_lossy().into_owned()).collect();
    if keys.is_empty() {
        return Ok(None);
    }
    let mut builder = source.edit();
    for index in 0..source.values().len() {
        if let Some(Value::Dict(dict)) = builder.value_mut(ValueId(index as u32)) {
            dict.entries.retain(|(_, id)| !source.is_outside_state(*id));
        }
    }
    let (reached, _) = filter::place_links(&mut builder, source)?;
    filter::clear(&mut builder, &reached);
    let mut state = builder.rebuild(source)?;
    filter::forget(source, &mut state);
    let further = source.format.traits.further_states;
    let (what, why) = match further {
        true => (
            "the states next to the model are left out",
            "Only the model's state dict is written. To write another state, select its keys.",
        ),
        false => (
            "contents of modules outside the state dict are left out",
            "`state_dict()` does not return classes, attributes and buffers that are not \
             persistent. To write one, select its key.",
        ),
    };
    let (what, why, code) = (what.into(), why.into(), LossCode::OutsideState);
    let loss = Loss { code, keys, what, why, harmless: further };
    Ok(Some((state, loss)))
}

/// Refuses renames and casts that match only entries that are left out.
pub(super) fn refuse_outside(edit: &Edit, source: &Checkpoint, edited: &Checkpoint) -> Result<()> {
    if !edited.has_outside_state() {
        return Ok(());
    }
    for rename in &edit.rename {
        let matched = |outside: bool| {
            let mut leaves = source.each_leaf().filter(|leaf| leaf.outside_state == outside);
            leaves.any(|leaf| !rename.places(&leaf.flat.to_lossy()).is_empty())
        };
        if matched(true) && !matched(false) {
            return Err(only_outside(&format!("the replacement `{}`", rename.as_str())));
        }
    }
    for pattern in edit.casts.iter().filter_map(|cast| cast.pattern.as_ref()) {
        let matched = |outside: bool| {
            let mut leaves = edited.each_leaf().filter(|leaf| leaf.outside_state == outside);
            leaves.any(|leaf| pattern.matches(&leaf.flat.to_lossy()))
        };
        if matched(true) && !matched(false) {
            return Err(only_outside(&format!("the cast of `{}`", pattern.as_str())));
        }
    }
    Ok(())
}

fn only_outside(what: &str) -> Error {
    Error::refused(format!(
        "{what} matches only contents of modules outside the state dict, which are not written"
    ))
    .advice("To write it, select its key as well.")
}
