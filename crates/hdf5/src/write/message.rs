//! Object headers and the messages in them.

use super::bytes::Put;
use super::datatype::Datatype;
use super::encode::Filter;

/// The dataspace of a dataset or attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Space {
    /// No elements: h5py's `Empty`.
    Null,
    Scalar,
    /// An array; at most 32 dimensions.
    Simple(Vec<u64>),
}

pub(super) mod kind {
    pub(in super::super) const DATASPACE: u16 = 0x01;
    pub(in super::super) const DATATYPE: u16 = 0x03;
    pub(in super::super) const FILL_VALUE: u16 = 0x05;
    pub(in super::super) const LAYOUT: u16 = 0x08;
    pub(in super::super) const FILTERS: u16 = 0x0b;
    pub(in super::super) const ATTRIBUTE: u16 = 0x0c;
    pub(in super::super) const CONTINUATION: u16 = 0x10;
    pub(in super::super) const SYMBOL_TABLE: u16 = 0x11;
    pub(in super::super) const ATTRIBUTE_INFO: u16 = 0x15;
}

/// The messages of an object header. A value can be reused for the next header, which saves an
/// allocation for each of a file's hundred thousand datasets.
#[derive(Default)]
pub(super) struct Messages {
    /// The messages as in version 1: each has a header of 8 bytes and a body padded to 8 bytes.
    bytes: Vec<u8>,
    all: Vec<Message>,
}

struct Message {
    kind: u16,
    /// 1: constant.
    flags: u8,
    /// The body in `bytes`, without padding.
    start: usize,
    len: usize,
}

impl Messages {
    /// Adds a message whose body `write` appends. The body begins at a multiple of 8.
    pub(super) fn push(&mut self, kind: u16, flags: u8, write: impl FnOnce(&mut Vec<u8>)) {
        self.bytes.u16(kind);
        self.bytes.u16(0);
        self.bytes.u32(u32::from(flags));
        let start = self.bytes.len();
        write(&mut self.bytes);
        let len = self.bytes.len() - start;
        self.bytes.align();
        let padded = (self.bytes.len() - start) as u16;
        self.bytes[start - 6..start - 4].copy_from_slice(&padded.to_le_bytes());
        self.all.push(Message { kind, flags, start, len });
    }

    /// Removes all messages from number `count` on.
    pub(super) fn truncate(&mut self, count: usize) {
        if let Some(first) = self.all.get(count) {
            self.bytes.truncate(first.start - MESSAGE_HEADER);
            self.all.truncate(count);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Iterates over the bodies of the messages from number `count` on.
    pub(super) fn bodies(&self, count: usize) -> impl Iterator<Item = &[u8]> {
        self.all.iter().skip(count).map(|message| self.body(message))
    }

    fn body(&self, message: &Message) -> &[u8] {
        &self.bytes[message.start..message.start + message.len]
    }

    /// Returns the offset in a header of version 1 of the body of the first message of a kind.
    pub(super) fn position(&self, kind: u16) -> usize {
        let found = self.all.iter().find(|message| message.kind == kind);
        HEADER + found.map_or(self.bytes.len(), |message| message.start)
    }

    /// Returns the messages as they are in a header, or a continuation block, of version 1.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends a header of version 1 with these messages; `elsewhere` more are in continuations.
    /// `out` ends at a multiple of 8.
    pub(super) fn header_into(&self, elsewhere: usize, links: u32, out: &mut Vec<u8>) {
        out.extend([1, 0]);
        out.u16((self.all.len() + elsewhere) as u16);
        out.u32(links);
        out.u32(self.bytes.len() as u32);
        out.align();
        out.extend_from_slice(&self.bytes);
    }

    /// Returns a header of version 2, for a dataset whose attributes are stored densely. Its link
    /// count would be a message, which is not needed for a single link.
    pub(super) fn header_v2(&self) -> Vec<u8> {
        let size: usize = self.all.iter().map(|message| 4 + message.len).sum();
        let mut out = Vec::from(*b"OHDR\x02\x02");
        out.u32(size as u32);
        for message in &self.all {
            out.push(message.kind as u8);
            out.u16(message.len as u16);
            out.push(message.flags);
            out.extend_from_slice(self.body(message));
        }
        out.u32(super::dense::checksum(&out));
        out
    }
}

/// Bytes before the messages of a header of version 1, and before the body of each message.
const HEADER: usize = 16;
const MESSAGE_HEADER: usize = 8;

/// The largest body of a message: a multiple of 8 that fits in 16 bits.
pub(super) const MAX_MESSAGE: usize = 0xfff8;

/// Appends the body of a dataspace message. Version 1 has no null dataspace.
pub(super) fn dataspace(space: &Space, out: &mut Vec<u8>) {
    let dims: &[u64] = match space {
        Space::Null => return out.extend([2, 0, 0, 2]),
        Space::Scalar => &[],
        Space::Simple(dims) => dims,
    };
    out.extend([1, dims.len() as u8, u8::from(!dims.is_empty()), 0]);
    out.u32(0);
    // The dimensions, then the maximum dimensions, which are the same.
    for dim in dims.iter().chain(dims) {
        out.u64(*dim);
    }
}

/// Returns a fill value message: the default value, written if storage is allocated. `allocate` is
/// the time of allocation: 2 late, 3 chunk by chunk.
pub(super) const fn fill_value(allocate: u8) -> [u8; 8] {
    [2, allocate, 2, 1, 0, 0, 0, 0]
}

/// Appends a layout message for contiguous data.
pub(super) fn contiguous(address: u64, len: u64, out: &mut Vec<u8>) {
    out.extend([3, 1]);
    out.u64(address);
    out.u64(len);
}

/// The offset of the address in a contiguous layout message.
pub(super) const CONTIGUOUS_ADDRESS: usize = 2;

/// Returns a layout message for chunks indexed by the B-tree at `address`.
pub(super) fn chunked(address: u64, chunk: &[u64], itemsize: u32) -> Vec<u8> {
    let mut out = vec![3, 2, chunk.len() as u8 + 1];
    out.u64(address);
    for dim in chunk {
        out.u32(*dim as u32);
    }
    out.u32(itemsize);
    out
}

pub(super) fn filters(filter: Filter, datatype: &Datatype) -> Vec<u8> {
    let stages = filter.stages(datatype.size());
    let mut out = vec![1, stages.len() as u8];
    out.zeros(6);
    for stage in stages {
        out.u16(stage.id);
        let name = stage.name.len();
        out.u16(if name == 0 { 0 } else { (name + 1).next_multiple_of(8) as u16 });
        // Optional: may be skipped for a chunk that it does not shrink.
        out.u16(1);
        out.u16(stage.parameters.len() as u16);
        if name > 0 {
            out.name(stage.name);
        }
        for parameter in &stage.parameters {
            out.u32(*parameter);
        }
        if stage.parameters.len() % 2 == 1 {
            out.u32(0);
        }
    }
    out
}
