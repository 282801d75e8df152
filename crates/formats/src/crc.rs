//! The checksum that TensorFlow stores: CRC-32C, masked so that the checksum of data that contains
//! checksums remains effective (`tensorflow/core/lib/hash/crc32c.h`).

use statelens_tensor::crc;

/// Returns the value stored for the checksum `crc`.
pub(crate) fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

pub(crate) fn masked(bytes: &[u8]) -> u32 {
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
