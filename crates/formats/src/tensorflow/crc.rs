//! The checksum that TensorFlow stores: CRC-32C, masked so that the checksum of a run of bytes that
//! holds checksums is still a good one (`tensorflow/core/lib/hash/crc32c.h`).

pub(super) use crate::masked::mask;
use statelens_tensor::crc;

/// The masked checksum of `bytes`.
pub(super) fn masked(bytes: &[u8]) -> u32 {
    mask(crc::crc32c(0, bytes))
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_has_the_checksum_that_tensorflow_writes_for_it() {
        assert_eq!(super::masked(b""), 0xa282_ead8);
        // The check value of CRC-32C.
        assert_eq!(super::crc::crc32c(0, b"123456789"), 0xe306_9283);
    }
}
