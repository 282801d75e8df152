//! One row per leaf of the state, and the compact encoding in which rows cross from the worker.
//!
//! A checkpoint may have tens of thousands of keys, and building a JS object for each would take
//! longer than opening the file. So rows cross as one byte string: counts as LEB128, each key as
//! the length of the prefix it shares with the previous key, followed by the rest.

use serde::{Deserialize, Serialize};
use statelens_describe::MISSING;
use statelens_describe::fold::{Foldable, LeafProperties};

use statelens_checkpoint::slices::{ITEMS, finish, pause};
use statelens_checkpoint::varint::{read_bytes, read_number, write_bytes, write_number};
pub use statelens_describe::LeafKind;

/// One leaf of the state.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub key: String,
    pub kind: LeafKind,
    /// The dtype by torch's name; empty for plain values.
    pub dtype: String,
    /// The shape; empty for plain values and for tensors of rank 0.
    pub shape: Vec<u64>,
    /// The number of elements.
    pub params: u64,
    /// The logical size in bytes.
    pub bytes: u64,
    /// The value as text, truncated if long.
    pub value: String,
    /// The target's key, if the leaf is a link.
    pub link: Option<String>,
}

impl Row {
    /// Returns the word that the page shows for its kind.
    pub fn kind_word(&self) -> &'static str {
        if self.kind == LeafKind::None { "None" } else { self.kind.word() }
    }

    /// Returns whether it is a tensor whose data are missing.
    pub fn is_missing(&self) -> bool {
        self.kind.has_shape() && self.value.starts_with(MISSING)
    }
}

impl Foldable for Row {
    fn properties(&self) -> LeafProperties<'_> {
        LeafProperties {
            key: &self.key,
            kind: self.kind_word(),
            is_tensor: self.kind.has_shape(),
            dtype: &self.dtype,
            shape: &self.shape,
            link: self.link.as_deref(),
            params: self.params,
            bytes: self.bytes,
            value: &self.value,
        }
    }
}

/// Rows as they cross from the worker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PackedRows {
    count: u32,
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
}

impl PackedRows {
    /// Packs rows in order.
    pub fn pack<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut out = Self::default();
        let mut before = "";
        for row in rows {
            let shared = common_prefix(before, &row.key);
            out.count += 1;
            write_number(&mut out.bytes, shared as u64);
            write_bytes(&mut out.bytes, &row.key.as_bytes()[shared..]);
            out.bytes.push(row.kind as u8);
            write_bytes(&mut out.bytes, row.dtype.as_bytes());
            write_number(&mut out.bytes, row.shape.len() as u64);
            for &dim in &row.shape {
                write_number(&mut out.bytes, dim);
            }
            write_number(&mut out.bytes, row.params);
            write_number(&mut out.bytes, row.bytes);
            write_bytes(&mut out.bytes, row.value.as_bytes());
            match &row.link {
                None => out.bytes.push(0),
                Some(target) => {
                    out.bytes.push(1);
                    write_bytes(&mut out.bytes, target.as_bytes());
                }
            }
            before = &row.key;
        }
        out
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Unpacks all rows; `None` if the bytes were not made by [`PackedRows::pack`].
    pub fn unpack(&self) -> Option<Vec<Row>> {
        finish(self.first(self.count))
    }

    /// Unpacks the first `most` rows, with pauses; `None` if the bytes were not made by
    /// [`PackedRows::pack`].
    pub async fn first(&self, most: u32) -> Option<Vec<Row>> {
        let mut rest = self.bytes.as_slice();
        let count = self.count.min(most);
        // Each row takes several bytes, so the capacity is bounded by the length of the input.
        let mut rows: Vec<Row> = Vec::with_capacity((count as usize).min(rest.len()));
        for at in 0..count {
            if at as usize % ITEMS == ITEMS - 1 {
                pause().await;
            }
            let shared = usize::try_from(read_number(&mut rest)?).ok()?;
            let before = match rows.last() {
                Some(row) => row.key.get(..shared)?,
                None => "",
            };
            let own = read_str(&mut rest)?;
            let mut key = String::with_capacity(before.len() + own.len());
            key.push_str(before);
            key.push_str(own);
            let kind = *LeafKind::ALL.get(usize::from(read_byte(&mut rest)?))?;
            let dtype = read_str(&mut rest)?.to_owned();
            let rank = read_number(&mut rest)?;
            let mut shape = Vec::with_capacity(usize::try_from(rank).ok()?.min(rest.len()));
            for _ in 0..rank {
                shape.push(read_number(&mut rest)?);
            }
            let params = read_number(&mut rest)?;
            let bytes = read_number(&mut rest)?;
            let value = read_str(&mut rest)?.to_owned();
            let link = match read_byte(&mut rest)? {
                0 => None,
                _ => Some(read_str(&mut rest)?.to_owned()),
            };
            rows.push(Row { key, kind, dtype, shape, params, bytes, value, link });
        }
        Some(rows)
    }
}

/// Returns the length of the longest common prefix that ends at a character boundary of both.
fn common_prefix(a: &str, b: &str) -> usize {
    let mut len = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    while !a.is_char_boundary(len) || !b.is_char_boundary(len) {
        len -= 1;
    }
    len
}

fn read_byte(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, tail) = rest.split_first()?;
    *rest = tail;
    Some(byte)
}

fn read_str<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    str::from_utf8(read_bytes(rest)?).ok()
}

/// Sends numbers of rows as bytes: an object of JavaScript for each takes longer than comparing a
/// small tensor.
pub(crate) mod packed_numbers {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use serde_bytes::ByteBuf;

    pub(crate) fn serialize<S: Serializer>(rows: &[u32], to: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
        to.serialize_bytes(&bytes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
        let bytes = ByteBuf::deserialize(from)?;
        let (rows, _) = bytes.as_chunks::<4>();
        Ok(rows.iter().map(|row| u32::from_le_bytes(*row)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_packing() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Numbers(#[serde(with = "packed_numbers")] Vec<u32>);
        for numbers in [vec![], vec![7, 0, u32::MAX]] {
            let json = serde_json::to_string(&Numbers(numbers.clone())).unwrap();
            assert_eq!(serde_json::from_str::<Numbers>(&json).unwrap(), Numbers(numbers));
        }
    }

    fn row(key: &str, kind: LeafKind) -> Row {
        Row {
            key: key.into(),
            kind,
            dtype: if kind == LeafKind::Tensor { "bfloat16".into() } else { String::new() },
            shape: vec![4096, 11008],
            params: 45_088_768,
            bytes: u64::MAX,
            value: "0.1 é".into(),
            link: (kind == LeafKind::Bool).then(|| "a.b".into()),
        }
    }

    #[test]
    fn rows_survive_packing() {
        let rows: Vec<Row> = LeafKind::ALL
            .iter()
            .enumerate()
            .map(|(at, &kind)| row(&format!("model.ä{}.weight", at % 3), kind))
            .chain([row("", LeafKind::Int), row("model.ö", LeafKind::Str)])
            .collect();
        assert_eq!(PackedRows::pack(&rows).unpack(), Some(rows));
    }

    #[test]
    fn shared_prefixes_are_sent_once() {
        let rows: Vec<Row> = (0..1000)
            .map(|at| row(&format!("model.layers.{at}.self_attn.weight"), LeafKind::Tensor))
            .collect();
        let packed = PackedRows::pack(&rows);
        assert!(packed.bytes.len() < 1000 * 70, "{} bytes", packed.bytes.len());
        assert_eq!(finish(packed.first(3)).as_deref(), Some(&rows[..3]));
        assert_eq!(packed.unpack(), Some(rows));
    }

    #[test]
    fn rejects_truncated_rows() {
        let whole =
            PackedRows::pack(&[row("model.a", LeafKind::Bool), row("model.b", LeafKind::Tensor)]);
        for end in 0..whole.bytes.len() {
            let cut = PackedRows { count: 2, bytes: whole.bytes[..end].to_vec() };
            assert_eq!(cut.unpack(), None, "cut at {end}");
        }
    }
}
