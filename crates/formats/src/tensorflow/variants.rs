//! Tensors of variants: for each element its length, its bytes, and the checksum of all so far.
//!
//! `tensorflow/core/util/tensor_bundle/tensor_bundle.cc`, `WriteVariantTensor`.

use statelens_checkpoint::{Error, Result};
use statelens_tensor::crc::crc32c;

use super::proto::varint;
use crate::crc;

/// Returns the masked checksum of a tensor of `count` variants. It covers each length as 64 bits,
/// where the file has a varint, and the bytes and the checksum that follow it.
pub(super) fn sum(bytes: &[u8], count: u64) -> Result<u32> {
    let damaged = |what: &str| Error::damaged(format!("a tensor of {count} variants {what}"));
    let mut rest = bytes;
    let mut sum = 0;
    for _ in 0..count {
        let len = varint(&mut rest)?;
        let end = usize::try_from(len).ok().and_then(|len| len.checked_add(4));
        let (element, after) = end
            .and_then(|end| rest.split_at_checked(end))
            .ok_or_else(|| damaged("ends within an element"))?;
        sum = crc32c(crc32c(sum, &len.to_le_bytes()), element);
        rest = after;
    }
    match rest {
        [] => Ok(crc::mask(sum)),
        _ => Err(damaged("has more bytes than its elements")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_or_padded_variants_are_damage() {
        let element = b"\x03abc\0\0\0\0";
        let two = [&element[..], element].concat();
        assert!(sum(&two, 2).is_ok());
        assert!(sum(&two, 1).is_err() && sum(&two, 3).is_err() && sum(&two, u64::MAX).is_err());
        assert!((0..two.len()).all(|len| sum(&two[..len], 2).is_err()));
        let lengths = [&[0xff; 9][..], &[1]].concat();
        assert!(sum(&lengths, 1).is_err());
    }
}
