//! The two 32-bit checksums used in checkpoints: CRC-32 in zip archives, CRC-32C in TensorFlow's
//! bundles.
//!
//! The crates `crc32fast` and `crc32c` compute them. In Wasm, which has no instructions for either,
//! the tables of `crc32c` would add 8 kB to the page that can't be compressed; there `tables`
//! computes its own on first use. (Those of `crc32fast` are needed by `zip` anyway.)

use statelens_checkpoint::Checksum;

/// Returns the CRC-32 of bytes that follow those whose CRC-32 is `sum`; 0 at the start.
pub fn crc32(sum: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(sum);
    hasher.update(bytes);
    hasher.finalize()
}

/// Returns the CRC-32C of bytes that follow those whose CRC-32C is `sum`; 0 at the start.
pub fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "wasm32")]
    return tables::append(sum, bytes);
    #[cfg(not(target_arch = "wasm32"))]
    crc32c::crc32c_append(sum, bytes)
}

/// Returns the checksum of some bytes followed by `len` others, from the checksums of both.
#[cfg(not(target_arch = "wasm32"))]
pub fn combined(checksum: Checksum, sum: u32, next: u32, len: u64) -> u32 {
    match checksum {
        Checksum::Crc32c => {
            crc32c::crc32c_combine(sum, next, usize::try_from(len).unwrap_or(usize::MAX))
        }
        Checksum::Crc32 | Checksum::None => {
            let mut whole = crc32fast::Hasher::new_with_initial(sum);
            whole.combine(&crc32fast::Hasher::new_with_initial_len(next, len));
            whole.finalize()
        }
    }
}

pub enum Summing {
    Crc32(u32),
    Crc32c(u32),
}

impl Summing {
    /// Starts a checksum of no bytes, if one is requested.
    pub fn of(checksum: Checksum) -> Option<Self> {
        match checksum {
            Checksum::None => None,
            Checksum::Crc32 => Some(Self::Crc32(0)),
            Checksum::Crc32c => Some(Self::Crc32c(0)),
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(sum) => *sum = crc32(*sum, bytes),
            Self::Crc32c(sum) => *sum = crc32c(*sum, bytes),
        }
    }

    pub fn value(self) -> u32 {
        match self {
            Self::Crc32(sum) | Self::Crc32c(sum) => sum,
        }
    }
}

#[cfg(any(test, target_arch = "wasm32"))]
mod tables {
    //! Processes eight bytes per step, with a table for each position.

    use std::sync::LazyLock;

    /// For each byte and each number of bytes after it in a step, its contribution to the sum.
    type Tables = [[u32; 256]; 8];

    /// Castagnoli's polynomial, bit-reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    static TABLES: LazyLock<Box<Tables>> = LazyLock::new(make);

    fn make() -> Box<Tables> {
        let mut tables = Box::new([[0; 256]; 8]);
        for (byte, entry) in (0..).zip(&mut tables[0]) {
            *entry =
                (0..8).fold(byte, |sum, _| (sum >> 1) ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 });
        }
        for behind in 1..8 {
            for byte in 0..256 {
                let sum = tables[behind - 1][byte];
                tables[behind][byte] = (sum >> 8) ^ tables[0][(sum & 0xff) as usize];
            }
        }
        tables
    }

    pub(super) fn append(sum: u32, bytes: &[u8]) -> u32 {
        let tables: &Tables = &TABLES;
        let mut sum = !sum;
        let (steps, rest) = bytes.as_chunks::<8>();
        for step in steps {
            let [a, b, c, d] = sum.to_le_bytes();
            sum = tables[7][usize::from(step[0] ^ a)]
                ^ tables[6][usize::from(step[1] ^ b)]
                ^ tables[5][usize::from(step[2] ^ c)]
                ^ tables[4][usize::from(step[3] ^ d)]
                ^ tables[3][usize::from(step[4])]
                ^ tables[2][usize::from(step[5])]
                ^ tables[1][usize::from(step[6])]
                ^ tables[0][usize::from(step[7])];
        }
        for byte in rest {
            sum = (sum >> 8) ^ tables[0][(sum as u8 ^ byte) as usize];
        }
        !sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_the_standard_check_values() {
        for (checksum, expected) in
            [(Checksum::Crc32, 0xcbf4_3926), (Checksum::Crc32c, 0xe306_9283)]
        {
            let mut summing = Summing::of(checksum).unwrap();
            summing.update(b"12345");
            summing.update(b"6789");
            assert_eq!(summing.value(), expected);
            let part = |bytes: &[u8]| {
                let mut summing = Summing::of(checksum).unwrap();
                summing.update(bytes);
                summing.value()
            };
            assert_eq!(combined(checksum, part(b"12345"), part(b"6789"), 4), expected);
            assert_eq!(combined(checksum, part(b""), part(b"123456789"), 9), expected);
            assert_eq!(combined(checksum, part(b"123456789"), part(b""), 0), expected);
        }
        assert!(Summing::of(Checksum::None).is_none());
    }

    #[test]
    fn tables_match_the_crc_library() {
        let bytes: Vec<u8> =
            (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for (start, end) in [(0, 0), (0, 1), (3, 10), (1, 9), (5, 21), (0, 4096), (7, 4090)] {
            let bytes = &bytes[start..end];
            for sum in [0, 1, 0xdead_beef] {
                assert_eq!(tables::append(sum, bytes), crc32c(sum, bytes));
            }
        }
    }
}
