//! Universal checkpoints: a folder `zero/PARAMETER` with `fp32.pt`, the moments and `step.pt`, which
//! `ds_to_universal.py` writes for each parameter.

use std::collections::BTreeMap;

use statelens_checkpoint::{
    DType, Dict, DictKey, FileId, FileSet, Finding, Grade, Layout, Progress, Result, Tensor, Text,
    Value, ValueId, counted, listed, order,
};

use super::UNIVERSAL;
use super::reading::{MODULE, OPTIMIZER, Reading, top};

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
    match found.values().any(|states| states.contains_key(WEIGHTS)) {
        true => found,
        false => Parameters::new(),
    }
}

/// Adds the parameters and their moments. Returns the line about the checkpoint.
pub(super) fn read(
    reading: &mut Reading<'_>,
    states: ValueId,
    parameters: &Parameters,
    progress: &mut dyn Progress,
) -> Result<String> {
    // In the order of the module; others last.
    let module = reading.get(states, MODULE).map(|module| reading.dict(module).to_vec());
    let names = module.into_iter().flatten().filter_map(|(key, _)| match key {
        DictKey::Str(name) => Some(name.to_lossy().into_owned()),
        _ => None,
    });
    let places: BTreeMap<String, usize> = names.enumerate().map(|(at, name)| (name, at)).collect();
    let mut sorted: Vec<&String> = parameters.keys().collect();
    order::natural(&mut sorted);
    sorted.sort_by_key(|name| places.get(*name).copied().unwrap_or(usize::MAX));
    let (mut moments, mut lacking, mut unread) = (Vec::new(), Vec::new(), 0);
    let total = sorted.len() as u64;
    let files = sorted.iter().flat_map(|name| parameters[*name].values().copied());
    let mut roots = reading.load_all(&files.collect::<Vec<FileId>>(), progress)?.into_iter();
    for name in sorted {
        let key = DictKey::Str(Text::from(name.as_str()));
        let mut own = Vec::new();
        if !parameters[name].contains_key(WEIGHTS) {
            lacking.push(name.as_str());
            let value = reading.missing_weights(states, name, "`fp32.pt` is missing")?;
            reading.entries.push((key.clone(), value));
        }
        for (state, root) in parameters[name].keys().zip(&mut roots) {
            // Stages 1 and 2 write a dict with the tensor.
            let value = root.map(|root| reading.get(root, "param").unwrap_or(root));
            match (state.as_str(), value) {
                (WEIGHTS, Some(value)) => reading.entries.push((key.clone(), value)),
                (WEIGHTS, None) => {
                    unread += 1;
                    let value = reading.missing_weights(states, name, "its file can't be read")?;
                    reading.entries.push((key.clone(), value));
                }
                (state, value) => own.extend(value.map(|value| (DictKey::from(state), value))),
            }
        }
        if !own.is_empty() {
            let own = Value::Dict(Dict { entries: own, ..Dict::default() });
            moments.push((key, reading.builder.push(own)?));
        }
    }
    reading.tensors = reading.entries.len() as u64;
    if !lacking.is_empty() {
        let title = format!("`fp32.pt` is missing for {}", listed(&lacking, 5));
        let detail = "Their weights are not here, only other states of the optimizer.";
        reading.findings.push(Finding::new(Grade::Damage, title).detail(detail));
    }
    let state = Value::Dict(Dict { entries: moments, ..Dict::default() });
    let mut entries = vec![(DictKey::from("state"), reading.builder.push(state)?)];
    let name =
        format!("{}{UNIVERSAL}/optimizer_state.pt", top(reading.files, reading.files.main()?));
    if let Some(id) = reading.files.find(&name) {
        let root = reading.load(id, progress)?;
        let groups = root.and_then(|root| reading.get(root, "param_groups"));
        entries.extend(groups.map(|groups| (DictKey::from("param_groups"), groups)));
    }
    let optimizer = Value::Dict(Dict { entries, ..Dict::default() });
    let optimizer = reading.builder.push(optimizer)?;
    reading.further(OPTIMIZER, optimizer);
    let missing = match unread + lacking.len() {
        0 => String::new(),
        count => format!(", {count} incomplete"),
    };
    Ok(format!("DeepSpeed universal checkpoint, {}{missing}", counted(total, "tensor")))
}

impl Reading<'_> {
    /// Adds weights that are missing, for this reason, with the shape that the module has.
    fn missing_weights(&mut self, states: ValueId, name: &str, why: &str) -> Result<ValueId> {
        let module = self.get(states, MODULE);
        let known = module.and_then(|module| self.tensor(self.get(module, name)?));
        let shape = known.map_or_else(|| vec![0], |tensor| tensor.shape.clone());
        let why = Layout::Missing(why.into());
        self.push(Tensor::new(DType::F32, shape, why))
    }
}
