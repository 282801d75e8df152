//! The places of a file where a loader would unpickle, and what the pickles there would do.
//!
//! A file may be several things at once, and each of its readers would find other pickles in it. So
//! every reader is asked, none is believed to be the only one, and afterwards all bytes are gone
//! through for what none of them leads to ([`super::sweep`]). What is unpacked is a new run of bytes
//! (a [`Space`]) for which the same is done. Everything is bounded; where a bound is met, that is
//! a finding that says what was not looked at.

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

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{Error, Finding, Grade, Limits, Memory, Progress, ReadAt, Result};
use statelens_pickle::{ScanOptions, is_stream};

use super::findings::{FindingSet, Region};
use super::packed::{self, Packing, Unpacked};
use super::section::{Section, some};
use super::tar;
use super::zip::{self, Directory};
use crate::numpy;

/// Compressed files within each other.
const DEEPEST: u32 = 4;
/// What may be unpacked at most, in bytes, beside what grows with the file.
const UNPACKED: u64 = 512 << 20;
/// The same for each byte of the file.
const UNPACKED_PER_BYTE: u64 = 64;
/// What beginning to unpack counts for, in bytes.
const ATTEMPT: u64 = 32 << 10;
/// Bytes that a reader may have read ahead.
const AHEAD: u64 = 64 << 10;
/// What is read of a run of bytes to tell what it is; an HDF5 file may begin behind other bytes.
const HEAD: u64 = 1 << 10;
const ROOT_HEAD: u64 = (16 << 10) + 8;
/// What is read of the header of an array.
const LONGEST_HEADER: u64 = 1 << 20;

/// A run of bytes that some reader would read.
#[derive(Clone)]
pub(super) struct Blob {
    /// The way to it, for people: names of members; empty for the file itself.
    pub(super) name: String,
    pub(super) source: Arc<dyn ReadAt>,
    /// Which run it is a part of, and from where.
    pub(super) space: usize,
    pub(super) base: u64,
    /// Whether it is all of that run.
    pub(super) root: bool,
    /// How many times it was unpacked.
    pub(super) unpacked: u32,
    /// There is more of it that was not unpacked.
    pub(super) cut: bool,
}

/// What was looked at in one file, or in what was unpacked from one place.
#[derive(Default)]
struct Space {
    /// Pickles that were run: from where to where.
    pickles: BTreeMap<u64, u64>,
    /// Starts that were tried, how many bytes there were, and why.
    tried: HashSet<(u64, u64, Sure)>,
    directories: BTreeSet<Directory>,
    /// From where to where something was unpacked to its end.
    unpacked: BTreeMap<u64, u64>,
    /// What has been looked into: what, from where, and how many bytes there were.
    seen: HashSet<(Container, u64, u64)>,
}

/// What has been looked into at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Container {
    Blob,
    Local,
    Tar,
    Packed,
    Numpy,
    Hdf5,
}

/// How sure it is that a pickle begins at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Sure {
    /// A loader would unpickle here: that it can't be is a finding.
    Yes,
    /// A loader may, if it is one.
    Perhaps,
    /// Nobody leads here; bytes that look like the start of one.
    Marked,
    /// Bytes that look like a name within one.
    Bare,
}

enum ScanTask {
    Look(Blob),
    /// Whether a loader would unpack it.
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
    /// Tensors in the pickles so far whose values are places in other tensors.
    pub(super) indexed: u64,
    /// Whether there was a pickle, an archive or the like.
    pub(super) found: bool,
    /// Put before places, where there are several files.
    file: String,
    /// The name of the file.
    name: String,
    /// Whether the name of the file says that it is a pickle.
    promised: bool,
    /// Whether the pickle that was run last breaks off at a memo entry that was never set.
    unset_memo: bool,
    /// Bytes that may still be unpacked, and run as pickles, and members that may be looked at.
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
            file: String::new(),
            name: String::new(),
            promised: false,
            unset_memo: false,
            unpack: 0,
            work: 0,
            entries: 0,
        }
    }

    /// Examines one file. `file` is put before places; empty where there is only one. `slices` are
    /// offsets and lengths of parts that are loaded by themselves.
    pub(super) fn file(
        &mut self,
        file: &str,
        name: &str,
        source: Arc<dyn ReadAt>,
        slices: Vec<(u64, u64)>,
    ) -> Result<()> {
        let len = source.len();
        self.file = file.to_owned();
        self.records = storages::Records::default();
        self.unpack = UNPACKED.saturating_add(len.saturating_mul(UNPACKED_PER_BYTE));
        self.work = (64 << 20) + len.saturating_mul(16);
        self.entries = self.limits.members.saturating_mul(2);
        let space = self.space();
        let blob = Blob {
            name: String::new(),
            source,
            space,
            base: 0,
            root: true,
            unpacked: 0,
            cut: false,
        };
        self.name = name.to_owned();
        self.promised = promises_pickle(name);
        self.whole(blob.clone());
        for (start, len) in slices {
            self.part(&blob, &format!("bytes from {start}"), start, len);
        }
        self.run()
    }

    /// Looks at everything that waits, the last first, so that what was unpacked is dropped soon.
    fn run(&mut self) -> Result<()> {
        while let Some(task) = self.tasks.pop() {
            self.progress.check(0, 0)?;
            match task {
                ScanTask::Look(blob) => self.look(&blob)?,
                ScanTask::Unpack(blob, packing, led) => self.unpack(blob, packing, led)?,
                ScanTask::Sweep(blob) => self.sweep(&blob)?,
            }
        }
        Ok(())
    }

    fn space(&mut self) -> usize {
        self.spaces.push(Space::default());
        self.spaces.len() - 1
    }

    /// Looks at a run of bytes of its own, and then goes through all of it.
    fn whole(&mut self, blob: Blob) {
        self.tasks.push(ScanTask::Sweep(blob.clone()));
        self.tasks.push(ScanTask::Look(blob));
    }

    /// A part of a blob, to be looked at.
    pub(super) fn part(&mut self, of: &Blob, name: &str, start: u64, len: u64) {
        if self.is_new(Container::Blob, of, start, len) {
            let blob = of.part(name, start, len);
            self.tasks.push(ScanTask::Look(blob));
        }
    }

    /// A part of a blob, to be unpacked and looked at.
    pub(super) fn packed(&mut self, of: &Blob, name: &str, start: u64, len: u64, packing: Packing) {
        if self.is_new(Container::Packed, of, start, len) {
            let blob = of.part(name, start, len);
            self.tasks.push(ScanTask::Unpack(blob, packing, true));
        }
    }

    /// Bytes that may be the start of something compressed, which nobody leads to.
    pub(super) fn perhaps_packed(&mut self, of: &Blob, at: u64, packing: Packing) {
        let unpacked = &self.spaces[of.space].unpacked;
        let before = unpacked.range(..=of.base + at).next_back();
        let done = before.is_some_and(|(start, end)| *start == of.base + at || of.base + at < *end);
        // What is within a pickle is a value of it.
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

    /// Bytes that were decoded from something, to be looked at as they are.
    pub(super) fn decoded(&mut self, of: &Blob, name: &str, bytes: Vec<u8>) -> Result<()> {
        let space = self.space();
        let source = Arc::new(Memory::from(bytes));
        let name = of.within(name);
        let blob = Blob { name, source, space, base: 0, root: true, cut: false, ..of.clone() };
        self.sequence(&blob, 0, Sure::Perhaps)?;
        self.sweep(&blob)
    }

    /// Whether nothing of that kind and length was looked into at this place before; then it is
    /// from now on.
    pub(super) fn is_new(&mut self, kind: Container, blob: &Blob, at: u64, len: u64) -> bool {
        self.spaces[blob.space].seen.insert((kind, blob.base + at, len))
    }

    /// Tells how far the bytes of the file are gone through; fails if the user wants to stop.
    pub(super) fn at(&mut self, blob: &Blob, at: u64) -> Result<()> {
        let (at, len) = if self.is_file(blob) { (at, blob.source.len()) } else { (0, 0) };
        self.progress.check(at, len)
    }

    /// Whether a place is within a pickle that was run.
    pub(super) fn is_run(&self, blob: &Blob, at: u64) -> bool {
        let at = blob.base + at;
        let pickles = &self.spaces[blob.space].pickles;
        pickles.range(..=at).next_back().is_some_and(|(_, end)| at < *end)
    }

    /// What the readers of such bytes would find in it.
    fn look(&mut self, blob: &Blob) -> Result<()> {
        let head = some(&*blob.source, 0, if blob.root { ROOT_HEAD } else { HEAD })?;
        if head.is_empty() {
            return Ok(());
        }
        // Readers of archives start from the end. Within an archive, what is neither named nor
        // begins like one is found when all bytes are gone through.
        if blob.root || head.starts_with(b"PK") {
            for end in zip::ends(&*blob.source) {
                self.archive(blob, end)?;
            }
        }
        if tar::is_header(&*blob.source, 0) {
            self.tar(blob, 0, true)?;
        }
        if let Some(packing) = Packing::at_start(&head) {
            self.packed(blob, packing.name(), 0, blob.source.len(), packing);
        }
        if head.starts_with(NUMPY) {
            self.numpy(blob, 0)?;
        }
        if statelens_hdf5::Hdf5File::is_likely(&head) {
            hdf5::look(self, blob)?;
        }
        texts::look(self, blob, &head)?;
        let marked = matches!(head[..], [0x80, 2..=5, ..]);
        let promised = promises_pickle(&blob.name) || self.is_file(blob) && self.promised;
        // joblib compresses what it gives the same name.
        let promised = promised && !Packing::at_start(&head).is_some_and(Packing::is_certain);
        let sure = match is_stream(&head) || promised || marked && self.is_file(blob) {
            true => Sure::Yes,
            false => Sure::Perhaps,
        };
        self.sequence(blob, 0, sure)
    }

    /// The name of a file, or of a member of an archive with the way to it.
    fn name_of<'b>(&'b self, blob: &'b Blob) -> &'b str {
        if blob.name.is_empty() { &self.name } else { &blob.name }
    }

    /// Whether it is the file itself.
    fn is_file(&self, blob: &Blob) -> bool {
        blob.root && blob.name.is_empty()
    }

    /// What a zip archive holds, by every directory that its end record may stand for.
    pub(super) fn archive(&mut self, blob: &Blob, end: u64) -> Result<()> {
        for directory in zip::directories(&*blob.source, end) {
            let absolute = Directory {
                start: blob.base + directory.start,
                end: blob.base + directory.end,
                base: directory.base.wrapping_add(blob.base),
            };
            self.found = true;
            if self.spaces[blob.space].directories.insert(absolute) {
                members::look(self, blob, directory)?;
            }
        }
        Ok(())
    }

    /// Whether one more entry of an archive may be looked at.
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

    /// An array in a file: its bytes are a pickle if it is one of objects.
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
        let header = some(&*blob.source, at + skip, len.min(LONGEST_HEADER))?;
        let sure = match numpy::holds_objects((prefix[6], prefix[7]), &header) {
            Some(true) => Sure::Yes,
            Some(false) => return Ok(()),
            // Letters may be written as numbers.
            None if len > LONGEST_HEADER || header.iter().any(|byte| b"O\\".contains(byte)) => {
                Sure::Yes
            }
            None => Sure::Perhaps,
        };
        self.sequence(blob, at + skip + len, sure)
    }

    /// Unpacks a blob and looks at what comes out.
    fn unpack(&mut self, blob: Blob, packing: Packing, led: bool) -> Result<()> {
        let whose = blob.describe();
        if let (Packing::Other(what), true) = (packing, led) {
            self.unseen(&blob, &whose, &format!("It is {what}, which Statelens does not unpack."));
            return Ok(());
        }
        if blob.unpacked >= DEEPEST {
            self.unseen(&blob, &whose, "It is packed in too many others.");
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
        let told = led && (packing.is_certain() || differs);
        if let Some(why) = broken
            && told
        {
            let title = format!("{} can't be unpacked to its end", capital(&whose));
            self.findings.add(
                Finding::new(Grade::Damage, title)
                    .detail(format!(
                        "As {}: {why}. What came before that was examined.",
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

    /// Examines what is too long to be kept piece by piece. A byte counts for `weight`.
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
                    "It is in something that is too long to be unpacked whole.",
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

    /// Takes from what may be run; whether there is some left.
    pub(super) fn spend(&mut self, bytes: u64) -> bool {
        self.work = self.work.saturating_sub(bytes);
        self.work > 0
    }

    /// Adds findings that were made in a blob.
    pub(super) fn tell(&mut self, blob: &Blob, findings: Vec<Finding>) {
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

    /// Opens a region that a loader would read, at an offset of a blob. See [`Region`].
    pub(super) fn region(&self, blob: &Blob, at: u64, what: &str) -> Region {
        self.findings.region(what, self.place(blob, at))
    }

    /// Adds the finding that something was not examined, and why; each kind of thing once.
    pub(super) fn unseen(&mut self, blob: &Blob, what: &str, why: &str) {
        self.region(blob, 0, what).unread(why);
    }

    /// For people: the place in a blob.
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
            (_, true) => self.file.clone(),
            _ => format!("{}: {place}", self.file),
        }
    }

    /// How a file that can't be opened is told.
    pub(super) fn tell_error(&mut self, file: &str, error: &Error) {
        self.file = file.to_owned();
        let place = self.in_file(String::new());
        let mut finding = Finding::new(Grade::Damage, "It can't be opened")
            .detail(format!("{}. Its bytes were searched all the same.", capital(error.what())))
            .place(place);
        if let Some(advice) = error.next_step() {
            finding = finding.advice(advice);
        }
        self.findings.add(finding);
    }

    /// Makes room for what opening another file found.
    pub(super) fn tell_opened(&mut self, file: &str, findings: Vec<Finding>) {
        self.file = file.to_owned();
        for finding in findings {
            if !self.options.covers(&finding) {
                let place = self.in_file(finding.place.clone());
                self.findings.add(finding.place(place));
            }
        }
    }

    /// For what counts something else: only lets the user stop it.
    pub(super) fn quiet(&mut self) -> Quiet<'_> {
        Quiet(self.progress)
    }
}

impl Blob {
    /// A part of it, by its own name.
    pub(super) fn part(&self, name: &str, start: u64, len: u64) -> Self {
        let source: Arc<dyn ReadAt> = Arc::new(Section::new(self.source.clone(), start, len));
        let cut = self.cut && start.saturating_add(len) > self.source.len();
        let base = self.base + start.min(self.source.len());
        Self { name: self.within(name), source, base, root: false, cut, ..self.clone() }
    }

    fn within(&self, name: &str) -> String {
        // Names are as long as somebody likes, and nested.
        let name: String = name.chars().take(200).collect();
        match self.name.is_empty() || self.name.len() > 1_000 {
            true => name,
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

/// What an array of numpy begins with.
pub(super) const NUMPY: &[u8] = b"\x93NUMPY";

/// Whether a name says that there is a pickle, and nothing else.
fn promises_pickle(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".pkl", ".pickle", ".joblib", "/.metadata"].iter().any(|end| name.ends_with(end))
        || name == ".metadata"
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Passes on the wish to stop, and no numbers.
pub(super) struct Quiet<'a>(&'a mut dyn Progress);

impl Progress for Quiet<'_> {
    fn report(&mut self, _done: u64, _total: u64) -> bool {
        self.0.report(0, 0)
    }
}

/// A source that others hold, too.
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
