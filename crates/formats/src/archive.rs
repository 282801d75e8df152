//! Zip archives: lists the records and locates their bytes, for every format based on zip.
//!
//! The crate `zip` reads the central directory. This module does three things that the crate can't
//! do without opening every member: it finds the offset of a member's bytes (the crate constructs a
//! decoder for each), it compares only the *name* in the local header (the consistency check of the
//! crate also compares sizes, which torch leaves at 0 and numpy puts into an extra field), and it
//! detects overlapping members.

mod end;
pub(crate) mod names;
pub(crate) mod write;

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use statelens_checkpoint::{
    Error, FileId, Layout, Limits, Packed, Packing, ReadAt, Result, Span, order, try_alloc,
};
use statelens_tensor::{crc, unpacked, unpacked_start};
use zip::CompressionMethod;
use zip::ZipArchive;
use zip::read::{ArchiveOffset, Config, ZipFileEntry};

/// The code of an error about an archive that is not a checkpoint.
pub const ARCHIVE: &str = "archive";

/// The signature of a local header, with which a zip archive begins.
pub(crate) const ZIP: &[u8] = b"PK\x03\x04";

/// The length of a local header without name and extra fields.
pub(crate) const LOCAL_HEADER: u64 = 30;

pub(crate) struct Archive {
    source: Arc<dyn ReadAt>,
    file: FileId,
    records: Vec<Record>,
    /// Indices of the records, sorted by name; takes a tenth of the memory of a map.
    by_name: Vec<u32>,
    /// The folder in which records are looked up, with a trailing slash; may be empty.
    root: String,
    comment: String,
    led_by_something: bool,
    /// Whether several records have the same name; only the last of them is listed.
    repeats: bool,
    /// Whether backslashes in names were replaced by slashes.
    backslashes: bool,
}

pub(crate) struct Record {
    /// The names of all records in one buffer; a separate allocation for each would take twice the
    /// length of the name.
    names: Arc<[u8]>,
    /// Start and length of the name in `names`.
    name: (u32, u32),
    /// Offset of the local header.
    header: u64,
    /// Compressed size in bytes.
    stored: u64,
    /// Uncompressed size in bytes.
    pub(crate) len: u64,
    /// Offset of the next structure in the file, which the bytes of the record must not reach past.
    bound: u64,
    method: Method,
    /// The CRC-32; 0 may mean unknown.
    pub(crate) crc: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Stored,
    Packed(Packing),
    Encrypted,
    TwoLengths,
    Unusual,
}

impl Method {
    fn problem(self) -> &'static str {
        match self {
            Self::Stored | Self::Packed(_) => "readable",
            Self::Encrypted => "encrypted",
            Self::TwoLengths => "stored with two different lengths",
            Self::Unusual => "compressed with a method that few programs support",
        }
    }
}

impl Archive {
    /// Reads the central directory. Fails if it is damaged, if two records have the same name, or
    /// if records overlap.
    pub(crate) fn open(source: Arc<dyn ReadAt>, file: FileId, limits: &Limits) -> Result<Self> {
        let len = source.len();
        Self::open_within(source, Span { file, offset: 0, len }, limits)
    }

    /// Like [`Archive::open`], but for an archive within a file. Offsets in the archive count from
    /// its own start.
    pub(crate) fn open_within(
        source: Arc<dyn ReadAt>,
        span: Span,
        limits: &Limits,
    ) -> Result<Self> {
        let archive = Self::open_repeating(source, span, limits)?;
        match archive.repeats {
            true => Err(Error::damaged("two records of the archive have the same name")
                .advice("Readers disagree about which of them counts: do not trust the file.")),
            false => Ok(archive),
        }
    }

    /// Like [`Archive::open_within`]; of several records with the same name, takes the last one, as
    /// Python's `zipfile` does.
    pub(crate) fn open_repeating(
        source: Arc<dyn ReadAt>,
        span: Span,
        limits: &Limits,
    ) -> Result<Self> {
        let Span { file, offset: base, len } = span;
        if base.checked_add(len).is_none_or(|end| end > source.len()) {
            return Err(Error::damaged("an archive runs past the end of the file")
                .at(base)
                .advice("The file may be cut short: compare its size with the original."));
        }
        let mut head = [0; 4];
        source.read_at(base, &mut head[..len.min(4) as usize])?;
        let led_by_something = !is_zip(&head);
        let archive_offset = match led_by_something {
            false => ArchiveOffset::Known(0),
            true => ArchiveOffset::Detect,
        };
        let adapter = Adapter { source: source.clone(), base, len, at: 0 };
        end::room(&*source, span)?;
        let archive =
            ZipArchive::with_config(Config { archive_offset }, adapter).map_err(damaged)?;
        Limits::check("records of the archive", archive.len() as u64, limits.members)?;
        let repeats = archive.has_duplicate_names();
        end::check(&*source, span, archive.central_directory_start())?;
        let end = base.saturating_add(archive.central_directory_start());
        let comment = String::from_utf8_lossy(archive.comment()).into_owned();
        let directory = archive.metadata();
        let mut all = Vec::new();
        for index in 0..archive.len() {
            let entry = directory.entry(index).map_err(damaged)?;
            try_alloc::make_room(&mut all, entry.name_raw().len() as u64)?;
            all.extend_from_slice(entry.name_raw());
        }
        let most = u64::from(u32::MAX);
        Limits::check("bytes of the names in the archive", all.len() as u64, most)?;
        let all: Arc<[u8]> = all.into();
        let mut records = try_alloc::vec(archive.len() as u64)?;
        let mut start = 0;
        for index in 0..archive.len() {
            let entry = directory.entry(index).map_err(damaged)?;
            let name = (start, entry.name_raw().len() as u32);
            start += name.1;
            records.push(Record::new(&entry, base, all.clone(), name));
        }
        drop((archive, directory));
        bound(&mut records, end)?;
        let mut by_name = try_alloc::collect(0..records.len() as u32)?;
        by_name.sort_unstable_by_key(|index| records[*index as usize].raw_name());
        let root = String::new();
        Ok(Self {
            source,
            file,
            records,
            by_name,
            root,
            comment,
            led_by_something,
            repeats,
            backslashes: false,
        })
    }

    /// Sets the folder in which records are looked up; `root` ends with a slash.
    pub(crate) fn enter(&mut self, root: String) {
        self.root = root;
    }

    pub(crate) fn take_backslashes_for_slashes(&mut self) {
        let Some(first) = self.records.first() else { return };
        let replaced = |byte: &u8| if *byte == b'\\' { b'/' } else { *byte };
        let names: Arc<[u8]> = first.names.iter().map(replaced).collect();
        for record in &mut self.records {
            record.names = names.clone();
        }
        self.backslashes = true;
        let records = &self.records;
        self.by_name.sort_unstable_by_key(|index| records[*index as usize].raw_name());
    }

    /// Returns whether other data precedes the archive in the file.
    pub(crate) fn is_led_by_something(&self) -> bool {
        self.led_by_something
    }

    /// Returns whether several records have the same name.
    pub(crate) fn repeats(&self) -> bool {
        self.repeats
    }

    /// Returns all records, in the order of the directory.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(crate) fn comment(&self) -> &str {
        &self.comment
    }

    /// Returns the folder of all records with a trailing slash, or an empty string.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Finds the record with this name in the folder.
    pub(crate) fn find(&self, name: &str) -> Option<&Record> {
        self.records.get(self.index(&[name])?)
    }

    /// Returns the index in [`Archive::records`] of the record whose name is the concatenation of
    /// these parts.
    pub(crate) fn index(&self, name: &[&str]) -> Option<usize> {
        let mut full = self.root.clone();
        full.extend(name.iter().copied());
        let name = |index: &u32| self.records[*index as usize].raw_name();
        let place = self.by_name.binary_search_by(|index| name(index).cmp(full.as_bytes()));
        Some(self.by_name[place.ok()?] as usize)
    }

    /// Returns the text of a small record, trimmed.
    pub(crate) fn text(&self, name: &str, limits: &Limits) -> Option<String> {
        let record = self.find(name).filter(|record| record.len <= 1024)?;
        let (bytes, _) = self.read(record, limits).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Reads a record whole. Returns its bytes, and whether the checksum matches. A checksum of 0
    /// means unknown, since torch may write it.
    pub(crate) fn read(&self, record: &Record, limits: &Limits) -> Result<(Vec<u8>, bool)> {
        Limits::check(&format!("bytes of {}", record.name()), record.len, limits.structure)?;
        Limits::check(&format!("bytes of {}", record.name()), record.stored, limits.structure)?;
        let start = self.start(record)?;
        let mut stored = try_alloc::zeros(record.stored)?;
        self.source.read_at(start, &mut stored)?;
        let bytes = match record.method {
            Method::Stored => stored,
            Method::Packed(packing) => unpack(packing, &stored, record)?,
            other => return Err(unreadable(record, other.problem())),
        };
        let intact = record.crc == 0 || crc::crc32(0, &bytes) == record.crc;
        Ok((bytes, intact))
    }

    /// Reads the first `len` bytes of a record, or all if it is shorter. Does not verify the
    /// checksum.
    pub(crate) fn first(&self, record: &Record, len: u64) -> Result<Vec<u8>> {
        let len = len.min(record.len);
        let start = self.start(record)?;
        // Deflate and LZMA expand incompressible data, but by less than this margin. bzip2 decodes
        // whole blocks of up to 900 kB.
        let (packing, most) = match record.method {
            Method::Stored => (None, len),
            Method::Packed(packing) => {
                let block = if packing == Packing::Bzip2 { 1 << 20 } else { 0 };
                (Some(packing), len.saturating_add(len / 8 + 1024 + block).min(record.stored))
            }
            other => return Err(unreadable(record, other.problem())),
        };
        Limits::check(&format!("bytes of {}", record.name()), most, Limits::default().structure)?;
        let mut stored = try_alloc::zeros(most)?;
        self.source.read_at(start, &mut stored)?;
        Ok(match packing {
            None => stored,
            Some(packing) => unpacked_start(packing, &stored, len),
        })
    }

    pub(crate) fn layout(&self, record: &Record) -> Result<Layout> {
        let start = self.start(record)?;
        let span = Span { file: self.file, offset: start, len: record.stored };
        match record.method {
            Method::Stored => Ok(Layout::Span(span)),
            Method::Packed(packing) => {
                Ok(Layout::Packed(Packed { span, packing, skip: 0, len: record.len }))
            }
            other => Err(unreadable(record, other.problem())),
        }
    }

    /// Returns the offset of a record's bytes, after its local header. Fails if the local header
    /// has a different name.
    pub(crate) fn start(&self, record: &Record) -> Result<u64> {
        let broken = |what: &str| {
            Error::damaged(format!("the record {:?} {what}", record.name())).at(record.header)
        };
        let name = record.raw_name();
        let mut header = vec![0; LOCAL_HEADER as usize + name.len()];
        let inside =
            record.header.checked_add(header.len() as u64).is_some_and(|end| end <= record.bound);
        if !inside {
            return Err(broken("has no room for its header"));
        }
        self.source.read_at(record.header, &mut header)?;
        if !header.starts_with(ZIP) {
            return Err(broken("is not where the directory says"));
        }
        if header[6] & 1 != 0 {
            return Err(broken("is encrypted, as its own header says"));
        }
        if self.backslashes {
            for byte in &mut header[LOCAL_HEADER as usize..] {
                if *byte == b'\\' {
                    *byte = b'/';
                }
            }
        }
        let length = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
        if length(26) != name.len() as u64 || &header[LOCAL_HEADER as usize..] != name {
            return Err(broken("has another name in its own header"));
        }
        let start = record.header + LOCAL_HEADER + length(26) + length(28);
        match start.checked_add(record.stored) {
            Some(end) if end <= record.bound => Ok(start),
            _ => Err(broken("is longer than the space it has")),
        }
    }
}

impl Record {
    fn new(entry: &ZipFileEntry<'_>, base: u64, names: Arc<[u8]>, name: (u32, u32)) -> Self {
        let method = match entry.compression() {
            _ if entry.encrypted() => Method::Encrypted,
            CompressionMethod::Stored if entry.compressed_size() != entry.size() => {
                Method::TwoLengths
            }
            CompressionMethod::Stored => Method::Stored,
            CompressionMethod::DEFLATE => Method::Packed(Packing::Deflate),
            CompressionMethod::BZIP2 => Method::Packed(Packing::Bzip2),
            CompressionMethod::LZMA => Method::Packed(Packing::Lzma),
            _ => Method::Unusual,
        };
        Self {
            names,
            name,
            // An offset that overflows 64 bits is past the end of any file, too.
            header: base.saturating_add(entry.header_start()),
            stored: entry.compressed_size(),
            len: entry.size(),
            bound: 0,
            method,
            crc: entry.crc32(),
        }
    }

    /// Returns the compression of the record, if it is compressed in a supported way.
    pub(crate) fn packing(&self) -> Option<Packing> {
        match self.method {
            Method::Packed(packing) => Some(packing),
            _ => None,
        }
    }

    /// Returns the reason if the record can't be read: it is encrypted, or compressed in a way that
    /// few programs support.
    pub(crate) fn hindrance(&self) -> Option<&'static str> {
        match self.method {
            Method::Stored | Method::Packed(_) => None,
            other => Some(other.problem()),
        }
    }

    /// Returns the name with all folders.
    pub(crate) fn raw_name(&self) -> &[u8] {
        let (start, len) = self.name;
        self.names.get(start as usize..(start + len) as usize).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(self.raw_name()).into_owned()
    }
}

/// Returns whether the first bytes are those of a zip archive, which may be empty.
pub(crate) fn is_zip(head: &[u8]) -> bool {
    head.starts_with(ZIP) || head.starts_with(b"PK\x05\x06")
}

/// Returns whether the file has an end record of a zip archive. A truncated file does not.
pub(crate) fn has_end(source: &dyn ReadAt, archive: Span) -> Result<bool> {
    end::size(source, archive).map(|size| size.is_some())
}

/// Returns the name of the first member, given the first bytes of the file.
pub(crate) fn first_name(head: &[u8]) -> Option<&[u8]> {
    let len = match head.get(26..28)? {
        &[a, b] if head.starts_with(ZIP) => usize::from(u16::from_le_bytes([a, b])),
        _ => return None,
    };
    head.get(LOCAL_HEADER as usize..)?.get(..len)
}

/// Returns the name of the first member of an archive that other bytes precede; empty if it is not
/// among the first bytes of the file.
pub(crate) fn behind(head: &[u8]) -> Option<&[u8]> {
    let start = memchr::memmem::find(head, ZIP)?;
    Some(first_name(&head[start..]).unwrap_or_default())
}

/// Returns whether the name of a member is that of an array in an archive of numpy.
pub(crate) fn is_array(name: &[u8]) -> bool {
    name.ends_with(b".npy")
}

/// Sets the bound of every record. Fails if records overlap.
fn bound(records: &mut [Record], end: u64) -> Result<()> {
    let mut order: Vec<u32> = try_alloc::collect(0..records.len() as u32)?;
    order::by_key(&mut order, |index| records[*index as usize].header);
    for (place, index) in order.iter().enumerate() {
        let next = order.get(place + 1).map_or(end, |next| records[*next as usize].header);
        let record = &mut records[*index as usize];
        record.bound = next;
        // The minimum size: the local header may also hold extra fields.
        let least = record
            .header
            .checked_add(LOCAL_HEADER + u64::from(record.name.1))
            .and_then(|start| start.checked_add(record.stored));
        if least.is_none_or(|least| least > next) {
            return Err(Error::damaged(format!(
                "the record {:?} overlaps what follows it",
                record.name()
            ))
            .at(record.header)
            .advice("The archive is damaged, or crafted to deceive."));
        }
    }
    Ok(())
}

fn unpack(packing: Packing, stored: &[u8], record: &Record) -> Result<Vec<u8>> {
    unpacked(packing, stored, record.len)?.ok_or_else(|| {
        Error::damaged(format!("the record {:?} can't be decompressed", record.name()))
            .at(record.header)
    })
}

fn unreadable(record: &Record, what: &str) -> Error {
    Error::unsupported(format!("the record {:?} is {what}", record.name())).advice(
        "The library never writes such files: unpack the archive, and pack it again \
                 uncompressed.",
    )
}

fn damaged(_: zip::result::ZipError) -> Error {
    Error::damaged("the directory at the end of the zip archive is missing or damaged").advice(
        "The file may be cut short, or a program changed its line endings or its encoding. Compare \
         its size with the original, and copy or download it again.",
    )
}

/// Adapts a part of a source to `Read` and `Seek`, as the crate `zip` needs them.
struct Adapter {
    source: Arc<dyn ReadAt>,
    base: u64,
    len: u64,
    at: u64,
}

impl Read for Adapter {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.len.saturating_sub(self.at);
        let len = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
        self.source.read_at(self.base + self.at, &mut buffer[..len]).map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for Adapter {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(delta) => self.len.checked_add_signed(delta),
            SeekFrom::Current(delta) => self.at.checked_add_signed(delta),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
