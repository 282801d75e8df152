//! Prepares a checkpoint for writing, and collects losses.

use std::collections::HashMap;

use statelens_checkpoint::{
    Checkpoint, DType, DictClass, Error, Key, Layout, Leaf, Loss, LossCode, LossKind, Result,
    Setting, TensorClass, TensorId, Text, Value, ValueId, advice, order,
};

use super::{WrittenTensor, stored_as};
use crate::advice;
use crate::attributes;
use crate::object_text::BECOMES_TEXT;
use crate::safetensors::METADATA;

/// A checkpoint as a flat list of tensors and plain values.
pub(super) struct FlatState {
    /// Tensors in the order of the leaves; tied ones once, under the first of their names.
    pub(super) tensors: Vec<WrittenTensor>,
    pub(super) values: Vec<(Text, ValueId)>,
    /// `__metadata__` of the source.
    pub(super) metadata: Vec<(Text, Text)>,
    pub(super) losses: Vec<Loss>,
}

const TENSORS_ONLY: &str = "The format holds tensors without their Python classes.";
const ARRAY: LossKind =
    LossCode::Array.harmless("numpy arrays become tensors of the same values", TENSORS_ONLY);
const SCALAR: LossKind = LossCode::ArrayScalar
    .harmless("numpy scalars become tensors without dimensions, of the same value", TENSORS_ONLY);
const PARAMETER: LossKind =
    LossCode::Parameter.harmless("parameters become plain tensors", TENSORS_ONLY);
const SUBCLASS: LossKind =
    LossCode::TensorClass.lost("tensors of other classes become plain tensors", TENSORS_ONLY);
const NESTED: LossKind = LossCode::FullNames
    .harmless("containers become names with dots", "The format has one dict of names.");
const EMPTY: LossKind = LossCode::Empty
    .harmless("an empty container becomes an empty dict", "The format has one dict of names.");
const SHARED: LossKind = LossCode::SharedMemory
    .harmless("views that share memory are written separately", "The format has no views.");
const PLAIN: LossKind = LossCode::PlainValue.harmless(
    "plain values go into the file's metadata",
    "The format holds tensors only; Statelens and Python's json module read them from there.",
);
const SPARSE: LossKind =
    LossCode::Sparse.lost("sparse tensors become their parts", "The format has no sparse tensors.");
const AGAIN: LossKind = LossCode::RepeatedContainer.lost(
    "further occurrences of a container are left out",
    "The format has no links between containers.",
);
const FROZEN: LossKind = LossCode::FrozensetLeftOut.lost("frozensets are left out", TENSORS_ONLY);
const NUMPY_DTYPE: LossKind =
    LossCode::NumpyDtype.lost("numpy dtypes become their names", TENSORS_ONLY);
const OBJECT: LossKind = LossCode::ObjectText.lost(BECOMES_TEXT, TENSORS_ONLY);
const LONG_INT: LossKind = LossCode::BigInt
    .lost("integers of thousands of digits are left out", "Python would not read them.");

/// Python parses integers of up to 4,300 digits; integers of this many bytes have fewer.
const MAX_INT: usize = 1_700;

impl FlatState {
    /// Sorts the leaves into tensors and values. Fails if names collide or tensors have no data.
    pub(super) fn new(source: &Checkpoint) -> Result<Self> {
        let leaves = source.leaves();
        let mut sorter = Sorter {
            source,
            found: Vec::new(),
            values: Vec::new(),
            losses: Vec::new(),
            dtypes: HashMap::new(),
        };
        for leaf in &leaves {
            sorter.leaf(leaf)?;
        }
        sorter.outer();
        sorter.check_names(&leaves)?;
        sorter.check_data()?;
        let tensors = sorter.tie()?;
        let plain: Vec<Text> = sorter.values.iter().map(|(name, _)| name.clone()).collect();
        for name in &plain {
            sorter.lose(PLAIN, name);
        }
        let Sorter { values, losses, .. } = sorter;
        Ok(Self {
            tensors,
            values,
            metadata: match source.format.id {
                "safetensors" => source.raw_attributes(source.root()).to_vec(),
                _ => Vec::new(),
            },
            losses,
        })
    }
}

struct Sorter<'a> {
    source: &'a Checkpoint,
    /// Names and tensors; tied tensors under each of their names.
    found: Vec<(Text, TensorId)>,
    values: Vec<(Text, ValueId)>,
    losses: Vec<Loss>,
    /// The indices of the losses of dtypes that the format lacks.
    dtypes: HashMap<DType, usize>,
}

impl Sorter<'_> {
    fn lose(&mut self, kind: LossKind, key: &Text) {
        let key = key.to_string();
        match self.losses.iter_mut().find(|loss| loss.code == kind.code) {
            Some(loss) => loss.keys.push(key),
            None => self.losses.push(kind.of(vec![key])),
        }
    }

    /// Adds the loss of a tensor whose dtype the format lacks. Each dtype is a loss of its own.
    fn lose_dtype(&mut self, dtype: &DType, key: &Text) {
        let losses = &mut self.losses;
        let index = *self.dtypes.entry(dtype.clone()).or_insert_with(|| {
            losses.push(Loss {
                code: LossCode::UnsupportedDtype,
                keys: Vec::new(),
                what: format!("tensors of dtype {dtype} are left out"),
                why: "The format does not have it; PyTorch's or NumPy's may.".into(),
                harmless: false,
            });
            losses.len() - 1
        });
        losses[index].keys.push(key.to_string());
    }

    fn leaf(&mut self, leaf: &Leaf) -> Result<()> {
        let name = &leaf.flat;
        match self.source.value(leaf.target) {
            Value::Tensor(_) | Value::Array(_) => self.tensor(name, leaf.target)?,
            Value::Sparse(sparse) => {
                self.lose(SPARSE, name);
                for (part, id) in &sparse.parts {
                    self.tensor(&format!("{name}.{part}").into(), *id)?;
                }
            }
            Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Set(_)
                if leaf.target != leaf.id =>
            {
                self.lose(AGAIN, name);
            }
            // The root itself, if it is empty.
            value @ (Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Set(_))
                if leaf.key.parts.is_empty() && value.children().is_empty() =>
            {
                let is_dict =
                    matches!(value, Value::Dict(dict) if matches!(dict.class, DictClass::Dict));
                if !is_dict {
                    self.lose(EMPTY, name);
                }
            }
            Value::Set(set) if set.frozen => self.lose(FROZEN, name),
            Value::Opaque(_) => {
                self.lose(OBJECT, name);
                self.values.push((name.clone(), leaf.target));
            }
            Value::DType { numpy: Some(_), .. } => {
                self.lose(NUMPY_DTYPE, name);
                self.values.push((name.clone(), leaf.target));
            }
            Value::Int(int) if int.to_le_bytes().len() > MAX_INT => self.lose(LONG_INT, name),
            _ => self.values.push((name.clone(), leaf.target)),
        }
        Ok(())
    }

    fn tensor(&mut self, name: &Text, id: ValueId) -> Result<()> {
        let Some((tensor_id, tensor)) = self.source.tensor_of(id) else { return Ok(()) };
        let is_missing = matches!(tensor.layout, Layout::Missing(_));
        if stored_as(tensor).is_none() && !is_missing {
            self.lose_dtype(&tensor.dtype, name);
            return Ok(());
        }
        match (self.source.value(self.source.resolve(id)), &tensor.class) {
            (Value::Array(array), _) => self.lose(if array.scalar { SCALAR } else { ARRAY }, name),
            (_, TensorClass::Tensor) => {}
            (_, TensorClass::Parameter) => self.lose(PARAMETER, name),
            (_, TensorClass::Other(_)) => self.lose(SUBCLASS, name),
        }
        self.found.push((name.clone(), tensor_id));
        Ok(())
    }

    /// Adds the losses of container types.
    fn outer(&mut self) {
        let root = self.source.root();
        if let Value::Dict(dict) = self.source.value(root) {
            for (key, id) in &dict.entries {
                let value = self.source.value(*id);
                if value.is_container() && !value.children().is_empty() {
                    self.lose(NESTED, &key.to_string().into());
                }
            }
        }
        self.losses.extend(attributes::left_out(self.source, |_| true));
    }

    /// Fails if two values have the same name, or one has a name that the format reserves.
    fn check_names(&self, leaves: &[Leaf]) -> Result<()> {
        let tensors = self.found.iter().map(|(name, id)| (name, Is::Tensor(*id)));
        let values = self.values.iter().map(|(name, id)| (name, Is::Value(*id)));
        let mut names: HashMap<&Text, Is> = HashMap::new();
        for (name, is) in tensors.chain(values) {
            if *name == METADATA {
                return Err(Error::refused(format!("a key is named `{METADATA}`"))
                    .advice("The format reserves that name: leave the key out or rename it."));
            }
            if names.insert(name, is).is_some_and(|other| other != is) {
                let paths: Vec<String> = leaves
                    .iter()
                    .filter(|leaf| leaf.flat == *name)
                    .map(|leaf| path(&leaf.key))
                    .collect();
                return Err(Error::refused(format!(
                    "two keys would have the name `{name}`: {}",
                    paths.join(" and ")
                ))
                .advice(advice::rename_one(paths.len())));
            }
        }
        Ok(())
    }

    fn check_data(&self) -> Result<()> {
        let mut missing = Vec::new();
        for (name, id) in &self.found {
            if let Layout::Missing(why) = &self.source.tensor(*id)?.layout {
                missing.push((name.to_string(), why));
            }
        }
        let Some((_, why)) = missing.first() else { return Ok(()) };
        let names = missing.iter().map(|(name, _)| name.clone());
        Err(advice::no_data(missing.len(), names, why))
    }

    /// Returns the tensors, each under the alphabetically first of its names.
    fn tie(&mut self) -> Result<Vec<WrittenTensor>> {
        let mut tensors: Vec<WrittenTensor> = Vec::new();
        let mut places: HashMap<TensorView, usize> = HashMap::new();
        let mut storages: HashMap<u32, usize> = HashMap::new();
        let mut shared: Vec<Text> = Vec::new();
        for (name, id) in std::mem::take(&mut self.found) {
            let tensor = self.source.tensor(id)?;
            let bytes = tensor.nbytes().unwrap_or(0);
            let (Some((rank, shape)), true) = (stored_as(tensor), bytes <= i64::MAX as u64) else {
                return Err(Error::damaged(format!("the size of `{name}` does not fit 63 bits")));
            };
            let view = TensorView::of(id, tensor);
            // As in `save_model`, tensors without elements are never tied.
            let place = places.get(&view).copied().filter(|_| bytes > 0);
            if let Some(place) = place {
                let twin = &mut tensors[place];
                if twin.name != name && !twin.ties.contains(&name) {
                    twin.ties.push(name);
                }
                continue;
            }
            places.insert(view, tensors.len());
            if let Some(storage) = tensor.storage.filter(|_| bytes > 0) {
                let others = storages.entry(storage).or_default();
                *others += 1;
                if *others == 2 {
                    shared.push(name.clone());
                }
            }
            tensors.push(WrittenTensor { name, id, rank, shape, bytes, ties: Vec::new() });
        }
        for tensor in &mut tensors {
            order::natural(&mut tensor.ties);
            if tensor.ties.first().is_some_and(|first| *first < tensor.name) {
                std::mem::swap(&mut tensor.ties[0], &mut tensor.name);
                order::natural(&mut tensor.ties);
            }
        }
        for name in &shared {
            self.lose(SHARED, name);
        }
        // In a safetensors source, the other names were only in the metadata, too.
        if self.source.format.id != "safetensors" {
            self.losses.extend(tied(&tensors));
        }
        Ok(tensors)
    }
}

/// Returns the loss for tied tensors, which have only one name in the file.
fn tied(tensors: &[WrittenTensor]) -> Option<Loss> {
    let tied: Vec<&WrittenTensor> =
        tensors.iter().filter(|tensor| !tensor.ties.is_empty()).collect();
    let keys: Vec<String> =
        tied.iter().flat_map(|tensor| &tensor.ties).map(Text::to_string).collect();
    let named = |tensor: &&WrittenTensor| {
        let names: Vec<String> =
            tensor.ties.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
        let more = match tensor.ties.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("`{}` holds the bytes of {}{more}", tensor.name, names.join(", "))
    };
    let kept: Vec<String> = tied.iter().take(NAMED).map(named).collect();
    let more = match tied.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    (!keys.is_empty()).then(|| Loss {
        code: LossCode::Ties,
        keys,
        what: "tied tensors are written once, under the first of their names".into(),
        why: advice![
            format!(
                "{}{more}. `safetensors.torch.save_model` does the same, and `load_model` finds \
                 the other names; `load_file` does not. With ",
                kept.join("; ")
            ),
            Setting::Untie,
            ", each name gets its own copy."
        ],
        harmless: true,
    })
}

/// The maximum number of tied names that are listed.
const NAMED: usize = 3;

/// The value with a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    Tensor(TensorId),
    Value(ValueId),
}

/// Identifies the elements of a tensor. Tensors with equal views are tied.
#[derive(PartialEq, Eq, Hash)]
enum TensorView {
    /// A view of a storage: its number, first element, strides, shape, dtypes, and the conjugate
    /// and negative bits.
    Of(u32, u64, Vec<i64>, Vec<u64>, [DType; 2], [bool; 2]),
    /// A tensor without a storage number.
    Only(TensorId),
}

impl TensorView {
    fn of(id: TensorId, tensor: &statelens_checkpoint::Tensor) -> Self {
        let Some(storage) = tensor.storage else { return Self::Only(id) };
        let (first, strides) = match &tensor.layout {
            Layout::Strided(strided) => (strided.offset, strided.strides.clone()),
            // The whole storage in order.
            Layout::Span(span) => (span.offset, Vec::new()),
            _ => return Self::Only(id),
        };
        let dtypes = [tensor.dtype.clone(), tensor.stored.clone()];
        let bits = [tensor.conjugate, tensor.negate];
        Self::Of(storage, first, strides, tensor.shape.clone(), dtypes, bits)
    }
}

/// Returns the steps of a key with visible separators.
fn path(key: &Key) -> String {
    let steps: Vec<String> = key.parts.iter().map(|part| format!("`{}`", part.text())).collect();
    steps.join(" > ")
}
