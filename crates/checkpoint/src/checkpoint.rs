//! A checkpoint: values, tensors, files and the description of its format.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::pieces::Pieces;
use crate::{
    DictKey, Error, FileSet, Finding, FindingKind, FormatInfo, Layout, Limits, Quantizer, Result,
    Tensor, TensorId, Text, Unfolded, Value, ValueId, try_alloc,
};

/// The beginning of a raw attribute that is not a value, but why the value can't be compared.
pub const NOT_COMPARED: &str = "(not compared: ";
/// Name of the raw attribute with the type of a number, or of the elements that a dataset does not
/// have, which their values do not show.
pub const STORED_TYPE: &str = "(type)";

/// Returns whether the description of an HDF5 datatype has an enum, also in a record. Names in quotes
/// do not count.
pub fn has_enum(description: &str) -> bool {
    let (mut rest, mut is_quoted) = (description, false);
    while let Some(next) = rest.chars().next() {
        match next {
            '\\' if is_quoted => rest = rest.get(1..).unwrap_or_default(),
            '\'' => is_quoted = !is_quoted,
            _ if !is_quoted && rest.starts_with("enum of ") => return true,
            _ => {}
        }
        rest = rest.get(next.len_utf8()..).unwrap_or_default();
    }
    false
}

/// A state dict with the locations of its tensors; opening one reads no weights.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Format of the checkpoint.
    pub format: FormatInfo,
    /// Files that hold the tensors.
    pub files: FileSet,
    /// Findings of the reader.
    pub findings: Vec<Finding>,
    /// Further copies of pieces of tensors, which verification compares with the ones used. An
    /// edited checkpoint has no replicas.
    pub replicas: Vec<Replica>,
    /// The stored pieces of incomplete tensors, as a layout by flat key. Empty for an edited
    /// checkpoint.
    pub partial: HashMap<Text, Layout>,
    values: Pieces<Value>,
    root: ValueId,
    tensors: Pieces<Tensor>,
    attributes: HashMap<ValueId, ValueId>,
    stored_keys: HashMap<ValueId, Text>,
    raw_attributes: RawAttributes,
    attribute_types: RawAttributes,
    outside_state: HashSet<ValueId>,
    holds_tensor: Vec<bool>,
    unfolded: Unfolded,
}

/// Two stored copies of a piece of a tensor. Nothing says that they are equal.
#[derive(Debug, Clone, PartialEq)]
pub struct Replica {
    /// The flat key of the tensor.
    pub key: Text,
    /// The piece that the tensor consists of, and the other copy; both have its dtype and shape.
    pub copies: [Tensor; 2],
}

impl Checkpoint {
    /// Returns the findings of this kind.
    pub fn findings_of(&self, kind: FindingKind) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.kind == kind)
    }

    /// Returns the root of the tree.
    pub fn root(&self) -> ValueId {
        self.root
    }

    /// Returns the value, or `Value::None` for an id of another checkpoint.
    pub fn value(&self, id: ValueId) -> &Value {
        self.values.get(id.0 as usize).unwrap_or(&Value::None)
    }

    /// Returns all values, by id. Some may not be in the tree.
    pub fn values(&self) -> &Pieces<Value> {
        &self.values
    }

    /// Returns the id itself, or the target if the value is a link.
    pub fn resolve(&self, id: ValueId) -> ValueId {
        match self.value(id) {
            Value::Link(target) => *target,
            _ => id,
        }
    }

    /// Returns all tensors, by id.
    pub fn tensors(&self) -> &Pieces<Tensor> {
        &self.tensors
    }

    /// Returns the tensor; an error for an id of another checkpoint.
    pub fn tensor(&self, id: TensorId) -> Result<&Tensor> {
        self.tensors
            .get(id.0 as usize)
            .ok_or_else(|| Error::damaged("a value refers to a tensor that does not exist"))
    }

    /// Returns the tensor of a tensor or array value, following links.
    pub fn tensor_of(&self, id: ValueId) -> Option<(TensorId, &Tensor)> {
        let tensor = match self.value(self.resolve(id)) {
            Value::Tensor(tensor) => *tensor,
            Value::Array(array) => array.tensor,
            _ => return None,
        };
        Some((tensor, self.tensors.get(tensor.0 as usize)?))
    }

    /// Returns the Python attributes that were set on a value (a state dict's `_metadata`), as a
    /// dict value.
    pub fn attributes(&self, id: ValueId) -> Option<ValueId> {
        self.attributes.get(&id).copied()
    }

    /// Returns the Python attributes of a value by name; those in `__slots__` come last.
    pub fn named_attributes(&self, id: ValueId) -> Vec<(&Text, ValueId)> {
        let Some(attributes) = self.attributes(id).map(|id| self.resolve(id)) else {
            return Vec::new();
        };
        let parts = match self.value(attributes) {
            Value::Tuple(parts) => parts.items.as_slice(),
            _ => &[attributes],
        };
        let dicts = parts.iter().filter_map(|id| match self.value(self.resolve(*id)) {
            Value::Dict(dict) => Some(&dict.entries),
            _ => None,
        });
        let named = dicts.flatten().filter_map(|(key, id)| match key {
            DictKey::Str(name) => Some((name, *id)),
            _ => None,
        });
        named.collect()
    }

    /// Returns the tensors in the Python attributes of a tensor that are not its own data, such as
    /// the scales of bitsandbytes.
    pub fn attribute_tensors(&self, id: ValueId) -> Vec<TensorId> {
        let (mut open, mut seen, mut found) =
            (Vec::from_iter(self.attributes(id)), HashSet::new(), Vec::new());
        let Some((_, own)) = self.tensor_of(id).filter(|_| !open.is_empty()) else { return found };
        while let Some(id) = open.pop() {
            let id = self.resolve(id);
            if !seen.insert(id) {
                continue;
            }
            if let Some((inner, tensor)) = self.tensor_of(id)
                && (&tensor.layout, &tensor.shape) != (&own.layout, &own.shape)
            {
                found.push(inner);
            }
            open.extend(self.value(id).children().into_iter().rev());
        }
        found
    }

    /// Returns the name of a leaf in the file, where that differs from its flat key.
    pub fn stored_key(&self, id: ValueId) -> Option<&Text> {
        self.stored_keys.get(&id)
    }

    /// Returns the attributes that the file itself attaches to a value (HDF5 attributes, JSON
    /// metadata), as text.
    pub fn raw_attributes(&self, id: ValueId) -> &[(Text, Text)] {
        self.raw_attributes.get(id)
    }

    /// Returns the types of the raw attributes of HDF5 by name; their texts do not show them.
    pub fn attribute_types(&self, id: ValueId) -> &[(Text, Text)] {
        self.attribute_types.get(id)
    }

    /// Returns whether a pickled module holds the value, and everything below it, in addition to
    /// what its `state_dict()` returns. Such values are listed, and converted only if selected.
    pub fn is_outside_state(&self, id: ValueId) -> bool {
        self.outside_state.contains(&id)
    }

    /// Returns whether any value is outside the state dict of its module.
    pub fn has_outside_state(&self) -> bool {
        !self.outside_state.is_empty()
    }

    /// Returns whether there is a tensor or array, or a link to one, at or below the value.
    pub fn holds_tensor(&self, id: ValueId) -> bool {
        self.holds_tensor.get(id.0 as usize).copied().unwrap_or(false)
    }

    /// Returns the size of the checkpoint with links and repetition written out.
    pub fn unfolded(&self) -> Unfolded {
        self.unfolded
    }

    /// Fails if there is no memory for `each` bytes per leaf. Called before code that can't report
    /// failure builds lists and tables of all leaves.
    pub fn room(&self, each: u64) -> Result<()> {
        try_alloc::ahead(self.unfolded.leaves.saturating_mul(each))
    }

    /// Returns a builder with a copy of this checkpoint, to be changed and finished with
    /// [`Builder::rebuild`].
    pub fn edit(&self) -> Builder {
        Builder {
            values: self.values.clone(),
            tensors: self.tensors.clone(),
            attributes: self.attributes.clone(),
            stored_keys: self.stored_keys.clone(),
            raw_attributes: self.raw_attributes.clone(),
            attribute_types: self.attribute_types.clone(),
            outside_state: self.outside_state.clone(),
            limits: Limits::none(),
            storages: (0, 0),
        }
    }
}

/// Attributes that the file attaches to values. Most lists are shared by many values.
#[derive(Debug, Clone, Default)]
struct RawAttributes {
    lists: Vec<Arc<[(Text, Text)]>>,
    /// Index into `lists` by value, plus 1; 0 for values without attributes. Only as long as needed
    /// for the last value that has any.
    of: Vec<u32>,
    /// Lists that were set recently: most values share theirs with a recent one.
    alike: VecDeque<u32>,
}

impl RawAttributes {
    fn get(&self, id: ValueId) -> &[(Text, Text)] {
        let list = self.of.get(id.0 as usize).and_then(|list| list.checked_sub(1));
        list.and_then(|list| self.lists.get(list as usize)).map_or(&[], |list| list)
    }

    fn set_list(&mut self, id: ValueId, attributes: Vec<(Text, Text)>) {
        if attributes.is_empty() {
            return self.set(id, None);
        }
        let lists = &mut self.lists;
        let known = |list: &u32| lists.get(*list as usize).is_some_and(|it| it[..] == attributes);
        let list = self.alike.iter().copied().find(known).unwrap_or_else(|| {
            let new = lists.len() as u32;
            lists.push(attributes.into());
            self.alike.truncate(MAX_COMPARED - 1);
            self.alike.push_front(new);
            new
        });
        self.set(id, Some(list));
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

    /// Adds those of another checkpoint, whose value ids move up by `values`.
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

/// Ids have 32 bits; far fewer fit in memory.
const MAX_IDS: u64 = 1 << 31;
/// The number of recent lists of raw attributes that a new one is compared with.
const MAX_COMPARED: usize = 16;
/// No id.
const NO_ID: u32 = u32::MAX;

/// Builds a checkpoint within limits.
#[derive(Debug, Default)]
pub struct Builder {
    values: Pieces<Value>,
    tensors: Pieces<Tensor>,
    attributes: HashMap<ValueId, ValueId>,
    stored_keys: HashMap<ValueId, Text>,
    raw_attributes: RawAttributes,
    attribute_types: RawAttributes,
    outside_state: HashSet<ValueId>,
    limits: Limits,
    /// The number after those of the storages of the first tensors, and the number of these tensors.
    storages: (u32, usize),
}

impl Builder {
    /// Creates an empty builder.
    pub fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), ..Self::default() }
    }

    /// Returns the limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Adds a value. Putting the id into a container or making it the root gives the value its only
    /// place; use [`Value::Link`] for further ones.
    pub fn push(&mut self, value: Value) -> Result<ValueId> {
        let most = self.limits.values.min(MAX_IDS);
        Limits::check("values in the checkpoint", self.values.len() as u64, most)?;
        self.values.push(value)?;
        Ok(ValueId(self.values.len() as u32 - 1))
    }

    /// Adds a tensor. Its size must fit in 64 bits and its rank within the limit.
    pub fn push_tensor(&mut self, tensor: Tensor) -> Result<TensorId> {
        Limits::check("dimensions of a tensor", tensor.shape.len() as u64, self.limits.rank)?;
        // A dimension of 0 must not hide overflow in the others: as torch does, refuses a shape
        // whose strides are impossible. The stride of the first dimension does not count it.
        let fits = |product: u64, dim: &u64| {
            product.checked_mul(*dim.max(&1)).filter(|product| *product <= i64::MAX as u64)
        };
        let (first, others) = tensor.shape.split_at(tensor.shape.len().min(1));
        let possible = [first, others].iter().all(|dims| dims.iter().try_fold(1, fits).is_some());
        let quantized = matches!(tensor.dtype, crate::DType::Blocks(_));
        if tensor.nbytes().is_none_or(|bytes| bytes > i64::MAX as u64) || !possible && !quantized {
            return Err(Error::damaged(format!(
                "a tensor of shape {:?} has more bytes than fit 63 bits",
                tensor.shape
            )));
        }
        self.tensors.push(tensor)?;
        Ok(TensorId(self.tensors.len() as u32 - 1))
    }

    /// Returns the value for editing; `None` for an unknown id.
    pub fn value_mut(&mut self, id: ValueId) -> Option<&mut Value> {
        self.values.get_mut(id.0 as usize)
    }

    /// Returns the value; `None` for an unknown id.
    pub fn value(&self, id: ValueId) -> Option<&Value> {
        self.values.get(id.0 as usize)
    }

    /// Returns the tensor; `None` for an unknown id.
    pub fn tensor(&self, id: TensorId) -> Option<&Tensor> {
        self.tensors.get(id.0 as usize)
    }

    /// Returns the tensor for editing; `None` for an unknown id.
    pub fn tensor_mut(&mut self, id: TensorId) -> Option<&mut Tensor> {
        self.tensors.get_mut(id.0 as usize)
    }

    /// Sets what [`Checkpoint::attributes`] returns.
    pub fn set_attributes(&mut self, id: ValueId, attributes: ValueId) {
        self.attributes.insert(id, attributes);
    }

    /// Returns the Python attributes, see [`Checkpoint::attributes`].
    pub fn attributes(&self, id: ValueId) -> Option<ValueId> {
        self.attributes.get(&id).copied()
    }

    /// Sets what [`Checkpoint::stored_key`] returns.
    pub fn set_stored_key(&mut self, id: ValueId, key: Text) {
        self.stored_keys.insert(id, key);
    }

    /// Returns the number of tensors so far, which is the id of the next one.
    pub fn tensors(&self) -> u32 {
        self.tensors.len() as u32
    }

    /// Sets what [`Checkpoint::is_outside_state`] returns.
    pub fn set_outside_state(&mut self, id: ValueId, outside: bool) {
        match outside {
            true => self.outside_state.insert(id),
            false => self.outside_state.remove(&id),
        };
    }

    /// Sets what [`Checkpoint::raw_attributes`] returns.
    pub fn set_raw_attributes(&mut self, id: ValueId, attributes: Vec<(Text, Text)>) {
        self.raw_attributes.set_list(id, attributes);
    }

    /// Sets what [`Checkpoint::attribute_types`] returns.
    pub fn set_attribute_types(&mut self, id: ValueId, types: Vec<(Text, Text)>) {
        self.attribute_types.set_list(id, types);
    }

    /// Returns the raw attributes, see [`Checkpoint::raw_attributes`].
    pub fn raw_attributes(&self, id: ValueId) -> &[(Text, Text)] {
        self.raw_attributes.get(id)
    }

    /// Returns their types, see [`Checkpoint::attribute_types`].
    pub fn attribute_types(&self, id: ValueId) -> &[(Text, Text)] {
        self.attribute_types.get(id)
    }

    /// Adds copies of all values and tensors of another checkpoint; returns the new id of its root.
    /// Both must use one set of files, with the same ids.
    pub fn append(&mut self, part: &Checkpoint) -> Result<ValueId> {
        self.absorb(part.clone())
    }

    /// Adds all values and tensors of another checkpoint, as [`Builder::append`] does.
    pub fn absorb(&mut self, part: Checkpoint) -> Result<ValueId> {
        // Each tensor is considered once, however many checkpoints are added.
        let (mut next, counted) = self.storages;
        for at in counted..self.tensors.len() {
            let storage = self.tensors.get(at).and_then(|tensor| tensor.storage);
            next = storage.map_or(next, |last| last.saturating_add(1).max(next));
        }
        self.storages = (next, self.tensors.len());
        self.absorb_from(part, next)
    }

    /// Adds another checkpoint, as [`Builder::absorb`] does. `storages` is added to the numbers of its
    /// storages.
    pub fn absorb_from(&mut self, part: Checkpoint, storages: u32) -> Result<ValueId> {
        let (values, tensors) = (self.values.len(), self.tensors.len());
        let total = (values + part.values.len()) as u64;
        Limits::check("values in the checkpoint", total, self.limits.values.min(MAX_IDS))?;
        Limits::check("tensors", (tensors + part.tensors.len()) as u64, MAX_IDS)?;
        let (values, tensors) = (values as u32, tensors as u32);
        let moved = |id: &ValueId| ValueId(id.0 + values);
        for mut value in part.values {
            value.shift(values, tensors);
            self.values.push(value)?;
        }
        for mut tensor in part.tensors {
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
        self.attribute_types.append(&part.attribute_types, values);
        self.outside_state.extend(part.outside_state.iter().map(moved));
        Ok(moved(&part.root))
    }

    /// Returns the checkpoint. Redirects links to links to the final target; a link that only leads
    /// back to itself is damage.
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
        let Self { attribute_types, outside_state, limits, .. } = self;
        let mut checkpoint = Checkpoint {
            format,
            files,
            findings,
            replicas: Vec::new(),
            partial: HashMap::new(),
            values,
            root,
            tensors,
            attributes,
            stored_keys,
            raw_attributes,
            attribute_types,
            outside_state,
            holds_tensor,
            unfolded: Unfolded::default(),
        };
        checkpoint.unfolded = checkpoint.measure(&limits)?;
        Ok(checkpoint)
    }

    /// Calls [`Builder::finish`] with the root, format, files and findings of the edited
    /// checkpoint.
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
                    return Err(Error::damaged("links between values form a cycle"));
                }
            }
            self.values[index] = Value::Link(target);
        }
        Ok(())
    }

    /// Marks every value with a tensor at or below it, without recursion: finds the parents first,
    /// then marks upwards.
    fn mark_tensors(&self) -> Result<Vec<bool>> {
        let mut parents = try_alloc::filled(NO_ID, self.values.len())?;
        for (index, value) in self.values.iter().enumerate() {
            value.each_child(|child| {
                if let Some(parent) = parents.get_mut(child.0 as usize) {
                    *parent = index as u32;
                }
            });
        }
        let mut holds = try_alloc::filled(false, self.values.len())?;
        for (index, value) in self.values.iter().enumerate() {
            let itself = match value {
                Value::Link(target) => self.value(*target),
                value => Some(value),
            };
            if !matches!(itself, Some(Value::Tensor(_) | Value::Array(_))) {
                continue;
            }
            let mut at = index as u32;
            while at != NO_ID && !std::mem::replace(&mut holds[at as usize], true) {
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
    fn finds_enums_in_descriptions_of_datatypes() {
        for (text, has) in [
            ("enum of int8 (A = 0)", true),
            ("record (kind enum of int8 (A = 0))", true),
            ("record ('enum of x' int8)", false),
            (r"record ('a\'enum of b' int8, k enum of int8 (A = 0))", true),
            (r"record ('a\'enum of b' int8)", false),
        ] {
            assert_eq!(has_enum(text), has, "{text}");
        }
    }

    #[test]
    fn refuses_shapes_that_torch_and_safetensors_refuse() {
        // `torch.empty` and safetensors 0.8 fail for the first two: the stride of a dimension does
        // not fit 63 bits, and they accept the others.
        let mut builder = Builder::new(&Limits::default());
        let mut accepts = |shape: &[u64]| {
            let layout = Layout::Inline([].into());
            builder.push_tensor(Tensor::new(DType::F32, shape.to_vec(), layout)).is_ok()
        };
        assert!(!accepts(&[0, 1 << 62, 2]) && !accepts(&[0, 1 << 61, 4]));
        for shape in [[0, 1 << 62, 1], [0, 1 << 60, 4], [1 << 62, 0, 2], [1 << 62, 2, 0]] {
            assert!(accepts(&shape), "{shape:?}");
        }
    }

    #[test]
    fn lists_leaves_outside_the_state_dict() {
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
    fn keys_of_different_types_have_distinct_names() {
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
    fn walks_deep_trees_without_recursion() {
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
    fn long_key_above_many_leaves_hits_the_limit() {
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
    fn joins_parts_and_renumbers_storages() {
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
    fn repeated_attributes_are_stored_once() {
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
        // Far more lists than are compared with: each must still be returned unchanged.
        for (index, id) in ids.iter().enumerate() {
            builder.set_raw_attributes(*id, said(index));
        }
        for (index, id) in ids.iter().enumerate() {
            assert_eq!(builder.raw_attributes(*id), said(index));
        }
    }

    #[test]
    fn oversized_shapes_are_damage() {
        let mut builder = Builder::new(&Limits::default());
        let tensor = Tensor::new(DType::F32, vec![u64::MAX, 9], Layout::Fill([0; 4].into()));
        assert!(builder.push_tensor(tensor).is_err());
    }
}
