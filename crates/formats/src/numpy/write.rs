//! Writes a `.npz` or `.npy` file that `numpy.load(allow_pickle=False)` loads.
//!
//! Members of an archive are stored as by `numpy.savez`, except that their sizes and checksums are
//! after the data and in the directory, so that nothing is written twice. An array's data is
//! aligned to 64 bytes, so that it can be mapped into memory.

mod header;
mod losses;

use std::collections::HashSet;
use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, Checksum, DType, Data, Error, Layout, Leaf, LossCode, LossKind, Losses, Plan,
    PlannedFile, Result, Segment, Setting, Tensor, TensorClass, TensorId, Text, Value, advice,
};

use super::header::array_len;
use crate::advice;
use crate::archive::names;
use crate::archive::write::{Body, NewRecord, layout};
use crate::{attributes, source_damage};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Whether to write a single array instead of an archive.
    pub single: bool,
}

/// numpy's name for an array without a name.
const UNNAMED: &str = "arr_0";

/// Plans the file. See [`crate::plan`] for errors and losses.
///
/// With `single`, fails unless there is exactly one array.
pub fn plan(source: Arc<Checkpoint>, options: &WriteOptions, name: &str) -> Result<Plan> {
    let mut writer = NumpyWriter {
        source: &source,
        records: Vec::new(),
        names: HashSet::new(),
        single: options.single,
        losses: Losses::default(),
    };
    for leaf in source.leaves() {
        writer.leaf(&leaf).map_err(|error| error.context(leaf.flat.to_lossy()))?;
    }
    let NumpyWriter { records, mut losses, .. } = writer;
    let segments = match options.single {
        true => {
            losses.remove(&[LossCode::NameAdded, LossCode::FullNames]);
            for leaf in source.leaves().iter().filter(|leaf| !leaf.flat.as_bytes().is_empty()) {
                losses.add(losses::NAME, leaf.flat.to_string());
            }
            alone(records)?
        }
        false => {
            let mark =
                source_damage::mark(&source).map(|mark| format!("{}: {mark}", source_damage::MARK));
            layout(records, &mark.unwrap_or_default())?
        }
    };
    let mut losses = losses.finish(Some);
    let leaves = source.leaves();
    if leaves.iter().any(|leaf| leaf.flat.is_empty())
        && !leaves.iter().any(|leaf| leaf.flat == UNNAMED)
    {
        // Losses refer to its key in the checkpoint; the name is only used in archives.
        let keys = losses.iter_mut().flat_map(|loss| &mut loss.keys);
        keys.filter(|key| *key == UNNAMED).for_each(String::clear);
    }
    losses.extend(attributes::left_out(&source, |_| true));
    let files = vec![PlannedFile { name: name.to_owned(), segments, head_last: false }];
    Ok(Plan { source, files, losses })
}

/// Returns the header of a `.npy` file; `None` if NumPy does not have the dtype.
pub fn head(dtype: &DType, shape: &[u64]) -> Option<Vec<u8>> {
    let (descr, true) = header::descr(dtype)? else { return None };
    header::header(&descr, shape).ok()
}

fn alone(mut records: Vec<NewRecord>) -> Result<Vec<Segment>> {
    let (count, last) = (records.len(), records.pop());
    let Some(NewRecord { body, .. }) = last.filter(|_| count == 1) else {
        return Err(Error::refused(format!(
            "a .npy file holds one array, and the checkpoint has {count}"
        ))
        .advice(advice![
            "Choose one with ",
            Setting::Select,
            ", or write a .npz archive."
        ]));
    };
    Ok(match body {
        Body::Made(bytes) => vec![Segment::Bytes(bytes.into())],
        Body::Tensor(tensor, _) => vec![data(tensor)],
        Body::Led(header, tensor, _) => vec![Segment::Bytes(header.into()), data(tensor)],
    })
}

fn data(tensor: TensorId) -> Segment {
    Segment::Data(Data::plain(tensor, Checksum::None))
}

struct NumpyWriter<'a> {
    source: &'a Checkpoint,
    records: Vec<NewRecord>,
    names: HashSet<String>,
    /// Whether to write a single array instead of an archive.
    single: bool,
    losses: Losses,
}

impl NumpyWriter<'_> {
    fn leaf(&mut self, leaf: &Leaf) -> Result<()> {
        let flat = leaf.flat.to_lossy();
        let key = if flat.is_empty() { UNNAMED } else { &*flat };
        if flat.is_empty() {
            self.losses.add(losses::UNNAMED, "");
        }
        if leaf.alias_of.is_some() {
            self.losses.add(losses::TIED, key);
        }
        if leaf.key.parts.len() > 1 {
            self.losses.add(losses::NESTING, key);
        }
        match self.source.value(leaf.target) {
            Value::Tensor(tensor) => self.tensor(key, *tensor),
            Value::Array(array) => {
                if matches!(self.source.tensor(array.tensor)?.class, TensorClass::Other(_)) {
                    self.losses.add(losses::SUBARRAY, key);
                }
                self.elements(key, array.tensor)
            }
            Value::Sparse(sparse) => {
                self.losses.add(losses::SPARSE, key);
                for (part, id) in &sparse.parts {
                    if let Some((tensor, _)) = self.source.tensor_of(*id) {
                        self.tensor(&format!("{key}.{part}"), tensor)?;
                    }
                }
                Ok(())
            }
            value => self.plain(key, value),
        }
    }

    fn tensor(&mut self, key: &str, id: TensorId) -> Result<()> {
        self.lose_class(key, self.source.tensor(id)?);
        self.elements(key, id)
    }

    fn elements(&mut self, key: &str, id: TensorId) -> Result<()> {
        let tensor = self.source.tensor(id)?;
        if let Layout::Missing(why) = &tensor.layout {
            return Err(Error::refused(format!("there is no data to write: {why}"))
                .advice(advice::exclude()));
        }
        let (descr, further) = match bits(&tensor.dtype) {
            Some((code, further, kind)) => {
                self.losses.add(kind, key);
                (code.to_owned(), further)
            }
            None => {
                let (descr, exact) = header::descr(&tensor.dtype).ok_or_else(|| {
                    Error::unsupported(format!("numpy has no equivalent of {}", tensor.dtype))
                        .advice(advice::exclude())
                })?;
                if !exact {
                    self.losses.add(losses::RECORD, key);
                } else if is_unknown(&tensor.dtype) {
                    self.losses.add(losses::UNKNOWN, key);
                }
                (descr, None)
            }
        };
        let shape: Vec<u64> = tensor.shape.iter().copied().chain(further).collect();
        let len = array_len(tensor).ok_or_else(|| {
            Error::unsupported(format!("numpy refuses the shape {:?}", tensor.shape))
                .advice(advice::exclude())
        })?;
        self.member(key, Body::Led(header::header(&descr, &shape)?, id, len))
    }

    fn lose_class(&mut self, key: &str, tensor: &Tensor) {
        if tensor.quantizer.is_some() {
            self.losses.add(losses::QUANTIZER, key);
        }
        match tensor.class {
            TensorClass::Other(_) => self.losses.add(losses::SUBCLASS, key),
            TensorClass::Parameter => self.losses.add(losses::GRADIENT, key),
            TensorClass::Tensor if tensor.requires_grad => self.losses.add(losses::GRADIENT, key),
            TensorClass::Tensor => {}
        }
    }

    /// Adds a plain value as an array without dimensions.
    fn plain(&mut self, key: &str, value: &Value) -> Result<()> {
        let (descr, shape, bytes, kind) = match value {
            Value::Bool(value) => ("'|b1'".into(), vec![], vec![u8::from(*value)], losses::SCALAR),
            Value::Int(int) => match (int.to_i64(), int.to_u64()) {
                (Some(int), _) => {
                    ("'<i8'".into(), vec![], int.to_le_bytes().into(), losses::SCALAR)
                }
                (None, Some(int)) => {
                    ("'<u8'".into(), vec![], int.to_le_bytes().into(), losses::SCALAR)
                }
                (None, None) => {
                    let (descr, bytes) = text(int.to_string().chars().map(u32::from));
                    (descr, vec![], bytes, losses::BIG_INT)
                }
            },
            Value::Float(float) => {
                ("'<f8'".into(), vec![], float.to_le_bytes().into(), losses::SCALAR)
            }
            Value::Complex(re, im) => {
                let bytes = [re.to_le_bytes(), im.to_le_bytes()].concat();
                ("'<c16'".into(), vec![], bytes, losses::SCALAR)
            }
            Value::Str(value) => {
                let (descr, bytes) = text(code_points(value));
                let kind = match value.as_bytes().last() {
                    Some(0) => losses::NUL,
                    _ => losses::SCALAR,
                };
                (descr, vec![], bytes, kind)
            }
            Value::Bytes { data, .. } => {
                ("'|u1'".into(), vec![data.len() as u64], data.to_vec(), losses::BYTES)
            }
            Value::Opaque(_) => return self.left_out(losses::OBJECT, key),
            Value::None => return self.left_out(losses::NONE, key),
            _ => return self.left_out(losses::OTHER, key),
        };
        self.losses.add(kind, key);
        let made = [header::header(&descr, &shape)?, bytes].concat();
        self.member(key, Body::Made(made))
    }

    fn left_out(&mut self, kind: LossKind, key: &str) -> Result<()> {
        self.losses.add(kind, key);
        Ok(())
    }

    fn member(&mut self, key: &str, body: Body) -> Result<()> {
        let name = names::inside(key);
        if name != key && !self.single {
            self.losses.add(losses::OUTSIDE, key);
        }
        if !self.names.insert(name.clone().into_owned()) {
            let leaves = self.source.leaves();
            let alike = leaves.iter().filter(|leaf| leaf.flat.to_lossy() == key).count();
            return Err(Error::refused(format!("two entries would both be named {key:?}"))
                .advice(advice::rename_one(alike)));
        }
        self.records.push(NewRecord { name: format!("{name}.npy"), body });
        Ok(())
    }
}

/// Returns whether numpy can store the elements only as untyped bytes: TensorFlow's `int4`.
fn is_unknown(dtype: &DType) -> bool {
    let DType::Numpy(numpy) = dtype else { return false };
    numpy.fields.is_empty() && numpy.code.starts_with('V') && !numpy.name.starts_with("void")
}

/// Returns the code points of a string, including lone surrogates, which numpy's strings can hold.
fn code_points(text: &Text) -> impl Iterator<Item = u32> {
    text.pieces().flat_map(|piece| match piece {
        Ok(text) => text.chars().map(u32::from).collect::<Vec<_>>(),
        Err(surrogate) => vec![surrogate.into()],
    })
}

/// Returns a dtype such as `<U3` and the bytes; numpy has no strings of zero characters.
fn text(points: impl Iterator<Item = u32>) -> (String, Vec<u8>) {
    let mut bytes: Vec<u8> = points.flat_map(u32::to_le_bytes).collect();
    if bytes.is_empty() {
        bytes.resize(4, 0);
    }
    (format!("'<U{}'", bytes.len() / 4), bytes)
}

/// For a dtype that numpy lacks, returns the dtype for its bits, the number of these per element,
/// and the loss.
fn bits(dtype: &DType) -> Option<(&'static str, Option<u64>, LossKind)> {
    Some(match dtype {
        DType::BF16 => ("'<u2'", None, losses::BF16),
        DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0FNU
        | DType::F4E2M1FNX2 => ("'|u1'", None, losses::F8),
        DType::C32 => ("'<f2'", Some(2), losses::HALVES),
        DType::BC32 => ("'<u2'", Some(2), losses::HALVES),
        DType::Bits16 => ("'<u2'", None, losses::BITS),
        DType::Bits1x8 | DType::Bits2x4 | DType::Bits4x2 | DType::Bits8 => {
            ("'|u1'", None, losses::BITS)
        }
        DType::QInt8 => ("'|i1'", None, losses::BITS),
        DType::QUInt8 => ("'|u1'", None, losses::BITS),
        DType::QInt32 => ("'<i4'", None, losses::BITS),
        _ => return None,
    })
}
