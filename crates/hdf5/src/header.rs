//! Object headers as raw messages.
//!
//! hdf5-reader parses a header as a whole, and one message that it can't parse (an attribute of a
//! committed type, a virtual layout) fails the object and the listing of its group. It also stops
//! after 1,024 continuation blocks, and a Cerebras root group has one for every few keys. So only
//! the envelope is parsed here, and each message on demand.

use std::collections::{HashSet, VecDeque};

use hdf5_reader::Storage;
use hdf5_reader::checksum::jenkins_lookup3;
use hdf5_reader::messages::shared::SharedMessage;
use hdf5_reader::messages::{MSG_CONTINUATION, MSG_NIL, continuation, shared};
use statelens_checkpoint::{Error, Limits, Result, try_alloc};

use crate::source::Source;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    /// Whether the body is a reference to a message elsewhere.
    pub(crate) shared: bool,
    pub(crate) body: &'a [u8],
}

/// The messages of an object header, in order. Their bodies are stored contiguously.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    bodies: Vec<u8>,
    /// Kind, whether it is shared, and the end of its body.
    entries: Vec<(u16, bool, usize)>,
    /// Whether the header is of version 1, which has no checksums.
    pub(crate) unsealed: bool,
}

impl Messages {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        let mut start = 0;
        self.entries.iter().map(move |(kind, shared, end)| {
            let body = self.bodies.get(start..*end).unwrap_or_default();
            start = *end;
            Message { kind: *kind, shared: *shared, body }
        })
    }

    pub(crate) fn first(&self, kind: u16) -> Option<Message<'_>> {
        self.iter().find(|message| message.kind == kind)
    }

    pub(crate) fn count(&self, kind: u16) -> usize {
        self.entries.iter().filter(|(other, ..)| *other == kind).count()
    }

    fn push(&mut self, kind: u16, shared: bool, body: &[u8]) {
        self.bodies.extend_from_slice(body);
        self.entries.push((kind, shared, self.bodies.len()));
    }
}

/// Reads the messages of the object at `address`, all blocks of its header in order.
pub(crate) fn messages(source: &Source, address: u64, limits: &Limits) -> Result<Messages> {
    read(source, address, limits, usize::MAX)
}

/// Reads the messages in the first few blocks of an object's header: a large header is scattered
/// over the file.
pub(crate) fn first_messages(source: &Source, address: u64, limits: &Limits) -> Result<Messages> {
    read(source, address, limits, 4)
}

fn read(source: &Source, address: u64, limits: &Limits, blocks: usize) -> Result<Messages> {
    let prefix = source.bytes(address, 16.min(Storage::len(source).saturating_sub(address)))?;
    let mut walk = MessageWalk {
        source,
        messages: Messages::default(),
        blocks: VecDeque::new(),
        ordered: false,
        spent: 0,
        limit: limits.structure,
    };
    let at = |error: Error| source.at(address, error);
    match &*prefix {
        [b'O', b'H', b'D', b'R', ..] => walk.version_2(address).map_err(at)?,
        [1, _, n0, n1, _, _, _, _, a, b, c, d, ..] => {
            walk.messages.unsealed = true;
            let said = usize::from(u16::from_le_bytes([*n0, *n1]));
            let size = u32::from_le_bytes([*a, *b, *c, *d]);
            let first = walk.run_1(address.saturating_add(16), u64::from(size)).map_err(at)?;
            // libhdf5 counts only the messages of the first block, and accepts a number that is too
            // high.
            if first > said || first == 0 && said > 0 {
                let what = format!("an object header with {first} messages in its first block");
                return Err(at(
                    Error::damaged(what).expected(format!("the {said} that it counts, or fewer"))
                ));
            }
        }
        _ => {
            return Err(at(
                Error::damaged("there is no object header").expected("a header of version 1 or 2")
            ));
        }
    }
    let mut seen = HashSet::new();
    while let Some((start, len)) = walk.blocks.pop_front() {
        if !seen.insert(start) {
            return Err(at(Error::damaged("the blocks of an object header form a cycle")));
        }
        if seen.len() > blocks {
            break;
        }
        match &*prefix {
            [b'O', ..] => walk.continuation_2(start, len).map_err(at)?,
            _ => drop(walk.run_1(start, len).map_err(at)?),
        }
    }
    Ok(walk.messages)
}

/// Returns the body of a shared message, which is the message of that kind in another object.
pub(crate) fn resolve(
    source: &Source,
    kind: u16,
    reference: &[u8],
    limits: &Limits,
) -> Result<Vec<u8>> {
    let reference = source.parse(reference, |cursor, offset, length, len| {
        shared::parse(cursor, kind, offset, length, len)
    })?;
    match reference {
        SharedMessage::SharedInOhdr { address, .. } => messages(source, address, limits)?
            .iter()
            .find(|found| found.kind == kind && !found.shared)
            .map(|found| found.body.to_vec())
            .ok_or_else(|| {
                Error::damaged("a shared message is not where it should be").at(address)
            }),
        SharedMessage::SharedInSohm { .. } => Err(Error::unsupported(
            "this file keeps messages in a shared message table, which is not read",
        )
        .advice("`h5repack` writes the same content without one.")),
    }
}

struct MessageWalk<'a> {
    source: &'a Source,
    messages: Messages,
    blocks: VecDeque<(u64, u64)>,
    /// Version 2: messages include their creation order.
    ordered: bool,
    spent: u64,
    limit: u64,
}

impl MessageWalk<'_> {
    /// Counts a block before it is read, and records its end as reached.
    fn spend(&mut self, start: u64, len: u64) -> Result<()> {
        self.source.room(start, len)?;
        self.spent = self.spent.saturating_add(len);
        self.source.spend(len)?;
        Limits::check("bytes of one object header", self.spent, self.limit)
    }

    /// Parses a block of version 1, which contains only messages. Returns their number.
    fn run_1(&mut self, start: u64, len: u64) -> Result<usize> {
        self.spend(start, len)?;
        let mut count = 0;
        let bytes = self.source.bytes(start, len)?;
        try_alloc::make_room(&mut self.messages.bodies, bytes.len() as u64)?;
        let mut rest = &*bytes;
        while let [k0, k1, s0, s1, flags, _, _, _, tail @ ..] = rest {
            let size = usize::from(u16::from_le_bytes([*s0, *s1]));
            let kind = u16::from_le_bytes([*k0, *k1]);
            let Some((body, tail)) = tail.split_at_checked(size) else {
                return Err(Error::damaged("a header message is longer than its block"));
            };
            if size % 8 != 0 {
                return Err(Error::damaged("a header message whose size is not a multiple of 8"));
            }
            self.push(kind, *flags, body)?;
            count += 1;
            rest = tail;
        }
        match rest {
            [] => Ok(count),
            _ => Err(Error::damaged("an object header ends within a message")),
        }
    }

    fn version_2(&mut self, address: u64) -> Result<()> {
        let short = || Error::damaged("the object header ends too early");
        let prefix = self
            .source
            .bytes(address, 34.min(Storage::len(self.source).saturating_sub(address)))?;
        let [_, _, _, _, 2, flags, ..] = &*prefix else {
            return Err(Error::unsupported("an object header of a version after 2"));
        };
        let flags = *flags;
        let times = if flags & 0x20 != 0 { 16 } else { 0 };
        let phases = if flags & 0x10 != 0 { 4 } else { 0 };
        let at = 6 + times + phases;
        let width = 1usize << (flags & 3);
        let size = prefix.get(at..at + width).ok_or_else(short)?;
        let size = size.iter().rev().fold(0, |size, byte| size << 8 | u64::from(*byte));
        self.ordered = flags & 0x04 != 0;
        let head = (at + width) as u64;
        let total = size.checked_add(head + 4).ok_or_else(short)?;
        self.block_2(address, total, head)
    }

    fn continuation_2(&mut self, start: u64, len: u64) -> Result<()> {
        if *self.source.bytes(start, 4)? != *b"OCHK" {
            let what = "a block of an object header is not where it should be";
            return Err(self.source.at(start, Error::damaged(what)));
        }
        self.block_2(start, len, 4)
    }

    /// Parses a block of version 2: `head` bytes, messages, a checksum.
    fn block_2(&mut self, start: u64, len: u64, head: u64) -> Result<()> {
        self.spend(start, len)?;
        let bytes = self.source.bytes(start, len)?;
        let Some((body, sum)) = bytes.split_last_chunk::<4>() else {
            return Err(Error::damaged("a block of an object header is too short"));
        };
        let sum = u32::from_le_bytes(*sum);
        if jenkins_lookup3(body) != sum {
            return Err(Error::damaged("the checksum of an object header is wrong"));
        }
        let mut rest = body.get(head as usize..).unwrap_or_default();
        self.messages.bodies.reserve(rest.len());
        let skip = if self.ordered { 2 } else { 0 };
        // Remaining bytes that are too few for a message are a gap.
        while let [kind, s0, s1, flags, tail @ ..] = rest {
            let size = usize::from(u16::from_le_bytes([*s0, *s1]));
            let tail = tail.get(skip..).unwrap_or_default();
            let Some((body, tail)) = tail.split_at_checked(size) else {
                return Err(Error::damaged("a header message is longer than its block"));
            };
            self.push(u16::from(*kind), *flags, body)?;
            rest = tail;
        }
        Ok(())
    }

    fn push(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<()> {
        check_flags(kind, flags)?;
        match kind {
            MSG_NIL => {}
            MSG_TIME_OLD | MSG_TIME => check_time(kind, body)?,
            MSG_REFERENCES if self.messages.unsealed => {
                return Err(Error::damaged(
                    "a number of references in an object header of version 1",
                ));
            }
            MSG_CONTINUATION => {
                let next = self.source.parse(body, continuation::parse)?;
                if next.length == 0 {
                    return Err(Error::damaged("an object header continues in a block of 0 bytes"));
                }
                self.blocks.push_back((next.offset, next.length));
            }
            _ => {
                let shared = flags & 0x02 != 0;
                self.messages.push(kind, shared, body);
            }
        }
        Ok(())
    }
}

/// Message flags (bits 0 to 7 in `H5Opkg.h`): shared or not shareable, and whether a program did
/// not know the message and what it had to do then.
const SHARED: u8 = 0x02;
const DONT_SHARE: u8 = 0x04;
const FAIL_TO_WRITE_IF_UNKNOWN: u8 = 0x08;
const MARK_IF_UNKNOWN: u8 = 0x10;
const WAS_UNKNOWN: u8 = 0x20;
const SHAREABLE: u8 = 0x40;
const FAIL_IF_UNKNOWN: u8 = 0x80;
/// Kinds that may be shared: dataspaces, datatypes, fill values, filters, attributes.
const SHAREABLE_KINDS: [u16; 6] = [0x01, 0x03, 0x04, 0x05, 0x0b, 0x0c];
/// The last kind of message that libhdf5 1.14 knows.
const LAST_KIND: u16 = 0x18;

/// Messages that libhdf5 parses with the header: an object's modification time, as text and in
/// seconds, and its reference count.
const MSG_TIME_OLD: u16 = 0x0e;
const MSG_TIME: u16 = 0x12;
const MSG_REFERENCES: u16 = 0x16;

/// Fails unless a time is valid: 14 digits, or version 1.
fn check_time(kind: u16, body: &[u8]) -> Result<()> {
    let sound = match kind {
        MSG_TIME => body.len() >= 8 && body[0] == 1,
        _ => body.get(..14).is_some_and(|digits| digits.iter().all(u8::is_ascii_digit)),
    };
    match sound {
        true => Ok(()),
        false => Err(Error::damaged("the time of an object's last change is invalid")),
    }
}

/// Fails for flags with which libhdf5 refuses the whole object.
fn check_flags(kind: u16, flags: u8) -> Result<()> {
    let has = |bits: u8| flags & bits == bits;
    let unshareable = kind <= LAST_KIND && !SHAREABLE_KINDS.contains(&kind);
    if has(SHARED | DONT_SHARE)
        || has(WAS_UNKNOWN) && (!has(MARK_IF_UNKNOWN) || has(FAIL_TO_WRITE_IF_UNKNOWN))
        || (has(SHAREABLE) || has(SHARED)) && unshareable
    {
        return Err(Error::damaged(format!("a header message with the flags {flags:#04x}"))
            .expected("flags that do not contradict each other"));
    }
    match kind > LAST_KIND && has(FAIL_IF_UNKNOWN) {
        true => Err(Error::damaged(format!("a header message of the unknown kind {kind:#x}"))
            .expected("one that may be ignored if it is unknown")),
        false => Ok(()),
    }
}
