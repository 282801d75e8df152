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
mod unpack;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use foldhash::HashSet;
use statelens_checkpoint::{
    Error, FileSet, Finding, Grade, Limits, Memory, Progress, ReadAt, Result, Workers, capitalised,
};
use statelens_pickle::{ScanOptions, is_stream};

use super::findings::{FindingSet, Region, RegionPlace};
use super::section::{Section, some};
use super::starts::{HDF5, NUMPY};
use super::tar;
use super::zip::{self, Directory};
use crate::archive::ARCHIVE;
use crate::budget::Budget;
use crate::cerebras::s3::{self, ObjectScan};
use crate::numpy;
use crate::packed::Packing;

/// The maximum nesting of compressed files.
const DEEPEST: u32 = 4;
/// The cost of an attempt at decompression, in units of the budget.
const ATTEMPT: u64 = 30_000;
/// The number of units after which the search checks for a cancel: some hundredths of a second.
const TICK: u64 = 30_000_000;
/// The cost of a member of an archive.
const ENTRY: u64 = 2_000;
/// The cost of a value that was decoded.
const DECODED: u64 = 1_000;
/// The cost per byte of a pickle that is run.
pub(super) const RUN: u64 = 20;
/// The cost per byte that is read and searched.
pub(super) const READ: u64 = 1;
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
    /// The file begins like a pickle, which weights also do by chance.
    Likely,
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
    workers: &'a dyn Workers,
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
    /// The bytes of the file for the sweep, if they need no cache.
    pub(super) direct: Option<Arc<dyn ReadAt>>,
    /// Whether the name of the file is that of a pickle.
    promised: bool,
    /// Whether the last pickle fails at a memo entry that was never set.
    unset_memo: bool,
    /// The work that is left for the whole scan.
    budget: Budget,
    /// Units spent since the caller was last asked whether to continue.
    unwatched: u64,
    cancelled: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        limits: &'a Limits,
        options: &'a ScanOptions,
        budget: Budget,
        workers: &'a dyn Workers,
        progress: &'a mut dyn Progress,
    ) -> Self {
        Self {
            limits,
            options,
            workers,
            progress,
            tasks: Vec::new(),
            spaces: Vec::new(),
            records: storages::Records::default(),
            indexed: 0,
            findings: FindingSet::default(),
            found: false,
            file: Rc::from(""),
            name: String::new(),
            direct: None,
            promised: false,
            unset_memo: false,
            budget,
            unwatched: 0,
            cancelled: false,
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
        self.budget.add_file(len);
        let blob = self.root_blob(source);
        self.name = name.to_owned();
        self.promised = promises_pickle(name);
        self.whole(blob.clone());
        for (start, len) in slices {
            self.part(&blob, &format!("bytes from {start}"), start, len);
        }
        self.run()
    }

    /// Judges the headers of a checkpoint's objects in a store.
    pub(super) fn objects(&mut self, files: &FileSet) -> Result<ObjectScan> {
        let progress = &mut *self.progress;
        s3::scan(files, self.limits, &mut |at, of| progress.check(at, of))
    }

    /// Returns all findings.
    pub(super) fn finish(self) -> Vec<Finding> {
        if self.budget.is_exhausted() {
            self.findings.add(
                Finding::new(Grade::UnknownCode, "The scan ended before everything was examined")
                    .detail("The file makes far more work than files of its size do.")
                    .advice("Unpack it and scan its content, or do not load the file."),
            );
        }
        self.findings.finish()
    }

    /// Processes all tasks, the last first, so that decompressed data is freed early. Once the
    /// budget is exhausted, the others are dropped, which [`Search::finish`] reports.
    fn run(&mut self) -> Result<()> {
        while let Some(task) = self.tasks.pop() {
            self.progress.check(0, 0)?;
            if self.budget.is_exhausted() {
                self.tasks.clear();
                break;
            }
            match task {
                ScanTask::Examine(blob) => self.examine(&blob)?,
                ScanTask::Unpack(blob, packing, led) => self.unpack(blob, packing, led)?,
                ScanTask::Sweep(blob) => self.sweep(&blob)?,
            }
            if self.cancelled {
                return Err(Error::cancelled());
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
            if !self.spend(ATTEMPT) {
                return;
            }
            let blob = of.part(packing.name(), at, u64::MAX);
            self.tasks.push(ScanTask::Unpack(blob, packing, false));
        }
    }

    /// Examines a value that was decoded.
    pub(super) fn decoded(&mut self, of: &Blob, name: &str, bytes: Vec<u8>) -> Result<()> {
        if !self.spend(DECODED) {
            return Ok(());
        }
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
        let mut is_other = false;
        if (blob.root || head.starts_with(b"PK"))
            && let Some(end) = zip::last_end(&*blob.source)
        {
            is_other |= head.starts_with(zip::LOCAL);
            self.archive(blob, end)?;
        }
        if tar::is_header(&*blob.source, 0) {
            is_other = true;
            self.tar(blob, 0, true)?;
        }
        let packing = Packing::at_start(&head);
        if let Some(packing) = packing {
            self.packed(blob, packing.name(), 0, blob.source.len(), packing);
        }
        if statelens_hdf5::Hdf5File::is_likely(&head) {
            is_other |= head.starts_with(HDF5);
            hdf5::examine(self, blob)?;
        }
        if head.get(4..8) == Some(MOBILE) {
            self.found = true;
            self.report(blob, vec![mobile()]);
        }
        texts::examine(self, blob, &head)?;
        is_other |= head.starts_with(NUMPY) || is_safetensors(&head, blob.source.len());
        // Content takes precedence over the name: joblib, accelerate and others also use the
        // extensions of pickles for compressed files and archives.
        let promised = promises_pickle(&blob.name) || self.is_file(blob) && self.promised;
        if promised && let Some(packing) = packing {
            is_other |= packing.is_certain() || self.unpacks(blob, packing)?;
        }
        let marked = matches!(head[..], [0x80, 2..=5, ..]);
        let certainty = match () {
            () if is_stream(&head) || promised && !is_other => Certainty::Yes,
            () if marked && self.is_file(blob) && !is_other => Certainty::Likely,
            () => Certainty::Perhaps,
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

    /// Spends what a member of an archive costs, and its name of `len` bytes, which is read and
    /// compared several times.
    pub(super) fn may_enter(&mut self, blob: &Blob, len: usize) -> bool {
        let may = self.spend(ENTRY + 8 * READ * len as u64);
        if !may {
            self.unseen(blob, "the rest of the archives", "They have too many members.");
        }
        may
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
        // A header is a dict as Python spells it; NumPy refuses everything else. Python refuses
        // sources with a NUL, which every other array has in its version: headers do not overlap.
        let first = some(&*blob.source, at + skip, len.min(HEAD))?;
        let begins = |byte: &u8| b"{( \t\n\r\x0c#\\".contains(byte);
        if !first.first().is_none_or(begins) || memchr::memchr(0, &first).is_some() {
            return Ok(());
        }
        if !self.spend(len.min(MAX_HEADER) * 2 * READ) {
            return Ok(());
        }
        let header = some(&*blob.source, at + skip, len.min(MAX_HEADER))?;
        if memchr::memchr(0, &header).is_some() {
            return Ok(());
        }
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

    /// Spends from the budget, and returns whether there was enough. Once the user cancelled, there
    /// is nothing left to spend, so every search ends soon; [`Search::run`] then fails.
    pub(super) fn spend(&mut self, units: u64) -> bool {
        self.unwatched = self.unwatched.saturating_add(units);
        if self.unwatched > TICK {
            self.unwatched = 0;
            if !self.progress.report(0, 0) {
                self.cancelled = true;
                self.budget = Budget::of(0);
            }
        }
        self.budget.spend(units)
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
        let grade = match error.code() == ARCHIVE {
            true => Grade::Warning,
            false => Grade::Damage,
        };
        let mut finding = Finding::new(grade, "It can't be opened")
            .detail(format!("{}. Its bytes were searched anyway.", capitalised(error.what())))
            .place(place);
        if let Some(advice) = error.next_step() {
            finding = finding.advice(advice.clone());
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

/// The identifier of TorchScript's FlatBuffers (`mobile_bytecode.fbs`), after an offset.
const MOBILE: &[u8] = b"PTMF";

fn mobile() -> Finding {
    Finding::new(Grade::Note, "The file holds the code of a TorchScript model").detail(
        "It is a FlatBuffer of PyTorch Mobile. torch runs it in its own interpreter, which calls \
         torch's operators but no Python. It runs when the model is called.",
    )
}

/// Returns whether the first bytes are those of safetensors: the length of a header that fits, and
/// the start of its JSON. Read as a little-endian number, 640 is also the `PROTO` of a pickle.
fn is_safetensors(head: &[u8], len: u64) -> bool {
    let Some((length, text)) = head.split_first_chunk::<8>() else { return false };
    let length = u64::from_le_bytes(*length);
    let opens =
        text.first() == Some(&b'{') && matches!(text.get(1), Some(b'"' | b'}' | b' ' | b'\n'));
    opens && length.checked_add(8).is_some_and(|end| end <= len)
}

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
    use statelens_checkpoint::OneThread;

    /// Runs a part of a search on a file, and returns its findings.
    fn search(bytes: Vec<u8>, part: impl FnOnce(&mut Search<'_>, Blob)) -> Vec<Finding> {
        let (limits, options) = (Limits::default(), ScanOptions::default());
        let mut progress = Unwatched;
        let budget = Budget::within(&limits);
        let mut search = Search::new(&limits, &options, budget, &OneThread, &mut progress);
        let blob = search.root_blob(Arc::new(Memory::from(bytes)));
        part(&mut search, blob);
        search.finish()
    }

    /// The budget counts compressed bytes, so that streams without content use it up, too.
    #[test]
    fn budget_counts_the_compressed_bytes() {
        let empty = bzip2(b"").repeat(1_000);
        let len = empty.len() as u64;
        search(empty, |search, blob| {
            search.budget = Budget::of(1 << 20);
            search.unpack(blob, Packing::Bzip2, false).unwrap();
            assert!(search.budget.left() <= (1 << 20) - len, "{:?}", search.budget);
        });
    }

    /// Searches other than the sweep spend for every byte as well.
    #[test]
    fn texts_and_graphs_spend_from_the_budget() {
        let spent = |name: &str, bytes: &[u8]| {
            let (limits, options) = (Limits::default(), ScanOptions::default());
            let mut progress = Unwatched;
            let budget = Budget::of(1 << 40);
            let mut search = Search::new(&limits, &options, budget, &OneThread, &mut progress);
            search.file("", name, Arc::new(Memory::from(bytes.to_vec())), Vec::new()).unwrap();
            (1 << 40) - search.budget.left()
        };
        let lines = b"'a'\n".repeat(9_999);
        let fields = b"\x3a\0".repeat(9_999);
        for (name, bytes) in [
            ("x.yaml", &lines),
            ("x.jinja", &lines),
            ("x.json", &lines),
            ("x.pbtxt", &lines),
            ("x.pb", &fields),
            ("x.onnx", &fields),
        ] {
            let more = spent(name, bytes) - spent("x.txt", bytes);
            assert!(more >= 15 * bytes.len() as u64, "{name}: {more}");
        }
        let gguf = [&b"GGUF"[..], &[0; 999]].concat();
        assert!(spent("x", &gguf) > 15 * gguf.len() as u64);
    }

    /// Sparse members share the budget for decompressed data.
    #[test]
    fn sparse_members_beyond_the_budget_are_a_finding() {
        for (second, is_finding) in [(100, false), (600_000, true)] {
            let archive = join(&[&sparse_member(600_000), &sparse_member(second)]);
            let findings = search(archive, |search, blob| {
                search.budget = Budget::of(1 << 20);
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
        for (units, is_finding) in [(1 << 30, false), (10_000, true)] {
            let findings = search(pickle.clone(), |search, blob| {
                search.budget = Budget::of(units);
                search.pickle(&blob, 0, Certainty::Yes).unwrap();
            });
            assert_eq!(!findings.is_empty(), is_finding, "{findings:?}");
        }
    }

    /// Searches that only spend are cancelled, too.
    #[test]
    fn search_ends_when_the_user_cancels() {
        struct Cancels;
        impl Progress for Cancels {
            fn report(&mut self, _done: u64, total: u64) -> bool {
                total > 0
            }
        }
        let (limits, options) = (Limits::default(), ScanOptions::default());
        let mut progress = Cancels;
        let budget = Budget::within(&limits);
        let mut search = Search::new(&limits, &options, budget, &OneThread, &mut progress);
        assert!(search.spend(TICK) && !search.spend(1) && !search.spend(0));
        assert!(search.cancelled);
    }

    /// Nothing is examined after the budget is exhausted, and that is a finding.
    #[test]
    fn exhausted_budget_is_a_finding() {
        for (units, expected) in [(1 << 20, 0), (10, 1)] {
            let findings = search(b"nothing".to_vec(), |search, blob| {
                search.budget = Budget::of(units);
                search.whole(blob);
                search.run().unwrap();
            });
            assert_eq!(findings.len(), expected, "{findings:?}");
        }
    }
}
