//! Checks that written files can be read and have the intended contents.
//!
//! A [`ReadBack`] is created from a plan before it runs. Once the files are complete, and before
//! they get their final names, they are opened like any other files, and their structure is
//! compared with that of the plan's source: every leaf by its key, with kind, dtype, shape, plain
//! value and ties. The plan's losses list, by key, what the target can't represent; for those
//! leaves, only the aspects that the loss does not affect are compared. Weights are not read.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, DType, Error, FileSet, Leaf, Limits, Loss, Plan, Progress, ReadAt, Result, Text,
    Value, ValueId, shape_text,
};
use statelens_describe::{dtype_of, shape_of, text_of, type_name};

use crate::diff::{DiffOptions, same_value};

/// The intended contents of files, kept until they are written.
#[derive(Debug, Clone)]
pub struct ReadBack {
    source: Arc<Checkpoint>,
    losses: Vec<Loss>,
    names: Vec<String>,
}

impl ReadBack {
    /// Records the intended contents of the files of `plan`.
    pub fn of(plan: &Plan) -> Self {
        let names = plan.files.iter().map(|file| file.name.clone()).collect();
        Self { source: plan.source.clone(), losses: plan.losses.clone(), names }
    }

    /// Returns the names of the files, in the order in which they are written.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Opens the written files and compares them. `written` has a source for each of
    /// [`ReadBack::names`]; `limits` are those of the caller. Fails if the contents differ; then
    /// the files must not be kept.
    pub fn check(
        &self,
        written: Vec<Arc<dyn ReadAt>>,
        limits: &Limits,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut files = FileSet::default();
        for (name, source) in self.names.iter().zip(written) {
            files.push(name.clone(), source);
        }
        let index = files.iter().find(|(_, file)| is_index(&file.name)).map(|(id, _)| id);
        let main = index.map_or_else(|| files.main(), Ok)?;
        let opened = statelens_formats::open(files.opened_at(main), limits, progress);
        let opened = opened.map_err(|error| match error.kind() {
            statelens_checkpoint::ErrorKind::Cancelled => error,
            _ => broken(format!("the written file can't be opened again: {}", error.what())),
        })?;
        self.compare(&opened)
    }

    /// Compares the structure of the written files with the intended one.
    fn compare(&self, written: &Checkpoint) -> Result<()> {
        let loss_reports = ReportedLosses::new(&self.losses);
        let mut found = WrittenLeaves::new(written);
        let strict = written.format.traits.exact_read_back;
        let mut ties: HashMap<ValueId, ValueId> = HashMap::new();
        let mut unmatched = Vec::new();
        let aliases = aliases(&self.source);
        for leaf in self.source.each_leaf() {
            let lost = loss_reports.of_leaf(&leaf);
            let Some(id) = found.take(&leaf, &aliases) else {
                match lost {
                    // The target of a link is compared at its first occurrence.
                    _ if leaf.alias_of.is_some() && is_open(&self.source, leaf.target) => {}
                    // It is left out, or split into parts with other names.
                    How::Lost => {}
                    // It may have another name.
                    How::Form => unmatched.push(leaf),
                    How::Exact if written.format.traits.renames_keys => {
                        unmatched.push(leaf);
                    }
                    How::Exact => {
                        return Err(broken(format!("`{}` is not in the written file", leaf.flat)));
                    }
                }
                continue;
            };
            // The contents of a container are compared where it occurs first.
            let is_again = leaf.alias_of.is_some() && is_open(&self.source, leaf.target);
            if lost == How::Lost || is_again && is_open(written, written.resolve(id)) {
                continue;
            }
            self.leaf(&leaf, written, id, lost, strict)?;
            if lost == How::Exact && strict && self.source.tensor_of(leaf.target).is_some() {
                let target = written.resolve(id);
                if *ties.entry(leaf.target).or_insert(target) != target {
                    return Err(broken(format!("`{}` is no longer tied", leaf.flat)));
                }
            }
        }
        let left = found.left(&loss_reports);
        self.renamed(&unmatched, &left, written)
    }

    /// Compares a leaf with the value found under its key.
    fn leaf(
        &self,
        leaf: &Leaf,
        written: &Checkpoint,
        id: ValueId,
        how: How,
        strict: bool,
    ) -> Result<()> {
        let source = &*self.source;
        let differs = |what: &str, wanted: &str, found: &str| {
            Err(broken(format!("{what} of `{}` was written as {found}, not {wanted}", leaf.flat)))
        };
        let target = written.resolve(id);
        let (one, two) = (source.value(leaf.target), written.value(target));
        let is_array = |value: &Value| matches!(value, Value::Tensor(_) | Value::Array(_));
        let shaped = |value: &Value| is_array(value) || matches!(value, Value::Sparse(_));
        // A scalar whose form changes may become a plain number.
        if shaped(one) && (shaped(two) || how == How::Exact) {
            let (wanted, found) = (shape_of(source, leaf.target), shape_of(written, target));
            if wanted != found {
                let text = |shape: Option<&[u64]>| shape.map_or("none".into(), shape_text);
                return differs("the shape", &text(wanted), &text(found));
            }
            let (wanted, found) = (dtype_of(source, leaf.target), dtype_of(written, target));
            let same = match (wanted, found) {
                (Some(wanted), Some(found)) => wanted.is_same(found),
                (wanted, found) => wanted == found,
            };
            if how == How::Exact && !same {
                let text = |dtype: Option<&DType>| dtype.map_or("none".into(), DType::to_string);
                return differs("the dtype", &text(wanted), &text(found));
            }
        }
        if how == How::Form {
            return Ok(());
        }
        let alike = !strict && is_array(one) && is_array(two);
        if !alike && one.kind() != two.kind() {
            return differs("the kind", one.kind(), two.kind());
        }
        let same = || {
            same_value(source, leaf.target, written, target, &DiffOptions::default())
                // Formats represent objects differently.
                || matches!((one, two), (Value::Opaque(_), Value::Opaque(_)))
                    && type_name(source, leaf.target) == type_name(written, target)
                    && text_of(source, leaf.target) == text_of(written, target)
        };
        if !shaped(one) && !same() {
            return differs("the value", &text_of(source, leaf.target), &text_of(written, target));
        }
        Ok(())
    }

    /// Compares leaves with another name in the file. For each tensor there must be one of the same
    /// dtype and shape, for each plain value one of the same shape.
    fn renamed(&self, wanted: &[Leaf], left: &[ValueId], written: &Checkpoint) -> Result<()> {
        let mut by_shape: HashMap<&[u64], Vec<Option<&DType>>> = HashMap::new();
        for id in left {
            let shape = shape_of(written, *id).unwrap_or(&[]);
            by_shape.entry(shape).or_default().push(dtype_of(written, *id));
        }
        // Plain values come last, because they may match an array of any dtype.
        let (tensors, plain): (Vec<&Leaf>, Vec<&Leaf>) =
            wanted.iter().partition(|leaf| dtype_of(&self.source, leaf.target).is_some());
        for leaf in tensors.into_iter().chain(plain) {
            let wanted = dtype_of(&self.source, leaf.target);
            let same = |found: &Option<&DType>| match (wanted, found) {
                (Some(wanted), Some(found)) => wanted.is_same(found),
                (wanted, _) => wanted.is_none(),
            };
            let shape = shape_of(&self.source, leaf.target).unwrap_or(&[]);
            // Bytes may become an array.
            let as_array = match self.source.value(leaf.target) {
                Value::Bytes { data, .. } => Some([data.len() as u64]),
                _ => None,
            };
            let shapes = std::iter::once(shape).chain(as_array.as_ref().map(<[u64; 1]>::as_slice));
            let found = shapes.into_iter().find_map(|shape| {
                let at = by_shape.get(shape)?.iter().position(same)?;
                Some((shape, at))
            });
            let place = found.and_then(|(shape, at)| Some((by_shape.get_mut(shape)?, at)));
            match place {
                Some((found, at)) => drop(found.swap_remove(at)),
                None => return Err(broken(format!("`{}` is not in the written file", leaf.flat))),
            }
        }
        Ok(())
    }
}

/// How thoroughly a leaf is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    /// Completely.
    Exact,
    /// Its form or its name changes: it must exist, with its shape.
    Form,
    /// The target can't represent it.
    Lost,
}

/// The keys that the plan's losses list.
struct ReportedLosses<'a> {
    lost: HashSet<&'a str>,
    form: HashSet<&'a str>,
}

impl<'a> ReportedLosses<'a> {
    fn new(losses: &'a [Loss]) -> Self {
        let keys = |harmless| {
            let loss_reports = losses.iter().filter(move |loss| loss.harmless == harmless);
            loss_reports.flat_map(|loss| loss.keys.iter().map(String::as_str)).collect()
        };
        Self { lost: keys(false), form: keys(true) }
    }

    /// Returns the comparison for a leaf; for a link, the losses of its target apply, too.
    fn of_leaf(&self, leaf: &Leaf) -> How {
        let target = leaf.alias_of.as_ref().map_or(How::Exact, |target| self.of(target));
        self.of(&leaf.flat).max(target)
    }

    /// If a container is lost, so is everything below it.
    fn of(&self, key: &Text) -> How {
        let key = key.to_lossy();
        let above = key.match_indices('.').map(|(at, _)| &key[..at]);
        if !self.lost.is_empty() && above.chain([&*key]).any(|key| self.lost.contains(key)) {
            return How::Lost;
        }
        if self.form.contains(&*key) {
            return How::Form;
        }
        How::Exact
    }
}

/// Returns the containers with several names: from the name of each to the names of links to it.
/// The writer chooses which of them holds the contents.
fn aliases(source: &Checkpoint) -> HashMap<Text, Vec<Text>> {
    let mut aliases: HashMap<Text, Vec<Text>> = HashMap::new();
    for leaf in source.each_leaf() {
        if let Some(target) = leaf.alias_of.filter(|_| is_open(source, leaf.target)) {
            aliases.entry(target).or_default().push(leaf.flat);
        }
    }
    aliases
}

/// Returns whether a value is a container that is not empty.
fn is_open(checkpoint: &Checkpoint, id: ValueId) -> bool {
    let value = checkpoint.value(id);
    value.is_container() && !value.children().is_empty()
}

/// The leaves of the written files by name, marked once matched.
struct WrittenLeaves {
    by_key: HashMap<Text, Counterpart>,
    /// Further leaves with the same name.
    more: HashMap<Text, Vec<ValueId>>,
    /// The names of leaves whose path in the tree is different.
    paths: HashMap<Text, Text>,
}

struct Counterpart {
    id: ValueId,
    met: bool,
}

impl WrittenLeaves {
    fn new(written: &Checkpoint) -> Self {
        let mut found =
            Self { by_key: HashMap::new(), more: HashMap::new(), paths: HashMap::new() };
        for leaf in written.each_leaf() {
            if written.stored_key(leaf.id).is_some() {
                found.paths.insert(leaf.key.flat(), leaf.flat.clone());
            }
            match found.by_key.entry(leaf.flat) {
                Entry::Vacant(entry) => drop(entry.insert(Counterpart { id: leaf.id, met: false })),
                Entry::Occupied(entry) => {
                    found.more.entry(entry.key().clone()).or_default().push(leaf.id);
                }
            }
        }
        // Reversed, so that `pop` returns them in the order of the file.
        found.more.values_mut().for_each(|ids| ids.reverse());
        found
    }

    /// Finds the value for a leaf: under its key, under its path (for formats that do not store
    /// keys), or under another name of a container that it is in.
    fn take(&mut self, leaf: &Leaf, aliases: &HashMap<Text, Vec<Text>>) -> Option<ValueId> {
        if let Some(id) = self.under(&leaf.flat) {
            return Some(id);
        }
        let path = leaf.key.flat();
        if let Some(id) = self.under(&path) {
            return Some(id);
        }
        if let Some(name) = self.paths.get(&path).cloned() {
            return self.under(&name);
        }
        if aliases.is_empty() {
            return None;
        }
        let key = leaf.flat.to_lossy();
        key.match_indices('.').find_map(|(at, _)| {
            let others = aliases.get(&key.as_bytes()[..at])?;
            others.iter().find_map(|other| self.under(&format!("{other}{}", &key[at..]).into()))
        })
    }

    /// Finds the value under a key. Leaves that share a name may be written once if they are equal;
    /// comparing each of them checks that.
    fn under(&mut self, key: &Text) -> Option<ValueId> {
        let place = self.by_key.get_mut(key)?;
        if std::mem::replace(&mut place.met, true)
            && let Some(id) = self.more.get_mut(key).and_then(Vec::pop)
        {
            return Some(id);
        }
        Some(place.id)
    }

    /// Returns the values that were not matched, except those that the losses announce as added.
    fn left(self, reported: &ReportedLosses<'_>) -> Vec<ValueId> {
        let added = |key: &Text| reported.of(key) != How::Exact;
        let left = self.by_key.into_iter().filter(|(key, place)| !place.met && !added(key));
        left.map(|(_, place)| place.id).collect()
    }
}

/// Returns whether a file is the index of a set.
fn is_index(name: &str) -> bool {
    name.ends_with(".index.json")
        || name.ends_with(".index")
        || name == statelens_formats::cerebras::s3::METADATA
}

fn broken(what: String) -> Error {
    Error::damaged(what).advice("Nothing was kept. This is a bug in the writer: please report it.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{
        Builder, Dict, DictKey, FormatInfo, FormatTraits, Layout, LossCode, Tensor, TensorId,
        ValueId,
    };

    fn checkpoint(entries: Vec<(&str, Value)>, tensors: &[(DType, Vec<u64>)]) -> Checkpoint {
        let mut builder = Builder::new(&Limits::default());
        for (dtype, shape) in tensors {
            let fill = Layout::Fill(vec![0; dtype.itemsize() as usize].into());
            builder.push_tensor(Tensor::new(dtype.clone(), shape.clone(), fill)).unwrap();
        }
        let entries = entries
            .into_iter()
            .map(|(key, value)| (DictKey::from(key), builder.push(value).unwrap()))
            .collect();
        let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
        let traits = FormatTraits { exact_read_back: true, ..FormatTraits::DEFAULT };
        let format = FormatInfo { traits, ..FormatInfo::default() };
        builder.finish(root, format, FileSet::default(), Vec::new()).unwrap()
    }

    /// Two tensors, one of them under two names, a number and a string.
    fn entries() -> Vec<(&'static str, Value)> {
        vec![
            ("w", Value::Tensor(TensorId(0))),
            ("tied", Value::Link(ValueId(0))),
            ("b", Value::Tensor(TensorId(1))),
            ("step", Value::Int(3i64.into())),
            ("name", Value::Str("gpt".into())),
        ]
    }

    fn whole() -> Checkpoint {
        checkpoint(entries(), &[(DType::F32, vec![2, 3]), (DType::BF16, vec![3])])
    }

    fn read_back(losses: Vec<Loss>) -> ReadBack {
        ReadBack { source: Arc::new(whole()), losses, names: Vec::new() }
    }

    fn loss(key: &str, harmless: bool) -> Loss {
        let code = LossCode::Other;
        let kind = if harmless { code.harmless("", "") } else { code.lost("", "") };
        kind.of(vec![key.into()])
    }

    #[test]
    fn accepts_only_unchanged_output() {
        assert_eq!(read_back(vec![]).compare(&whole()), Ok(()));
        let (f32s, bf16s) = ((DType::F32, vec![2, 3]), (DType::BF16, vec![3]));
        type Change<'a> = &'a dyn Fn(&mut Vec<(&str, Value)>);
        let others = |change: Change<'_>, tensors: &[_]| {
            let mut entries = entries();
            change(&mut entries);
            read_back(vec![]).compare(&checkpoint(entries, tensors)).unwrap_err().to_string()
        };
        let same = [f32s.clone(), bf16s.clone()];
        for (found, said) in [
            (others(&|entries| drop(entries.remove(2)), &same), "`b` is not in"),
            (
                others(&|entries| entries[3].1 = Value::Int(4i64.into()), &same),
                "the value of `step`",
            ),
            (others(&|entries| entries[3].1 = Value::Bool(true), &same), "the kind of `step`"),
            (others(&|entries| entries[4].0 = "nam", &same), "`name` is not in"),
            (others(&|_| {}, &[f32s.clone(), (DType::F16, vec![3])]), "the dtype of `b`"),
            (others(&|_| {}, &[(DType::F32, vec![3, 2]), bf16s.clone()]), "the shape of `w`"),
            (
                others(
                    &|entries| entries[1].1 = Value::Tensor(TensorId(2)),
                    &[f32s.clone(), bf16s.clone(), f32s.clone()],
                ),
                "`tied` is no longer tied",
            ),
        ] {
            assert!(found.contains(said), "{found}");
        }
    }

    #[test]
    fn renamed_tensors_must_keep_dtype_and_shape() {
        let found = |dtype: DType| {
            let entries = vec![("x", Value::Tensor(TensorId(0)))];
            checkpoint(entries, &[(dtype, vec![3])])
        };
        let source = Arc::new(found(DType::F32));
        let back = ReadBack { source: source.clone(), losses: Vec::new(), names: Vec::new() };
        let leaves = source.leaves();
        let renamed = |dtype: DType| {
            let written = found(dtype);
            let left: Vec<ValueId> = written.leaves().iter().map(|leaf| leaf.id).collect();
            back.renamed(&leaves, &left, &written)
        };
        assert_eq!(renamed(DType::F32), Ok(()));
        let error = renamed(DType::F64).unwrap_err().to_string();
        assert!(error.contains("`x` is not in the written file"), "{error}");
    }

    #[test]
    fn accepts_only_the_reported_losses() {
        let without = |key: &str| {
            let mut entries = entries();
            entries.retain(|(name, _)| *name != key);
            checkpoint(entries, &[(DType::F32, vec![2, 3]), (DType::BF16, vec![3])])
        };
        assert_eq!(read_back(vec![loss("name", false)]).compare(&without("name")), Ok(()));
        assert!(read_back(vec![loss("step", false)]).compare(&without("name")).is_err());
        // A change of form does not permit leaving a leaf out.
        assert!(read_back(vec![loss("name", true)]).compare(&without("name")).is_err());
    }
}
