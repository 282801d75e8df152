//! The index: a table of what is where.

use std::sync::Arc;

use statelens_checkpoint::{Error, Result, WrittenSegment};

use super::strings::Late;
use super::table::SortedTableWriter;
use crate::tensorflow::crc;
use crate::tensorflow::proto::{put_bytes, put_fixed32, put_number};

/// What the index says of the bundle and of each tensor, in the order of their names.
pub(super) struct BundleIndex {
    pub(super) shards: u64,
    pub(super) rows: Vec<IndexRow>,
}

/// A tensor under a name.
pub(super) struct IndexRow {
    pub(super) name: Vec<u8>,
    /// TensorFlow's number of it.
    pub(super) dtype: u64,
    pub(super) shape: Vec<u64>,
    pub(super) segment: SegmentRef,
}

/// Where the bytes of a tensor are: which segment of which data file.
#[derive(Debug, Clone)]
pub(super) struct SegmentRef {
    pub(super) shard: u64,
    pub(super) segment: usize,
    /// The masked checksum of what is not a tensor of the source.
    pub(super) checksum: ChecksumSource,
}

/// How the checksum of a tensor comes about.
#[derive(Debug, Clone)]
pub(super) enum ChecksumSource {
    /// It is computed while the segment is written.
    Written,
    /// It is known, and masked.
    Known(u32),
    /// The strings know it once they are read.
    Strings(Arc<Late>),
}

impl BundleIndex {
    /// The bytes of the index; `outcome` says what a place turned out to be.
    pub(super) fn encode<'a>(
        &self,
        outcome: &dyn Fn(&SegmentRef) -> Option<&'a WrittenSegment>,
    ) -> Result<Vec<u8>> {
        let mut table = SortedTableWriter::new();
        let mut header = Vec::new();
        put_number(&mut header, 1, self.shards);
        // The version of the format; little-endian, being zero, needs no field.
        put_bytes(&mut header, 3, &[0x08, 0x01]);
        table.add(b"", &header);
        for row in &self.rows {
            let unknown =
                || Error::io("where a tensor was written, and its checksum, is not known");
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
