//! Writes the index: a table with the location of each tensor.

use std::sync::Arc;

use statelens_checkpoint::{Error, Result, WrittenSegment};

use super::strings::Late;
use super::table::SortedTableWriter;
use crate::crc;
use crate::tensorflow::proto::{put_bytes, put_fixed32, put_number};

/// The content of the index: the number of shards, and the tensors in the order of their names.
pub(super) struct BundleIndex {
    pub(super) shards: u64,
    pub(super) rows: Vec<IndexRow>,
}

pub(super) struct IndexRow {
    pub(super) name: Vec<u8>,
    /// TensorFlow's dtype number.
    pub(super) dtype: u64,
    pub(super) shape: Vec<u64>,
    pub(super) segment: SegmentRef,
}

/// The location of a tensor's bytes: data file and segment.
#[derive(Debug, Clone)]
pub(super) struct SegmentRef {
    pub(super) shard: u64,
    pub(super) segment: usize,
    /// The source of the masked checksum.
    pub(super) checksum: ChecksumSource,
}

#[derive(Debug, Clone)]
pub(super) enum ChecksumSource {
    /// Computed while the segment is written.
    Written,
    /// Already known and masked.
    Known(u32),
    /// Known once the strings are read.
    Strings(Arc<Late>),
}

impl BundleIndex {
    /// Returns the bytes of the index. `outcome` returns the segment as written.
    pub(super) fn encode<'a>(
        &self,
        outcome: &dyn Fn(&SegmentRef) -> Option<&'a WrittenSegment>,
    ) -> Result<Vec<u8>> {
        let mut table = SortedTableWriter::new();
        let mut header = Vec::new();
        put_number(&mut header, 1, self.shards);
        // The format version. Little-endian is the default, zero, and needs no field.
        put_bytes(&mut header, 3, &[0x08, 0x01]);
        table.add(b"", &header);
        for row in &self.rows {
            let unknown = || Error::io("the offset of a tensor, and its checksum, are not known");
            let outcome = outcome(&row.segment).ok_or_else(unknown)?;
            let crc = match &row.segment.checksum {
                ChecksumSource::Written => crc::mask(outcome.checksum.ok_or_else(unknown)?),
                ChecksumSource::Known(crc) => *crc,
                ChecksumSource::Strings(strings) => strings.encoded()?.1,
            };
            let mut entry = Vec::new();
            put_number(&mut entry, 1, row.dtype);
            put_bytes(&mut entry, 2, &shape(&row.shape));
            put_number(&mut entry, 3, row.segment.shard);
            put_number(&mut entry, 4, outcome.offset);
            put_number(&mut entry, 5, outcome.len);
            put_fixed32(&mut entry, 6, crc);
            table.add(&row.name, &entry);
        }
        Ok(table.finish())
    }
}

fn shape(shape: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for dim in shape {
        let mut size = Vec::new();
        put_number(&mut size, 1, *dim);
        put_bytes(&mut bytes, 2, &size);
    }
    bytes
}
