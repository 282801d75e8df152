//! Attributes: named values on a dataset or on the root group.

use std::borrow::Cow;
use std::sync::Arc;

use super::bytes::Put;
use super::datatype::Datatype;
use super::heap::Heap;
use super::message::{self, Space};

#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// Name, without NUL.
    pub name: Cow<'static, str>,
    pub value: AttributeValue,
}

/// Values of attributes, with the types that h5py gives them.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    F64(f64),
    I64(i64),
    Bool(bool),
    Text(String),
    /// Strings in one dimension.
    Texts(Vec<String>),
    /// int64 of any shape, with one value per element.
    I64s(Vec<u64>, Vec<i64>),
    /// No elements of f64, with a shape that contains a zero: numpy's result for an empty list.
    NoF64(Vec<u64>),
    /// Opaque bytes in one dimension.
    Bytes(Arc<[u8]>),
}

impl Attribute {
    pub fn new(name: impl Into<Cow<'static, str>>, value: AttributeValue) -> Self {
        Self { name: name.into(), value }
    }

    /// Returns the approximate size in a file, in bytes.
    pub(super) fn len(&self) -> usize {
        use AttributeValue as V;
        let value = match &self.value {
            V::F64(_) | V::I64(_) | V::Bool(_) | V::NoF64(_) => 0,
            V::Text(text) => text.len(),
            V::Texts(texts) => texts.iter().map(|text| text.len() + 32).sum(),
            V::I64s(_, values) => values.len() * 8,
            V::Bytes(bytes) => bytes.len(),
        };
        self.name.len() + value + 128
    }

    /// Appends the body of an attribute message; strings are stored in `heap`. `out` ends at a
    /// multiple of 8.
    pub(super) fn encode_into(&self, heap: &mut Heap, out: &mut Vec<u8>) {
        use AttributeValue as V;
        let (datatype, space) = match &self.value {
            V::F64(_) => (Datatype::F64, Space::Scalar),
            V::I64(_) => (Datatype::Int { size: 8, signed: true }, Space::Scalar),
            V::Bool(_) => (Datatype::Bool, Space::Scalar),
            V::Text(_) => (Datatype::Text, Space::Scalar),
            V::Texts(texts) => (Datatype::Text, Space::Simple(vec![texts.len() as u64])),
            V::I64s(shape, _) => {
                (Datatype::Int { size: 8, signed: true }, Space::Simple(shape.clone()))
            }
            V::NoF64(shape) => (Datatype::F64, Space::Simple(shape.clone())),
            V::Bytes(bytes) => (Datatype::Opaque(1), Space::Simple(vec![bytes.len() as u64])),
        };
        // Version 1 only supports ASCII names; version 3 has an encoding, and no padding.
        let ascii = self.name.is_ascii();
        let body = out.len();
        out.extend([if ascii { 1 } else { 3 }, 0]);
        out.u16((self.name.len() + 1) as u16);
        // The sizes of datatype and dataspace, filled in below.
        out.u32(0);
        if ascii {
            out.name(&self.name);
        } else {
            out.push(1);
            out.extend_from_slice(self.name.as_bytes());
            out.push(0);
        }
        for (part, size_at) in [(SizedMessage::Datatype, 4), (SizedMessage::Dataspace, 6)] {
            let start = out.len();
            match part {
                SizedMessage::Datatype => datatype.encode_into(out),
                SizedMessage::Dataspace => message::dataspace(&space, out),
            }
            let size = (out.len() - start) as u16;
            let field = body + size_at;
            out[field..field + 2].copy_from_slice(&size.to_le_bytes());
            if ascii {
                out.align();
            }
        }
        match &self.value {
            V::F64(value) => out.extend(value.to_le_bytes()),
            V::I64(value) => out.extend(value.to_le_bytes()),
            V::Bool(value) => out.push(u8::from(*value)),
            V::Text(text) => heap.put(text.as_bytes(), out),
            V::Texts(texts) => {
                for text in texts {
                    heap.put(text.as_bytes(), out);
                }
            }
            V::I64s(_, values) => {
                for value in values {
                    out.extend(value.to_le_bytes());
                }
            }
            V::NoF64(_) => {}
            V::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
}

/// The parts of an attribute that are preceded by their sizes.
enum SizedMessage {
    Datatype,
    Dataspace,
}
