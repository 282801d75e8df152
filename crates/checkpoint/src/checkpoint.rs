//! A checkpoint: values, tensors, files, and what the format said about itself.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::pieces::Pieces;
use crate::{
    Error, FileSet, Finding, Limits, Quantizer, Result, Tensor, TensorId, Text, Unfolded, Value,
    ValueId, room,
};

/// What a format said about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FormatInfo {
    /// The format's short name, stable, lower case: `cerebras-h5`, `torch-zip`, `pickle`, `hdf5`.
    pub id: &'static str,
    /// Its name for people: `Cerebras HDF5`, `PyTorch zip`.
    pub name: &'static str,
    /// Version of the format as the file has it; may be empty.
    pub version: String,
    /// What wrote it, e.g. `cerebras-pytorch 2.10.0`; may be empty.
    pub producer: String,
    /// Further facts worth showing: name and text.
    pub facts: Vec<(String, String)>,
}

/// A state dict with the places of its tensors; opening one reads no weights.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// What the format said about itself.
    pub format: FormatInfo,
    /// The files that tensors lie in.
    pub files: FileSet,
    /// What the reader noticed.
    pub findings: Vec<Finding>,
    values: Pieces<Value>,
    root: ValueId,
    tensors: Pieces<Tensor>,
    attributes: HashMap<ValueId, ValueId>,
    stored_keys: HashMap<ValueId, Text>,
    raw_attributes: RawAttributes,
    outside_state: HashSet<ValueId>,
    holds_tensor: Vec<bool>,
    unfolded: Unfolded,
}

impl Checkpoint {
    /// The top of the tree.
    pub fn root(&self) -> ValueId {
        self.root
    }

    /// The value; `None` of Python for an id of another checkpoint.
    pub fn value(&self, id: ValueId) -> &Value {
        self.values.get(id.0 as usize).unwrap_or(&Value::None)
    }

    /// All values, by id. Some may hang nowhere in the tree.
    pub fn values(&self) -> &Pieces<Value> {
        &self.values
    }

    /// The value itself, or what it links to.
    pub fn resolve(&self, id: ValueId) -> ValueId {
        match self.value(id) {
            Value::Link(target) => *target,
            _ => id,
        }
    }

    /// All tensors, by id.
    pub fn tensors(&self) -> &Pieces<Tensor> {
        &self.tensors
    }

    /// The tensor; an error for an id of another checkpoint.
    pub fn tensor(&self, id: TensorId) -> Result<&Tensor> {
        self.tensors
            .get(id.0 as usize)
            .ok_or_else(|| Error::damaged("a value names a tensor that is not there"))
    }

    /// The tensor of a tensor or array value, links followed.
    pub fn tensor_of(&self, id: ValueId) -> Option<(TensorId, &Tensor)> {
        let tensor = match self.value(self.resolve(id)) {
            Value::Tensor(tensor) => *tensor,
            Value::Array(array) => array.tensor,
            _ => return None,
        };
        Some((tensor, self.tensors.get(tensor.0 as usize)?))
    }

    /// Python attributes that were set on a value (a state dict's `_metadata`), as a dict value.
    pub fn attributes(&self, id: ValueId) -> Option<ValueId> {
        self.attributes.get(&id).copied()
    }

    /// What the file calls a leaf, where that is not its flat key.
    pub fn stored_key(&self, id: ValueId) -> Option<&Text> {
        self.stored_keys.get(&id)
    }

    /// What the file itself attaches to a value (HDF5 attributes, JSON metadata), as text.
    pub fn raw_attributes(&self, id: ValueId) -> &[(Text, Text)] {
        self.raw_attributes.get(id)
    }

    /// Whether a pickled module holds the value, with all below it, beside what its `state_dict()`
    /// returns. It is listed, and converted only where it is selected.
    pub fn is_outside_state(&self, id: ValueId) -> bool {
        self.outside_state.contains(&id)
    }

    /// Whether any value is outside the state dict of its module.
    pub fn has_outside_state(&self) -> bool {
        !self.outside_state.is_empty()
    }

    /// Whether there is a tensor or array, or a link to one, at or below the value.
    pub fn holds_tensor(&self, id: ValueId) -> bool {
        self.holds_tensor.get(id.0 as usize).copied().unwrap_or(false)
    }

    /// What all of it comes to, links and repetition written out.
    pub fn unfolded(&self) -> Unfolded {
        self.unfolded
    }

    /// Fails where there is no memory for `each` bytes for each leaf: asked before lists and tables of
    /// all leaves are made by what can't fail itself.
    pub fn room(&self, each: u64) -> Result<()> {
        room::ahead(self.unfolded.leaves.saturating_mul(each))
    }

    /// A builder that holds everything this checkpoint does, to be changed and finished with
    /// [`Builder::rebuild`].
    pub fn edit(&self) -> Builder {
        Builder {
            values: self.values.clone(),
            tensors: self.tensors.clone(),
            attributes: self.attributes.clone(),
            stored_keys: self.stored_keys.clone(),
            raw_attributes: self.raw_attributes.clone(),
            outside_state: self.outside_state.clone(),
            alike: VecDeque::new(),
            limits: Limits::none(),
        }
    }
}

/// What the file attaches to values: lists, most of which many values share.
#[derive(Debug, Clone, Default)]
struct RawAttributes {
    lists: Vec<Arc<[(Text, Text)]>>,
    /// By value: which list, from 1; 0 for none. As long as the last value that has one needs.
    of: Vec<u32>,
}

impl RawAttributes {
    fn get(&self, id: ValueId) -> &[(Text, Text)] {
        let list = self.of.get(id.0 as usize).and_then(|list| list.checked_sub(1));
        list.and_then(|list| self.lists.get(list as usize)).map_or(&[], |list| list)
    }

    fn set(&mut self, id: ValueId, list: Option<u32>) {
        let at = id.0 as usize;
        if list.is_some() && at >= self.of.len() {
            self.of.resize(at + 1, 0);
        }
        if let Some(place) = self.of.get_mut(at) {
            *place = list.map_or(0, |list| list + 1);
        }
    }

    /// Adds those of other values, whose numbers grow by `values`.
    fn append(&mut self, other: &Self, values: u32) {
        let lists = self.lists.len() as u32;
        self.lists.extend(other.lists.iter().cloned());
        for (at, list) in (0..).zip(&other.of) {
            if let Some(list) = list.checked_sub(1) {
                self.set(ValueId(at + values), Some(list + lists));
            }
        }
    }
}

/// Ids are 32 bits; far fewer fit in memory.
const MOST_IDS: u64 = 1 << 31;
/// Lists of raw attributes that a new one is compared with.
const MOST_ALIKE: usize = 16;
/// No id.
const NOBODY: u32 = u32::MAX;

/// Puts a checkpoint together, within limits.
#[derive(Debug, Default)]
pub struct Builder {
    values: Pieces<Value>,
    tensors: Pieces<Tensor>,
    attributes: HashMap<ValueId, ValueId>,
    stored_keys: HashMap<ValueId, Text>,
    raw_attributes: RawAttributes,
    outside_state: HashSet<ValueId>,
    /// Lists of them that were set not long ago: those of most values are alike.
    alike: VecDeque<u32>,
    limits: Limits,
}

impl Builder {
    /// An empty one.
    pub fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), ..Self::default() }
    }

    /// What may be spent.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Adds a value. Whoever puts the id into a container or makes it the root gives it its one
    /// place; use [`Value::Link`] for any further one.
    pub fn push(&mut self, value: Value) -> Result<ValueId> {
        let most = self.limits.values.min(MOST_IDS);
        Limits::check("values in the checkpoint", self.values.len() as u64, most)?;
        self.values.push(value)?;
        Ok(ValueId(self.values.len() as u32 - 1))
    }

    /// Adds a tensor; its size must fit 64 bits and its rank the limit.
    pub fn push_tensor(&mut self, tensor: Tensor) -> Result<TensorId> {
        Limits::check("dimensions of a tensor", tensor.shape.len() as u64, self.limits.rank)?;
        // A dimension of no indices hides how long the others are from nobody: NumPy and torch
        // refuse a shape whose other dimensions can't be.
        let mut others = tensor.shape.iter().filter(|dim| **dim > 0);
        let others = others.try_fold(tensor.dtype.itemsize().max(1), |product, dim| {
            product.checked_mul(*dim).filter(|product| *product <= i64::MAX as u64)
        });
        let quantized = matches!(tensor.dtype, crate::DType::Blocks(_));
        if tensor.nbytes().is_none_or(|bytes| bytes > i64::MAX as u64)
            || others.is_none() && !quantized
        {
            return Err(Error::damaged(format!(
                "a tensor of shape {:?} has more bytes than fit 63 bits",
                tensor.shape
            )));
        }
        self.tensors.push(tensor)?;
        Ok(TensorId(self.tensors.len() as u32 - 1))
    }

    /// The value, to be changed; `None` for an unknown id.
    pub fn value_mut(&mut self, id: ValueId) -> Option<&mut Value> {
        self.values.get_mut(id.0 as usize)
    }

    /// The value; `None` for an unknown id.
    pub fn value(&self, id: ValueId) -> Option<&Value> {
        self.values.get(id.0 as usize)
    }

    /// The tensor; `None` for an unknown id.
    pub fn tensor(&self, id: TensorId) -> Option<&Tensor> {
        self.tensors.get(id.0 as usize)
    }

    /// The tensor, to be changed; `None` for an unknown id.
    pub fn tensor_mut(&mut self, id: TensorId) -> Option<&mut Tensor> {
        self.tensors.get_mut(id.0 as usize)
    }

    /// See [`Checkpoint::attributes`].
    pub fn set_attributes(&mut self, id: ValueId, attributes: ValueId) {
        self.attributes.insert(id, attributes);
    }

    /// See [`Checkpoint::stored_key`].
    pub fn set_stored_key(&mut self, id: ValueId, key: Text) {
        self.stored_keys.insert(id, key);
    }

    /// How many tensors there are so far: the id of the next one.
    pub fn tensors(&self) -> u32 {
        self.tensors.len() as u32
    }

    /// See [`Checkpoint::is_outside_state`].
    pub fn set_outside_state(&mut self, id: ValueId, outside: bool) {
        match outside {
            true => self.outside_state.insert(id),
            false => self.outside_state.remove(&id),
        };
    }

    /// See [`Checkpoint::raw_attributes`].
    pub fn set_raw_attributes(&mut self, id: ValueId, attributes: Vec<(Text, Text)>) {
        if attributes.is_empty() {
            self.raw_attributes.set(id, None);
            return;
        }
        let lists = &mut self.raw_attributes.lists;
        let known = |list: &u32| lists.get(*list as usize).is_some_and(|it| it[..] == attributes);
        let list = self.alike.iter().copied().find(known).unwrap_or_else(|| {
            let new = lists.len() as u32;
            lists.push(attributes.into());
            self.alike.truncate(MOST_ALIKE - 1);
            self.alike.push_front(new);
            new
        });
        self.raw_attributes.set(id, Some(list));
    }

    /// See [`Checkpoint::raw_attributes`].
    pub fn raw_attributes(&self, id: ValueId) -> &[(Text, Text)] {
        self.raw_attributes.get(id)
    }

    /// Adds all that another checkpoint holds; returns where its root came to stand. The files of
    /// both are to be one set, with the same ids.
    pub fn append(&mut self, part: &Checkpoint) -> Result<ValueId> {
        let (values, tensors) = (self.values.len(), self.tensors.len());
        let total = (values + part.values.len()) as u64;
        Limits::check("values in the checkpoint", total, self.limits.values.min(MOST_IDS))?;
        Limits::check("tensors", (tensors + part.tensors.len()) as u64, MOST_IDS)?;
        let (values, tensors) = (values as u32, tensors as u32);
        let moved = |id: &ValueId| ValueId(id.0 + values);
        let storages = self.tensors.iter().filter_map(|tensor| tensor.storage).max();
        let storages = storages.map_or(0, |last| last.saturating_add(1));
        for value in &part.values {
            let mut value = value.clone();
            value.shift(values, tensors);
            self.values.push(value)?;
        }
        for tensor in &part.tensors {
            let mut tensor = tensor.clone();
            if let Some(Quantizer::PerChannel { scales, zero_points, .. }) = &mut tensor.quantizer {
                scales.0 += values;
                zero_points.0 += values;
            }
            tensor.storage = tensor.storage.and_then(|number| number.checked_add(storages));
            self.tensors.push(tensor)?;
        }
        self.attributes.extend(part.attributes.iter().map(|(id, dict)| (moved(id), moved(dict))));
        let keys = part.stored_keys.iter().map(|(id, key)| (moved(id), key.clone()));
        self.stored_keys.extend(keys);
        self.raw_attributes.append(&part.raw_attributes, values);
        self.outside_state.extend(part.outside_state.iter().map(moved));
        Ok(moved(&part.root))
    }

    /// The checkpoint. Links to links are made to point at the last target; a link that leads
    /// nowhere but to itself is damage.
    pub fn finish(
        mut self,
        root: ValueId,
        format: FormatInfo,
        files: FileSet,
        findings: Vec<Finding>,
    ) -> Result<Checkpoint> {
        self.flatten_links()?;
        let holds_tensor = self.mark_tensors()?;
        let Self { values, tensors, attributes, stored_keys, raw_attributes, .. } = self;
        let Self { outside_state, limits, .. } = self;
        let mut checkpoint = Checkpoint {
            format,
            files,
            findings,
            values,
            root,
            tensors,
            attributes,
            stored_keys,
            raw_attributes,
            outside_state,
            holds_tensor,
            unfolded: Unfolded::default(),
        };
        checkpoint.unfolded = checkpoint.measure(&limits)?;
        Ok(checkpoint)
    }

    /// [`Builder::finish`] with the root, format, files and findings of the checkpoint that was
    /// edited.
    pub fn rebuild(self, edited: &Checkpoint) -> Result<Checkpoint> {
        let Checkpoint { root, format, files, findings, .. } = edited;
        self.finish(*root, format.clone(), files.clone(), findings.clone())
    }

    fn flatten_links(&mut self) -> Result<()> {
        for index in 0..self.values.len() {
            let Value::Link(first) = self.values[index] else { continue };
            let mut target = first;
            let mut steps = 0;
            while let Some(Value::Link(next)) = self.value(target) {
                target = *next;
                steps += 1;
                if steps > self.values.len() {
                    return Err(Error::damaged("links between values lead in a circle"));
                }
            }
            self.values[index] = Value::Link(target);
        }
        Ok(())
    }

    /// Marks every value with a tensor at or below it, without recursion: parents are found
    /// from children, then marks rise.
    fn mark_tensors(&self) -> Result<Vec<bool>> {
        let mut parents = room::filled(NOBODY, self.values.len())?;
        for (index, value) in self.values.iter().enumerate() {
            value.each_child(|child| {
                if let Some(parent) = parents.get_mut(child.0 as usize) {
                    *parent = index as u32;
                }
            });
        }
        let mut holds = room::filled(false, self.values.len())?;
        for (index, value) in self.values.iter().enumerate() {
            let itself = match value {
                Value::Link(target) => self.value(*target),
                value => Some(value),
            };
            if !matches!(itself, Some(Value::Tensor(_) | Value::Array(_))) {
                continue;
            }
            let mut at = index as u32;
            while at != NOBODY && !std::mem::replace(&mut holds[at as usize], true) {
                at = parents[at as usize];
            }
        }
        Ok(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Dict, DictKey, Layout, List};

    fn finish(builder: Builder, root: ValueId) -> Checkpoint {
        builder.finish(root, FormatInfo::default(), FileSet::default(), Vec::new()).unwrap()
    }

    fn dict(entries: &[(&str, ValueId)]) -> Value {
        let entries = entries.iter().map(|(key, id)| (DictKey::from(*key), *id)).collect();
        Value::Dict(Dict { entries, ..Dict::default() })
    }

    fn flat(checkpoint: &Checkpoint) -> Vec<String> {
        checkpoint
            .leaves()
            .iter()
            .map(|leaf| {
                let alias = leaf.alias_of.as_ref().map_or(String::new(), |key| format!(" = {key}"));
                format!("{} {}{alias}", leaf.flat, checkpoint.value(leaf.target).kind())
            })
            .collect()
    }

    #[test]
    fn leaves_come_in_file_order_with_links_and_empty_containers() {
        let mut builder = Builder::new(&Limits::default());
        let one = builder.push(Value::Int(1i64.into())).unwrap();
        let again = builder.push(Value::Link(one)).unwrap();
        let empty = builder.push(Value::List(List::default())).unwrap();
        let root = builder.push(dict(&[])).unwrap();
        let cycle = builder.push(Value::Link(root)).unwrap();
        let inner = builder.push(dict(&[("x", one), ("y", again)])).unwrap();
        *builder.value_mut(root).unwrap() = dict(&[("a", inner), ("e", empty), ("self", cycle)]);
        assert_eq!(
            flat(&finish(builder, root)),
            ["a.x int", "a.y int = a.x", "e list", "self dict = "]
        );
    }

    #[test]
    fn what_is_outside_the_state_dict_is_listed_as_such() {
        let mut builder = Builder::new(&Limits::default());
        let weight = builder.push(Value::Int(1i64.into())).unwrap();
        let stride = builder.push(Value::Int(8i64.into())).unwrap();
        let strides = builder.push(dict(&[("x", stride)])).unwrap();
        let root = builder.push(dict(&[("weight", weight), ("stride", strides)])).unwrap();
        builder.set_outside_state(strides, true);
        let checkpoint = finish(builder, root);
        let outside: Vec<_> = checkpoint
            .leaves()
            .iter()
            .map(|leaf| (leaf.flat.clone(), leaf.outside_state))
            .collect();
        assert_eq!(outside, [("weight".into(), false), ("stride.x".into(), true)]);
    }

    #[test]
    fn keys_that_differ_only_in_type_have_names_of_their_own() {
        let mut builder = Builder::new(&Limits::default());
        let keys = [
            DictKey::Int(0i64.into()),
            DictKey::from("0"),
            DictKey::from("'0'"),
            DictKey::from("1"),
            DictKey::None,
            DictKey::from("None"),
        ];
        let entries =
            keys.into_iter().map(|key| (key, builder.push(Value::Bool(true)).unwrap())).collect();
        let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
        let names: Vec<_> =
            finish(builder, root).leaves().into_iter().map(|leaf| leaf.flat).collect();
        assert_eq!(names, ["0", "''0''", "'0'", "1", "None", "'None'"]);
    }

    #[test]
    fn deep_trees_are_walked_without_recursion_up_to_the_limit() {
        let nested = |depth| {
            let limits = Limits { depth: 500_000, ..Limits::default() };
            let mut builder = Builder::new(&limits);
            let mut top = builder.push(Value::None).unwrap();
            for _ in 0..depth {
                let list = List { items: vec![top], ..List::default() };
                top = builder.push(Value::List(list)).unwrap();
            }
            builder.finish(top, FormatInfo::default(), FileSet::default(), Vec::new())
        };
        assert_eq!(nested(500_000).unwrap().leaves().len(), 1);
        assert_eq!(nested(500_001).unwrap_err().kind(), crate::ErrorKind::Limit);
    }

    #[test]
    fn a_long_name_above_many_leaves_is_a_limit() {
        let keys = |name: usize, leaves: usize| {
            let mut builder = Builder::new(&Limits::default());
            let items = (0..leaves).map(|_| builder.push(Value::None).unwrap()).collect();
            let list = builder.push(Value::List(List { items, ..List::default() })).unwrap();
            let root = builder.push(dict(&[(&"x".repeat(name), list)])).unwrap();
            builder.finish(root, FormatInfo::default(), FileSet::default(), Vec::new())
        };
        assert!(keys(1_000, 1_000).is_ok());
        assert_eq!(keys(1_000_000, 1_000).unwrap_err().kind(), crate::ErrorKind::Limit);
    }

    #[test]
    fn parts_are_joined_under_new_numbers() {
        let part = |key: &str| {
            let mut builder = Builder::new(&Limits::default());
            let mut tensor = Tensor::new(DType::F32, vec![2], Layout::Fill([0; 4].into()));
            tensor.storage = Some(0);
            let tensor = builder.push_tensor(tensor).unwrap();
            let weight = builder.push(Value::Tensor(tensor)).unwrap();
            let tied = builder.push(Value::Link(weight)).unwrap();
            let root = builder.push(dict(&[(key, weight), ("tied", tied)])).unwrap();
            builder.set_stored_key(tied, format!("{key}.tied").into());
            finish(builder, root)
        };
        let mut builder = Builder::new(&Limits::default());
        let roots = ["a", "b"].map(|key| builder.append(&part(key)).unwrap());
        let root = builder.push(dict(&[("x", roots[0]), ("y", roots[1])])).unwrap();
        let whole = finish(builder, root);
        assert_eq!(
            flat(&whole),
            ["x.a tensor", "a.tied tensor = x.a", "y.b tensor", "b.tied tensor = y.b"]
        );
        assert_ne!(whole.tensors()[0].storage, whole.tensors()[1].storage);
    }

    #[test]
    fn what_a_file_says_of_most_values_is_held_once() {
        let mut builder = Builder::new(&Limits::default());
        let said = |shape: usize| vec![("shapes".into(), Text::from(format!("[[{shape}]]")))];
        let ids: Vec<_> = (0..40).map(|_| builder.push(Value::None).unwrap()).collect();
        for (index, id) in ids.iter().enumerate() {
            builder.set_raw_attributes(*id, said(index % 20 / 10));
        }
        let held: Vec<_> = ids.iter().map(|id| builder.raw_attributes(*id).as_ptr()).collect();
        assert!(held.iter().enumerate().all(|(index, list)| *list == held[index % 20 / 10 * 10]));
        builder.set_raw_attributes(ids[0], Vec::new());
        assert!(builder.raw_attributes(ids[0]).is_empty());
        // Far more than are compared with: each is still itself.
        for (index, id) in ids.iter().enumerate() {
            builder.set_raw_attributes(*id, said(index));
        }
        for (index, id) in ids.iter().enumerate() {
            assert_eq!(builder.raw_attributes(*id), said(index));
        }
    }

    #[test]
    fn tensors_too_large_to_count_are_damage() {
        let mut builder = Builder::new(&Limits::default());
        let tensor = Tensor::new(DType::F32, vec![u64::MAX, 9], Layout::Fill([0; 4].into()));
        assert!(builder.push_tensor(tensor).is_err());
    }
}
