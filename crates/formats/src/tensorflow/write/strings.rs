//! Writes string tensors. See [`crate::tensorflow::strings`] for the format.

use std::sync::{Arc, OnceLock};

use statelens_checkpoint::varint::write_number;
use statelens_checkpoint::{
    ByteOrder, Checkpoint, DType, Error, Layout, Result, Tensor, TensorId, Text,
};
use statelens_tensor::crc::crc32c;

use crate::crc;

/// Encodes a string tensor. Returns the bytes and their masked checksum.
pub(super) fn encode(strings: &[&[u8]]) -> (Vec<u8>, u32) {
    let mut bytes = Vec::new();
    let mut summed = Vec::new();
    for string in strings {
        let len = string.len() as u64;
        write_number(&mut bytes, len);
        match u32::try_from(len) {
            Ok(len) => summed.extend(len.to_le_bytes()),
            Err(_) => summed.extend(len.to_le_bytes()),
        }
    }
    let lengths = crc::masked(&summed).to_le_bytes();
    bytes.extend(lengths);
    let mut sum = crc32c(crc32c(0, &summed), &lengths);
    for string in strings {
        sum = crc32c(sum, string);
        bytes.extend_from_slice(string);
    }
    (bytes, crc::mask(sum))
}

/// An array of fixed-length strings that is read only when it is written.
#[derive(Debug)]
pub(super) struct Late {
    source: Arc<Checkpoint>,
    tensor: TensorId,
    made: OnceLock<(Vec<u8>, u32)>,
}

/// The maximum size in bytes of strings held in memory.
const MAX_BYTES: u64 = 64 << 20;

impl Late {
    /// Returns the strings of an array of numpy's `S` or `U`, and whether it is `U`. Returns `None`
    /// if it is not such an array, too large, or not contiguous.
    pub(super) fn new(source: &Arc<Checkpoint>, tensor: TensorId) -> Option<(Self, bool)> {
        let found = source.tensor(tensor).ok()?;
        let DType::Numpy(numpy) = &found.dtype else { return None };
        let kind = numpy.code.chars().next().filter(|kind| matches!(kind, 'S' | 'U'))?;
        let whole = matches!(found.layout, Layout::Span(_) | Layout::Inline(_));
        let small = found.nbytes().is_some_and(|bytes| bytes <= MAX_BYTES);
        if !whole || !small || numpy.itemsize == 0 || found.stored != found.dtype {
            return None;
        }
        let late = Self { source: source.clone(), tensor, made: OnceLock::new() };
        Some((late, kind == 'U'))
    }

    pub(super) fn tensor(&self) -> TensorId {
        self.tensor
    }

    /// Returns the encoded bytes and their masked checksum.
    pub(super) fn encoded(&self) -> Result<&(Vec<u8>, u32)> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let tensor = self.source.tensor(self.tensor)?;
        let strings = self.strings(tensor)?;
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        let made = encode(&strings);
        Ok(self.made.get_or_init(|| made))
    }

    fn strings(&self, tensor: &Tensor) -> Result<Vec<Vec<u8>>> {
        let bytes: Vec<u8> = match &tensor.layout {
            Layout::Inline(bytes) => bytes.to_vec(),
            Layout::Span(span) => self.source.files.read_vec(span.file, span.offset, span.len)?,
            _ => return Err(Error::unsupported("an array of strings is not in one piece")),
        };
        // The size was limited by `new`.
        let itemsize = tensor.dtype.itemsize() as usize;
        if Some(bytes.len() as u64) != tensor.nbytes() {
            return Err(Error::damaged("an array of strings has not as many bytes as its shape"));
        }
        let unicode = tensor.dtype.numpy_code().is_some_and(|code| code.starts_with('U'));
        bytes
            .chunks_exact(itemsize)
            .map(|element| match unicode {
                false => Ok(trimmed(element).to_vec()),
                true => text(element, tensor.byte_order),
            })
            .collect()
    }
}

/// Removes trailing zeros, which numpy does not count as part of the string.
fn trimmed(element: &[u8]) -> &[u8] {
    let len = element.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    &element[..len]
}

fn text(element: &[u8], order: ByteOrder) -> Result<Vec<u8>> {
    let point = |bytes: &[u8]| {
        let mut four = [0; 4];
        four.copy_from_slice(bytes);
        match order {
            ByteOrder::Little => u32::from_le_bytes(four),
            ByteOrder::Big => u32::from_be_bytes(four),
        }
    };
    let mut points: Vec<u32> = element.chunks_exact(4).map(point).collect();
    while points.last() == Some(&0) {
        points.pop();
    }
    let text = Text::from_code_points(points).map_err(|point| {
        Error::damaged(format!("an array of strings holds {point}, which is not a character"))
    })?;
    Ok(text.as_bytes().to_vec())
}
