//! Plans a zip archive in the layout that torch writes.
//!
//! Members are stored, never deflated, since torch and numpy map them into memory. All sizes are
//! known in advance, and so are all offsets. The CRC-32 of a tensor's bytes is not; it is written
//! after the bytes (in a data descriptor, as torch does) and in the central directory.

use std::sync::Arc;

use crc32fast::Hasher;
use statelens_checkpoint::{Checksum, Data, Error, Outcomes, Result, Segment, TensorId};
use statelens_tensor::crc;

use super::names;
use crate::advice;

/// Torch aligns the data of every record to this many bytes.
const ALIGNMENT: u64 = 64;
const LOCAL_HEADER: u64 = 30;
const CENTRAL_HEADER: u64 = 46;
/// Sizes and offsets from this value on need the 64-bit fields.
const ZIP64: u64 = 0xffff_ffff;
/// Bit 11: the name is UTF-8.
const FLAG_UTF8: u16 = 1 << 11;
/// Bit 3: the CRC follows the data.
const FLAG_DESCRIPTOR: u16 = 1 << 3;
/// The ID of the extra field that torch uses for padding in local headers.
const PADDING_ID: [u8; 2] = *b"FB";

/// A file to be written to the archive.
pub(crate) struct NewRecord {
    /// The full name, such as `archive/data/0`.
    pub(crate) name: String,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    /// Bytes that are already known.
    Made(Vec<u8>),
    /// The logical bytes of a tensor, and their number.
    Tensor(TensorId, u64),
    /// Known bytes followed by the logical bytes of a tensor.
    Led(Vec<u8>, TensorId, u64),
}

/// Returns the segments of an archive of these records, in this order. `comment` becomes the
/// archive comment; it is dropped if it takes 64 KiB or more.
pub(crate) fn layout(records: Vec<NewRecord>, comment: &str) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut entries: Vec<DirectoryEntry> = Vec::with_capacity(records.len());
    let mut at = 0u64;
    for NewRecord { name, body } in records {
        if names::leads_out(&name) {
            return Err(Error::refused(format!(
                "a member of the archive would be named {name:?}, which leads outside its folder"
            ))
            .advice(advice::rename_or_exclude()));
        }
        let entry = DirectoryEntry::new(name, &body, at)?;
        let header = entry.local_header();
        at = at.checked_add(header.len() as u64 + entry.len + entry.descriptor_len()).ok_or_else(
            || Error::unsupported("the archive would be larger than 64 bits can count"),
        )?;
        match body {
            Body::Made(bytes) => {
                let crc = crc::crc32(0, &bytes);
                let bytes = [header, bytes, entry.descriptor(crc)].concat();
                segments.push(Segment::Bytes(bytes.into()));
                entries.push(DirectoryEntry { crc: Crc::Known(crc), ..entry });
            }
            Body::Tensor(_, 0) => {
                segments.push(Segment::Bytes(header.into()));
                entries.push(entry);
            }
            Body::Led(lead, _, 0) => {
                let crc = crc::crc32(0, &lead);
                let bytes = [header, lead, entry.descriptor(crc)].concat();
                segments.push(Segment::Bytes(bytes.into()));
                entries.push(DirectoryEntry { crc: Crc::Known(crc), ..entry });
            }
            Body::Tensor(tensor, len) | Body::Led(_, tensor, len) => {
                let lead = if let Body::Led(lead, ..) = &body { &lead[..] } else { &[] };
                segments.push(Segment::Bytes([&header, lead].concat().into()));
                let lead = crc::crc32(0, lead);
                let data = segments.len();
                segments.push(Segment::Data(Data::plain(tensor, Checksum::Crc32)));
                let entry =
                    DirectoryEntry { crc: Crc::OfSegment { lead, segment: data, len }, ..entry };
                let (behind, len) = (entry.clone(), entry.descriptor_len());
                segments.push(Segment::Late {
                    len: Some(len),
                    make: Arc::new(move |outcomes| {
                        Ok(behind.descriptor(behind.crc.value(outcomes)?))
                    }),
                });
                entries.push(entry);
            }
        }
    }
    segments.push(directory(entries, at, comment));
    Ok(segments)
}

/// Returns the central directory and the end records. Like torch, always writes the 64-bit end
/// record, except for an empty archive, which readers recognise by its first bytes: they must be
/// those of the 32-bit end record.
fn directory(entries: Vec<DirectoryEntry>, start: u64, comment: &str) -> Segment {
    // Readers search for the end record from the end of the file, so the comment must not contain
    // its signature. Removing control characters ensures that.
    let comment: String = comment.chars().filter(|c| !c.is_control()).collect();
    let (comment, comment_len) = match u16::try_from(comment.len()) {
        Ok(len) => (comment, len),
        Err(_) => (String::new(), 0),
    };
    let len: u64 = entries.iter().map(|entry| entry.central_len()).sum();
    let count = entries.len() as u64;
    let make = move |outcomes: &Outcomes<'_>| {
        let mut out = Vec::new();
        for entry in &entries {
            entry.central_header(entry.crc.value(outcomes)?, &mut out);
        }
        if count > 0 {
            out.extend_from_slice(b"PK\x06\x06");
            put(&mut out, &44u64.to_le_bytes());
            put(&mut out, &[0x1e, 0x03, 45, 0]);
            put(&mut out, &[0; 8]);
            for field in [count, count, len, start] {
                put(&mut out, &field.to_le_bytes());
            }
            out.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            put(&mut out, &(start + len).to_le_bytes());
            put(&mut out, &1u32.to_le_bytes());
        }
        out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
        let count16 = u16::try_from(count).unwrap_or(u16::MAX);
        put(&mut out, &count16.to_le_bytes());
        put(&mut out, &count16.to_le_bytes());
        put(&mut out, &capped(len).to_le_bytes());
        put(&mut out, &capped(start).to_le_bytes());
        put(&mut out, &comment_len.to_le_bytes());
        put(&mut out, comment.as_bytes());
        Ok(out)
    };
    let wide = if count > 0 { 56 + 20 } else { 0 };
    Segment::Late { len: Some(len + wide + 22 + u64::from(comment_len)), make: Arc::new(make) }
}

#[derive(Clone)]
struct DirectoryEntry {
    name: Arc<str>,
    /// Offset of the local header.
    at: u64,
    len: u64,
    crc: Crc,
}

#[derive(Clone, Copy)]
enum Crc {
    Known(u32),
    /// The CRC of bytes with the CRC `lead`, followed by the `len` bytes of a segment.
    OfSegment {
        lead: u32,
        segment: usize,
        len: u64,
    },
}

impl Crc {
    fn value(self, outcomes: &Outcomes<'_>) -> Result<u32> {
        match self {
            Self::Known(crc) => Ok(crc),
            Self::OfSegment { lead, segment, len } => {
                let outcome = outcomes.here().get(segment);
                let crc = outcome.and_then(|outcome| outcome.checksum).ok_or_else(|| {
                    Error::io("the checksum of a record is needed before it is computed")
                })?;
                let mut whole = Hasher::new_with_initial(lead);
                whole.combine(&Hasher::new_with_initial_len(crc, len));
                Ok(whole.finalize())
            }
        }
    }
}

impl DirectoryEntry {
    fn new(name: String, body: &Body, at: u64) -> Result<Self> {
        if name.len() > 0x7fff {
            return Err(Error::unsupported("the name of a record is longer than zip can hold"));
        }
        let len = match body {
            Body::Made(bytes) => bytes.len() as u64,
            Body::Tensor(_, len) => *len,
            Body::Led(lead, _, len) => len.saturating_add(lead.len() as u64),
        };
        Ok(Self { name: name.into(), at, len, crc: Crc::Known(0) })
    }

    fn flags(&self) -> u16 {
        if self.len == 0 { FLAG_UTF8 } else { FLAG_UTF8 | FLAG_DESCRIPTOR }
    }

    fn local_header(&self) -> Vec<u8> {
        let mut extra = Vec::new();
        if self.len >= ZIP64 {
            put(&mut extra, &[1, 0, 16, 0]);
            put(&mut extra, &self.len.to_le_bytes());
            put(&mut extra, &self.len.to_le_bytes());
        }
        let before = self.at + LOCAL_HEADER + self.name.len() as u64 + extra.len() as u64 + 4;
        let padding = (before.next_multiple_of(ALIGNMENT) - before) as u16;
        put(&mut extra, &PADDING_ID);
        put(&mut extra, &padding.to_le_bytes());
        extra.resize(extra.len() + usize::from(padding), b'Z');

        let mut out = b"PK\x03\x04\0\0".to_vec();
        put(&mut out, &self.flags().to_le_bytes());
        // Method (stored), time, date, then CRC and sizes, which follow the data.
        put(&mut out, &[0; 6 + 12]);
        put(&mut out, &(self.name.len() as u16).to_le_bytes());
        put(&mut out, &(extra.len() as u16).to_le_bytes());
        put(&mut out, self.name.as_bytes());
        put(&mut out, &extra);
        out
    }

    fn descriptor_len(&self) -> u64 {
        match (self.len, self.wide_descriptor()) {
            (0, _) => 0,
            (_, false) => 16,
            (_, true) => 24,
        }
    }

    /// Returns whether the descriptor has 64-bit sizes. Torch writes them for records that are
    /// large or far into the file.
    fn wide_descriptor(&self) -> bool {
        self.len >= ZIP64 || self.at >= ZIP64
    }

    fn descriptor(&self, crc: u32) -> Vec<u8> {
        let mut out = Vec::new();
        if self.len == 0 {
            return out;
        }
        out.extend_from_slice(b"PK\x07\x08");
        put(&mut out, &crc.to_le_bytes());
        for _ in 0..2 {
            match self.wide_descriptor() {
                true => put(&mut out, &self.len.to_le_bytes()),
                false => put(&mut out, &capped(self.len).to_le_bytes()),
            }
        }
        out
    }

    /// Returns the 64-bit fields that the central header needs, in the order of the zip
    /// specification.
    fn wide_fields(&self) -> Vec<u64> {
        let mut fields = Vec::new();
        if self.len >= ZIP64 {
            fields.extend([self.len, self.len]);
        }
        if self.at >= ZIP64 {
            fields.push(self.at);
        }
        fields
    }

    fn central_len(&self) -> u64 {
        let wide = match self.wide_fields().len() as u64 {
            0 => 0,
            fields => 4 + 8 * fields,
        };
        CENTRAL_HEADER + self.name.len() as u64 + wide
    }

    fn central_header(&self, crc: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b"PK\x01\x02\0\0\0\0");
        put(out, &self.flags().to_le_bytes());
        put(out, &[0; 6]);
        put(out, &crc.to_le_bytes());
        put(out, &capped(self.len).to_le_bytes());
        put(out, &capped(self.len).to_le_bytes());
        put(out, &(self.name.len() as u16).to_le_bytes());
        let wide = self.wide_fields();
        let extra = if wide.is_empty() { 0 } else { 4 + 8 * wide.len() as u16 };
        put(out, &extra.to_le_bytes());
        // Comment, disk, internal and external attributes.
        put(out, &[0; 2 + 2 + 2 + 4]);
        put(out, &capped(self.at).to_le_bytes());
        put(out, self.name.as_bytes());
        if !wide.is_empty() {
            put(out, &[1, 0]);
            put(out, &(8 * wide.len() as u16).to_le_bytes());
            for field in wide {
                put(out, &field.to_le_bytes());
            }
        }
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}

/// Returns the 32-bit field for a value: the value, or the marker that refers to the 64-bit field.
fn capped(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
