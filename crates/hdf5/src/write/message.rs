//! Object headers and the messages in them.

use super::bytes::Put;
use super::datatype::Datatype;
use super::encode::Filter;

/// The dataspace of a dataset or attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Space {
    /// No element: h5py's `Empty`.
    Null,
    /// One element without dimensions.
    Scalar,
    /// An array; at most 32 dimensions.
    Simple(Vec<u64>),
}

/// The types of messages.
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

/// The messages of an object header.
#[derive(Default)]
pub(super) struct Messages(Vec<Message>);

struct Message {
    kind: u16,
    /// 1: never changes.
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

    /// Where in a header of version 1 the body of the first message of a kind begins.
    pub(super) fn position(&self, kind: u16) -> usize {
        let before = self.0.iter().take_while(|message| message.kind != kind);
        let sizes = before.map(|message| MESSAGE_HEADER + message.body.len().next_multiple_of(8));
        HEADER + sizes.sum::<usize>() + MESSAGE_HEADER
    }

    /// As they stand in a header, or a continuation of one, of version 1.
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

    /// A header of version 1 of these messages; `elsewhere` more are in continuations.
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

    /// A header of version 2, for a dataset whose attributes are stored densely. It counts
    /// links in a message; one link needs none.
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

/// Bytes before the messages of a header of version 1, and before the body of each.
const HEADER: usize = 16;
const MESSAGE_HEADER: usize = 8;

/// The largest body of a message, a multiple of 8 in 16 bits.
pub(super) const LARGEST: usize = 0xfff8;

/// Appends the body of a dataspace message. Version 1 knows no null.
pub(super) fn dataspace(space: &Space, out: &mut Vec<u8>) {
    let dims: &[u64] = match space {
        Space::Null => return out.extend([2, 0, 0, 2]),
        Space::Scalar => &[],
        Space::Simple(dims) => dims,
    };
    out.extend([1, dims.len() as u8, u8::from(!dims.is_empty()), 0]);
    out.u32(0);
    // Sizes, then the largest sizes they may grow to: the same.
    for dim in dims.iter().chain(dims) {
        out.u64(*dim);
    }
}

/// A fill value message: the default, written where something is stored. `allocate` is when
/// space is set aside: 2 late, 3 chunk by chunk.
pub(super) fn fill_value(allocate: u8) -> Vec<u8> {
    vec![2, allocate, 2, 1, 0, 0, 0, 0]
}

/// A layout message of one run of bytes.
pub(super) fn contiguous(address: u64, len: u64) -> Vec<u8> {
    let mut out = vec![3, 1];
    out.u64(address);
    out.u64(len);
    out
}

/// Where in a contiguous layout message the address stands.
pub(super) const CONTIGUOUS_ADDRESS: usize = 2;

/// A layout message of chunks that the B-tree at `address` finds.
pub(super) fn chunked(address: u64, chunk: &[u64], itemsize: u32) -> Vec<u8> {
    let mut out = vec![3, 2, chunk.len() as u8 + 1];
    out.u64(address);
    for dim in chunk {
        out.u32(*dim as u32);
    }
    out.u32(itemsize);
    out
}

/// A filter pipeline message.
pub(super) fn filters(filter: Filter, datatype: &Datatype) -> Vec<u8> {
    let stages = filter.stages(datatype.size());
    let mut out = vec![1, stages.len() as u8];
    out.zeros(6);
    for stage in stages {
        out.u16(stage.id);
        let name = stage.name.len();
        out.u16(if name == 0 { 0 } else { (name + 1).next_multiple_of(8) as u16 });
        // Optional: a chunk that it does not shrink may go without.
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
