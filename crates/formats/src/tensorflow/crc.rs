//! The checksum that TensorFlow stores: CRC-32C, masked so that the checksum of data that contains
//! checksums remains effective (`tensorflow/core/lib/hash/crc32c.h`).

pub(super) use crate::masked::mask;
use statelens_tensor::crc;

pub(super) fn masked(bytes: &[u8]) -> u32 {
    mask(crc::crc32c(0, bytes))
}

#[cfg(test)]
mod tests {
    #[test]
    fn masked_crc_of_empty_data_matches_tensorflow() {
        assert_eq!(super::masked(b""), 0xa282_ead8);
        // The standard check value of CRC-32C.
        assert_eq!(super::crc::crc32c(0, b"123456789"), 0xe306_9283);
    }
}
