//! Zip archives: which records there are and where their bytes lie, for every format that is one.
//!
//! The central directory is read with the crate `zip`. Three things are done here because the
//! crate can't do them without opening every member: finding where a member's bytes begin (it
//! makes a decoding reader for each), comparing only the *name* in the local header (its own
//! consistency check also compares sizes, which torch leaves at 0 there
//! and numpy in an extra field), and telling that two
//! members overlap.

mod end;
pub(crate) mod names;
pub(crate) mod write;

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use statelens_checkpoint::{
    Error, FileId, Layout, Limits, Packed, Packing, ReadAt, Result, Span, order, room,
};
use statelens_tensor::{crc, unpacked, unpacked_start};
use zip::CompressionMethod;
use zip::ZipArchive;
use zip::read::{ArchiveOffset, Config, ZipFileEntry};

/// The first local header of a zip archive.
pub(crate) const ZIP: &[u8] = b"PK\x03\x04";

/// Length of a local header without name and extra fields.
pub(crate) const LOCAL_HEADER: u64 = 30;

/// The records of a zip file.
pub(crate) struct Archive {
    source: Arc<dyn ReadAt>,
    file: FileId,
    records: Vec<Record>,
    /// Which records there are, by name: sorted, which takes a tenth of a map.
    by_name: Vec<u32>,
    /// The folder that records are found in, with its slash; empty if there is none.
    root: String,
    comment: String,
    led_by_something: bool,
    /// Names have slashes for the backslashes in the file.
    backslashes: bool,
}

/// One member.
pub(crate) struct Record {
    /// The names of all records: by itself, each would take twice its length.
    names: Arc<[u8]>,
    /// Where its name begins in them, and how long it is.
    name: (u32, u32),
    /// Where its local header is.
    header: u64,
    /// Bytes in the file.
    stored: u64,
    /// Bytes once decompressed.
    pub(crate) len: u64,
    /// Where the next thing in the file begins: its bytes end before that.
    bound: u64,
    method: Method,
    /// Its checksum; 0 may be one that is not known.
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
    /// Why it can't be read.
    fn why(self) -> &'static str {
        match self {
            Self::Stored | Self::Packed(_) => "readable",
            Self::Encrypted => "encrypted",
            Self::TwoLengths => "stored with two different lengths",
            Self::Unusual => "compressed in a way that only few programs know",
        }
    }
}

impl Archive {
    /// Reads the central directory. Fails if it is damaged, names a record twice, or lets
    /// records overlap.
    pub(crate) fn open(source: Arc<dyn ReadAt>, file: FileId, limits: &Limits) -> Result<Self> {
        let len = source.len();
        Self::open_within(source, Span { file, offset: 0, len }, limits)
    }

    /// As [`Archive::open`], for an archive that is only a part of a file: the places in it count
    /// from its own start.
    pub(crate) fn open_within(
        source: Arc<dyn ReadAt>,
        span: Span,
        limits: &Limits,
    ) -> Result<Self> {
        let Span { file, offset: base, len } = span;
        if base.checked_add(len).is_none_or(|end| end > source.len()) {
            return Err(Error::damaged("an archive is said to go on past the end of the file")
                .at(base)
                .advice("The file may be cut short: compare its size with the original."));
        }
        let mut head = [0; 4];
        source.read_at(base, &mut head[..len.min(4) as usize])?;
        let led_by_something = head != *ZIP;
        let archive_offset = match led_by_something {
            false => ArchiveOffset::Known(0),
            true => ArchiveOffset::Detect,
        };
        let adapter = Adapter { source: source.clone(), base, len, at: 0 };
        end::room(&*source, span)?;
        let archive =
            ZipArchive::with_config(Config { archive_offset }, adapter).map_err(damaged)?;
        Limits::check("records of the archive", archive.len() as u64, limits.members)?;
        if archive.has_duplicate_names() {
            return Err(Error::damaged("two records of the archive have the same name")
                .advice("Readers disagree about which of them counts: do not trust the file."));
        }
        end::check(&*source, span, archive.central_directory_start())?;
        let end = base.saturating_add(archive.central_directory_start());
        let comment = String::from_utf8_lossy(archive.comment()).into_owned();
        let directory = archive.metadata();
        let mut all = Vec::new();
        for index in 0..archive.len() {
            let entry = directory.entry(index).map_err(damaged)?;
            room::make_room(&mut all, entry.name_raw().len() as u64)?;
            all.extend_from_slice(entry.name_raw());
        }
        let most = u64::from(u32::MAX);
        Limits::check("bytes of the names in the archive", all.len() as u64, most)?;
        let all: Arc<[u8]> = all.into();
        let mut records = room::vec(archive.len() as u64)?;
        let mut start = 0;
        for index in 0..archive.len() {
            let entry = directory.entry(index).map_err(damaged)?;
            let name = (start, entry.name_raw().len() as u32);
            start += name.1;
            records.push(Record::new(&entry, base, all.clone(), name));
        }
        drop((archive, directory));
        bound(&mut records, end)?;
        let mut by_name = room::collect(0..records.len() as u32)?;
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
            backslashes: false,
        })
    }

    /// Finds records in that folder from now on; `root` ends with its slash.
    pub(crate) fn enter(&mut self, root: String) {
        self.root = root;
    }

    /// Replaces the backslashes in all names by slashes.
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

    /// Whether the file does not begin with the archive.
    pub(crate) fn is_led_by_something(&self) -> bool {
        self.led_by_something
    }

    /// All records, in the order of the directory.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// What the archive says of itself behind its directory.
    pub(crate) fn comment(&self) -> &str {
        &self.comment
    }

    /// The folder of all records with its slash, or nothing.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The record of that name in the folder.
    pub(crate) fn find(&self, name: &str) -> Option<&Record> {
        self.records.get(self.index(&[name])?)
    }

    /// Which of [`Archive::records`] has the name that these parts make.
    pub(crate) fn index(&self, name: &[&str]) -> Option<usize> {
        let mut full = self.root.clone();
        full.extend(name.iter().copied());
        let name = |index: &u32| self.records[*index as usize].raw_name();
        let place = self.by_name.binary_search_by(|index| name(index).cmp(full.as_bytes()));
        Some(self.by_name[place.ok()?] as usize)
    }

    /// The text of a small record, trimmed.
    pub(crate) fn text(&self, name: &str, limits: &Limits) -> Option<String> {
        let record = self.find(name).filter(|record| record.len <= 1024)?;
        let (bytes, _) = self.read(record, limits).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The bytes of a record that is read whole, and whether its checksum is right; a checksum
    /// of 0 is unknown, as torch may write it.
    pub(crate) fn read(&self, record: &Record, limits: &Limits) -> Result<(Vec<u8>, bool)> {
        Limits::check(&format!("bytes of {}", record.name()), record.len, limits.structure)?;
        Limits::check(&format!("bytes of {}", record.name()), record.stored, limits.structure)?;
        let start = self.start(record)?;
        let mut stored = room::zeros(record.stored)?;
        self.source.read_at(start, &mut stored)?;
        let bytes = match record.method {
            Method::Stored => stored,
            Method::Packed(packing) => unpack(packing, &stored, record)?,
            other => return Err(unreadable(record, other.why())),
        };
        let intact = record.crc == 0 || crc::crc32(0, &bytes) == record.crc;
        Ok((bytes, intact))
    }

    /// The first `len` bytes of a record, fewer if it is shorter; its checksum is not looked at.
    pub(crate) fn first(&self, record: &Record, len: u64) -> Result<Vec<u8>> {
        let len = len.min(record.len);
        let start = self.start(record)?;
        // Deflate and LZMA make more of bytes that can't be compressed, but not by so much. Blocks of bzip2
        // come out whole, and have up to 900 kB.
        let (packing, most) = match record.method {
            Method::Stored => (None, len),
            Method::Packed(packing) => {
                let block = if packing == Packing::Bzip2 { 1 << 20 } else { 0 };
                (Some(packing), len.saturating_add(len / 8 + 1024 + block).min(record.stored))
            }
            other => return Err(unreadable(record, other.why())),
        };
        Limits::check(&format!("bytes of {}", record.name()), most, Limits::default().structure)?;
        let mut stored = room::zeros(most)?;
        self.source.read_at(start, &mut stored)?;
        Ok(match packing {
            None => stored,
            Some(packing) => unpacked_start(packing, &stored, len),
        })
    }

    /// Where a record's bytes lie.
    pub(crate) fn layout(&self, record: &Record) -> Result<Layout> {
        let start = self.start(record)?;
        let span = Span { file: self.file, offset: start, len: record.stored };
        match record.method {
            Method::Stored => Ok(Layout::Span(span)),
            Method::Packed(packing) => {
                Ok(Layout::Packed(Packed { span, packing, skip: 0, len: record.len }))
            }
            other => Err(unreadable(record, other.why())),
        }
    }

    /// Where a record's bytes begin: behind its local header, whose name must be the same.
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
            return Err(broken("does not lie where the directory says"));
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
            _ => Err(broken("is said to be longer than the room there is")),
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
            // A place past 64 bits is past every end, too.
            header: base.saturating_add(entry.header_start()),
            stored: entry.compressed_size(),
            len: entry.size(),
            bound: 0,
            method,
            crc: entry.crc32(),
        }
    }

    /// How it is compressed, if it is.
    pub(crate) fn packing(&self) -> Option<Packing> {
        match self.method {
            Method::Packed(packing) => Some(packing),
            _ => None,
        }
    }

    /// Its name, with all folders.
    pub(crate) fn raw_name(&self) -> &[u8] {
        let (start, len) = self.name;
        self.names.get(start as usize..(start + len) as usize).unwrap_or_default()
    }

    /// The name for people.
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(self.raw_name()).into_owned()
    }
}

/// Whether a file that begins like that is a zip archive, perhaps an empty one.
pub(crate) fn is_zip(head: &[u8]) -> bool {
    head.starts_with(ZIP) || head.starts_with(b"PK\x05\x06")
}

/// Whether the file ends as a zip archive does; one that is cut short does not.
pub(crate) fn has_end(source: &dyn ReadAt, archive: Span) -> Result<bool> {
    end::size(source, archive).map(|size| size.is_some())
}

/// The name of the first member of a zip archive, from the first bytes of the file.
pub(crate) fn first_name(head: &[u8]) -> Option<&[u8]> {
    let len = match head.get(26..28)? {
        &[a, b] if head.starts_with(ZIP) => usize::from(u16::from_le_bytes([a, b])),
        _ => return None,
    };
    head.get(LOCAL_HEADER as usize..)?.get(..len)
}

/// Gives every record the place where the next thing begins; fails if records overlap.
fn bound(records: &mut [Record], end: u64) -> Result<()> {
    let mut order: Vec<u32> = room::collect(0..records.len() as u32)?;
    order::by_key(&mut order, |index| records[*index as usize].header);
    for (place, index) in order.iter().enumerate() {
        let next = order.get(place + 1).map_or(end, |next| records[*next as usize].header);
        let record = &mut records[*index as usize];
        record.bound = next;
        // The least that it takes: its local header may hold extra fields besides.
        let least = record
            .header
            .checked_add(LOCAL_HEADER + u64::from(record.name.1))
            .and_then(|start| start.checked_add(record.stored));
        if least.is_none_or(|least| least > next) {
            return Err(Error::damaged(format!(
                "the record {:?} runs into what follows it",
                record.name()
            ))
            .at(record.header)
            .advice("The archive is damaged or made to deceive."));
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
    Error::unsupported(format!("the record {:?} is {what}", record.name()))
        .advice("The library that wrote the file does not do that: unpack the archive and pack it again uncompressed.")
}

fn damaged(_: zip::result::ZipError) -> Error {
    Error::damaged("the directory at the end of the zip archive is missing or damaged").advice(
        "The file may be cut short, or a program changed its line ends or its encoding. Compare its \
         size with the original, and copy or download it again.",
    )
}

/// A part of a source as `Read` and `Seek`, which the crate `zip` wants.
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
