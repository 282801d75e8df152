//! The states other than the model that a checkpoint keeps from one release to the next.

use statelens_checkpoint::{Checkpoint, Dict, DictKey, Result, Value, ValueId};

use super::assemble::Assembly;
use super::state::{State, StateValue};
use crate::config;
use crate::format::Implementation;

/// Returns the top-level entries of the new checkpoint, as in the source but without the model and
/// the metadata.
pub(crate) fn entries(
    source: &Checkpoint,
    from: Implementation,
    assembly: &mut Assembly<'_>,
    model: &mut State,
) -> Result<Vec<(DictKey, ValueId)>> {
    let Value::Dict(root) = source.value(source.root()) else { return Ok(Vec::new()) };
    let mut entries: Vec<(DictKey, ValueId)> = root
        .entries
        .iter()
        .filter(|(key, _)| !is(key, "model") && !is(key, METADATA))
        .cloned()
        .collect();
    if from.version().is_some_and(|version| version < (2, 0)) {
        follow_global_step(source, assembly, &mut entries)?;
    }
    masks(source, assembly, &mut entries, model)?;
    Ok(entries)
}

/// The key of the list of programs that wrote the checkpoint.
pub(crate) const METADATA: &str = "__metadata__";

/// Returns the list of programs that wrote the checkpoint, with a new entry.
pub(crate) fn metadata(
    source: &Checkpoint,
    to: Implementation,
    params: &config::Value,
    assembly: &mut Assembly<'_>,
) -> Result<ValueId> {
    let mut items = match dict(source, source.root(), METADATA).map(|id| source.value(id)) {
        Some(Value::List(list)) => list.items.clone(),
        _ => Vec::new(),
    };
    let version = to.version().map_or(String::new(), |(major, minor)| format!("{major}.{minor}.0"));
    let version = assembly.value(Value::Str(version.as_str().into()))?;
    let name = assembly.value(Value::Str("".into()))?;
    // The converted model section is last, as in the original's output.
    let mut params = params.clone();
    if let Some(map) = params.as_map_mut()
        && let Some(model) = map.remove("model")
    {
        map.set("model", model);
    }
    let params = assembly.config(&params)?;
    items.push(assembly.dict(vec![
        (DictKey::from("version"), version),
        (DictKey::from("model_name"), name),
        (DictKey::from("params"), params),
    ])?);
    assembly.list(items)
}

/// Sets the scheduler's counter to the global step: before 2.0, it counted separately.
fn follow_global_step(
    source: &Checkpoint,
    assembly: &mut Assembly<'_>,
    entries: &mut [(DictKey, ValueId)],
) -> Result<()> {
    let root = source.root();
    let Some(step) = dict(source, root, "global_step") else { return Ok(()) };
    let Some(entry) = entries.iter_mut().find(|(key, _)| is(key, "lr_scheduler")) else {
        return Ok(());
    };
    let Value::Dict(scheduler) = source.value(source.resolve(entry.1)) else { return Ok(()) };
    let last = |(key, _): &(DictKey, ValueId)| is(key, "last_epoch");
    let Some(at) = scheduler.entries.iter().position(last) else { return Ok(()) };
    let mut changed = scheduler.clone();
    changed.entries[at].1 = assembly.value(source.value(source.resolve(step)).clone())?;
    entry.1 = assembly.value(Value::Dict(changed))?;
    Ok(())
}

/// Turns the masks of the old sparsity optimizer into weights of the model, and its counters into a
/// state of their own.
fn masks(
    source: &Checkpoint,
    assembly: &mut Assembly<'_>,
    entries: &mut Vec<(DictKey, ValueId)>,
    model: &mut State,
) -> Result<()> {
    let Some(entry) = entries.iter().position(|(key, _)| is(key, "optimizer")) else {
        return Ok(());
    };
    let optimizer_id = source.resolve(entries[entry].1);
    let Some(sparsity) = dict(source, optimizer_id, "sparsity") else { return Ok(()) };
    let Some(state) = dict(source, sparsity, "state") else { return Ok(()) };
    let Value::Dict(states) = source.value(state) else { return Ok(()) };
    for (name, one) in &states.entries {
        let DictKey::Str(name) = name else { continue };
        let name = name.to_lossy().into_owned();
        let mask = dict(source, source.resolve(*one), "mask");
        if let Some((mask, true)) = mask.map(|mask| (mask, model.has(&name)))
            && let Some((_, tensor)) = source.tensor_of(mask)
        {
            model.set(format!("{name}_mask"), StateValue::Tensor(tensor.clone(), Some(mask)));
        }
    }
    let mut kept = Vec::new();
    if let Some(step) = dict(source, sparsity, "step") {
        kept.push((DictKey::from("step"), step));
    }
    let steps = steps_of_groups(source, sparsity, assembly)?;
    if let Some(steps) = steps {
        kept.push((DictKey::from("sparsity"), steps));
    }
    if let Value::Dict(optimizer) = source.value(optimizer_id) {
        let mut optimizer = optimizer.clone();
        optimizer.entries.retain(|(key, _)| !is(key, "sparsity"));
        entries[entry].1 = assembly.value(Value::Dict(optimizer))?;
    }
    let kept = assembly.value(Value::Dict(Dict { entries: kept, ..Dict::default() }))?;
    entries.push((DictKey::from("sparsity"), kept));
    Ok(())
}

/// Returns, for each parameter of groups that count steps, a dict with the step as `index`.
fn steps_of_groups(
    source: &Checkpoint,
    sparsity: ValueId,
    assembly: &mut Assembly<'_>,
) -> Result<Option<ValueId>> {
    let Some(Value::List(groups)) =
        dict(source, sparsity, "param_groups").map(|id| source.value(id))
    else {
        return Ok(None);
    };
    let mut found: Vec<(DictKey, ValueId)> = Vec::new();
    for group in &groups.items {
        let group = source.resolve(*group);
        let step = dict(source, group, "sparsity").and_then(|of| dict(source, of, "step"));
        let names = dict(source, group, "param_names").map(|id| source.value(id));
        let (Some(step), Some(Value::List(names))) = (step, names) else { continue };
        for name in &names.items {
            let Value::Str(name) = source.value(source.resolve(*name)) else { continue };
            let step = assembly.value(source.value(step).clone())?;
            // The original tool uses this name for every group.
            let by_group = assembly.dict(vec![(DictKey::from("index"), step)])?;
            found.push((DictKey::Str(name.clone()), by_group));
        }
    }
    if found.is_empty() {
        return Ok(None);
    }
    assembly.dict(found).map(Some)
}

/// Returns the value of a key in a dict, with links resolved.
pub(crate) fn dict(source: &Checkpoint, of: ValueId, key: &str) -> Option<ValueId> {
    let Value::Dict(dict) = source.value(source.resolve(of)) else { return None };
    let found = dict.entries.iter().find(|(own, _)| is(own, key))?;
    Some(source.resolve(found.1))
}

fn is(key: &DictKey, name: &str) -> bool {
    matches!(key, DictKey::Str(text) if text.as_bytes() == name.as_bytes())
}
