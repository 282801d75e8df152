//! Splits a state into several files, as Hugging Face's libraries do with `pytorch_model.bin`: each
//! file is a flat dict of tensors by full key, and an index maps keys to files.

use std::collections::{HashMap, HashSet};

use statelens_checkpoint::{
    Checkpoint, DType, Dict, DictKey, Error, Leaf, Loss, LossCode, PlannedFile, Result, Setting,
    TensorId, Text, Value, ValueId, advice,
};

use crate::shards::{Assignment, Shards};

pub(super) struct Cut {
    /// Names and contents of the files. Each content has the tensors of the whole checkpoint.
    pub(super) parts: Vec<(String, Checkpoint)>,
    pub(super) index: Option<PlannedFile>,
    /// Losses caused by the split.
    pub(super) losses: Vec<Loss>,
}

/// Splits `source`. Returns `None` if a single file with the given name holds everything.
pub(super) fn cut(source: &Checkpoint, shards: &Shards, name: &str) -> Result<Option<Cut>> {
    if *shards == Shards::One {
        return Ok(None);
    }
    let leaves = source.leaves();
    let units = units(source, &leaves)?;
    let groups = groups(source, &units)?;
    let mut rows: Vec<(Text, u64)> = Vec::new();
    for (unit, group) in units.iter().zip(&groups) {
        let Some(group) = *group else { continue };
        if group == rows.len() {
            rows.push((unit.key.clone(), 0));
        }
        rows[group].1 = rows[group].1.saturating_add(unit.bytes);
    }
    let Assignment { files, of } = shards.assign(name, &rows)?;
    if files.len() == 1 && files[0] == name {
        return Ok(None);
    }
    if !matches!(source.value(source.root()), Value::Dict(_)) {
        return Err(Error::refused("only a dict of tensors can be split into several files")
            .advice("Write one file."));
    }
    refuse_twins(&units)?;
    // Values that are not tensors go into the first file.
    let file_of = |group: &Option<usize>| group.map_or(0, |group| of[group]);
    let mut parts = Vec::with_capacity(files.len());
    for (number, file) in files.iter().enumerate() {
        let entries = units.iter().zip(&groups).filter(|(_, group)| file_of(group) == number);
        let entries = entries.map(|(unit, _)| (DictKey::Str(unit.key.clone()), unit.id)).collect();
        let class = match source.value(source.root()) {
            Value::Dict(dict) => dict.class.clone(),
            _ => Default::default(),
        };
        let attributes = source.attributes(source.root()).filter(|_| number == 0);
        let mut builder = source.edit();
        let root = builder.push(Value::Dict(Dict { class, entries }))?;
        if let Some(attributes) = attributes {
            builder.set_attributes(root, attributes);
        }
        let part = builder.finish(root, source.format.clone(), source.files.clone(), Vec::new())?;
        parts.push((file.clone(), part));
    }
    let held = units.iter().zip(&groups).filter_map(|(unit, group)| Some((unit, (*group)?)));
    let (names, of): (Vec<(Text, u64)>, Vec<usize>) =
        held.map(|(unit, group)| ((unit.key.clone(), unit.bytes), of[group])).unzip();
    let index = Assignment { files, of }.index(name, &names);
    Ok(Some(Cut { parts, index, losses: losses(source, &leaves) }))
}

/// A leaf, which goes into one file as a whole, including the tensors inside an object.
struct Unit {
    key: Text,
    id: ValueId,
    tensors: Vec<TensorId>,
    /// Bytes of its tensors, except those already counted for an earlier unit.
    bytes: u64,
}

fn units(source: &Checkpoint, leaves: &[Leaf]) -> Result<Vec<Unit>> {
    let mut units: Vec<Unit> = Vec::new();
    let mut counted = HashSet::new();
    for leaf in leaves {
        let tensors: Vec<TensorId> = match source.value(leaf.target) {
            Value::Sparse(sparse) => {
                let parts = sparse.parts.iter();
                parts.filter_map(|(_, part)| Some(source.tensor_of(*part)?.0)).collect()
            }
            _ => source.tensor_of(leaf.target).map(|(tensor, _)| tensor).into_iter().collect(),
        };
        let fresh = tensors.iter().filter(|tensor| counted.insert(**tensor));
        // Arrays of strings, records and dates are not written.
        let written = fresh.filter_map(|tensor| source.tensor(*tensor).ok());
        let written = written.filter(|tensor| !matches!(tensor.dtype, DType::Numpy(_)));
        let bytes = written.filter_map(|tensor| tensor.nbytes());
        let bytes = bytes.fold(0, u64::saturating_add);
        let target = source.value(leaf.target);
        if leaf.alias_of.is_some() && target.is_container() && !target.children().is_empty() {
            return Err(Error::refused(format!(
                "{} is the same dict or list as another one, and separate files can't share it",
                leaf.flat
            ))
            .advice(advice![
                "Write one file, or leave it out with ",
                Setting::Exclude,
                "."
            ]));
        }
        units.push(Unit { key: leaf.flat.clone(), id: leaf.id, tensors, bytes });
    }
    Ok(units)
}

/// Returns the group of each unit that has tensors. Units that share memory are in the same group.
/// Groups are numbered in the order of their first units.
fn groups(source: &Checkpoint, units: &[Unit]) -> Result<Vec<Option<usize>>> {
    #[derive(PartialEq, Eq, Hash)]
    enum MemoryOwner {
        Tensor(TensorId),
        Storage(u32),
    }
    // Union-find: each unit points to an earlier one of its group, the first to itself.
    let mut first: Vec<usize> = (0..units.len()).collect();
    let mut seen: HashMap<MemoryOwner, usize> = HashMap::new();
    for (number, unit) in units.iter().enumerate() {
        for tensor in &unit.tensors {
            let storage = source.tensor(*tensor)?.storage.map(MemoryOwner::Storage);
            for memory in [Some(MemoryOwner::Tensor(*tensor)), storage].into_iter().flatten() {
                let other = *seen.entry(memory).or_insert(number);
                let (one, other) = (find(&mut first, number), find(&mut first, other));
                first[one.max(other)] = one.min(other);
            }
        }
    }
    let mut numbers = HashMap::new();
    let mut groups = Vec::with_capacity(units.len());
    for (number, unit) in units.iter().enumerate() {
        let next = numbers.len();
        let group = find(&mut first, number);
        let group = (!unit.tensors.is_empty()).then(|| *numbers.entry(group).or_insert(next));
        groups.push(group);
    }
    Ok(groups)
}

/// Returns the first unit of the group, and shortens the path to it.
fn find(first: &mut [usize], from: usize) -> usize {
    let mut at = from;
    while first[at] != at {
        first[at] = first[first[at]];
        at = first[at];
    }
    at
}

fn refuse_twins(units: &[Unit]) -> Result<()> {
    let mut seen = HashSet::new();
    match units.iter().find(|unit| !seen.insert(&unit.key)) {
        None => Ok(()),
        Some(unit) => Err(Error::refused(format!(
            "two values would have the name {} without nesting",
            unit.key
        ))
        .advice(advice![
            "Rename one of them with ",
            Setting::Rename,
            ", or write one file."
        ])),
    }
}

/// Returns the loss of nesting: separate files can't share a dict.
fn losses(source: &Checkpoint, leaves: &[Leaf]) -> Vec<Loss> {
    let nested = leaves.iter().filter(|leaf| leaf.key.parts.len() > 1);
    let keys: Vec<String> = nested.map(|leaf| leaf.flat.to_string()).collect();
    if keys.is_empty() {
        return Vec::new();
    }
    let root = source.root();
    let only_dicts = source.values().iter().all(|value| match value {
        Value::List(list) => list.items.is_empty(),
        Value::Tuple(tuple) => tuple.items.is_empty(),
        Value::Set(set) => set.frozen || set.items.is_empty(),
        _ => true,
    });
    let below = (0..source.values().len() as u32).map(ValueId);
    let attributes = below.filter(|id| *id != root).any(|id| source.attributes(id).is_some());
    vec![Loss {
        code: LossCode::FullNames,
        keys,
        what: "nested values are written under their full names, with dots".into(),
        why:
            "Several files can't share one nested dict; the index and its readers know full names \
              only."
                .into(),
        harmless: only_dicts && !attributes,
    }]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use statelens_checkpoint::{
        Builder, DType, FileSet, FormatInfo, Layout, Limits, Segment, Tensor,
    };

    use super::*;

    fn source(nested: bool) -> Checkpoint {
        let mut builder = Builder::new(&Limits::default());
        let mut tensor = |len: u64, storage: u32| {
            let layout = Layout::Inline(vec![0; 4 * len as usize].into());
            let mut tensor = Tensor::new(DType::F32, vec![len], layout);
            tensor.storage = Some(storage);
            let tensor = builder.push_tensor(tensor).unwrap();
            builder.push(Value::Tensor(tensor)).unwrap()
        };
        let (a, b, c, n) = (tensor(10, 0), tensor(20, 1), tensor(10, 0), tensor(5, 3));
        let tied = builder.push(Value::Link(b)).unwrap();
        let step = builder.push(Value::Int(7i64.into())).unwrap();
        let mut entries: Vec<(DictKey, ValueId)> =
            vec![("a".into(), a), ("b".into(), b), ("c".into(), c), ("tied".into(), tied)];
        match nested {
            true => {
                let entries_below = vec![("w".into(), n), ("step".into(), step)];
                let dict = Dict { entries: entries_below, ..Dict::default() };
                entries.push(("n".into(), builder.push(Value::Dict(dict)).unwrap()));
            }
            false => entries.extend([("n".into(), n), ("step".into(), step)]),
        }
        let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
        builder.finish(root, FormatInfo::default(), FileSet::default(), Vec::new()).unwrap()
    }

    fn keys(part: &Checkpoint) -> Vec<String> {
        part.leaves().iter().map(|leaf| leaf.flat.to_string()).collect()
    }

    fn index(cut: &Cut) -> serde_json::Value {
        let file = cut.index.as_ref().unwrap();
        assert_eq!(file.name, "pytorch_model.bin.index.json");
        let [Segment::Bytes(text)] = &file.segments[..] else { panic!() };
        serde_json::from_slice(text).unwrap()
    }

    #[test]
    fn shared_storages_stay_in_one_shard() {
        let name = "pytorch_model.bin";
        let cut = cut(&source(false), &Shards::BySize(100), name).unwrap().unwrap();
        let parts: Vec<_> =
            cut.parts.iter().map(|(name, part)| (name.as_str(), keys(part))).collect();
        let name = |number| format!("pytorch_model-0000{number}-of-00002.bin");
        assert_eq!(parts[0], (&*name(1), vec!["a".into(), "c".into(), "step".into()]));
        assert_eq!(parts[1], (&*name(2), vec!["b".into(), "tied".into(), "n".into()]));
        assert_eq!(cut.losses, []);
        let map = &index(&cut)["weight_map"];
        assert_eq!(map["c"], name(1));
        assert_eq!(map["tied"], name(2));
        assert_eq!(map.as_object().unwrap().len(), 5);
        assert_eq!(map.get("step"), None);
    }

    #[test]
    fn flattening_is_reported_as_a_loss() {
        let name = "pytorch_model.bin";
        let cut = cut(&source(true), &Shards::BySize(100), name).unwrap().unwrap();
        assert_eq!(keys(&cut.parts[1].1), ["b", "tied", "n.w"]);
        assert_eq!(cut.losses[0].keys, ["n.w", "n.step"]);
        assert!(cut.losses[0].harmless);
        assert_eq!(index(&cut)["weight_map"]["n.w"], "pytorch_model-00002-of-00002.bin");
    }

    #[test]
    fn assigns_shards_by_name_and_keeps_single_files() {
        let name = "pytorch_model.bin";
        let wanted = HashMap::from([("b".into(), "large".into()), ("n".into(), "large".into())]);
        let cut_by_name = cut(&source(false), &Shards::Named(Arc::new(wanted)), name);
        let parts = cut_by_name.unwrap().unwrap().parts;
        let names: Vec<_> =
            parts.iter().map(|(name, part)| (name.as_str(), keys(part).len())).collect();
        assert_eq!(names, [("pytorch_model.bin", 3), ("large.bin", 3)]);
        assert!(cut(&source(true), &Shards::BySize(1 << 20), name).unwrap().is_none());
        assert!(cut(&source(true), &Shards::One, name).unwrap().is_none());
    }
}
