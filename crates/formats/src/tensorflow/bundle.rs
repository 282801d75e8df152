//! The entries of a bundle's index (`tensorflow/core/protobuf/tensor_bundle.proto`).

use statelens_checkpoint::{ByteOrder, Error, Result};

use super::proto::{FieldValue, Message};
use super::slices::{self, SliceExtents};

/// The header of a bundle: the entry with the empty key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) shards: u64,
    pub(super) byte_order: ByteOrder,
    /// The version of the format.
    pub(super) producer: u64,
}

impl Header {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut header = Self { shards: 0, byte_order: ByteOrder::Little, producer: 0 };
        for field in Message::new(bytes) {
            match field? {
                (1, FieldValue::Varint(shards)) => header.shards = shards,
                (2, FieldValue::Varint(0)) => header.byte_order = ByteOrder::Little,
                (2, FieldValue::Varint(1)) => header.byte_order = ByteOrder::Big,
                (2, FieldValue::Varint(order)) => {
                    return Err(Error::damaged(format!("the byte order has the number {order}"))
                        .expected("0 (little-endian) or 1 (big-endian)"));
                }
                (3, FieldValue::Bytes(version)) => {
                    for field in Message::new(version) {
                        if let (1, FieldValue::Varint(producer)) = field? {
                            header.producer = producer;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(header)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct BundleEntry {
    pub(super) dtype: u64,
    pub(super) shape: Vec<u64>,
    pub(super) shard: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    /// The checksum of the bytes; TensorFlow refuses an entry without one.
    pub(super) crc: Option<u32>,
    /// The slices of a partitioned variable, which have entries of their own.
    pub(super) slices: Vec<SliceExtents>,
}

impl BundleEntry {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut entry = Self::default();
        for field in Message::new(bytes) {
            match field? {
                (1, FieldValue::Varint(dtype)) => entry.dtype = dtype,
                (2, FieldValue::Bytes(bytes)) => entry.shape = shape(bytes)?,
                (3, FieldValue::Varint(shard)) => entry.shard = shard,
                (4, FieldValue::Varint(offset)) => entry.offset = offset,
                (5, FieldValue::Varint(size)) => entry.size = size,
                (6, FieldValue::Fixed32(crc)) => entry.crc = Some(crc).filter(|crc| *crc != 0),
                (7, FieldValue::Bytes(slice)) => entry.slices.push(slices::parse(slice)?),
                _ => {}
            }
        }
        Ok(entry)
    }
}

pub(super) fn shape(bytes: &[u8]) -> Result<Vec<u64>> {
    let mut shape = Vec::new();
    for field in Message::new(bytes) {
        match field? {
            (2, FieldValue::Bytes(dim)) => {
                let mut size = 0;
                for field in Message::new(dim) {
                    if let (1, FieldValue::Varint(number)) = field? {
                        size = number;
                    }
                }
                if i64::try_from(size).is_err() {
                    return Err(Error::damaged("a dimension has a negative length"));
                }
                shape.push(size);
            }
            (3, FieldValue::Varint(1)) => {
                return Err(Error::damaged("a tensor in a checkpoint has no shape"));
            }
            _ => {}
        }
    }
    Ok(shape)
}
