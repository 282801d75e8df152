//! Plain values that are not finite: floats in dicts and lists, the items of object arrays, the
//! parts of objects. Also lists the objects whose numbers can't be decoded.

use std::collections::HashSet;

use statelens_checkpoint::{Checkpoint, Form, Leaf, Opaque, Quantizer, Value, ValueId};
use statelens_values::index;

use super::numbers::{NumberClass, class_of};
use super::{NonFiniteTensor, UnreadTensor};

/// The plain values that are not finite, and those that were not checked.
#[derive(Debug, Default)]
pub struct PlainNumbers {
    /// Values and object arrays with numbers that are not finite, in the order of the leaves.
    pub not_finite: Vec<NonFiniteTensor>,
    /// Objects that may hold numbers, but can't be decoded.
    pub not_checked: Vec<UnreadTensor>,
}

impl PlainNumbers {
    /// Examines the leaves that are not tensors. A value with several keys counts once.
    pub fn find<'a>(checkpoint: &Checkpoint, leaves: impl IntoIterator<Item = &'a Leaf>) -> Self {
        let mut numbers = Self::default();
        let mut seen = HashSet::new();
        for leaf in leaves {
            if !seen.insert(leaf.target) {
                continue;
            }
            let key = || leaf.flat.to_lossy().into_owned();
            let (counts, why) = examine(checkpoint, leaf.target, &mut seen);
            if counts.nan + counts.inf > 0 {
                let first = match checkpoint.value(leaf.target) {
                    Value::Opaque(object) => array_shape(checkpoint, object)
                        .map(|shape| index(&shape, counts.first.unwrap_or(0))),
                    _ => None,
                };
                numbers.not_finite.push(NonFiniteTensor {
                    key: key(),
                    nan: counts.nan,
                    inf: counts.inf,
                    params: counts.all,
                    first: first.unwrap_or_default(),
                });
            }
            if let Some(why) = why {
                numbers.not_checked.push(UnreadTensor { key: key(), why });
            }
        }
        numbers
    }
}

/// The numbers in a leaf.
#[derive(Debug, Default)]
struct PlainCounts {
    nan: u64,
    inf: u64,
    /// Number of numbers, or of the items of an array of objects.
    all: u64,
    /// Index of the first item of an array of objects that is not finite.
    first: Option<u64>,
}

impl PlainCounts {
    /// Adds the number that a plain value is, if it is one.
    fn add_plain(&mut self, value: &Value) {
        match value {
            Value::Float(value) => self.add([class_of(*value)]),
            Value::Complex(real, imaginary) => self.add([class_of(*real), class_of(*imaginary)]),
            _ => {}
        }
    }

    fn add(&mut self, classes: impl IntoIterator<Item = NumberClass>) {
        self.all += 1;
        let mut worst = NumberClass::Finite;
        for class in classes {
            match class {
                NumberClass::Nan => worst = class,
                NumberClass::Infinite if worst == NumberClass::Finite => worst = class,
                _ => {}
            }
        }
        match worst {
            NumberClass::Finite => {}
            NumberClass::Nan => self.nan += 1,
            NumberClass::Infinite => self.inf += 1,
        }
    }
}

/// Counts the numbers in a leaf, and returns why some of it could not be examined.
fn examine(
    checkpoint: &Checkpoint,
    leaf: ValueId,
    seen: &mut HashSet<ValueId>,
) -> (PlainCounts, Option<String>) {
    let mut counts = PlainCounts::default();
    let value = checkpoint.value(leaf);
    let object = match value {
        Value::Opaque(object) => object,
        // The items of other containers are leaves.
        Value::Set(set) if set.frozen => {
            walk(checkpoint, set.items.clone(), seen, &mut counts);
            return (counts, None);
        }
        Value::Tensor(_) => {
            let tensor = checkpoint.tensor_of(leaf);
            if let Some(Quantizer::PerTensor { scale, .. }) =
                tensor.and_then(|(_, tensor)| tensor.quantizer.as_ref())
            {
                counts.add([class_of(*scale)]);
            }
            return (counts, None);
        }
        plain => {
            counts.add_plain(plain);
            return (counts, None);
        }
    };
    if let Some(shape) = array_shape(checkpoint, object) {
        for (at, item) in (0..).zip(&object.items) {
            let before = counts.nan + counts.inf;
            counts.add_plain(checkpoint.value(checkpoint.resolve(*item)));
            if counts.nan + counts.inf > before {
                counts.first.get_or_insert(at);
            }
        }
        counts.all = shape.iter().product();
        return (counts, None);
    }
    if is_undecoded(object) {
        return (counts, Some(format!("the data of `{}` is not decoded", object.global)));
    }
    if object.global.is("decimal", "Decimal") {
        counts.add([decimal(checkpoint, object)]);
        return (counts, None);
    }
    let held = walk(checkpoint, value.children(), seen, &mut counts);
    let is_data = held == Held::Tensor || held == Held::Bytes && object.repr.is_none();
    (counts, is_data.then(|| format!("the data in `{}` is not decoded", object.global)))
}

/// Data that a walk met and that is not examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Nothing,
    Bytes,
    Tensor,
}

/// Counts the numbers in values and in their contents, each once.
fn walk(
    checkpoint: &Checkpoint,
    mut open: Vec<ValueId>,
    seen: &mut HashSet<ValueId>,
    counts: &mut PlainCounts,
) -> Held {
    let mut held = Held::Nothing;
    while let Some(id) = open.pop() {
        let id = checkpoint.resolve(id);
        if !seen.insert(id) {
            continue;
        }
        match checkpoint.value(id) {
            Value::Bytes { data, .. } if !data.is_empty() => held = held.max(Held::Bytes),
            Value::Tensor(_) | Value::Array(_) | Value::Sparse(_) => held = Held::Tensor,
            Value::Opaque(object) if object.global.is("decimal", "Decimal") => {
                counts.add([decimal(checkpoint, object)]);
            }
            Value::Opaque(object) if is_undecoded(object) => held = held.max(Held::Bytes),
            value => {
                counts.add_plain(value);
                open.extend(value.children());
            }
        }
    }
    held
}

/// Returns the class of a `decimal.Decimal`, whose argument is its text.
fn decimal(checkpoint: &Checkpoint, object: &Opaque) -> NumberClass {
    let text = object.args.first().map(|id| checkpoint.value(checkpoint.resolve(*id)));
    let Some(Value::Str(text)) = text else { return NumberClass::Finite };
    let text = text.to_lossy().trim_start_matches(['+', '-']).to_ascii_lowercase();
    match text.as_str() {
        text if text.starts_with("nan") || text.starts_with("snan") => NumberClass::Nan,
        text if text.starts_with("inf") => NumberClass::Infinite,
        _ => NumberClass::Finite,
    }
}

/// Returns the shape of an array of objects that is one leaf.
fn array_shape(checkpoint: &Checkpoint, object: &Opaque) -> Option<Vec<u64>> {
    if !object.global.is("numpy", "ndarray") || object.form != Form::Call {
        return None;
    }
    let Value::Tuple(shape) = checkpoint.value(checkpoint.resolve(*object.args.first()?)) else {
        return Some(vec![object.items.len() as u64]);
    };
    let dim = |id: &ValueId| match checkpoint.value(checkpoint.resolve(*id)) {
        Value::Int(dim) => dim.to_u64(),
        _ => None,
    };
    let shape: Option<Vec<u64>> = shape.items.iter().map(dim).collect();
    let numel = shape
        .as_ref()
        .and_then(|shape| shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim)));
    match numel == Some(object.items.len() as u64) {
        true => shape,
        false => Some(vec![object.items.len() as u64]),
    }
}

/// Returns whether a reader describes data of its format by a text only. A class or function that
/// is named has no such text.
fn is_undecoded(object: &Opaque) -> bool {
    let without_numbers = ["Datatype", "Group", "SoftLink", "ExternalLink", "Reference"];
    let is_link =
        &*object.global.module == "h5py" && without_numbers.contains(&&*object.global.name);
    object.form == Form::Reference && object.repr.is_some() && !is_link
}
