//! Blocks of structure that carry a checksum: all structures that libhdf5 has written since 1.8.
//!
//! hdf5-reader verifies headers and the nodes of trees, but not the blocks of arrays, so damage to
//! them yielded wrong data. Every block is verified here before it is parsed.

use hdf5_reader::StorageBuffer;
use hdf5_reader::checksum::jenkins_lookup3;
use statelens_checkpoint::{Error, Result};

use crate::source::Source;

#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockContext<'a> {
    pub(crate) source: &'a Source,
    /// The owner of the block, for error messages.
    pub(crate) what: &'static str,
    /// Address of the header that the block belongs to; the block contains it.
    pub(crate) owner: u64,
}

impl BlockContext<'_> {
    /// Returns the bytes of a block without its checksum. Checks `signature`, version 0, `kind` (of
    /// an array's elements; `None` for blocks without it) and the address of the owner.
    pub(crate) fn read(
        &self,
        address: u64,
        len: u64,
        signature: &[u8; 4],
        kind: Option<u8>,
    ) -> Result<StorageBuffer> {
        let bytes = self.summed(address, len)?;
        let wide = usize::from(self.source.widths.offset);
        let owner = 5 + usize::from(kind.is_some());
        let sound = bytes.starts_with(signature)
            && bytes.get(4) == Some(&0)
            && kind.is_none_or(|kind| bytes.get(5) == Some(&kind))
            && bytes.get(owner..owner + wide).is_some_and(|at| little(at) == self.owner);
        if !sound {
            let what = format!("a block of {} is not where it should be", self.what);
            return Err(self.source.at(address, Error::damaged(what)));
        }
        Ok(bytes)
    }

    /// Returns bytes that end with their checksum, after verifying it.
    pub(crate) fn summed(&self, address: u64, len: u64) -> Result<StorageBuffer> {
        self.source.spend(len)?;
        let bytes = self.source.bytes(address, len)?;
        let matches = bytes
            .split_last_chunk::<4>()
            .is_some_and(|(body, sum)| jenkins_lookup3(body) == u32::from_le_bytes(*sum));
        match matches {
            true => Ok(bytes),
            false => Err(self.wrong(address)),
        }
    }

    /// Returns the error for a wrong checksum.
    pub(crate) fn wrong(&self, address: u64) -> Error {
        let what = format!("the checksum of {} is wrong", self.what);
        self.source.at(address, Error::damaged(what))
    }
}

/// Returns a little-endian number of up to eight bytes.
pub(crate) fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
