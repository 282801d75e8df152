//! The mask of TensorFlow's checksums, so that the checksum of a run of bytes that holds checksums is
//! still a good one (`tensorflow/core/lib/hash/crc32c.h`).

/// What is stored for the checksum `crc`.
pub(crate) fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}
