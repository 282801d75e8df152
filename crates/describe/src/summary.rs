//! A summary of a checkpoint: totals, counts, findings.

use std::borrow::Borrow;

use statelens_checkpoint::{Checkpoint, DictKey, Layout, Leaf, Tensor, TensorId, Value, separator};

use crate::totals::{Counter, StateSummary, Totals};

/// Totals of a checkpoint. Tied tensors are counted once; links are not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Names and sizes of the files that the checkpoint was opened from or that have its tensors.
    pub files: Vec<(String, u64)>,
    /// Counts of leaves and tensors; states are those of [`Leaf::state`].
    pub totals: Totals,
    /// Whether the root itself holds the states, as in trainers' files; otherwise the names of
    /// states are just the first segments of keys (`model.layers.0.weight` in a model's own state
    /// dict).
    nested: bool,
}

impl CheckpointSummary {
    /// Counts without reading tensors or keeping a list of the leaves.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let dot = match checkpoint.format.traits.slash_keys {
            true => separator_of(checkpoint, &checkpoint.leaves()),
            false => '.',
        };
        Self::count(checkpoint, checkpoint.each_leaf(), dot)
    }

    /// Counts without reading tensors. `leaves` are those of `checkpoint`.
    pub fn new(checkpoint: &Checkpoint, leaves: &[Leaf]) -> Self {
        Self::count(checkpoint, leaves, separator_of(checkpoint, leaves))
    }

    fn count(
        checkpoint: &Checkpoint,
        leaves: impl IntoIterator<Item = impl Borrow<Leaf>>,
        dot: char,
    ) -> Self {
        let (mut counter, mut missing) = (Counter::default(), 0);
        let mut seen = vec![false; checkpoint.tensors().len()];
        for leaf in leaves {
            let leaf: &Leaf = leaf.borrow();
            let (state, is_link) = (leaf.state(dot), leaf.alias_of.is_some());
            counter.add_leaf(&state, is_link);
            let add = |(id, tensor): (TensorId, &Tensor)| {
                if seen.get_mut(id.0 as usize).is_none_or(|seen| std::mem::replace(seen, true)) {
                    return;
                }
                let [elements, bytes] =
                    [tensor.numel(), tensor.nbytes()].map(Option::unwrap_or_default);
                counter.add_tensor(&state, tensor.dtype.name(), elements, bytes);
                missing += u64::from(matches!(tensor.layout, Layout::Missing(_)));
            };
            match checkpoint.value(leaf.target) {
                _ if is_link => {}
                Value::Sparse(sparse) => {
                    let parts = sparse.parts.iter();
                    parts.filter_map(|(_, part)| checkpoint.tensor_of(*part)).for_each(add);
                }
                _ => checkpoint.tensor_of(leaf.target).into_iter().for_each(add),
            }
        }
        Self {
            files: files(checkpoint, &seen),
            totals: Totals { missing: Some(missing), ..counter.finish() },
            nested: is_nested(checkpoint),
        }
    }

    /// Returns the state that is the model, if it has a known name and there are other states.
    /// "Parameters" then refers to this state.
    pub fn model(&self) -> Option<(&str, &StateSummary)> {
        model_among(&self.totals.by_state, self.nested)
    }
}

/// Names that trainers use for the state that is the model.
pub(crate) const MODELS: [&str; 6] =
    ["model", "state_dict", "model_state_dict", "module", "model_state", "params"];

/// Returns the state that is the model, if there are others. `nested` is whether the root itself
/// holds the states.
pub(crate) fn model_among(
    states: &[(String, StateSummary)],
    nested: bool,
) -> Option<(&str, &StateSummary)> {
    let holding = || states.iter().filter(|(_, state)| state.tensors.tensors > 0);
    let is_model = |name: &str| MODELS.contains(&name);
    let mut found = states.iter().filter(|(name, _)| is_model(name));
    let (name, state) = found.next()?;
    // Two such names may be components of one model, or two models. The head of a Hugging Face
    // model is next to its `model.`, but belongs to the model, too.
    let known = found.next().is_none() && holding().count() > 1;
    let trainer = nested || holding().all(|(name, _)| is_model(name) || is_training(name));
    (known && trainer).then_some((name.as_str(), state))
}

/// Returns whether the name of a state indicates training state rather than the model.
fn is_training(name: &str) -> bool {
    const WORDS: [&str; 10] = [
        "optim",
        "sched",
        "scaler",
        "rng",
        "random",
        "ema",
        "dataloader",
        "sampler",
        "step",
        "loop",
    ];
    let name = name.to_ascii_lowercase();
    name.starts_with("__") || WORDS.iter().any(|word| name.contains(word))
}

/// Returns whether the root has a dict with one of the names that trainers use for the model.
fn is_nested(checkpoint: &Checkpoint) -> bool {
    let Value::Dict(root) = checkpoint.value(checkpoint.root()) else { return false };
    root.entries.iter().any(|(key, id)| {
        let named = matches!(key, DictKey::Str(name) if name.as_str().is_some_and(|name| MODELS.contains(&name)));
        named && matches!(checkpoint.value(checkpoint.resolve(*id)), Value::Dict(_))
    })
}

/// Returns the separator between segments of keys.
fn separator_of(checkpoint: &Checkpoint, leaves: &[Leaf]) -> char {
    if !checkpoint.format.traits.slash_keys {
        return '.';
    }
    let flats: Vec<_> = leaves.iter().map(|leaf| leaf.flat.to_lossy()).collect();
    separator(true, &mut flats.iter().map(|flat| &**flat))
}

/// Returns the file that was opened and those with its tensors. Other files of the set are not
/// used.
fn files(checkpoint: &Checkpoint, shown: &[bool]) -> Vec<(String, u64)> {
    let mut used = vec![false; checkpoint.files.count()];
    if let Ok(main) = checkpoint.files.main()
        && let Some(main) = used.get_mut(main.0 as usize)
    {
        *main = true;
    }
    let tensors = checkpoint.tensors().iter().zip(shown).filter(|(_, shown)| **shown);
    let mut open: Vec<&Layout> = tensors.map(|(tensor, _)| &tensor.layout).collect();
    while let Some(layout) = open.pop() {
        let file = match layout {
            Layout::Span(span) => span.file,
            Layout::Packed(packed) => packed.span.file,
            Layout::Deferred(deferred) => deferred.span().file,
            Layout::Strided(strided) => {
                open.push(&strided.storage);
                continue;
            }
            Layout::Concat(concat) => {
                open.extend(concat.parts.iter().map(|part| &part.layout));
                continue;
            }
            Layout::Computed(computed) => {
                open.extend(computed.layouts());
                continue;
            }
            Layout::Dequantised(parts) => {
                open.extend(parts.layouts());
                continue;
            }
            // The files of chunks are known only after reading the chunk table.
            Layout::Chunked(_) | Layout::Fill(_) | Layout::Inline(_) | Layout::Missing(_) => {
                continue;
            }
        };
        if let Some(used) = used.get_mut(file.0 as usize) {
            *used = true;
        }
    }
    checkpoint
        .files
        .iter()
        .filter(|(id, _)| used.get(id.0 as usize).copied().unwrap_or(false))
        .map(|(_, file)| (file.name.clone(), file.source.len()))
        .collect()
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::Grade;

    use super::*;
    use crate::model::Model;
    use crate::{Count, Info, ParameterCount};
    use statelens_checkpoint::{
        Builder, DType, Dict, FileSet, Finding, FormatInfo, Limits, Memory, Span, ValueId,
    };

    fn dict(entries: &[(&str, ValueId)]) -> Value {
        let entries = entries.iter().map(|(key, id)| ((*key).into(), *id)).collect();
        Value::Dict(Dict { entries, ..Dict::default() })
    }

    #[test]
    fn counts_the_head_as_part_of_the_model() {
        let counted = |names: &[&str]| {
            let mut builder = Builder::new(&Limits::default());
            let mut entries = Vec::new();
            for name in names {
                let zeros = Layout::Fill([0; 4].into());
                let tensor = builder.push_tensor(Tensor::new(DType::F32, vec![2], zeros)).unwrap();
                entries.push((*name, builder.push(Value::Tensor(tensor)).unwrap()));
            }
            let root = builder.push(dict(&entries)).unwrap();
            let files = FileSet::default();
            let checkpoint = builder.finish(root, FormatInfo::default(), files, vec![]).unwrap();
            let summary = CheckpointSummary::new(&checkpoint, &checkpoint.leaves());
            summary.model().map(|(_, state)| state.tensors.elements)
        };
        assert_eq!(counted(&["model.w", "model.v", "lm_head.w"]), None);
        assert_eq!(counted(&["model.w", "model.v", "optimizer.0.exp_avg"]), Some(4));
    }

    #[test]
    fn counts_ties_once_and_keeps_the_order_of_states() {
        let mut files = FileSet::single("a.mdl", Memory::from(vec![0; 64]));
        let other = files.push("raw.bin", std::sync::Arc::new(Memory::from(vec![0; 8])));
        files.push("unused.bin", std::sync::Arc::new(Memory::from(vec![0; 8])));
        let mut builder = Builder::new(&Limits::default());
        let span = Layout::Span(Span { file: other, offset: 0, len: 8 });
        let tensor = builder.push_tensor(Tensor::new(DType::F32, vec![2], span)).unwrap();
        let gone = Tensor::new(DType::BF16, vec![3], Layout::Missing("gone".into()));
        let gone = builder.push_tensor(gone).unwrap();
        let weight = builder.push(Value::Tensor(tensor)).unwrap();
        let tied = builder.push(Value::Link(weight)).unwrap();
        let gone = builder.push(Value::Tensor(gone)).unwrap();
        let step = builder.push(Value::Int(3i64.into())).unwrap();
        let model = builder.push(dict(&[("w", weight), ("tied", tied), ("gone", gone)])).unwrap();
        let root = builder.push(dict(&[("step", step), ("model", model)])).unwrap();
        let finding = Finding::new(Grade::Warning, "odd").place("x");
        let checkpoint = builder.finish(root, FormatInfo::default(), files, vec![finding]).unwrap();
        let summary = CheckpointSummary::new(&checkpoint, &checkpoint.leaves());
        let totals = &summary.totals;
        assert_eq!(totals.all, Count { tensors: 2, elements: 5, bytes: 14 });
        assert_eq!((totals.leaves, totals.links, totals.missing), (4, 1, Some(1)));
        assert_eq!(summary.files, [("a.mdl".to_owned(), 64), ("raw.bin".to_owned(), 8)]);
        let states: Vec<_> =
            totals.by_state.iter().map(|(name, state)| (name.as_str(), state.leaves)).collect();
        assert_eq!(states, [("step", 1), ("model", 3)]);
        let info = Info::new(&checkpoint, summary, ParameterCount::default(), Model::default());
        let json: serde_json::Value = serde_json::from_str(&info.json()).unwrap();
        assert_eq!(json["bytes"], 14);
        assert_eq!(json["dtypes"][1]["dtype"], "bfloat16");
        assert_eq!(json["findings"][0]["grade"], "warning");
    }
}
