//! Converts the leaves of a state to TensorFlow tensors.

use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, DType, Error, Key, KeyPart, Layout, Leaf, Loss, LossKind, Losses, Opaque,
    Quantizer, Result, Sparse, Tensor, TensorId, Text, Value,
};

use super::losses;
use super::strings::{self, Late};
use crate::advice;
use crate::crc;
use crate::object_text::{array_shape, object_text};
use crate::tensorflow::dtype;

pub(super) struct LeafTensor {
    /// The key in the state.
    pub(super) key: Key,
    /// TensorFlow's dtype number.
    pub(super) dtype: u64,
    pub(super) shape: Vec<u64>,
    pub(super) body: Body,
}

pub(super) enum Body {
    /// The bytes of a tensor of the source.
    Tensor(TensorId),
    /// Bytes that are already known, and their masked checksum.
    Made(Vec<u8>, u32),
    /// Strings that are read only when they are written.
    Strings(Arc<Late>),
}

impl Body {
    /// Returns the number of bytes. For strings that are not read yet, returns their size in the
    /// source.
    pub(super) fn len(&self, source: &Checkpoint) -> Result<u64> {
        let tensor = match self {
            Self::Made(bytes, _) => return Ok(bytes.len() as u64),
            Self::Tensor(tensor) => *tensor,
            Self::Strings(strings) => strings.tensor(),
        };
        let len = source.tensor(tensor)?.nbytes();
        len.ok_or_else(|| Error::damaged("a tensor has more bytes than fit 64 bits"))
    }
}

/// Returns all leaves that can be stored as tensors, and the losses of the others.
pub(super) fn items(source: &Arc<Checkpoint>) -> Result<(Vec<LeafTensor>, Vec<Loss>)> {
    let mut items = Items { source, items: Vec::new(), losses: Losses::default(), missing: vec![] };
    for leaf in source.leaves() {
        items.leaf(&leaf);
    }
    if let Some((_, why)) = items.missing.first() {
        let keys = items.missing.iter().map(|(key, _)| key.to_string());
        return Err(advice::no_data(items.missing.len(), keys, why));
    }
    Ok((items.items, items.losses.finish(Some)))
}

struct Items<'a> {
    source: &'a Arc<Checkpoint>,
    items: Vec<LeafTensor>,
    losses: Losses,
    /// Tensors without data, and the reasons.
    missing: Vec<(Text, Text)>,
}

impl Items<'_> {
    fn leaf(&mut self, leaf: &Leaf) {
        let source = self.source;
        match source.value(leaf.target) {
            Value::Bool(value) => self.number(leaf, "bool", &[u8::from(*value)]),
            Value::Int(value) => match (value.to_i64(), value.to_u64()) {
                (Some(value), _) => self.number(leaf, "int64", &value.to_le_bytes()),
                (None, Some(value)) => self.number(leaf, "uint64", &value.to_le_bytes()),
                (None, None) => self.text(leaf, &value.to_string(), losses::BIG_INT),
            },
            Value::Float(value) => self.number(leaf, "float64", &value.to_le_bytes()),
            Value::Complex(re, im) => {
                let bytes = [re.to_le_bytes(), im.to_le_bytes()].concat();
                self.number(leaf, "complex128", &bytes);
            }
            Value::Str(text) => {
                self.lose(losses::SCALAR, leaf);
                self.strings(leaf, Vec::new(), &[text.as_bytes()]);
            }
            Value::Bytes { data, mutable } => {
                if *mutable {
                    self.lose(losses::MUTABLE, leaf);
                }
                self.strings(leaf, Vec::new(), &[data]);
            }
            Value::None => self.lose(losses::NONE, leaf),
            // Containers that are leaves are empty.
            Value::List(_) | Value::Tuple(_) | Value::Dict(_) => {
                self.lose(losses::EMPTY, leaf);
            }
            Value::Set(set) if set.items.is_empty() => {
                self.lose(losses::EMPTY, leaf);
            }
            Value::Set(_) => self.text(leaf, "frozenset", losses::OBJECT),
            Value::DType { dtype, .. } => self.text(leaf, dtype.name(), losses::TEXT),
            Value::Device(name) => self.text(leaf, &name.to_lossy(), losses::TEXT),
            Value::Tensor(tensor) => self.tensor(leaf, &leaf.key, *tensor),
            Value::Array(array) => self.tensor(leaf, &leaf.key, array.tensor),
            Value::Sparse(sparse) => self.sparse(leaf, sparse),
            Value::Opaque(opaque) => self.object(leaf, opaque),
            // Links are resolved and never lead to another link.
            Value::Link(_) => self.lose(losses::NONE, leaf),
        }
    }

    fn push(&mut self, key: &Key, number: u64, shape: Vec<u64>, body: Body) {
        self.items.push(LeafTensor { key: key.clone(), dtype: number, shape, body });
    }

    fn number(&mut self, leaf: &Leaf, name: &str, bytes: &[u8]) {
        self.lose(losses::SCALAR, leaf);
        let body = Body::Made(bytes.to_vec(), crc::masked(bytes));
        self.push(&leaf.key, dtype::number(name), Vec::new(), body);
    }

    fn lose(&mut self, kind: LossKind, leaf: &Leaf) {
        self.losses.add(kind, leaf.flat.to_string());
    }

    fn text(&mut self, leaf: &Leaf, text: &str, loss: LossKind) {
        self.lose(loss, leaf);
        self.strings(leaf, Vec::new(), &[text.as_bytes()]);
    }

    fn strings(&mut self, leaf: &Leaf, shape: Vec<u64>, strings: &[&[u8]]) {
        let (bytes, crc) = strings::encode(strings);
        self.push(&leaf.key, dtype::STRING, shape, Body::Made(bytes, crc));
    }

    fn tensor(&mut self, leaf: &Leaf, key: &Key, id: TensorId) {
        let Ok(tensor) = self.source.tensor(id) else { return };
        if let Layout::Missing(why) = &tensor.layout {
            self.missing.push((leaf.flat.clone(), why.clone()));
            return;
        }
        if leaf.alias_of.is_some() {
            self.lose(losses::TIED, leaf);
        }
        if let Some(Quantizer::PerTensor { .. } | Quantizer::PerChannel { .. }) = tensor.quantizer {
            self.lose(losses::SCALE, leaf);
        }
        if let Some((late, unicode)) = Late::new(self.source, id) {
            if unicode {
                self.lose(losses::UNICODE, leaf);
            }
            let body = match (&tensor.layout, late) {
                // They are already in memory, so the size of the file is known in advance.
                (Layout::Inline(_), late) => match late.encoded() {
                    Ok((bytes, crc)) => Body::Made(bytes.clone(), *crc),
                    // Errors are reported when they are written.
                    Err(_) => Body::Strings(Arc::new(late)),
                },
                (_, late) => Body::Strings(Arc::new(late)),
            };
            self.push(key, dtype::STRING, tensor.shape.clone(), body);
            return;
        }
        let (number, shape, loss) = match dtype::original(self.source, leaf.target, tensor) {
            Some((number, _)) => (number, tensor.shape.clone(), None),
            None => elements(tensor),
        };
        if let Some(loss) = loss {
            self.lose(loss, leaf);
        }
        self.push(key, number, shape, Body::Tensor(id));
    }

    fn sparse(&mut self, leaf: &Leaf, sparse: &Sparse) {
        self.lose(losses::SPARSE, leaf);
        for (name, id) in &sparse.parts {
            if let Some((tensor, _)) = self.source.tensor_of(*id) {
                let mut key = leaf.key.clone();
                key.parts.push(KeyPart::Field((*name).into()));
                self.tensor(leaf, &key, tensor);
            }
        }
    }

    fn object(&mut self, leaf: &Leaf, opaque: &Opaque) {
        let source = self.source.clone();
        if let Some((shape, strings)) = string_array(&source, opaque) {
            self.strings(leaf, shape, &strings);
            return;
        }
        let text = object_text(&source, opaque);
        self.text(leaf, &text.to_lossy(), losses::OBJECT);
    }
}

/// Returns the shape and the strings of an array of objects, if all of them are strings.
fn string_array<'a>(
    source: &'a Checkpoint,
    opaque: &'a Opaque,
) -> Option<(Vec<u64>, Vec<&'a [u8]>)> {
    let shape = array_shape(source, opaque)?;
    let string = |id: &_| match source.value(source.resolve(*id)) {
        Value::Str(text) => Some(text.as_bytes()),
        Value::Bytes { data, .. } => Some(&**data),
        _ => None,
    };
    let strings: Vec<&[u8]> = opaque.items.iter().map(string).collect::<Option<_>>()?;
    Some((shape, strings))
}

/// Returns TensorFlow's dtype number for the elements of a tensor, the resulting shape, and the
/// loss, if any.
fn elements(tensor: &Tensor) -> (u64, Vec<u64>, Option<LossKind>) {
    use DType::*;
    let as_they_are = |number, loss| (number, tensor.shape.clone(), loss);
    let with_one_more =
        |name, len, loss| (dtype::number(name), [&tensor.shape[..], &[len]].concat(), Some(loss));
    match &tensor.dtype {
        C32 => with_one_more("float16", 2, losses::HALVES),
        BC32 => with_one_more("bfloat16", 2, losses::HALVES),
        Bits16 => as_they_are(dtype::number("uint16"), Some(losses::BITS)),
        Numpy(numpy) => match dtype::known(&numpy.name) {
            Some(number) if numpy.itemsize == 1 => as_they_are(number, None),
            _ => with_one_more("uint8", numpy.itemsize, losses::RECORDS),
        },
        Blocks(_) => {
            let bytes = tensor.nbytes().unwrap_or(0);
            (dtype::number("uint8"), vec![bytes], Some(losses::RECORDS))
        }
        // The remaining dtypes have one byte: eight-bit scales, packed floats, quantised pairs.
        other => match dtype::known(other.name()) {
            Some(number) => as_they_are(number, None),
            None => as_they_are(dtype::number("uint8"), Some(losses::BITS)),
        },
    }
}
