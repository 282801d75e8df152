//! Tar archives as read by Python's `tarfile` (`Lib/tarfile.py`, 3.8 to 3.14), which torch used for
//! its first format and NeMo uses for checkpoints. If its versions differ, or it has a behaviour
//! that is not implemented here, [`Walk::doubt`] says so.

mod numbers;
mod pax;
mod sparse;

use std::io::Read as _;
use std::sync::Arc;

use statelens_checkpoint::{Memory, ReadAt};

use self::numbers::{Number, field};
use self::pax::Pax;
pub(crate) use self::sparse::Sparse;
use crate::section::{exactly, some};

/// The block size of a tar archive in bytes.
pub(crate) const BLOCK: u64 = 512;
/// The maximum length of a name, pax header or sparse map that is read.
const MAX_EXTENSION: u64 = 1 << 20;

pub(crate) struct TarMember {
    pub(crate) name: String,
    /// The name of the target of a link; empty for other members.
    pub(crate) link: String,
    /// Offset of its data.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The parts of a sparse member that are in the archive.
    pub(crate) sparse: Option<Vec<(u64, u64)>>,
}

/// Iterates over the members of a tar archive in the same order as `tarfile`.
pub(crate) struct Walk {
    source: Arc<dyn ReadAt>,
    /// Offset of the next header; `None` after the last one.
    next: Option<u64>,
    global: Pax,
    /// The part of the archive that some reader may interpret differently, if there is one.
    pub(crate) doubt: Option<&'static str>,
}

/// Returns whether there is a header with a valid checksum at `at`.
pub(crate) fn is_header(source: &dyn ReadAt, at: u64) -> bool {
    exactly::<{ BLOCK as usize }>(source, at).is_some_and(|header| sound(&header))
}

impl Walk {
    /// Starts with the header at `at`.
    pub(crate) fn new(source: &Arc<dyn ReadAt>, at: u64) -> Self {
        Self { source: source.clone(), next: Some(at), global: Pax::default(), doubt: None }
    }

    /// Returns the next member. `enter` is called with the offset of each header and returns
    /// whether it may be read.
    pub(crate) fn member(&mut self, enter: &mut dyn FnMut(u64) -> bool) -> Option<TarMember> {
        let mut extra = Extra::default();
        loop {
            let at = self.next.take()?;
            let header = exactly::<{ BLOCK as usize }>(&*self.source, at)?;
            if !sound(&header) || !enter(at) {
                return None;
            }
            let start = at + BLOCK;
            let size = self.number(&header[124..136])?;
            match header[156] {
                kind @ (b'L' | b'K') => {
                    let name = Some(text(&self.payload(start, size)?));
                    extra.count += 1;
                    match kind {
                        b'L' => extra.name = name,
                        _ => extra.link = name,
                    }
                }
                b'g' => {
                    let payload = self.payload(start, size)?;
                    let read = self.records(&payload, &mut extra);
                    self.global.extend(read);
                    extra.outer.push(self.global.clone());
                }
                b'x' | b'X' => {
                    let payload = self.payload(start, size)?;
                    let read = self.records(&payload, &mut extra);
                    let mut pax = self.global.clone();
                    pax.extend(read);
                    pax.local = true;
                    extra.outer.push(pax);
                }
                kind => return self.finish(&header, kind, start, size, extra),
            }
        }
    }

    /// Returns the offset of the next header.
    pub(crate) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Builds a member from its header and the preceding extended headers.
    fn finish(
        &mut self,
        header: &[u8; BLOCK as usize],
        kind: u8,
        start: u64,
        size: u64,
        extra: Extra,
    ) -> Option<TarMember> {
        let mut name = text(&header[..100]);
        let kind = if kind == 0 && name.ends_with('/') { b'5' } else { kind };
        let prefix = text(&header[345..500]);
        if !prefix.is_empty() && kind != b'S' {
            name = format!("{prefix}/{name}");
        }
        // The data of a link, a device or a folder is not skipped, regardless of its size.
        let has_data = !matches!(kind, b'1'..=b'6');
        let skip =
            |size: u64| if has_data { size.div_ceil(BLOCK).checked_mul(BLOCK) } else { Some(0) };
        let mut member = TarMember { name, link: String::new(), start, len: size, sparse: None };
        if kind == b'S' {
            let Some((sparse, behind, len)) = sparse::old(&*self.source, header, start) else {
                self.doubt = Some("a sparse member whose map can't be read");
                return None;
            };
            (member.start, member.len, member.sparse) = (behind, len, Some(sparse));
        } else {
            self.apply(&mut member, &self.global.clone());
        }
        self.next = member.start.checked_add(skip(size)?);
        // Which of them takes precedence depends on the order in which they are applied.
        if extra.count > 1 && !extra.is_long_name_and_link() {
            self.doubt = self.doubt.or(Some("several extended headers for one member"));
        }
        for pax in extra.outer.iter().rev() {
            match pax::sparse(pax, &*self.source, &mut member.start) {
                Ok(Some(map)) => member.sparse = Some(map),
                Ok(None) => {}
                Err(()) => {
                    self.doubt = Some("a sparse member whose map can't be read");
                    return None;
                }
            }
            if pax.local {
                self.apply(&mut member, pax);
                if pax.has("size") {
                    self.next = member.start.checked_add(skip(member.len)?);
                }
            }
        }
        if let Some(name) = extra.name {
            member.name = name;
        }
        if matches!(kind, b'1' | b'2') {
            let link = extra.link.unwrap_or_else(|| text(&header[157..257]));
            member.link = if member.link.is_empty() { link } else { member.link };
        } else {
            member.link = String::new();
        }
        Some(member)
    }

    fn records(&mut self, payload: &[u8], extra: &mut Extra) -> Pax {
        let read = Pax::parse(payload);
        self.doubt = self.doubt.or(read.doubt);
        extra.count += u64::from(read.values().next().is_some());
        read
    }

    /// Applies a pax header. `tarfile` treats an invalid size as 0.
    fn apply(&mut self, member: &mut TarMember, pax: &Pax) {
        for (key, value) in pax.values() {
            let number = || numbers::python(value, 10);
            match key {
                "size" => match number() {
                    Number::Plain(size) => member.len = size,
                    Number::None => member.len = 0,
                    Number::Odd => self.doubt = Some("a size that is not written in digits"),
                },
                "GNU.sparse.size" | "GNU.sparse.realsize" => match number() {
                    Number::Plain(size) => member.len = size,
                    _ => self.doubt = Some("a size that is not written in digits"),
                },
                "path" | "GNU.sparse.name" => {
                    member.name = text(value).trim_end_matches('/').to_owned()
                }
                "linkpath" => member.link = text(value),
                _ => {}
            }
        }
    }

    fn number(&mut self, bytes: &[u8]) -> Option<u64> {
        match field(bytes) {
            Number::Plain(number) => Some(number),
            Number::Odd => {
                self.doubt = Some("a size that is negative or too large");
                None
            }
            Number::None => None,
        }
    }

    /// Reads the data of a header that holds a name or pax records, including padding.
    fn payload(&mut self, start: u64, size: u64) -> Option<Vec<u8>> {
        let padded = size.div_ceil(BLOCK).checked_mul(BLOCK)?;
        if padded > MAX_EXTENSION {
            self.doubt = Some("an extended header that is too long");
            return None;
        }
        self.next = start.checked_add(padded);
        some(&*self.source, start, padded).ok()
    }
}

/// The extended headers before a member.
#[derive(Default)]
struct Extra {
    name: Option<String>,
    link: Option<String>,
    /// Pax headers, the outermost first.
    outer: Vec<Pax>,
    /// Number of headers that modify the member.
    count: u64,
}

impl Extra {
    /// Returns whether there are only a long name and a long link, as GNU tar writes them.
    fn is_long_name_and_link(&self) -> bool {
        self.count == 2 && self.name.is_some() && self.link.is_some()
    }
}

/// Returns the name of the first member, if these are the first bytes of a tar archive that is
/// compressed by gzip.
pub(crate) fn in_gzip(head: &[u8]) -> Option<String> {
    let mut start = Vec::new();
    // The head of the file may end within the stream.
    let _ = flate2::read::GzDecoder::new(head).take(64 << 10).read_to_end(&mut start);
    let source: Arc<dyn ReadAt> = Arc::new(Memory::from(start));
    is_header(&*source, 0).then_some(())?;
    Walk::new(&source, 0).member(&mut |_| true).map(|member| member.name)
}

fn text(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    name.strip_prefix("./").unwrap_or(&name).to_owned()
}

/// Returns whether the checksum is valid, treating bytes as unsigned or signed.
fn sound(header: &[u8; BLOCK as usize]) -> bool {
    let Number::Plain(expected) = field(&header[148..156]) else { return false };
    let bytes = |at: usize| if (148..156).contains(&at) { b' ' } else { header[at] };
    let unsigned: u64 = (0..header.len()).map(|at| u64::from(bytes(at))).sum();
    let signed: i64 = (0..header.len()).map(|at| i64::from(bytes(at).cast_signed())).sum();
    unsigned == expected || i64::try_from(expected) == Ok(signed)
}
