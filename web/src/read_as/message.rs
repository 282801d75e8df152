//! Dtypes for arrays that are stored without one.

use serde::{Deserialize, Serialize};

/// Dtypes of one byte that such an array may have, the most likely first.
pub const ONE_BYTE: [&str; 5] =
    ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"];
/// Dtypes of two bytes.
pub const TWO_BYTES: [&str; 2] = ["bfloat16", "float16"];

/// The dtypes to read such arrays as: indices into [`ONE_BYTE`] and [`TWO_BYTES`]; `None` leaves
/// them as bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadAs {
    pub one: Option<u8>,
    pub two: Option<u8>,
}

impl ReadAs {
    /// Returns the chosen dtypes.
    pub fn dtypes(self) -> impl Iterator<Item = &'static str> {
        let one = self.one.and_then(|at| ONE_BYTE.get(usize::from(at)));
        let two = self.two.and_then(|at| TWO_BYTES.get(usize::from(at)));
        one.into_iter().chain(two).copied()
    }
}
