//! Finds the places in a file where a loader would unpickle, and determines what the pickles there
//! would do.
//!
//! A file may be valid in several formats at once, and each of their readers would find different
//! pickles in it. Therefore every reader is tried, none is assumed to be the only one, and
//! afterwards all bytes are searched for data that no reader leads to ([`super::sweep`]).
//! Decompressed data is a new run of bytes (a [`Space`]) that is examined in the same way.
//! Everything is bounded. Where a limit is reached, a finding names the data that was not examined.

mod graphs;
mod hdf5;
mod joblib;
mod members;
mod pickles;
mod storages;
mod sweep;
mod tarred;
mod texts;
mod torch;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use foldhash::HashSet;
use statelens_checkpoint::{
    Error, Finding, Grade, Limits, Memory, Progress, ReadAt, Result, capitalised,
};
use statelens_pickle::{ScanOptions, is_stream};

use super::findings::{FindingSet, Region, RegionPlace};
use super::packed::{self, Packing, Unpacked};
use super::section::{Section, some};
use super::tar;
use super::zip::{self, Directory};
use crate::numpy;

/// The maximum nesting of compressed files.
const DEEPEST: u32 = 4;
/// The maximum number of bytes decompressed, in addition to an amount that grows with the file.
const UNPACKED: u64 = 512 << 20;
/// The maximum number of bytes decompressed per byte of the file.
const UNPACKED_PER_BYTE: u64 = 64;
/// The cost of an attempt at decompression, in bytes.
const ATTEMPT: u64 = 32 << 10;
/// The maximum number of bytes that a reader may have read ahead.
const AHEAD: u64 = 64 << 10;
/// The number of bytes read to detect the format of a run of bytes. The limit is higher for a whole
/// file, since HDF5 may follow other data.
const HEAD: u64 = 1 << 10;
const ROOT_HEAD: u64 = (16 << 10) + 8;
/// The maximum number of bytes read of an array's header.
const MAX_HEADER: u64 = 1 << 20;

/// A run of bytes that some reader would read.
#[derive(Clone)]
pub(super) struct Blob {
    /// The path to it for display: names of members; empty for the file itself.
    pub(super) name: String,
    pub(super) source: Arc<dyn ReadAt>,
    /// The index of its space, and its offset there.
    pub(super) space: usize,
    pub(super) base: u64,
    /// Whether it covers the whole space.
    pub(super) root: bool,
    /// The nesting depth of compression.
    pub(super) unpacked: u32,
    /// Whether it was only partially decompressed.
    pub(super) cut: bool,
}

/// The places already examined in a file, or in the decompressed data of one place.
#[derive(Default)]
struct Space {
    /// Ranges of pickles that were run, from start to end.
    pickles: BTreeMap<u64, u64>,
    /// Starts that were tried, with the number of bytes available and the certainty.
    tried: HashSet<(u64, u64, Certainty)>,
    directories: BTreeSet<Directory>,
    /// Ranges that were fully decompressed, from start to end.
    unpacked: BTreeMap<u64, u64>,
    /// Places that were examined: kind, offset, and number of bytes available.
    seen: HashSet<(Container, u64, u64)>,
}

/// A kind of data that was examined at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Container {
    Blob,
    Local,
    Tar,
    Packed,
    Numpy,
    Hdf5,
}

/// How certain it is that a pickle begins at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Certainty {
    /// A loader would unpickle here. It is a finding if that fails.
    Yes,
    /// A loader may unpickle here, if this is a pickle.
    Perhaps,
    /// No reader leads here, but the bytes look like the start of a pickle.
    Marked,
    /// The bytes look like a name within a pickle.
    Bare,
}

enum ScanTask {
    Examine(Blob),
    /// The flag says whether a loader would decompress it.
    Unpack(Blob, Packing, bool),
    Sweep(Blob),
}

pub(super) struct Search<'a> {
    pub(super) limits: &'a Limits,
    options: &'a ScanOptions,
    progress: &'a mut dyn Progress,
    tasks: Vec<ScanTask>,
    spaces: Vec<Space>,
    pub(super) findings: FindingSet,
    /// Members of archives that may hold storages.
    records: storages::Records,
    /// Number of tensors in the pickles so far whose values are indices into other tensors.
    pub(super) indexed: u64,
    /// Whether any pickle, archive or similar was found.
    pub(super) found: bool,
    /// Prefix of places, if there are several files.
    file: Rc<str>,
    name: String,
    /// Whether the name of the file is that of a pickle.
    promised: bool,
    /// Whether the last pickle fails at a memo entry that was never set.
    unset_memo: bool,
    /// Remaining budgets: bytes to decompress, bytes to run as pickles, and archive members to
    /// examine.
    unpack: u64,
    work: u64,
    entries: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        limits: &'a Limits,
        options: &'a ScanOptions,
        progress: &'a mut dyn Progress,
    ) -> Self {
        Self {
            limits,
            options,
            progress,
            tasks: Vec::new(),
            spaces: Vec::new(),
            records: storages::Records::default(),
            indexed: 0,
            findings: FindingSet::default(),
            found: false,
            file: Rc::from(""),
            name: String::new(),
            promised: false,
            unset_memo: false,
            unpack: 0,
            work: 0,
            entries: 0,
        }
    }

    /// Examines one file. `file` is the prefix of places; empty if there is only one file. `slices`
    /// are offsets and lengths of parts that are loaded individually.
    pub(super) fn file(
        &mut self,
        file: &str,
        name: &str,
        source: Arc<dyn ReadAt>,
        slices: Vec<(u64, u64)>,
    ) -> Result<()> {
        let len = source.len();
        self.file = file.into();
        self.records = storages::Records::default();
        self.unpack = UNPACKED.saturating_add(len.saturating_mul(UNPACKED_PER_BYTE));
        self.work = (64 << 20) + len.saturating_mul(16);
        self.entries = self.limits.members.saturating_mul(2);
        let blob = self.root_blob(source);
        self.name = name.to_owned();
        self.promised = promises_pickle(name);
        self.whole(blob.clone());
        for (start, len) in slices {
            self.part(&blob, &format!("bytes from {start}"), start, len);
        }
        self.run()
    }

    /// Processes all tasks, the last first, so that decompressed data is freed early.
    fn run(&mut self) -> Result<()> {
        while let Some(task) = self.tasks.pop() {
            self.progress.check(0, 0)?;
            match task {
                ScanTask::Examine(blob) => self.examine(&blob)?,
                ScanTask::Unpack(blob, packing, led) => self.unpack(blob, packing, led)?,
                ScanTask::Sweep(blob) => self.sweep(&blob)?,
            }
        }
        Ok(())
    }

    /// Returns a file as a blob with a space of its own.
    fn root_blob(&mut self, source: Arc<dyn ReadAt>) -> Blob {
        let (name, space) = (String::new(), self.space());
        Blob { name, source, space, base: 0, root: true, unpacked: 0, cut: false }
    }

    fn space(&mut self) -> usize {
        self.spaces.push(Space::default());
        self.spaces.len() - 1
    }

    /// Examines a run of bytes with a space of its own, and then sweeps it.
    fn whole(&mut self, blob: Blob) {
        self.tasks.push(ScanTask::Sweep(blob.clone()));
        self.tasks.push(ScanTask::Examine(blob));
    }

    /// Schedules a part of a blob to be examined.
    pub(super) fn part(&mut self, of: &Blob, name: &str, start: u64, len: u64) {
        if self.is_new(Container::Blob, of, start, len) {
            let blob = of.part(name, start, len);
            self.tasks.push(ScanTask::Examine(blob));
        }
    }

    /// Schedules a part of a blob to be decompressed and examined.
    pub(super) fn packed(&mut self, of: &Blob, name: &str, start: u64, len: u64, packing: Packing) {
        if self.is_new(Container::Packed, of, start, len) {
            let blob = of.part(name, start, len);
            self.tasks.push(ScanTask::Unpack(blob, packing, true));
        }
    }

    /// Schedules bytes that may begin a compressed stream although no reader leads to them.
    pub(super) fn perhaps_packed(&mut self, of: &Blob, at: u64, packing: Packing) {
        let unpacked = &self.spaces[of.space].unpacked;
        let before = unpacked.range(..=of.base + at).next_back();
        let done = before.is_some_and(|(start, end)| *start == of.base + at || of.base + at < *end);
        // Bytes within a pickle are a value of it.
        if !done && !self.is_run(of, at) && self.is_new(Container::Packed, of, at, 0) {
            if self.unpack < ATTEMPT {
                let why = "There is too much of it.";
                self.unseen(of, "all that may be compressed", why);
                return;
            }
            self.unpack -= ATTEMPT;
            let blob = of.part(packing.name(), at, u64::MAX);
            self.tasks.push(ScanTask::Unpack(blob, packing, false));
        }
    }

    pub(super) fn decoded(&mut self, of: &Blob, name: &str, bytes: Vec<u8>) -> Result<()> {
        let space = self.space();
        let source = Arc::new(Memory::from(bytes));
        let name = of.within(name);
        let blob = Blob { name, source, space, base: 0, root: true, cut: false, ..of.clone() };
        self.sequence(&blob, 0, Certainty::Perhaps)?;
        self.sweep(&blob)
    }

    /// Returns whether nothing of this kind and length was examined at this place before, and marks
    /// it as examined.
    pub(super) fn is_new(&mut self, kind: Container, blob: &Blob, at: u64, len: u64) -> bool {
        self.spaces[blob.space].seen.insert((kind, blob.base + at, len))
    }

    /// Reports the progress of the sweep through the file. Fails if the user cancelled.
    pub(super) fn at(&mut self, blob: &Blob, at: u64) -> Result<()> {
        let (at, len) = if self.is_file(blob) { (at, blob.source.len()) } else { (0, 0) };
        self.progress.check(at, len)
    }

    /// Returns whether a place is within a pickle that was run.
    pub(super) fn is_run(&self, blob: &Blob, at: u64) -> bool {
        let at = blob.base + at;
        let pickles = &self.spaces[blob.space].pickles;
        pickles.range(..=at).next_back().is_some_and(|(_, end)| at < *end)
    }

    /// Examines a blob with all readers that accept its first bytes.
    fn examine(&mut self, blob: &Blob) -> Result<()> {
        let head = some(&*blob.source, 0, if blob.root { ROOT_HEAD } else { HEAD })?;
        if head.is_empty() {
            return Ok(());
        }
        // Readers of archives start from the end. The sweep finds all other archives.
        if (blob.root || head.starts_with(b"PK"))
            && let Some(end) = zip::last_end(&*blob.source)
        {
            self.archive(blob, end)?;
        }
        if tar::is_header(&*blob.source, 0) {
            self.tar(blob, 0, true)?;
        }
        if let Some(packing) = Packing::at_start(&head) {
            self.packed(blob, packing.name(), 0, blob.source.len(), packing);
        }
        if statelens_hdf5::Hdf5File::is_likely(&head) {
            hdf5::examine(self, blob)?;
        }
        texts::examine(self, blob, &head)?;
        let marked = matches!(head[..], [0x80, 2..=5, ..]);
        let promised = promises_pickle(&blob.name) || self.is_file(blob) && self.promised;
        // joblib uses the same extension for compressed files.
        let promised = promised && !Packing::at_start(&head).is_some_and(Packing::is_certain);
        let certainty = match is_stream(&head) || promised || marked && self.is_file(blob) {
            true => Certainty::Yes,
            false => Certainty::Perhaps,
        };
        self.sequence(blob, 0, certainty)
    }

    /// Returns the name of a file, or the path of an archive member.
    fn name_of<'b>(&'b self, blob: &'b Blob) -> &'b str {
        if blob.name.is_empty() { &self.name } else { &blob.name }
    }

    fn is_file(&self, blob: &Blob) -> bool {
        blob.root && blob.name.is_empty()
    }

    /// Examines a zip archive with every directory that its end record may refer to.
    pub(super) fn archive(&mut self, blob: &Blob, end: u64) -> Result<()> {
        for directory in zip::directories(&*blob.source, end) {
            let absolute = Directory {
                start: blob.base + directory.start,
                end: blob.base + directory.end,
                base: directory.base.wrapping_add(blob.base),
            };
            self.found = true;
            if self.spaces[blob.space].directories.insert(absolute) {
                members::examine(self, blob, directory)?;
            }
        }
        Ok(())
    }

    pub(super) fn may_enter(&mut self, blob: &Blob) -> bool {
        self.entries = self.entries.saturating_sub(1);
        if self.entries == 0 {
            self.unseen(
                blob,
                "the rest of the archives",
                "They have more members than the limit allows.",
            );
        }
        self.entries > 0
    }

    /// Examines a numpy array: if it has objects, its data is a pickle.
    pub(super) fn numpy(&mut self, blob: &Blob, at: u64) -> Result<()> {
        let prefix = some(&*blob.source, at, 12)?;
        let (skip, len) = match prefix[..] {
            [_, _, _, _, _, _, 1, _, a, b, ..] => (10, u64::from(u16::from_le_bytes([a, b]))),
            [_, _, _, _, _, _, 2 | 3, _, a, b, c, d] => {
                (12, u64::from(u32::from_le_bytes([a, b, c, d])))
            }
            _ => return Ok(()),
        };
        if !self.is_new(Container::Numpy, blob, at, blob.source.len() - at) {
            return Ok(());
        }
        let header = some(&*blob.source, at + skip, len.min(MAX_HEADER))?;
        let certainty = match numpy::holds_objects((prefix[6], prefix[7]), &header) {
            Some(true) => Certainty::Yes,
            Some(false) => return Ok(()),
            // Letters may be written as numeric escapes.
            None if len > MAX_HEADER || header.iter().any(|byte| b"O\\".contains(byte)) => {
                Certainty::Yes
            }
            None => Certainty::Perhaps,
        };
        self.sequence(blob, at + skip + len, certainty)
    }

    fn unpack(&mut self, blob: Blob, packing: Packing, led: bool) -> Result<()> {
        let whose = blob.describe();
        if let (Packing::Other(what), true) = (packing, led) {
            self.unseen(&blob, &whose, &format!("It is {what}, which Statelens does not unpack."));
            return Ok(());
        }
        if blob.unpacked >= DEEPEST {
            self.unseen(&blob, &whose, "It is packed in too many layers.");
            return Ok(());
        }
        let weight = packing.weight();
        let most = (self.limits.structure >> blob.unpacked).min(self.unpack / weight);
        let unpacked = packed::unpack(&blob.source, packing, most, blob.unpacked)?;
        let Unpacked { bytes, broken, more, used, differs } = unpacked;
        self.unpack = self.unpack.saturating_sub(bytes.len() as u64 * weight + used);
        if broken.is_none() {
            let end = blob.base + used.saturating_sub(AHEAD);
            self.spaces[blob.space].unpacked.insert(blob.base, end);
        }
        let is_finding = led && (packing.is_certain() || differs);
        if let Some(why) = broken
            && is_finding
        {
            let title = format!("{} can't be unpacked to its end", capitalised(&whose));
            self.findings.add(
                Finding::new(Grade::Damage, title)
                    .detail(format!(
                        "As {}: {why}. The part before that was examined.",
                        packing.name()
                    ))
                    .place(self.place(&blob, 0)),
            );
        }
        let space = self.space();
        let cut = more.is_some();
        let source = Arc::new(Memory::from(bytes));
        let unpacked = blob.unpacked + 1;
        let inner = Blob { source, space, base: 0, root: true, unpacked, cut, ..blob };
        if let Some(more) = more {
            self.rest(&inner, more, weight)?;
        }
        self.whole(inner);
        Ok(())
    }

    /// Examines data that is too long to keep in memory, in pieces. `weight` is the cost of a byte.
    fn rest(&mut self, blob: &Blob, mut more: Box<dyn std::io::Read>, weight: u64) -> Result<()> {
        const PIECE: u64 = 8 << 20;
        const OVERLAP: usize = 64 << 10;
        let mut at = blob.source.len();
        let mut bytes = some(&*blob.source, at - at.min(OVERLAP as u64), OVERLAP as u64)?;
        loop {
            self.progress.check(0, 0)?;
            let kept = bytes.len();
            let piece = PIECE.min(self.unpack / weight);
            let done = packed::fill(&mut *more, &mut bytes, kept as u64 + piece);
            let read = (bytes.len() - kept) as u64;
            self.unpack -= read * weight;
            at += read;
            if let Some(error) = done.as_ref().err().and_then(packed::no_memory) {
                return Err(error.clone());
            }
            if piece == 0 {
                let why =
                    format!("It is far longer than the file: {at} bytes of it were unpacked.");
                self.unseen(blob, &format!("the rest of {}", blob.describe()), &why);
                return Ok(());
            }
            let space = self.space();
            let source = Arc::new(Memory::from(bytes));
            let piece = Blob { source: source.clone(), space, ..blob.clone() };
            let waiting = self.tasks.len();
            self.sweep(&piece)?;
            if self.tasks.len() > waiting {
                self.tasks.truncate(waiting);
                self.unseen(
                    blob,
                    "an archive",
                    "It is in data that is too long to be unpacked completely.",
                );
            }
            if let Err(error) = done {
                self.unseen(blob, &format!("the rest of {}", blob.describe()), &error.to_string());
                return Ok(());
            }
            if read == 0 {
                return Ok(());
            }
            bytes = source.0[source.0.len().saturating_sub(OVERLAP)..].to_vec();
        }
    }

    /// Subtracts from the budget for running pickles, and returns whether any is left.
    pub(super) fn spend(&mut self, bytes: u64) -> bool {
        self.work = self.work.saturating_sub(bytes);
        self.work > 0
    }

    /// Adds findings that were made in a blob.
    pub(super) fn report(&mut self, blob: &Blob, findings: Vec<Finding>) {
        for finding in findings {
            if self.options.covers(&finding) {
                continue;
            }
            let place = match (blob.name.is_empty(), finding.place.is_empty()) {
                (true, _) => finding.place.clone(),
                (_, true) => blob.name.clone(),
                _ => format!("{}: {}", blob.name, finding.place),
            };
            let place = self.in_file(place);
            self.findings.add(finding.place(place));
        }
    }

    /// Opens a region that a loader would read, at an offset in a blob. See [`Region`].
    pub(super) fn region<'r>(&self, blob: &'r Blob, at: u64, what: &'r str) -> Region<'r> {
        let place =
            RegionPlace { file: Rc::clone(&self.file), member: &blob.name, offset: blob.base + at };
        self.findings.region(what, place)
    }

    /// Adds the finding that something was not examined, with the reason; once for each kind of
    /// thing.
    pub(super) fn unseen(&mut self, blob: &Blob, what: &str, why: &str) {
        self.region(blob, 0, what).unread(why);
    }

    pub(super) fn place(&self, blob: &Blob, at: u64) -> String {
        let at = blob.base + at;
        let place = match blob.name.is_empty() {
            true => format!("byte {at}"),
            false => format!("{}: byte {at}", blob.name),
        };
        self.in_file(place)
    }

    fn in_file(&self, place: String) -> String {
        match (self.file.is_empty(), place.is_empty()) {
            (true, _) => place,
            (_, true) => self.file.to_string(),
            _ => format!("{}: {place}", self.file),
        }
    }

    pub(super) fn report_error(&mut self, file: &str, error: &Error) {
        self.file = file.into();
        let place = self.in_file(String::new());
        let mut finding = Finding::new(Grade::Damage, "It can't be opened")
            .detail(format!("{}. Its bytes were searched anyway.", capitalised(error.what())))
            .place(place);
        if let Some(advice) = error.next_step() {
            finding = finding.advice(advice.to_string());
        }
        self.findings.add(finding);
    }

    pub(super) fn report_opened(&mut self, file: &str, findings: Vec<Finding>) {
        self.file = file.into();
        for finding in findings {
            if !self.options.covers(&finding) {
                let place = self.in_file(finding.place.clone());
                self.findings.add(finding.place(place));
            }
        }
    }

    /// Returns progress that only lets the user cancel, for operations that count something else.
    pub(super) fn quiet(&mut self) -> Quiet<'_> {
        Quiet(self.progress)
    }
}

impl Blob {
    /// Returns a part of it with a name of its own.
    pub(super) fn part(&self, name: &str, start: u64, len: u64) -> Self {
        let source: Arc<dyn ReadAt> = Arc::new(Section::new(self.source.clone(), start, len));
        let cut = self.cut && start.saturating_add(len) > self.source.len();
        let base = self.base + start.min(self.source.len());
        Self { name: self.within(name), source, base, root: false, cut, ..self.clone() }
    }

    fn within(&self, name: &str) -> String {
        // Names can be arbitrarily long, and nested.
        let end = name.char_indices().nth(200).map_or(name.len(), |(at, _)| at);
        let name = &name[..end];
        match self.name.is_empty() || self.name.len() > 1_000 {
            true => name.to_owned(),
            false => format!("{} > {name}", self.name),
        }
    }

    fn describe(&self) -> String {
        match self.name.is_empty() {
            true => "the file".to_owned(),
            false => format!("{:?}", self.name),
        }
    }
}

/// The first bytes of a numpy array.
pub(super) const NUMPY: &[u8] = b"\x93NUMPY";

/// Returns whether a name is that of a pickle and of nothing else.
fn promises_pickle(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".pkl", ".pickle", ".joblib", "/.metadata"].iter().any(|end| name.ends_with(end))
        || name == ".metadata"
}

/// Forwards cancellation, but no numbers.
pub(super) struct Quiet<'a>(&'a mut dyn Progress);

impl Progress for Quiet<'_> {
    fn report(&mut self, _done: u64, _total: u64) -> bool {
        self.0.report(0, 0)
    }
}

#[derive(Debug)]
pub(super) struct SharedSource(pub(super) Arc<dyn ReadAt>);

impl ReadAt for SharedSource {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buffer)
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::Unwatched;

    use super::*;
    use crate::scan::tests::led_to::tar::sparse_member;
    use crate::scan::tests::{bzip2, join};

    /// Runs a part of a search on a file, and returns its findings.
    fn search(bytes: Vec<u8>, part: impl FnOnce(&mut Search<'_>, Blob)) -> Vec<Finding> {
        let (limits, options) = (Limits::default(), ScanOptions::default());
        let mut progress = Unwatched;
        let mut search = Search::new(&limits, &options, &mut progress);
        let blob = search.root_blob(Arc::new(Memory::from(bytes)));
        part(&mut search, blob);
        search.findings.finish()
    }

    /// The budget counts compressed bytes, so that streams without content use it up, too.
    #[test]
    fn budget_counts_the_compressed_bytes() {
        let empty = bzip2(b"").repeat(1_000);
        let len = empty.len() as u64;
        search(empty, |search, blob| {
            search.unpack = 1 << 20;
            search.unpack(blob, Packing::Bzip2, false).unwrap();
            assert!(search.unpack <= (1 << 20) - len, "{}", search.unpack);
        });
    }

    /// Sparse members share the budget for decompressed data.
    #[test]
    fn sparse_members_beyond_the_budget_are_a_finding() {
        for (second, is_finding) in [(100, false), (600_000, true)] {
            let archive = join(&[&sparse_member(600_000), &sparse_member(second)]);
            let findings = search(archive, |search, blob| {
                (search.unpack, search.work, search.entries) = (1 << 20, 1 << 20, 10);
                search.tar(&blob, 0, true).unwrap();
            });
            let is_unseen = findings.iter().any(|finding| finding.detail.contains("sparse"));
            assert_eq!(is_unseen, is_finding, "{findings:?}");
        }
    }

    /// A pickle is not read further than the budget allows.
    #[test]
    fn pickle_beyond_the_budget_is_a_finding() {
        let pickle = join(&[&b"N0".repeat(100_000), b"N."]);
        for (work, is_finding) in [(1 << 20, false), (10_000, true)] {
            let findings = search(pickle.clone(), |search, blob| {
                search.work = work;
                search.pickle(&blob, 0, Certainty::Yes).unwrap();
            });
            assert_eq!(!findings.is_empty(), is_finding, "{findings:?}");
        }
    }
}
