//! The mask of TensorFlow's checksums, which keeps the checksum of data that contains checksums
//! effective (`tensorflow/core/lib/hash/crc32c.h`).

/// Returns the value stored for the checksum `crc`.
pub(crate) fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}
