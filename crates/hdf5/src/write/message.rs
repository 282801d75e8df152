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

#[derive(Default)]
pub(super) struct Messages(Vec<Message>);

struct Message {
    kind: u16,
    /// 1: constant.
    flags: u8,
    body: Vec<u8>,
}

impl Messages {
    pub(super) fn push(&mut self, kind: u16, flags: u8, body: Vec<u8>) {
        self.0.push(Message { kind, flags, body });
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the offset in a header of version 1 of the body of the first message of a kind.
    pub(super) fn position(&self, kind: u16) -> usize {
        let before = self.0.iter().take_while(|message| message.kind != kind);
        let sizes = before.map(|message| MESSAGE_HEADER + message.body.len().next_multiple_of(8));
        HEADER + sizes.sum::<usize>() + MESSAGE_HEADER
    }

    /// Encodes the messages for a header, or a continuation block, of version 1.
    pub(super) fn encode(&self) -> Vec<u8> {
        let size = self.0.iter().map(|message| MESSAGE_HEADER + message.body.len() + 7).sum();
        let mut out = Vec::with_capacity(size);
        for Message { kind, flags, body } in &self.0 {
            out.u16(*kind);
            out.u16(body.len().next_multiple_of(8) as u16);
            out.u32(u32::from(*flags));
            out.extend_from_slice(body);
            out.align();
        }
        out
    }

    /// Returns a header of version 1 with these messages; `elsewhere` more are in continuations.
    pub(super) fn header(&self, elsewhere: usize, links: u32) -> Vec<u8> {
        let messages = self.encode();
        let mut out = vec![1, 0];
        out.u16((self.0.len() + elsewhere) as u16);
        out.u32(links);
        out.u32(messages.len() as u32);
        out.align();
        out.extend(messages);
        out
    }

    /// Returns a header of version 2, for a dataset whose attributes are stored densely. Its link
    /// count would be a message, which is not needed for a single link.
    pub(super) fn header_v2(&self) -> Vec<u8> {
        let size: usize = self.0.iter().map(|message| 4 + message.body.len()).sum();
        let mut out = Vec::from(*b"OHDR\x02\x02");
        out.u32(size as u32);
        for Message { kind, flags, body } in &self.0 {
            out.push(*kind as u8);
            out.u16(body.len() as u16);
            out.push(*flags);
            out.extend_from_slice(body);
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
pub(super) fn fill_value(allocate: u8) -> Vec<u8> {
    vec![2, allocate, 2, 1, 0, 0, 0, 0]
}

/// Returns a layout message for contiguous data.
pub(super) fn contiguous(address: u64, len: u64) -> Vec<u8> {
    let mut out = vec![3, 1];
    out.u64(address);
    out.u64(len);
    out
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
