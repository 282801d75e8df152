//! Universal checkpoints: a folder `zero/PARAMETER` with `fp32.pt`, the moments and `step.pt`, which
//! `ds_to_universal.py` writes for each parameter.

use std::collections::BTreeMap;

use statelens_checkpoint::{
    Dict, DictKey, FileId, FileSet, Progress, Result, Text, Value, ValueId, counted, order,
};

use super::UNIVERSAL;
use super::reading::{OPTIMIZER, Reading, top};

/// The file with the weights.
const WEIGHTS: &str = "fp32";

/// The files of each parameter by their names without the extension.
pub(super) type Parameters = BTreeMap<String, BTreeMap<String, FileId>>;

/// Finds the files of the parameters. Empty if this is not a universal checkpoint.
pub(super) fn find(files: &FileSet, main: FileId) -> Parameters {
    let prefix = format!("{}{UNIVERSAL}/", top(files, main));
    let mut found = Parameters::new();
    for (id, name) in files.names() {
        let Some((parameter, file)) =
            name.strip_prefix(&prefix).and_then(|rest| rest.rsplit_once('/'))
        else {
            continue;
        };
        if let Some(state) = file.strip_suffix(".pt") {
            found.entry(parameter.to_owned()).or_default().insert(state.to_owned(), id);
        }
    }
    found.retain(|_, states| states.contains_key(WEIGHTS));
    found
}

/// Adds the parameters and their moments. Returns the line about the checkpoint.
pub(super) fn read(
    reading: &mut Reading<'_>,
    states: ValueId,
    parameters: &Parameters,
    progress: &mut dyn Progress,
) -> Result<String> {
    // In the order of the module; others last.
    let module = reading.get(states, "module").map(|module| reading.dict(module).to_vec());
    let names = module.into_iter().flatten().filter_map(|(key, _)| match key {
        DictKey::Str(name) => Some(name.to_lossy().into_owned()),
        _ => None,
    });
    let places: BTreeMap<String, usize> = names.enumerate().map(|(at, name)| (name, at)).collect();
    let mut sorted: Vec<&String> = parameters.keys().collect();
    order::natural(&mut sorted);
    sorted.sort_by_key(|name| places.get(*name).copied().unwrap_or(usize::MAX));
    let mut moments = Vec::new();
    let total = sorted.len() as u64;
    let files = sorted.iter().flat_map(|name| parameters[*name].values().copied());
    let mut roots = reading.load_all(&files.collect::<Vec<FileId>>(), progress)?.into_iter();
    for name in sorted {
        let key = DictKey::Str(Text::from(name.as_str()));
        let mut own = Vec::new();
        for (state, root) in parameters[name].keys().zip(&mut roots) {
            // Stages 1 and 2 write a dict with the tensor.
            let value = reading.get(root, "param").unwrap_or(root);
            match state.as_str() {
                WEIGHTS => reading.entries.push((key.clone(), value)),
                state => own.push((DictKey::from(state), value)),
            }
        }
        if !own.is_empty() {
            let own = Value::Dict(Dict { entries: own, ..Dict::default() });
            moments.push((key, reading.builder.push(own)?));
        }
    }
    reading.tensors = reading.entries.len() as u64;
    let state = Value::Dict(Dict { entries: moments, ..Dict::default() });
    let mut entries = vec![(DictKey::from("state"), reading.builder.push(state)?)];
    let name =
        format!("{}{UNIVERSAL}/optimizer_state.pt", top(reading.files, reading.files.main()?));
    if let Some(id) = reading.files.find(&name) {
        let root = reading.load(id, progress)?;
        entries.extend(
            reading.get(root, "param_groups").map(|groups| (DictKey::from("param_groups"), groups)),
        );
    }
    let optimizer = Value::Dict(Dict { entries, ..Dict::default() });
    let optimizer = reading.builder.push(optimizer)?;
    reading.further(OPTIMIZER, optimizer);
    Ok(format!("DeepSpeed universal checkpoint, {}", counted(total, "tensor")))
}
