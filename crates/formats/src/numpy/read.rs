use std::collections::HashSet;
use std::sync::Arc;

use statelens_checkpoint::{
    Array, Builder, Checkpoint, Dict, DictKey, Error, ErrorKind, FileId, FileSet, Finding,
    FormatInfo, Global, Grade, Layout, Limits, Opaque, Packed, Progress, Result, Setting, Span,
    Strided, Tensor, Text, Value, ValueId, advice, contiguous_strides, fortran_strides, try_alloc,
};
use statelens_pickle::{NoStorages, ScanOptions};

use super::header::{ElementType, Header, MAGIC, PREFIX, array_len, lengths};
use crate::archive::{Archive, Record, names};
use crate::source_damage;

/// Reads a file with one array or an archive of arrays.
pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    progress.check(0, 0)?;
    let main = files.main()?;
    let head = files.read_vec(main, 0, files.len(main).min(MAGIC.len() as u64))?;
    match head == MAGIC {
        true => read_array(files, limits),
        false => read_archive(files, limits, progress),
    }
}

/// The maximum size in bytes of all members that are not arrays. For others only the name is shown.
const MAX_BYTES: u64 = 16 << 20;
/// The number of bytes first read of an array; numpy pads short headers to this.
const FIRST: u64 = 128;

fn read_array(files: FileSet, limits: &Limits) -> Result<Checkpoint> {
    let main = files.main()?;
    let mut reader = NumpyReader {
        builder: Builder::new(limits),
        limits,
        findings: Vec::new(),
        member: String::new(),
        before: None,
    };
    let source = ArraySource::File(&files, main);
    let (root, header) = reader.array(&source, source.first(FIRST)?)?;
    let NumpyReader { builder, findings, .. } = reader;
    let mut facts = Vec::new();
    if header.fortran {
        facts.push(("Order".to_owned(), "Fortran: the first index varies fastest".to_owned()));
    }
    let format = FormatInfo {
        id: "npy",
        name: "NumPy array",
        version: format!("{}.{}", header.version.0, header.version.1),
        facts,
        ..FormatInfo::default()
    };
    builder.finish(root, format, files, findings)
}

fn read_archive(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let main = files.main()?;
    let span = Span { file: main, offset: 0, len: files.len(main) };
    let contents = archive(&files, span, Builder::new(limits), progress)?;
    let format = FormatInfo {
        id: "npz",
        name: "NumPy archive",
        facts: vec![("Members".into(), contents.members.to_string())],
        ..FormatInfo::default()
    };
    contents.builder.finish(contents.root, format, files, contents.findings)
}

/// The contents of an archive of arrays.
pub(crate) struct ArchiveContents {
    pub(crate) builder: Builder,
    /// A dict with the name of each member.
    pub(crate) root: ValueId,
    pub(crate) findings: Vec<Finding>,
    members: u64,
}

/// Reads the archive of arrays at `span`.
pub(crate) fn archive(
    files: &FileSet,
    span: Span,
    builder: Builder,
    progress: &mut dyn Progress,
) -> Result<ArchiveContents> {
    let limits = &builder.limits().clone();
    let archive = Archive::open_repeating(files.structure(span.file)?, span, limits)?;
    let mut reader = NumpyReader {
        builder,
        limits,
        findings: names::finding(archive.records().iter()).into_iter().collect(),
        member: String::new(),
        before: None,
    };
    if archive.is_led_by_something() {
        reader.findings.push(
            Finding::new(Grade::Warning, "There are bytes before the archive")
                .detail("`numpy.load` refuses a file that does not begin with the archive.")
                .advice(advice!["Write a copy with ", Setting::Convert, ": NumPy reads that."])
                .refused(),
        );
    }
    if archive.repeats() {
        reader.findings.push(
            Finding::new(Grade::Damage, "Several members of the archive have the same name")
                .detail(
                    "`numpy.load` returns the last one, as is done here; the others are hidden.",
                )
                .advice("Find out who wrote the file; do not convert it as it is."),
        );
    }
    let mut entries = try_alloc::vec(archive.len() as u64)?;
    let mut unclear = HashSet::new();
    let mut room = MAX_BYTES;
    let total = archive.len() as u64;
    for (done, record) in archive.records().iter().enumerate() {
        if done.is_multiple_of(256) {
            progress.check(done as u64, total)?;
        }
        let full = name_in_python(record);
        let id = reader.member(&archive, record, &mut room)?;
        if let Some(Value::Array(Array { tensor, .. })) = reader.builder.value(id)
            && let Some(tensor) = reader.builder.tensor(*tensor)
        {
            let key = full.strip_suffix(".npy").unwrap_or(&full);
            progress.found(&key, &tensor.dtype, &tensor.shape);
        }
        // numpy removes the extension `.npy` from the names of members. If that collides with
        // another member, the full name is used.
        let short = full.strip_suffix(".npy").unwrap_or(&full);
        let key = match is_taken(&archive, done, &full, short, &mut unclear)? {
            false => short,
            true => {
                if reader.findings.len() < MAX_DUPLICATES {
                    reader.findings.push(twice(short));
                }
                &full
            }
        };
        entries.push((DictKey::from(key), id));
    }
    progress.check(total, total)?;
    let NumpyReader { mut builder, mut findings, .. } = reader;
    let mark = archive.comment().strip_prefix(source_damage::MARK);
    findings.extend(mark.map(|text| source_damage::carried(text.trim_start_matches([':', ' ']))));
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?;
    Ok(ArchiveContents { builder, root, findings, members: total })
}

/// Returns the name of a member as Python's `zipfile` decodes it: if it is not UTF-8, in the code
/// page of the first zip program.
fn name_in_python(record: &Record) -> String {
    let decoded = |byte: &u8| match byte.checked_sub(0x80) {
        None => char::from(*byte),
        Some(at) => CP437.chars().nth(at.into()).unwrap_or(char::REPLACEMENT_CHARACTER),
    };
    let name = record.raw_name();
    std::str::from_utf8(name).map_or_else(|_| name.iter().map(decoded).collect(), str::to_owned)
}

/// The upper half of code page 437.
const CP437: &str = "\
    ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐\
    └┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// Returns whether a member before the one at `index`, which is called `full`, has the same `short`
/// name. `unclear` collects the names that are not UTF-8 in the archive.
fn is_taken(
    archive: &Archive,
    index: usize,
    full: &str,
    short: &str,
    unclear: &mut HashSet<String>,
) -> Result<bool> {
    let is_unclear = archive.records()[index].raw_name() != full.as_bytes();
    if unclear.contains(short) || is_unclear && !try_alloc::add(unclear, short.to_owned())? {
        return Ok(true);
    }
    // If one of them has the extension, the other does not, and keeps its name.
    let other = match short.len() < full.len() {
        true if is_unclear => archive.index(&[full]).or_else(|| archive.index(&[short])),
        true if short.ends_with(".npy") => return Ok(false),
        true => archive.index(&[short]),
        false => archive.index(&[short, ".npy"]),
    };
    Ok(other.is_some_and(|other| other < index))
}

/// The maximum number of findings about equal names.
const MAX_DUPLICATES: usize = 100;

/// Returns the finding for two members with the same name in numpy.
fn twice(name: &str) -> Finding {
    Finding::new(Grade::Damage, format!("Two members of the archive are named `{name}` to numpy"))
        .detail(
            "`numpy.load` removes the ending `.npy` and returns one of them under that name; \
                 the other one is hidden. Both are shown here.",
        )
        .advice("Find out who wrote the file; do not convert it as it is.")
        .place(name)
}

/// The location of an array, including its header.
enum ArraySource<'a> {
    File(&'a FileSet, FileId),
    Member(&'a Archive, &'a Record),
}

impl ArraySource<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::File(files, file) => files.len(*file),
            Self::Member(_, record) => record.len,
        }
    }

    fn first(&self, len: u64) -> Result<Vec<u8>> {
        match self {
            Self::File(files, file) => files.read_vec(*file, 0, len.min(files.len(*file))),
            Self::Member(archive, record) => archive.first(record, len),
        }
    }

    /// Returns all bytes, and their offset in the file if there is one.
    fn whole(&self, limits: &Limits) -> Result<(Vec<u8>, u64)> {
        match self {
            Self::File(files, file) => {
                let len = files.len(*file);
                Limits::check("bytes of a pickle", len, limits.structure)?;
                Ok((files.read_vec(*file, 0, len)?, 0))
            }
            Self::Member(archive, record) => {
                let (bytes, intact) = archive.read(record, limits)?;
                match intact {
                    true => Ok((bytes, archive.start(record)?)),
                    false => {
                        Err(Error::damaged("the checksum is wrong").advice("Fetch the file again."))
                    }
                }
            }
        }
    }

    /// Returns the layout of everything from the byte `skip` on.
    fn rest(&self, skip: u64) -> Result<Layout> {
        let short = |_| Error::damaged("an array ends before its elements");
        let span = match self {
            Self::File(files, file) => Span { file: *file, offset: 0, len: files.len(*file) },
            Self::Member(archive, record) => match archive.layout(record)? {
                Layout::Packed(Packed { span, packing, len, .. }) => {
                    let len = len.checked_sub(skip).ok_or(()).map_err(short)?;
                    return Ok(Layout::Packed(Packed { span, packing, skip, len }));
                }
                Layout::Span(span) => span,
                _ => {
                    return Err(Error::unsupported("a member that is neither stored nor deflated"));
                }
            },
        };
        let len = span.len.checked_sub(skip).ok_or(()).map_err(short)?;
        Ok(Layout::Span(Span { offset: span.offset + skip, len, ..span }))
    }
}

struct NumpyReader<'a> {
    builder: Builder,
    limits: &'a Limits,
    findings: Vec<Finding>,
    /// The member that is being read; empty for a file with a single array.
    member: String,
    /// The last header text and its parsed form: consecutive arrays often have the same shape.
    before: Option<(Vec<u8>, Header)>,
}

impl NumpyReader<'_> {
    /// Reads a member. An unreadable member does not affect the others.
    fn member(&mut self, archive: &Archive, record: &Record, room: &mut u64) -> Result<ValueId> {
        self.member = name_in_python(record);
        match self.try_member(archive, record, room) {
            Ok(id) => Ok(id),
            Err(error) if matches!(error.kind(), ErrorKind::Limit | ErrorKind::Io) => {
                Err(error.context(&self.member))
            }
            Err(error) => {
                self.findings.push(
                    Finding::new(Grade::Damage, "A member of the archive can't be read")
                        .detail(error.to_string())
                        .place(self.member.clone()),
                );
                self.builder.push(inert("ndarray", error.what().into()))
            }
        }
    }

    fn try_member(
        &mut self,
        archive: &Archive,
        record: &Record,
        room: &mut u64,
    ) -> Result<ValueId> {
        let source = ArraySource::Member(archive, record);
        let first = source.first(FIRST)?;
        if first.starts_with(MAGIC) {
            return Ok(self.array(&source, first)?.0);
        }
        if record.len > *room {
            let what = format!("{} bytes, which are not shown", record.len);
            return self.builder.push(inert("bytes", what.into()));
        }
        *room -= record.len;
        let (data, _) = source.whole(self.limits)?;
        self.builder.push(Value::Bytes { data: data.into(), mutable: false })
    }

    fn array(&mut self, source: &ArraySource<'_>, mut first: Vec<u8>) -> Result<(ValueId, Header)> {
        let (start, len) = lengths(first.get(..PREFIX as usize).unwrap_or(&first))?;
        let skip = start + len;
        if skip > source.len() {
            return Err(Error::damaged(format!(
                "the description of a numpy array should have {len} bytes and has {}",
                source.len().saturating_sub(start)
            ))
            .advice("The file may be cut short: compare its size with the original."));
        }
        if skip > first.len() as u64 {
            first = source.first(skip)?;
        }
        let text = first.get(start as usize..skip as usize);
        let text = text.ok_or_else(|| Error::damaged("the description can't be decompressed"))?;
        // `lengths` checked that the version is there.
        let version = (first[6], first[7]);
        let header = match &self.before {
            Some((same, header)) if same == text && header.version == version => header.clone(),
            _ => {
                let header = Header::parse(version, text).map_err(|error| error.at(start))?;
                self.before = Some((text.to_vec(), header.clone()));
                header
            }
        };
        Limits::check("dimensions of an array", header.shape.len() as u64, self.limits.rank)?;
        let id = match &header.element {
            ElementType::Objects => self.objects(source, skip)?,
            ElementType::Plain(dtype, order) => {
                let mut tensor =
                    Tensor::new(dtype.clone(), header.shape.clone(), Layout::Inline([].into()));
                tensor.byte_order = *order;
                tensor.layout = self.layout(source, skip, &tensor, header.fortran)?;
                let tensor = self.builder.push_tensor(tensor)?;
                self.builder.push(Value::Array(Array { tensor, scalar: false }))?
            }
        };
        Ok((id, header))
    }

    fn layout(
        &mut self,
        source: &ArraySource<'_>,
        skip: u64,
        tensor: &Tensor,
        fortran: bool,
    ) -> Result<Layout> {
        let too_large = || {
            Error::damaged(format!(
                "an array of shape {:?} is larger than 64 bits can count",
                tensor.shape
            ))
        };
        let wanted = array_len(tensor).ok_or_else(too_large)?;
        let there = source.len() - skip;
        if there < wanted {
            return Err(Error::damaged(format!(
                "an array of shape {:?} and dtype {} has {there} bytes",
                tensor.shape, tensor.dtype
            ))
            .at(skip)
            .expected(format!("{wanted}"))
            .advice("The file may be cut short: compare its size with the original."));
        }
        if there > wanted {
            self.findings.push(
                Finding::new(Grade::Note, format!("{} bytes follow the array", there - wanted))
                    .detail("numpy ignores them; they are not shown.")
                    .place(self.member.clone()),
            );
        }
        let mut rest = source.rest(skip)?;
        if let Layout::Span(span) = &mut rest {
            span.len = wanted;
        }
        let views = fortran && tensor.shape.iter().filter(|dim| **dim != 1).count() > 1;
        if !views && (there == wanted || matches!(rest, Layout::Span(_))) {
            return Ok(rest);
        }
        let strides = match fortran {
            true => fortran_strides(&tensor.shape),
            false => contiguous_strides(&tensor.shape),
        };
        Ok(Layout::Strided(Strided {
            storage: Arc::new(rest),
            storage_len: wanted,
            offset: 0,
            strides: strides.ok_or_else(too_large)?,
        }))
    }

    /// Reads an array of objects from its pickle, as inert data.
    fn objects(&mut self, source: &ArraySource<'_>, skip: u64) -> Result<ValueId> {
        let (bytes, base) = source.whole(self.limits)?;
        let pickle = bytes.get(skip as usize..).unwrap_or_default();
        match statelens_pickle::read(pickle, base + skip, self.limits) {
            Ok(pickle) => {
                self.findings.extend(pickle.scan(&ScanOptions::default()));
                let lowered = pickle.lower(&mut self.builder, &mut NoStorages::default())?;
                self.findings.extend(lowered.findings);
                Ok(lowered.root)
            }
            Err(broken) => {
                let what = broken.error.what().to_owned();
                self.findings
                    .extend(crate::pickle::read::scan_broken(broken, &ScanOptions::default()));
                self.builder.push(inert("ndarray", what.into()))
            }
        }
    }
}

/// Returns a description of a value that is not constructed.
fn inert(class: &str, repr: Text) -> Value {
    Value::Opaque(Box::new(Opaque::reference(Global::new("numpy", class), Some(repr))))
}
