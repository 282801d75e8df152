//! String tensors: the length of each string, a checksum of the lengths, then the strings.
//!
//! `tensorflow/core/util/tensor_bundle/tensor_bundle.cc`, `ReadStringTensor`.

use statelens_checkpoint::{
    Array, Builder, DType, Error, Form, Global, Layout, Opaque, Result, Tensor, Tuple, Value,
    ValueId,
};
use statelens_tensor::crc::crc32c;

use super::proto::varint;
use crate::crc;

/// Splits the bytes of a tensor into strings, and returns whether the checksum of their lengths
/// matches.
pub(super) fn split(bytes: &[u8], count: u64) -> Result<(Vec<&[u8]>, bool)> {
    let damaged = |what: &str| Error::damaged(format!("a tensor of {count} strings {what}"));
    // Each length takes at least a byte.
    let count = usize::try_from(count).ok().filter(|count| *count <= bytes.len());
    let count = count.ok_or_else(|| damaged("has fewer bytes than strings"))?;
    let mut rest = bytes;
    let mut lengths = Vec::with_capacity(count);
    let mut plain = Vec::new();
    for _ in 0..count {
        let len = varint(&mut rest)?;
        match u32::try_from(len) {
            Ok(len) => plain.extend(len.to_le_bytes()),
            Err(_) => plain.extend(len.to_le_bytes()),
        }
        lengths.push(len);
    }
    let (sum, mut rest) =
        rest.split_first_chunk::<4>().ok_or_else(|| damaged("ends within its lengths"))?;
    let intact = crc::masked(&plain) == u32::from_le_bytes(*sum);
    let mut strings = Vec::with_capacity(count);
    for len in lengths {
        let len = usize::try_from(len).ok().filter(|len| *len <= rest.len());
        let (string, after) = rest.split_at(len.ok_or_else(|| damaged("ends within a string"))?);
        strings.push(string);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(damaged("has more bytes than its strings"));
    }
    Ok((strings, intact))
}

/// Returns the masked checksum of a string tensor. It covers the lengths as integers, their
/// checksum, and the strings.
pub(super) fn sum(bytes: &[u8], count: u64) -> Result<u32> {
    let (strings, _) = split(bytes, count)?;
    let mut sum = 0;
    for string in &strings {
        sum = match u32::try_from(string.len()) {
            Ok(len) => crc32c(sum, &len.to_le_bytes()),
            Err(_) => crc32c(sum, &(string.len() as u64).to_le_bytes()),
        };
    }
    let of_strings: usize = strings.iter().map(|string| string.len()).sum();
    // The strings come last, after the checksum of their lengths.
    let at = bytes.len().saturating_sub(of_strings);
    let lengths = at.checked_sub(4).and_then(|start| bytes.get(start..at)).unwrap_or_default();
    sum = crc32c(sum, lengths);
    Ok(crc::mask(crc32c(sum, bytes.get(at..).unwrap_or_default())))
}

/// Returns the value of a string tensor: `bytes` if it has no dimensions; else an array of numpy's
/// `S` if that can hold the strings unchanged, or an array of objects, as in TensorFlow.
pub(super) fn value(builder: &mut Builder, shape: &[u64], strings: &[&[u8]]) -> Result<ValueId> {
    if let ([], [string]) = (shape, strings) {
        return builder.push(bytes(string));
    }
    if let Some((dtype, padded)) = fixed(strings) {
        let tensor = Tensor::new(dtype, shape.to_vec(), Layout::Inline(padded.into()));
        let tensor = builder.push_tensor(tensor)?;
        return builder.push(Value::Array(Array { tensor, scalar: false }));
    }
    let shape: Result<Vec<ValueId>> =
        shape.iter().map(|dim| builder.push(Value::Int((*dim).into()))).collect();
    let shape = builder.push(Value::Tuple(Tuple { items: shape?, ..Tuple::default() }))?;
    let items: Result<Vec<ValueId>> =
        strings.iter().map(|string| builder.push(bytes(string))).collect();
    builder.push(Value::Opaque(Box::new(Opaque {
        global: Global::new("numpy", "ndarray"),
        form: Form::Call,
        args: vec![shape],
        state: None,
        items: items?,
        entries: Vec::new(),
        repr: None,
        contents: None,
    })))
}

fn bytes(string: &[u8]) -> Value {
    Value::Bytes { data: string.into(), mutable: false }
}

/// Returns strings as zero-padded elements of fixed length. Returns `None` if a string ends with a
/// zero, which would be lost, or if padding would take far more memory than the strings.
fn fixed(strings: &[&[u8]]) -> Option<(DType, Vec<u8>)> {
    let longest = strings.iter().map(|string| string.len()).max()?.max(1);
    let total: usize = strings.iter().map(|string| string.len()).sum();
    let padded = longest.checked_mul(strings.len())?;
    if padded > total.saturating_mul(4).saturating_add(1 << 12)
        || strings.iter().any(|string| string.last() == Some(&0))
    {
        return None;
    }
    let mut bytes = vec![0; padded];
    for (element, string) in bytes.chunks_exact_mut(longest).zip(strings) {
        element[..string.len()].copy_from_slice(string);
    }
    let dtype = DType::from_numpy_code(&format!("S{longest}"))?;
    Some((dtype, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_or_padded_strings_are_damage() {
        assert_eq!(split(&[0xd8, 0xea, 0x82, 0xa2], 0).unwrap(), (vec![], true));
        let mut good = vec![2, 1];
        good.extend(crc::masked(&[2, 0, 0, 0, 1, 0, 0, 0]).to_le_bytes());
        good.extend(b"abc");
        assert_eq!(split(&good, 2).unwrap(), (vec![&b"ab"[..], &b"c"[..]], true));
        for len in 0..good.len() {
            assert!(split(&good[..len], 2).is_err());
        }
        let longer = [&good[..], b"x"].concat();
        assert!(split(&longer, 2).is_err());
        assert!(split(&good, u64::MAX).is_err());
        good[2] ^= 1;
        assert!(!split(&good, 2).unwrap().1);
    }
}
