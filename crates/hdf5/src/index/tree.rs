//! The version 1 tree of chunks, which h5py writes by default.
//!
//! It has no checksums. libhdf5 finds a chunk by comparing keys from the root down, so if keys are
//! out of order it finds other chunks than are listed, or no chunk at all. That is damage, which
//! hdf5-reader does not detect.

use std::collections::HashSet;

use hdf5_reader::Storage;
use hdf5_reader::btree_v1::{BTreeV1Key, BTreeV1Node};
use hdf5_reader::chunk_index::ChunkEntry;
use hdf5_reader::io::Cursor;
use statelens_checkpoint::{Error, Limits, Result};

use crate::error::from_reader;
use crate::source::{Source, Widths};

pub(crate) struct ChunkTree<'a> {
    pub(crate) source: &'a Source,
    pub(crate) root: u64,
    /// Shape of a chunk; in keys it is followed by the size of an element.
    pub(crate) chunk: &'a [u32],
    pub(crate) element: u64,
    /// Children that fit in a node.
    pub(crate) width: u64,
    /// Maximum number of chunks that may be listed.
    pub(crate) most: u64,
    /// The recorded end of the container.
    pub(crate) end: Option<u64>,
}

/// The same limit as in hdf5-reader: deeper than any real tree.
const DEEPEST: u8 = 64;

/// A node that is still to be read: its address, its level if known, and the keys that bound it.
struct PendingChunkNode {
    address: u64,
    level: Option<u8>,
    low: Option<Vec<u64>>,
    high: Option<Vec<u64>>,
}

impl ChunkTree<'_> {
    pub(crate) fn entries(&self) -> Result<Vec<ChunkEntry>> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut open =
            vec![PendingChunkNode { address: self.root, level: None, low: None, high: None }];
        while let Some(waiting) = open.pop() {
            let address = waiting.address;
            let at = |error: Error| self.source.at(address, error);
            if !seen.insert(address) {
                return Err(at(Error::damaged("the tree of a dataset's chunks has a cycle")));
            }
            let node = self.node(address, waiting.level).map_err(at)?;
            let keys = self.keys(&node, &waiting).map_err(at)?;
            if node.level > 0 {
                let children = node.children.iter().zip(keys.windows(2)).rev();
                for (child, keys) in children {
                    open.push(PendingChunkNode {
                        address: *child,
                        level: Some(node.level - 1),
                        low: keys.first().cloned(),
                        high: keys.last().cloned(),
                    });
                }
                continue;
            }
            for ((key, mut offsets), child) in node.keys.iter().zip(keys).zip(&node.children) {
                let BTreeV1Key::RawData { chunk_size, filter_mask, .. } = key else { continue };
                // The last offset is within the element.
                if offsets.pop() != Some(0) {
                    return Err(at(Error::damaged("a chunk that begins within an element")));
                }
                found.push(ChunkEntry {
                    address: *child,
                    size: u64::from(*chunk_size),
                    filter_mask: *filter_mask,
                    offsets,
                });
            }
            Limits::check("chunks of a dataset", found.len() as u64, self.most)?;
        }
        Ok(found)
    }

    fn node(&self, address: u64, level: Option<u8>) -> Result<BTreeV1Node> {
        let Widths { offset, length } = self.source.widths;
        let (wide, key) = (u64::from(offset), 16 + 8 * self.chunk.len() as u64);
        let head = self.source.bytes(address, 8)?;
        let used = u64::from(u16::from_le_bytes([head[6], head[7]]));
        if used > self.width {
            return Err(Error::damaged(format!(
                "a node with {used} chunks of a dataset, and room for {}",
                self.width
            )));
        }
        // Nodes always have the size of full ones, and libhdf5 reads all of each.
        let whole = 8 + 2 * wide + self.width * wide + (self.width + 1) * key;
        let most = self.end.unwrap_or(u64::MAX).min(Storage::len(self.source));
        if address.checked_add(whole).is_none_or(|end| end > most) {
            return Err(Error::damaged("a node of a dataset's chunks runs past the file's end"));
        }
        let len = 8 + 2 * wide + used * wide + (used + 1) * key;
        self.source.spend(len)?;
        let bytes = self.source.bytes(address, len)?;
        let rank = self.chunk.len() as u32;
        let node = BTreeV1Node::parse(&mut Cursor::new(&bytes), offset, length, Some(rank));
        let node = node.map_err(from_reader)?;
        let sound = match level {
            None => node.level < DEEPEST,
            Some(level) => node.level == level,
        };
        match node.node_type == 1 && sound {
            true => Ok(node),
            false => Err(Error::damaged("a node of a dataset's chunk B-tree has no signature")),
        }
    }

    /// Returns the offsets in a node's keys; fails unless they ascend within the bounds of the
    /// node.
    fn keys(&self, node: &BTreeV1Node, within: &PendingChunkNode) -> Result<Vec<Vec<u64>>> {
        let mut keys = Vec::with_capacity(node.keys.len());
        for key in &node.keys {
            let BTreeV1Key::RawData { offsets, .. } = key else {
                return Err(Error::damaged("the index of a dataset lists names"));
            };
            let dims = self.chunk.iter().map(|dim| u64::from(*dim)).chain([self.element]);
            let aligned = offsets.iter().zip(dims).all(|(at, dim)| dim > 0 && at % dim == 0);
            if !aligned && !node.children.is_empty() {
                return Err(Error::damaged(format!(
                    "a key of a dataset's chunks at {offsets:?}, which is within one"
                )));
            }
            keys.push(offsets.clone());
        }
        let low = keys.first().zip(within.low.as_ref()).is_none_or(|(key, low)| key >= low);
        let high = keys.last().zip(within.high.as_ref()).is_none_or(|(key, high)| key <= high);
        let rising = keys.is_sorted_by(|left, right| left < right);
        if node.children.is_empty() || low && high && rising {
            return Ok(keys);
        }
        Err(Error::damaged(
            "the keys of a dataset's chunks are out of order, so libhdf5 does not find all of them",
        ))
    }
}
