//! Checksums of bytes as they pass.

use statelens_checkpoint::Checksum;
use statelens_tensor::crc;

/// A checksum that is being made.
pub(crate) enum Summing {
    Crc32(u32),
    Crc32c(u32),
}

impl Summing {
    /// A machine for a checksum, if one is wanted.
    pub(crate) fn of(checksum: Checksum) -> Option<Self> {
        match checksum {
            Checksum::None => None,
            Checksum::Crc32 => Some(Self::Crc32(0)),
            Checksum::Crc32c => Some(Self::Crc32c(0)),
        }
    }

    /// Takes the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(sum) => *sum = crc::crc32(*sum, bytes),
            Self::Crc32c(sum) => *sum = crc::crc32c(*sum, bytes),
        }
    }

    /// The checksum of all bytes.
    pub(crate) fn value(self) -> u32 {
        match self {
            Self::Crc32(sum) | Self::Crc32c(sum) => sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_check_values_come_out() {
        for (checksum, expected) in
            [(Checksum::Crc32, 0xcbf4_3926), (Checksum::Crc32c, 0xe306_9283)]
        {
            let mut summing = Summing::of(checksum).unwrap();
            summing.update(b"12345");
            summing.update(b"6789");
            assert_eq!(summing.value(), expected);
        }
        assert!(Summing::of(Checksum::None).is_none());
    }
}
