//! Reads and validates the header, which lists the tensors and their offsets.
//!
//! The rules are those of the reference library, with a message for each. The header is parsed
//! piece by piece, since the result takes less memory than the text.

use foldhash::{HashMap, HashMapExt};
use statelens_checkpoint::json::Parser;
use statelens_checkpoint::{
    Advice, Error, FileId, FileSet, Finding, FindingKind, Grade, Limits, Progress, Result, Setting,
    Text, advice, grouped, order, try_alloc,
};

use super::{HeaderDType, MAX_HEADER, METADATA};

pub(super) struct Header {
    /// The entries of `__metadata__`, in order.
    pub(super) metadata: Vec<(Text, Text)>,
    /// The tensors in the order of the header.
    pub(super) tensors: Vec<TensorInfo>,
    /// The places of names in `tensors`.
    pub(super) places: HashMap<Text, u32>,
    /// Offset of the byte after the header; tensor offsets count from here.
    pub(super) data: u64,
    /// Bytes in the file after the header. In a truncated file, less than the tensors take.
    pub(super) there: u64,
    pub(super) findings: Vec<Finding>,
}

pub(super) struct TensorInfo {
    pub(super) name: Text,
    pub(super) header_dtype: &'static HeaderDType,
    pub(super) shape: Vec<u64>,
    /// Range of bytes, relative to the start of the data.
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// The maximum nesting of containers: the JSON parser of the reference library refuses level 128.
const MAX_DEPTH: usize = 127;

/// Bytes of the header for each tensor: about as few as an entry with a short name has. The map has
/// room for this number of tensors at first, since it hashes all names again when it grows.
const BYTES_PER_TENSOR: usize = 100;

/// Number of tensors between two progress reports.
const REPORT: u64 = 4_096;

impl Header {
    pub(super) fn read(
        files: &FileSet,
        file: FileId,
        limits: &Limits,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let text = text(files, file, limits)?;
        let data = 8 + text.len() as u64;
        let there = files.len(file) - data;
        let (metadata, tensors, mut findings) = (Vec::new(), Vec::new(), Vec::new());
        if text.len() as u64 > MAX_HEADER {
            findings.push(
                Finding::new(Grade::Warning, "The header is longer than 100 MB")
                    .detail("The reference library refuses the file.")
                    .advice("Write it in shards, each with a header of its own.")
                    .refused(),
            );
        }
        let whole = text.strip_prefix(b"{},\"__metadata__\"");
        let text = match whole {
            Some(rest) => {
                findings.push(
                    Finding::new(Grade::Warning, "The header closes before `__metadata__`")
                        .detail(
                            "Old releases of safetensors wrote files without tensors like \
                                 this. The reference library refuses the file.",
                        )
                        .advice(repair())
                        .refused(),
                );
                [b"{\"__metadata__\"", rest].concat()
            }
            None => text,
        };
        let mut parser = Parser::strict(&text, MAX_DEPTH);
        let places = HashMap::new();
        let mut header = Self { metadata, tensors, places, data, there, findings };
        try_alloc::make_room_in_map(&mut header.places, text.len() / BYTES_PER_TENSOR)?;
        header
            .parse(&mut parser, limits, progress)
            .map_err(|error| error.context("the header").at(8))?;
        header.validate(there)?;
        Ok(header)
    }

    fn parse(
        &mut self,
        parser: &mut Parser<'_>,
        limits: &Limits,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut twice: Vec<Text> = Vec::new();
        let mut has_metadata = false;
        parser.object()?;
        let mut first = true;
        while let Some(name) = parser.entry(&mut first)? {
            if name == METADATA {
                if std::mem::replace(&mut has_metadata, true) {
                    return Err(Error::damaged("it has two entries `__metadata__`"));
                }
                let (metadata, others) = metadata(parser)?;
                self.metadata = metadata;
                if others {
                    self.findings.push(
                        Finding::new(Grade::Warning, "`__metadata__` holds values that are not text")
                            .detail("They are shown as JSON, and a copy holds them as text. The reference library refuses the file.")
                            .advice(repair())
                            .refused()
                            .kind(FindingKind::LeftOut),
                    );
                }
                continue;
            }
            let entry =
                entry(parser, name.clone(), limits).map_err(|e| e.context(format!("`{name}`")))?;
            if entry.header_dtype.packed == 1 {
                progress.found(&name, &entry.header_dtype.dtype, &entry.shape);
            }
            match self.places.get(&name).copied() {
                Some(place) => {
                    self.tensors[place as usize] = entry;
                    try_alloc::push(&mut twice, name)?;
                }
                None => {
                    let count = self.tensors.len() as u64;
                    Limits::check("tensors", count + 1, limits.members)?;
                    if count.is_multiple_of(REPORT) {
                        progress.check(count, 0)?;
                    }
                    try_alloc::insert(&mut self.places, name, self.tensors.len() as u32)?;
                    try_alloc::push(&mut self.tensors, entry)?;
                }
            }
        }
        parser.end()?;
        if let [name, others @ ..] = &twice[..] {
            let more = if others.is_empty() {
                String::new()
            } else {
                format!(" and {} more", others.len())
            };
            self.findings.push(
                Finding::new(Grade::Damage, format!("The header names {name}{more} twice")).detail(
                    "The last one counts, as in the reference library; the others are \
                             hidden.",
                ),
            );
        }
        Ok(())
    }

    /// Checks that the length of each tensor matches its shape, and that no tensors overlap except
    /// those with the same bytes. A truncated file and bytes that belong to no tensor are findings,
    /// since the tensors in the file are intact. `len` is the length of the data.
    fn validate(&mut self, len: u64) -> Result<()> {
        let mut order: Vec<&TensorInfo> = try_alloc::collect(&self.tensors)?;
        order::by_key(&mut order, |entry| (entry.begin, entry.end));
        let mut at = 0;
        let mut last = None;
        let mut holes = Unclaimed::default();
        let mut shared = None;
        for entry in order {
            let place = self.data.saturating_add(at);
            if last == Some((entry.begin, entry.end)) && entry.begin < entry.end {
                entry.validate(entry.begin).map_err(|error| error.at(place))?;
                shared = shared.or(Some(entry.name.clone()));
                continue;
            }
            if entry.begin > at {
                holes.add(entry.begin - at, self.data.saturating_add(at));
            }
            entry.validate(entry.begin.max(at)).map_err(|error| error.at(place))?;
            (at, last) = (entry.end, Some((entry.begin, entry.end)));
        }
        if at < len {
            holes.add(len - at, self.data.saturating_add(at));
        }
        if at > len {
            self.findings.push(self.cut_short(at - len));
        }
        self.findings.extend(holes.finding());
        self.findings.extend(shared.map(|name| {
            Finding::new(Grade::Warning, "Tensors share their bytes")
                .detail("Their data_offsets are the same. The reference library refuses the file.")
                .place(name.to_lossy())
                .advice(repair())
                .refused()
        }));
        Ok(())
    }
}

/// Returns advice for a file that the library refuses although its tensors are intact.
fn repair() -> Advice {
    advice!["Write a copy with ", Setting::ConvertLossy, ": the library reads that."]
}

/// Bytes of data that belong to no tensor.
#[derive(Default)]
struct Unclaimed {
    bytes: u64,
    /// Offset of the first of them in the file.
    first: Option<u64>,
}

impl Unclaimed {
    fn add(&mut self, bytes: u64, at: u64) {
        self.bytes += bytes;
        self.first = self.first.or(Some(at));
    }

    fn finding(self) -> Option<Finding> {
        let at = self.first?;
        let bytes = match self.bytes {
            1 => "1 byte of the data belongs".to_owned(),
            bytes => format!("{} bytes of the data belong", grouped(bytes)),
        };
        Some(
            Finding::new(Grade::Warning, format!("{bytes} to no tensor"))
                .detail("All tensors are whole; a copy leaves these bytes out. The reference library refuses the file.")
                .place(format!("byte {at}"))
                .advice(repair())
                .refused()
                .kind(FindingKind::LeftOut),
        )
    }
}

impl Header {
    fn cut_short(&self, bytes: u64) -> Finding {
        let missing = self.tensors.iter().filter(|entry| !entry.is_there(self.there)).count();
        let bytes =
            if bytes == 1 { "1 byte is".into() } else { format!("{} bytes are", grouped(bytes)) };
        let of = format!("{missing} of {}", self.tensors.len());
        Finding::new(Grade::Damage, format!("The file is cut short: {bytes} missing"))
            .detail(format!(
                "The values of {of} tensors are incomplete. The tensors before the end of the file \
                 are complete and can be used. The reference library refuses the file."
            ))
            .advice("Copy or download it again.")
    }
}

impl TensorInfo {
    /// Returns whether the whole tensor is within the first `len` bytes of the data.
    pub(super) fn is_there(&self, len: u64) -> bool {
        self.end <= len
    }

    /// Fails unless the tensor begins at or after `at`, and its length matches its shape.
    fn validate(&self, at: u64) -> Result<()> {
        let Self { name, header_dtype, shape, begin, end } = self;
        if end < begin {
            return Err(Error::damaged(format!(
                "the data of `{name}` ends before it begins: data_offsets are [{begin}, {end}]"
            )));
        }
        if *begin < at {
            return Err(Error::damaged(format!(
                "the data of `{name}` overlaps that of the tensor before it by {} bytes",
                at - begin
            )));
        }
        let shape = ShownShape(shape);
        let bits = shape.0.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim));
        let bits =
            bits.and_then(|count| count.checked_mul(header_dtype.bits)).ok_or_else(|| {
                Error::damaged(format!(
                    "the size of `{name}`, {} of shape {shape}, does not fit 64 bits",
                    header_dtype.name
                ))
            })?;
        if bits % 8 != 0 {
            return Err(Error::damaged(format!(
                "`{name}`, {} of shape {shape}, takes {bits} bits, which are not whole bytes",
                header_dtype.name
            )));
        }
        if bits / 8 != end - begin {
            return Err(Error::damaged(format!(
                "`{name}`, {} of shape {shape}, takes {} bytes, and its data_offsets leave it {}",
                header_dtype.name,
                bits / 8,
                end - begin
            )));
        }
        Ok(())
    }
}

struct ShownShape<'a>(&'a [u64]);

impl std::fmt::Display for ShownShape<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

fn text(files: &FileSet, file: FileId, limits: &Limits) -> Result<Vec<u8>> {
    let len = files.len(file);
    if len < 8 {
        return Err(Error::damaged(format!("the file has {len} bytes"))
            .expected("8 bytes that say how long the header is")
            .advice("The download or the copy did not finish: fetch it again."));
    }
    let mut length = [0; 8];
    files.read(file, 0, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > len - 8 {
        return Err(Error::damaged(format!(
            "the header claims {} bytes, and the file has {} after it",
            grouped(length),
            grouped(len - 8)
        ))
        .at(0)
        .advice("The file is cut short, or is not a safetensors file."));
    }
    let allowed =
        limits.multiple().map_or(limits.structure, |times| MAX_HEADER.saturating_mul(times));
    if length > allowed {
        return Err(Error::limit(format!(
            "the header takes {} bytes, more than the limit of {}",
            grouped(length),
            grouped(allowed)
        ))
        .at(0));
    }
    Limits::check("bytes of the header", length, limits.structure)?;
    let text = files.read_vec(file, 8, length)?;
    match std::str::from_utf8(&text) {
        Ok(_) => Ok(text),
        Err(error) => {
            let at = error.valid_up_to();
            Err(Error::damaged("the header is not UTF-8")
                .at(8 + at as u64)
                .expected(format!("{} bytes of JSON", grouped(length)))
                .advice("The tensors behind it can't be located: get another copy of the file."))
        }
    }
}

/// Parses `__metadata__`: names and strings, or null. Other values are converted to JSON; the flag
/// says whether there are any.
fn metadata(parser: &mut Parser<'_>) -> Result<(Vec<(Text, Text)>, bool)> {
    let mut entries: Vec<(Text, Text)> = Vec::new();
    let mut places: HashMap<Text, usize> = HashMap::new();
    if parser.null() {
        return Ok((entries, false));
    }
    let within = |error: Error| error.context("`__metadata__`");
    if !parser.at_object() {
        entries.push((METADATA.into(), parser.compact().map_err(within)?.into()));
        return Ok((entries, true));
    }
    parser.object().map_err(within)?;
    let (mut first, mut others) = (true, false);
    while let Some(name) = parser.entry(&mut first)? {
        let text = match parser.at_text() {
            true => parser.text(),
            false => {
                others = true;
                parser.compact().map(Text::from)
            }
        };
        let text = text.map_err(|error| error.context(format!("`__metadata__`, `{name}`")))?;
        match places.get(&name) {
            Some(place) => entries[*place].1 = text,
            None => {
                try_alloc::insert(&mut places, name.clone(), entries.len())?;
                try_alloc::push(&mut entries, (name, text))?;
            }
        }
    }
    Ok((entries, others))
}

fn entry(parser: &mut Parser<'_>, name: Text, limits: &Limits) -> Result<TensorInfo> {
    let (mut header_dtype, mut shape, mut offsets) = (None, None, None);
    parser.object()?;
    let mut first = true;
    while let Some(field) = parser.entry(&mut first)? {
        let once = match field.as_str() {
            Some("dtype") => {
                let dtype = parser.text()?;
                let known = dtype.as_str().and_then(HeaderDType::named);
                let known = known.ok_or_else(|| {
                    Error::unsupported(format!("release 0.8 of the format has no dtype {dtype}"))
                })?;
                header_dtype.replace(known).is_none()
            }
            Some("shape") => {
                let mut dims = Vec::new();
                naturals(parser, |dim| {
                    Limits::check("dimensions of a tensor", dims.len() as u64 + 1, limits.rank)?;
                    dims.push(dim);
                    Ok(())
                })?;
                shape.replace(dims).is_none()
            }
            Some("data_offsets") => {
                let mut ends = [0; 2];
                let mut count = 0;
                naturals(parser, |end| {
                    let slot = ends.get_mut(count).ok_or_else(two_offsets)?;
                    *slot = end;
                    count += 1;
                    Ok(())
                })?;
                if count < 2 {
                    return Err(two_offsets());
                }
                offsets.replace(ends).is_none()
            }
            _ => {
                parser.skip()?;
                true
            }
        };
        if !once {
            return Err(Error::damaged(format!("it has two fields `{field}`")));
        }
    }
    let lacks = |field: &str| Error::damaged(format!("it has no field `{field}`"));
    let [begin, end] = offsets.ok_or_else(|| lacks("data_offsets"))?;
    Ok(TensorInfo {
        name,
        header_dtype: header_dtype.ok_or_else(|| lacks("dtype"))?,
        shape: shape.ok_or_else(|| lacks("shape"))?,
        begin,
        end,
    })
}

fn two_offsets() -> Error {
    Error::damaged("its data_offsets are not two numbers")
        .expected("the first byte and the one after the last")
}

fn naturals(parser: &mut Parser<'_>, mut each: impl FnMut(u64) -> Result<()>) -> Result<()> {
    parser.array()?;
    let mut first = true;
    while parser.item(&mut first)? {
        each(parser.natural()?)?;
    }
    Ok(())
}
