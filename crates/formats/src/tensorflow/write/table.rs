//! Writes a table like TensorFlow's `table_builder.cc` with the options it uses for bundles. See
//! [`crate::tensorflow::table`] for the format.

use statelens_checkpoint::varint::write_number;

use crate::crc;
use crate::tensorflow::table::{FOOTER, MAGIC};

/// A block ends once it has this many bytes.
const BLOCK: usize = 256 << 10;

/// Every 16th key is written whole (a restart point).
const RESTART: usize = 16;

/// A table that is being written. Keys must be added in order.
pub(super) struct SortedTableWriter {
    out: Vec<u8>,
    data: BlockBuilder,
    index: BlockBuilder,
    last: Vec<u8>,
    /// The handle of a block that is not in the index yet, since its key there depends on the next
    /// block.
    ended: Option<Vec<u8>>,
}

impl SortedTableWriter {
    pub(super) fn new() -> Self {
        Self {
            out: Vec::new(),
            data: BlockBuilder::new(RESTART),
            index: BlockBuilder::new(1),
            last: Vec::new(),
            ended: None,
        }
    }

    /// Adds an entry. Its key must be larger than all previous ones.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        if let Some(handle) = self.ended.take() {
            self.index.add(&separator(&self.last, key), &handle);
        }
        self.data.add(key, value);
        self.last.clear();
        self.last.extend_from_slice(key);
        if self.data.len() >= BLOCK {
            self.end_block();
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        if !self.data.bytes.is_empty() {
            self.end_block();
        }
        let metaindex = self.write(BlockBuilder::new(1));
        if let Some(handle) = self.ended.take() {
            self.index.add(&successor(&self.last), &handle);
        }
        let index = std::mem::replace(&mut self.index, BlockBuilder::new(1));
        let index = self.write(index);
        let mut footer = [metaindex, index].concat();
        footer.resize(FOOTER as usize - MAGIC.len(), 0);
        self.out.extend(footer);
        self.out.extend(MAGIC);
        self.out
    }

    fn end_block(&mut self) {
        let block = std::mem::replace(&mut self.data, BlockBuilder::new(RESTART));
        self.ended = Some(self.write(block));
    }

    fn write(&mut self, block: BlockBuilder) -> Vec<u8> {
        let mut bytes = block.finish();
        let mut handle = Vec::new();
        write_number(&mut handle, self.out.len() as u64);
        write_number(&mut handle, bytes.len() as u64);
        // Not compressed.
        bytes.push(0);
        let crc = crc::masked(&bytes);
        self.out.extend(bytes);
        self.out.extend(crc.to_le_bytes());
        handle
    }
}

struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    interval: usize,
    since: usize,
    last: Vec<u8>,
}

impl BlockBuilder {
    fn new(interval: usize) -> Self {
        Self { bytes: Vec::new(), restarts: vec![0], interval, since: 0, last: Vec::new() }
    }

    fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut shared = 0;
        if self.since < self.interval {
            shared = self.last.iter().zip(key).take_while(|(one, other)| one == other).count();
        } else {
            // A block ends soon after 256 KiB, so this fits.
            self.restarts.push(self.bytes.len() as u32);
            self.since = 0;
        }
        let own = &key[shared..];
        write_number(&mut self.bytes, shared as u64);
        write_number(&mut self.bytes, own.len() as u64);
        write_number(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(own);
        self.bytes.extend_from_slice(value);
        self.last.clear();
        self.last.extend_from_slice(key);
        self.since += 1;
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = self.bytes;
        for restart in &self.restarts {
            bytes.extend(restart.to_le_bytes());
        }
        bytes.extend((self.restarts.len() as u32).to_le_bytes());
        bytes
    }
}

/// Returns a short key that is at least `key` and less than `next`.
fn separator(key: &[u8], next: &[u8]) -> Vec<u8> {
    let shared = key.iter().zip(next).take_while(|(one, other)| one == other).count();
    match (key.get(shared), next.get(shared)) {
        (Some(byte), Some(limit)) if *byte < 0xff && byte + 1 < *limit => {
            let mut short = key[..=shared].to_vec();
            short[shared] += 1;
            short
        }
        _ => key.to_vec(),
    }
}

/// Returns a short key that is at least `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    match key.iter().position(|byte| *byte != 0xff) {
        Some(at) => {
            let mut short = key[..=at].to_vec();
            short[at] += 1;
            short
        }
        None => key.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortens_index_keys() {
        assert_eq!(separator(b"layer1/b", b"layer9/a"), b"layer2");
        assert_eq!(separator(b"a", b"ab"), b"a");
        assert_eq!(separator(b"a1", b"a2"), b"a1");
        assert_eq!(successor(b"\xff\xffab"), b"\xff\xffb");
        assert_eq!(successor(b"\xff"), b"\xff");
    }
}
