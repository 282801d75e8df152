//! Attributes, and decoding of values.

use std::sync::{Arc, PoisonError};

use hdf5_reader::messages::dataspace::{self, DataspaceMessage, DataspaceType};
use hdf5_reader::messages::{MSG_DATASPACE, MSG_DATATYPE};
use statelens_checkpoint::{Error, Int, Limits, NOT_COMPARED, Result, Text, numel, shape_text};

use crate::datatype::{Class, Datatype};
use crate::decode::{fixed_text, int, little};
use crate::file::render::{self, Renderer};
use crate::header;
use crate::heap::HeapValue;
use crate::{Hdf5File, ObjectTree};

/// The length of each dimension.
type Shape = Vec<u64>;

/// A small named value of an object.
#[derive(Debug, Clone)]
pub struct Attribute {
    pub name: Text,
    pub datatype: Arc<Datatype>,
    /// Its shape; `None` for the null dataspace, which has no elements.
    pub shape: Option<Vec<u64>>,
    pub data: Arc<[u8]>,
}

/// Elements of one datatype, decoded.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValues {
    Null,
    Int(Vec<Int>),
    /// Floats of any format up to 64 bits.
    Float(Vec<f64>),
    Bool(Vec<bool>),
    /// Strings, of fixed or variable length.
    Text(Vec<Text>),
    /// The concatenated bytes of opaque elements.
    Opaque(Arc<[u8]>),
    /// Records, references, sequences and the rest: see the datatype.
    Other,
}

impl AttributeValues {
    pub fn int(&self) -> Option<&Int> {
        match self {
            Self::Int(values) => only(values),
            _ => None,
        }
    }

    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Float(values) => only(values).copied(),
            _ => self.int()?.to_string().parse().ok(),
        }
    }

    pub fn text(&self) -> Option<&Text> {
        match self {
            Self::Text(values) => only(values),
            _ => None,
        }
    }

    /// Returns the truth value of a single value, as in Python.
    pub fn truth(&self) -> Option<bool> {
        match self {
            Self::Bool(values) => only(values).copied(),
            Self::Int(values) => only(values).map(|int| int.to_i64() != Some(0)),
            Self::Float(values) => only(values).map(|float| *float != 0.0),
            _ => None,
        }
    }
}

fn only<T>(values: &[T]) -> Option<&T> {
    match values {
        [value] => Some(value),
        _ => None,
    }
}

impl Attribute {
    /// Parses an attribute message, or an attribute in dense storage, which has the same format.
    /// `unsealed`: no checksum covers it.
    pub(crate) fn parse(file: &Hdf5File, body: &[u8], unsealed: bool) -> Result<Self> {
        let short = || Error::damaged("an attribute that ends too early");
        let [version, flags, n0, n1, t0, t1, s0, s1, rest @ ..] = body else {
            return Err(short());
        };
        let (flags, mut rest) = match version {
            1 => (0, rest),
            2 => (*flags, rest),
            // Skips the encoding of the name.
            3 => (*flags, rest.get(1..).ok_or_else(short)?),
            _ => {
                return Err(Error::damaged(format!("an attribute of version {version}"))
                    .expected("version 1, 2 or 3"));
            }
        };
        let mut part = |low: u8, high: u8| {
            let size = usize::from(u16::from_le_bytes([low, high]));
            let (part, tail) = rest.split_at_checked(size).ok_or_else(short)?;
            // Only version 1 pads its parts.
            let padding = if *version == 1 { size.wrapping_neg() & 7 } else { 0 };
            rest = tail.get(padding..).unwrap_or_default();
            Ok(part)
        };
        let name = part(*n0, *n1)?;
        // The name must end with its only NUL.
        if name.iter().position(|byte| *byte == 0) != name.len().checked_sub(1) {
            return Err(Error::damaged("the name of an attribute is not as long as it says"));
        }
        let name = file.shared(name.split(|byte| *byte == 0).next().unwrap_or_default());
        let datatype = part(*t0, *t1)?;
        let space = part(*s0, *s1)?;
        let context = |error: Error| error.context(format_args!("attribute {name}"));
        let datatype = match flags & 1 {
            0 => file.datatype(datatype, unsealed),
            _ => file.resolve(MSG_DATATYPE, datatype).and_then(|body| file.datatype(&body, false)),
        };
        let datatype = datatype.map_err(context)?;
        let shape = match flags & 2 {
            0 => file.dataspace(space),
            _ => file.resolve(MSG_DATASPACE, space).and_then(|body| file.dataspace(&body)),
        };
        let shape = shape.map_err(context)?.0;
        let count = count(shape.as_deref()).map_err(context)?;
        let len = count.checked_mul(datatype.size).and_then(|len| usize::try_from(len).ok());
        let data = len.and_then(|len| rest.get(..len));
        let data = data.ok_or_else(|| context(Error::damaged("its value ends too early")))?;
        Ok(Self { name, datatype, shape, data: data.into() })
    }

    pub fn values(&self, file: &Hdf5File) -> Result<AttributeValues> {
        if self.shape.is_none() {
            return Ok(AttributeValues::Null);
        }
        file.values(&self.datatype, &self.data)
            .map_err(|error| error.context(format_args!("attribute {}", self.name)))
    }

    /// Fails if values that the attribute stores in a heap are missing.
    pub fn check(&self, file: &Hdf5File) -> Result<()> {
        let context = |error: Error| error.context(format_args!("attribute {}", self.name));
        match &self.datatype.class {
            Class::VlenStr | Class::Vlen(_) if self.shape.is_some() => {
                file.vlen_elements(&self.datatype, &self.data).map(|_| ()).map_err(context)
            }
            _ => Ok(()),
        }
    }

    /// Returns the type and shape. Text is of one type, however it is stored.
    pub fn describe_type(&self) -> String {
        let datatype = match &self.datatype.class {
            Class::Str(_) | Class::VlenStr => "string".into(),
            _ => self.datatype.describe(),
        };
        match self.shape.as_deref() {
            None => format!("{datatype} without elements"),
            Some([]) => datatype,
            Some(shape) => format!("{datatype} {}", shape_text(shape)),
        }
    }

    /// Returns the value for display; paths of references are looked up in `tree`.
    pub fn describe(&self, file: &Hdf5File, tree: Option<&ObjectTree>) -> Text {
        let Some(shape) = &self.shape else { return "nothing".into() };
        if let Class::Str(_) | Class::VlenStr = self.datatype.class
            && let Ok(AttributeValues::Text(texts)) = self.values(file)
            && let [text] = texts.as_slice()
        {
            return text.clone();
        }
        // A single value is shown without brackets, whatever its shape.
        let shape = if numel(shape) == Some(1) { &[][..] } else { shape };
        let (mut text, limit) = (String::new(), file.limits.structure);
        let mut add = |piece: &str| {
            Limits::check("bytes of text", (text.len() + piece.len()) as u64, limit)?;
            text.push_str(piece);
            Ok(())
        };
        match file.render(tree, &self.datatype, shape, &self.data, &mut add) {
            Ok(()) => file.shared(text.as_bytes()),
            Err(error) => format!("{NOT_COMPARED}{error})").into(),
        }
    }
}

/// Returns the number of elements; an error if that does not fit.
pub(crate) fn count(shape: Option<&[u64]>) -> Result<u64> {
    let Some(shape) = shape else { return Ok(0) };
    numel(shape).ok_or_else(|| {
        Error::damaged(format!("a shape of {shape:?} has more elements than fit 64 bits"))
    })
}

impl Hdf5File {
    /// Decodes elements as stored in the file. Strings of variable length are read from their heap.
    pub fn values(&self, datatype: &Datatype, data: &[u8]) -> Result<AttributeValues> {
        let size = usize::try_from(datatype.size).unwrap_or(usize::MAX).max(1);
        let elements = data.chunks_exact(size);
        Ok(match &datatype.class {
            Class::Int { signed, order } => {
                AttributeValues::Int(elements.map(|bytes| int(bytes, *signed, *order)).collect())
            }
            Class::Bits { order } => {
                AttributeValues::Int(elements.map(|bytes| int(bytes, false, *order)).collect())
            }
            Class::Enum { .. } if datatype.is_bool() => {
                AttributeValues::Bool(data.iter().map(|byte| *byte != 0).collect())
            }
            Class::Enum { base, .. } if base.size == datatype.size => {
                return self.values(base, data);
            }
            Class::Float { .. } => {
                let floats: Option<Vec<f64>> =
                    elements.map(|bytes| float(datatype, bytes)).collect();
                floats.map_or(AttributeValues::Other, AttributeValues::Float)
            }
            Class::Str(padding) => {
                AttributeValues::Text(elements.map(|bytes| fixed_text(bytes, *padding)).collect())
            }
            Class::VlenStr => {
                let mut texts = Vec::new();
                let mut spent = 0u64;
                for element in elements {
                    let bytes = self.vlen_element(element, 1)?;
                    let bytes = bytes.as_slice();
                    spent += bytes.len() as u64;
                    Limits::check("bytes of strings in one value", spent, self.limits.structure)?;
                    // The length counts: NULs inside are part of the text, one at the end is not.
                    texts.push(Text::decode(bytes.strip_suffix(&[0]).unwrap_or(bytes)));
                }
                AttributeValues::Text(texts)
            }
            Class::Opaque { .. } => AttributeValues::Opaque(data.into()),
            Class::Array { base, .. } if base.size > 0 => return self.values(base, data),
            _ => AttributeValues::Other,
        })
    }

    /// Returns the bytes of each variable-length element (a string or a sequence), in order.
    pub fn vlen_elements(&self, datatype: &Datatype, data: &[u8]) -> Result<Vec<Vec<u8>>> {
        let unit = match &datatype.class {
            Class::VlenStr => 1,
            Class::Vlen(base) => base.size,
            _ => return Err(Error::unsupported("elements of a fixed length have no heap bytes")),
        };
        let size = usize::try_from(datatype.size).unwrap_or(usize::MAX).max(1);
        let mut spent = 0u64;
        data.chunks_exact(size)
            .map(|element| {
                let bytes = self.vlen_element(element, unit)?;
                let bytes = bytes.as_slice().to_vec();
                spent += bytes.len() as u64;
                Limits::check("bytes of sequences in one value", spent, self.limits.structure)?;
                Ok(bytes)
            })
            .collect()
    }

    /// Returns the bytes of a variable-length element; `unit` is the size of what its length counts.
    pub(crate) fn vlen_element(&self, element: &[u8], unit: u64) -> Result<HeapValue> {
        self.heap.get(&self.source, element, unit, &self.limits)
    }

    /// Returns the bytes of the object that an address and an index in the heap refer to.
    pub(crate) fn heap_object(&self, reference: &[u8]) -> Result<HeapValue> {
        self.heap.object(&self.source, reference, &self.limits)
    }

    /// Formats values of any datatype, in brackets by the dimensions of `shape`, and passes the text
    /// to `out` piece by piece. The same text means the same values: fails for values that can't be
    /// read, such as references to objects without a path in `tree`.
    pub fn render(
        &self,
        tree: Option<&ObjectTree>,
        datatype: &Datatype,
        shape: &[u64],
        data: &[u8],
        out: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        Renderer { file: self, tree, out }.nested(datatype, shape, data)
    }

    /// Decodes bytes as text; recent texts are shared.
    pub fn shared(&self, bytes: &[u8]) -> Text {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.decoded(bytes)
    }

    /// Parses a datatype message; recent equal ones are shared. `unsealed`: no checksum covers it.
    pub(crate) fn datatype(&self, body: &[u8], unsealed: bool) -> Result<Arc<Datatype>> {
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        let parse = |body: &[u8]| {
            let (datatype, sparse) = Datatype::parse(body)?;
            Ok(Parsed { body: body.into(), datatype: Arc::new(datatype), sparse })
        };
        let Parsed { datatype, sparse, .. } = types.get(body, parse)?;
        match sparse && unsealed {
            false => Ok(datatype),
            true => Err(Error::damaged("numbers that leave more than half of their bits unused")
                .advice(
                    "libhdf5 1.14.4 and later treat this as damage. `h5repack --low=2` of an \
                         older release writes the same content with checksums.",
                )),
        }
    }

    /// Returns shape and maximum shape; the shape is `None` for the null dataspace.
    pub(crate) fn dataspace(&self, body: &[u8]) -> Result<(Option<Shape>, Option<Shape>)> {
        // A single value, as in nearly all attributes: nothing more to parse.
        if let [1, 0, ..] | [2, 0, _, 0, ..] = body {
            return Ok((Some(Vec::new()), None));
        }
        let DataspaceMessage { dims, max_dims, dataspace_type, .. } =
            self.source.parse(body, dataspace::parse)?;
        if dims.len() > MAX_DIMENSIONS {
            return Err(Error::damaged(format!("a shape of {} dimensions", dims.len()))
                .expected(format!("{MAX_DIMENSIONS} or fewer")));
        }
        Limits::check("dimensions of a dataset", dims.len() as u64, self.limits.rank)?;
        let most = max_dims.as_deref().unwrap_or_default();
        if let Some((dim, most)) = dims.iter().zip(most).find(|(dim, most)| dim > most) {
            return Err(Error::damaged(format!("a dimension of {dim}, which may grow to {most}")));
        }
        if dataspace_type != DataspaceType::Simple && !dims.is_empty() {
            return Err(Error::damaged("a scalar or null dataspace with dimensions"));
        }
        Ok(match dataspace_type {
            DataspaceType::Null => (None, None),
            DataspaceType::Scalar | DataspaceType::Simple => (Some(dims), max_dims),
        })
    }

    /// Returns the body of a shared message.
    pub(crate) fn resolve(&self, kind: u16, reference: &[u8]) -> Result<Vec<u8>> {
        header::resolve(&self.source, kind, reference, &self.limits)
    }
}

/// The maximum of HDF5.
const MAX_DIMENSIONS: usize = 32;

/// A datatype, and the bytes it was parsed from.
#[derive(Debug, Clone)]
pub(crate) struct Parsed {
    body: Arc<[u8]>,
    datatype: Arc<Datatype>,
    sparse: bool,
}

impl AsRef<[u8]> for Parsed {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

fn float(datatype: &Datatype, bytes: &[u8]) -> Option<f64> {
    let Class::Float { format, order: Some(order) } = &datatype.class else { return None };
    render::float(*format, &little(bytes, *order)).map(|(number, _)| number)
}
