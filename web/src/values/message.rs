//! Messages about the values of tensors: of one or of all.

use serde::{Deserialize, Serialize};
use statelens_values::SummaryStatistics;
use statelens_values::weights::{Measured, Noticed};

/// Statistics of tensors by row.
pub type RowStatistics = Vec<(u32, SummaryStatistics)>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TensorValues {
    pub row: u32,
    pub measured: Measured,
    /// Bytes read; 0 if the tensor was read with others.
    pub bytes: u64,
    /// Milliseconds spent.
    pub millis: f64,
}

/// Reads all tensors that were not read yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRequest {}

/// The result of reading all tensors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScanReport {
    /// Statistics of tensors since the last message.
    #[serde(with = "packed")]
    pub rows: RowStatistics,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes left to read if it was stopped.
    pub unread_bytes: u64,
    pub millis: f64,
    /// Tensors that can't be read or have no numbers: the row, and why.
    pub unread: Vec<(u32, String)>,
    /// Findings, the most severe first.
    pub findings: Vec<Noticed>,
    /// The problems that were searched for.
    pub checks: Vec<String>,
}

/// Packs statistics into bytes: there may be a hundred thousand, and an object for each would take
/// longer than reading a small tensor.
mod packed {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use serde_bytes::ByteBuf;
    use statelens_values::SummaryStatistics;

    use super::RowStatistics;

    /// Bytes of a row.
    const ROW: usize = 4 + 8 * 8;

    pub(super) fn serialize<S: Serializer>(rows: &RowStatistics, to: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::with_capacity(rows.len() * ROW);
        for (row, of) in rows {
            bytes.extend_from_slice(&row.to_le_bytes());
            for count in [of.count, of.nan, of.infinite, of.zeros] {
                bytes.extend_from_slice(&count.to_le_bytes());
            }
            // These are finite, so that NaN can stand for an unknown one.
            for figure in [of.min, of.max, of.mean, of.std] {
                bytes.extend_from_slice(&figure.unwrap_or(f64::NAN).to_le_bytes());
            }
        }
        to.serialize_bytes(&bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<RowStatistics, D::Error> {
        let bytes = ByteBuf::deserialize(from)?;
        let (rows, _) = bytes.as_chunks::<ROW>();
        let unpack = |row: &[u8; ROW]| {
            let (number, rest) = row.split_first_chunk::<4>()?;
            let (words, _) = rest.as_chunks::<8>();
            let [count, nan, infinite, zeros, min, max, mean, std] = words else { return None };
            let count_of = |word: &[u8; 8]| u64::from_le_bytes(*word);
            let figure = |word: &[u8; 8]| Some(f64::from_le_bytes(*word)).filter(|it| !it.is_nan());
            let statistics = SummaryStatistics {
                count: count_of(count),
                nan: count_of(nan),
                infinite: count_of(infinite),
                zeros: count_of(zeros),
                min: figure(min),
                max: figure(max),
                mean: figure(mean),
                std: figure(std),
            };
            Some((u32::from_le_bytes(*number), statistics))
        };
        Ok(rows.iter().filter_map(unpack).collect())
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::values::message::ScanReport;

        #[test]
        fn rows_survive_packing() {
            let one = SummaryStatistics { count: 4, nan: 1, min: Some(-0.5), ..Default::default() };
            let rows = vec![(7, one), (u32::MAX, SummaryStatistics::default())];
            let report = ScanReport { rows, bytes: 3, ..ScanReport::default() };
            let json = serde_json::to_string(&report).unwrap();
            assert_eq!(serde_json::from_str::<ScanReport>(&json).unwrap(), report);
        }
    }
}
