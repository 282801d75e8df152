use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Deferred, DictKey, Error, FileId, FileSet, Finding, FormatInfo,
    Global, Grade, Layout, Limits, Opaque, Progress, ReadAt as _, Replica, Result, Span, Tensor,
    TensorId, Text, Value, ValueId, counted, rank_in,
};
use statelens_pickle::{Lowered, Pickle, ScanOptions};

use super::chunk::{ChunkElements, unflattened};
use super::detect::{is_own, metadata};
use super::metadata::{EntryKind, Metadata, MetadataEntry, StorageInfo};
use super::tree::ContainerTree;
use super::unfold::{Unfolded, folded, is_zstd};
use crate::joined::{self, Fault, JoinedTensor, Piece, UnreadFiles, with_gaps};
use crate::not_a_checkpoint;
use crate::paths::{base, folder, is_outside};
use crate::torch;
use crate::unreadable_parts::Unread;

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    progress.check(0, 0)?;
    let mains = find_metadata(&files)?;
    let mut reading = DcpReading::new(&files, mains[0]);
    let mut pickles = Vec::with_capacity(mains.len());
    for main in &mains {
        let pickle = read_pickle(&files, *main, limits);
        if let Some(pickle) = reading.kept(*main, pickle)? {
            reading.notice(pickle.scan(&ScanOptions::default()));
            pickles.push((*main, pickle));
        }
    }
    let mut metadata = Vec::with_capacity(pickles.len());
    for (main, pickle) in &pickles {
        metadata.extend(reading.kept(*main, Metadata::new(pickle, limits))?);
    }
    if let Some(error) = reading.unread.first().filter(|_| metadata.is_empty()) {
        return Err(error.clone());
    }
    reading.ranks(&mains);
    let mut builder = Builder::new(limits);
    let mut tree = ContainerTree::new();
    let total = metadata.first().map_or(0, Metadata::len) as u64;
    // Ranks that did not coordinate each wrote metadata of their own.
    let numbers: Vec<_> = match metadata.len() {
        1 => Vec::new(),
        _ => metadata.iter().map(Metadata::numbers).collect(),
    };
    for first in 0..metadata.len() {
        for number in 0..metadata[first].len() {
            if number % 256 == 0 {
                progress.check(number as u64, total)?;
            }
            let entry = metadata[first].entry(number)?;
            if numbers.iter().take(first).any(|known| known.contains_key(&entry.name)) {
                continue;
            }
            let mut others: Vec<(usize, MetadataEntry)> = Vec::new();
            for (at, known) in numbers.iter().enumerate().skip(first + 1) {
                if let Some(number) = known.get(&entry.name) {
                    others.push((at, metadata[at].entry(*number)?));
                }
            }
            let mut all = vec![(&metadata[first], &entry)];
            all.extend(others.iter().map(|(at, entry)| (&metadata[*at], entry)));
            let value = reading.value(&all, &mut builder)?;
            tree.insert(&metadata[first].path(&entry.name)?, value, limits)?;
        }
    }
    let root = tree.build(&mut builder)?;
    let format = reading.format(&metadata);
    if reading.is_megatron {
        reading.common(root, &mut builder)?;
        further(root, &mut builder);
    }
    let replicas = std::mem::take(&mut reading.replicas);
    let partial = std::mem::take(&mut reading.partial);
    let findings = reading.finish();
    let mut opened = builder.finish(root, format, files, findings)?;
    (opened.replicas, opened.partial) = (replicas, partial);
    Ok(opened)
}

/// Marks what Megatron saves next to the model: the optimizer's states, and the objects of all kinds,
/// whose keys end in their place (`rng_state/shard_0.1_1.2`).
fn further(root: ValueId, builder: &mut Builder) {
    let Some(Value::Dict(dict)) = builder.value(root) else { return };
    let is_further = |key: &DictKey| match key {
        DictKey::Str(key) => {
            let key = key.to_lossy();
            key.starts_with("optimizer.") || key.contains("/shard_")
        }
        _ => false,
    };
    let entries = dict.entries.iter().filter(|(key, _)| is_further(key));
    let ids: Vec<ValueId> = entries.map(|(_, id)| *id).collect();
    // Without weights, as in a checkpoint of the optimizer alone, nothing is next to them.
    if ids.len() < dict.entries.len() {
        ids.into_iter().for_each(|id| builder.set_outside_state(id, true));
    }
}

/// Returns the locations of all stored items in the files of the set, in order.
pub(crate) fn places(files: &FileSet, limits: &Limits) -> Result<Vec<Span>> {
    let mains = find_metadata(files)?;
    let reading = DcpReading::new(files, mains[0]);
    let mut spans: Vec<Span> = Vec::new();
    for main in mains {
        let Ok(pickle) = joined::of_content(files, main, read_pickle(files, main, limits))? else {
            continue;
        };
        let Ok(metadata) = Metadata::new(&pickle, limits) else { continue };
        spans.extend(metadata.storage_infos().filter_map(|info| reading.span(info).ok()));
    }
    spans.sort_unstable_by_key(|span| (span.file, span.offset));
    spans.dedup();
    Ok(spans)
}

/// Returns the metadata: `.metadata`, or those of all ranks. There is at least one.
fn find_metadata(files: &FileSet) -> Result<Vec<FileId>> {
    let found = metadata(files, files.main()?);
    if found.is_empty() {
        return Err(Error::unsupported("this is a part of a distributed checkpoint of PyTorch, and its index, the file .metadata, was not given")
            .expected("the file .metadata in the same folder")
            .advice("Open the whole folder, or .metadata together with its .distcp files."));
    }
    Ok(found)
}

fn bytes(files: &FileSet, main: FileId, limits: &Limits) -> Result<Vec<u8>> {
    let len = files.len(main);
    Limits::check("bytes of the metadata", len, limits.structure)?;
    files.read_vec(main, 0, len)
}

fn read_pickle(files: &FileSet, main: FileId, limits: &Limits) -> Result<Pickle> {
    statelens_pickle::read(&bytes(files, main, limits)?, 0, limits)
        .map_err(crate::pickle::read::describe)
        .map_err(|error| error.in_file(files.name(main)))
}

struct DcpReading<'a> {
    files: &'a FileSet,
    by_name: HashMap<&'a str, FileId>,
    /// The checkpoint's folder with a trailing slash.
    folder: &'a str,
    /// Whether Megatron wrote it (`torch_dist`).
    is_megatron: bool,
    /// Number of storages of values so far.
    storages: u32,
    findings: Vec<Finding>,
    /// Files that are not in the set, with the number of items in each.
    absent: BTreeMap<String, u64>,
    /// Files that end before an item in them.
    cut: BTreeSet<String>,
    /// Metadata of ranks that can't be read.
    unread: UnreadFiles,
    broken: Unread,
    /// Copies of chunks that several ranks wrote.
    replicas: Vec<Replica>,
    /// The chunks of tensors of which others are missing.
    partial: HashMap<Text, Layout>,
    chunks: u64,
    /// The number of tensors, and of those that can't be read whole.
    tensors: u64,
    incomplete: u64,
}

impl<'a> DcpReading<'a> {
    fn new(files: &'a FileSet, main: FileId) -> Self {
        let folder = folder(files.name(main));
        let config = files.names().find(|(_, name)| {
            name.strip_prefix(folder).is_some_and(|rest| rest == "metadata.json")
        });
        let is_megatron = config.is_some_and(|(id, _)| {
            let text = files.read_vec(id, 0, files.len(id).min(4096)).unwrap_or_default();
            memchr::memmem::find(&text, b"\"torch_dist\"").is_some()
        });
        Self {
            files,
            by_name: files.names().map(|(id, name)| (name, id)).collect(),
            folder,
            is_megatron,
            storages: 0,
            findings: Vec::new(),
            absent: BTreeMap::new(),
            cut: BTreeSet::new(),
            unread: UnreadFiles::default(),
            broken: Unread::default(),
            replicas: Vec::new(),
            partial: HashMap::new(),
            chunks: 0,
            tensors: 0,
            incomplete: 0,
        }
    }

    /// Returns the metadata of a rank; `None` if reading failed, after recording the error.
    fn kept<T>(&mut self, id: FileId, read: Result<T>) -> Result<Option<T>> {
        Ok(match joined::of_content(self.files, id, read)? {
            Ok(read) => Some(read),
            Err(error) => {
                self.unread.add(id, error);
                *self.absent.entry(self.files.name(id).to_owned()).or_default() += 1;
                None
            }
        })
    }

    /// Reports ranks whose own metadata is missing. The number of ranks is not stored, so only gaps
    /// in the numbers show it.
    fn ranks(&mut self, mains: &[FileId]) {
        let rank = |id: &FileId| rank_in(base(self.files.name(*id)));
        let there: BTreeSet<u64> = mains.iter().filter_map(rank).collect();
        let last = there.last().copied().unwrap_or(0).min(1 << 16);
        let absent = (0..last).filter(|rank| !there.contains(rank));
        for rank in absent {
            let name = format!("{}__{rank}.metadata", self.folder);
            *self.absent.entry(name).or_default() += 1;
        }
    }

    /// Adds a value or tensor. `all` has its descriptions: one, or those of several ranks.
    fn value(
        &mut self,
        all: &[(&Metadata<'_>, &MetadataEntry)],
        builder: &mut Builder,
    ) -> Result<ValueId> {
        let Some((metadata, entry)) = all.first() else { return builder.push(Value::None) };
        match &entry.kind {
            EntryKind::Tensor { dtype, shape, .. } => {
                let flattened = metadata.flattened(&entry.name).map(<[u64]>::to_vec);
                let whole = flattened.as_deref().unwrap_or(shape);
                self.tensors += 1;
                let layout = match self.tensor(all, dtype, shape, flattened.as_deref()) {
                    Ok(layout) => layout,
                    Err(reason) => {
                        self.incomplete += 1;
                        Layout::Missing(self.problem(&entry.name, reason))
                    }
                };
                let tensor = Tensor::new(dtype.clone(), whole.to_vec(), layout);
                let tensor = builder
                    .push_tensor(tensor)
                    .map_err(|error| error.context(entry.name.to_lossy()))?;
                builder.push(Value::Tensor(tensor))
            }
            EntryKind::Value => match self.plain(metadata, entry, builder) {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(reason)) => {
                    let reason = self.problem(&entry.name, reason);
                    builder.push(unread("BytesStorageMetadata", reason))
                }
                Err(error) => Err(error),
            },
            EntryKind::Other(class) => {
                let reason =
                    MissingReason::Broken(format!("it is described by {class}, which is unknown"));
                let reason = self.problem(&entry.name, reason);
                builder.push(unread(class, reason))
            }
        }
    }

    fn tensor(
        &mut self,
        all: &[(&Metadata<'_>, &MetadataEntry)],
        dtype: &DType,
        shape: &[u64],
        flattened: Option<&[u64]>,
    ) -> Result<Layout, MissingReason> {
        let mut pieces = Vec::new();
        let mut absent = None;
        let mut elements: HashMap<(bool, Option<Vec<u64>>), Arc<ChunkElements>> = HashMap::new();
        for (metadata, entry) in all {
            let EntryKind::Tensor { dtype: other, shape: size, chunks } = &entry.kind else {
                return Err(MissingReason::Broken(
                    "one rank has a tensor and another has not".into(),
                ));
            };
            if (other, size.as_slice()) != (dtype, shape) {
                return Err(MissingReason::Broken(format!(
                    "one rank says {dtype} of shape {shape:?}, another {other} of shape {size:?}"
                )));
            }
            self.chunks += chunks.len() as u64;
            for (at, shape) in chunks {
                let info = metadata.storage_info(&entry.name, Some(at)).ok_or_else(|| {
                    MissingReason::Broken(
                        "the metadata does not say where one of its chunks is".into(),
                    )
                })?;
                let span = match self.span(info) {
                    Ok(span) => span,
                    Err(reason @ (MissingReason::Absent(_) | MissingReason::Cut(..))) => {
                        absent.get_or_insert(reason);
                        continue;
                    }
                    Err(reason) => return Err(reason),
                };
                let zstd = is_zstd(&info.transforms).map_err(MissingReason::Broken)?;
                let stored = flattened.is_some().then(|| shape.clone());
                let element = elements.entry((zstd, stored)).or_insert_with_key(|(_, stored)| {
                    let (dtype, stored) = (dtype.clone(), stored.clone());
                    Arc::new(ChunkElements { dtype, zstd, stored })
                });
                let layout = Layout::Deferred(Deferred::new(span, element.clone()));
                let (at, shape) = (at.clone(), shape.clone());
                pieces.push(Piece { at, shape, file: span.file, layout });
            }
        }
        let whole = match flattened {
            Some(whole) => {
                pieces = unflattened(shape, whole, dtype, pieces).map_err(MissingReason::Broken)?;
                whole
            }
            None => shape,
        };
        let known = absent.is_some().then(|| pieces.clone());
        let joined = JoinedTensor { dtype: dtype.clone(), shape: whole.to_vec(), pieces }.join();
        if let (Err(Fault::Gap { .. }), Some(reason)) = (&joined, absent) {
            let layout = known.and_then(|pieces| with_gaps(whole, pieces));
            let key = all.first().map(|(_, entry)| entry.name.clone());
            self.partial.extend(key.zip(layout));
            return Err(reason);
        }
        let (layout, copies) =
            joined.map_err(|fault| MissingReason::Broken(fault.text(self.files, whole)))?;
        if let Some((_, entry)) = all.first() {
            let replica = |copies| Replica { key: entry.name.clone(), copies };
            self.replicas.extend(copies.into_iter().map(replica));
        }
        Ok(layout)
    }

    /// Reads a value that is not a tensor. The inner error concerns only this value.
    fn plain(
        &mut self,
        metadata: &Metadata<'_>,
        entry: &MetadataEntry,
        builder: &mut Builder,
    ) -> Result<Result<ValueId, MissingReason>> {
        let info = metadata.storage_info(&entry.name, None);
        let info = info
            .ok_or_else(|| MissingReason::Broken("the metadata does not say where it is".into()));
        let place = info.and_then(|info| {
            let zstd = is_zstd(&info.transforms).map_err(MissingReason::Broken)?;
            Ok((self.span(info)?, zstd))
        });
        let (span, zstd) = match place {
            Ok(place) => place,
            Err(reason) => return Ok(Err(reason)),
        };
        let opened = match zstd {
            true => self.unfolded_value(span, builder),
            false => {
                let source = self.files.structure(span.file)?;
                torch::read::part(source, span, self.storages, builder)
            }
        };
        match opened {
            Ok((lowered, storages)) => {
                self.storages = self.storages.saturating_add(storages);
                self.notice(lowered.findings);
                Ok(Ok(lowered.root))
            }
            // An exceeded limit is not a problem of a single value.
            Err(error) if error.kind() == statelens_checkpoint::ErrorKind::Limit => Err(error),
            Err(error) => Ok(Err(MissingReason::Broken(error.to_string()))),
        }
    }

    /// Reads a compressed value. Its tensors are read from the stream.
    fn unfolded_value(&self, span: Span, builder: &mut Builder) -> Result<(Lowered, u32)> {
        let limits = builder.limits();
        let most = span.len.saturating_mul(limits.unfold).min(limits.structure);
        let unfolded = Unfolded::read(self.files, span, most, true)?;
        let inner = Span { file: span.file, offset: 0, len: unfolded.len() };
        let first = builder.tensors();
        let opened = torch::read::part(Arc::new(unfolded), inner, self.storages, builder)?;
        for id in first..builder.tensors() {
            if let Some(tensor) = builder.tensor_mut(TensorId(id)) {
                tensor.layout = folded(tensor.layout.clone(), span);
            }
        }
        Ok(opened)
    }

    /// Adds Megatron's state that is not sharded, from `common.pt`, as a further state.
    fn common(&mut self, root: ValueId, builder: &mut Builder) -> Result<()> {
        let name = format!("{}common.pt", self.folder);
        let Some(id) = self.by_name.get(name.as_str()).copied() else { return Ok(()) };
        let span = Span { file: id, offset: 0, len: self.files.len(id) };
        let opened = torch::read::part(self.files.structure(id)?, span, self.storages, builder);
        let (lowered, _) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let title = format!("{name} can't be read");
                self.findings.push(crate::unreadable_parts::finding(title, &error));
                return Ok(());
            }
        };
        self.notice(lowered.findings);
        builder.set_outside_state(lowered.root, true);
        if let Some(Value::Dict(dict)) = builder.value_mut(root) {
            let is_free =
                |key: &str| !dict.entries.iter().any(|(known, _)| *known == DictKey::from(key));
            let key = if is_free("common") { "common" } else { "common.pt" };
            dict.entries.push((DictKey::from(key), lowered.root));
        }
        Ok(())
    }

    /// Returns the location of a stored item, or the reason why it is not available.
    fn span(&self, info: &StorageInfo) -> Result<Span, MissingReason> {
        let name = info.file.to_lossy();
        if is_outside(&name) {
            return Err(MissingReason::Broken(format!(
                "the metadata says that it is in {name:?}, outside of the folder"
            )));
        }
        let path = format!("{}{name}", self.folder);
        let file =
            self.by_name.get(&*path).filter(|id| !not_a_checkpoint::is_pointer(self.files, **id));
        let Some(file) = file else { return Err(MissingReason::Absent(path)) };
        let len = self.files.len(*file);
        match info.offset.checked_add(info.len) {
            Some(end) if end <= len => Ok(Span { file: *file, offset: info.offset, len: info.len }),
            _ => {
                let reason = format!(
                    "{name} ends at byte {len}, before the end of what should be in it; compare \
                     its size with the original"
                );
                Err(MissingReason::Cut(path, reason))
            }
        }
    }

    /// Adds a problem with an item, and returns it as text.
    fn problem(&mut self, name: &Text, reason: MissingReason) -> Text {
        match reason {
            MissingReason::Absent(file) => {
                let text = format!("it is in {file}, which was not given");
                self.files.note_missed(&file);
                *self.absent.entry(file).or_default() += 1;
                text.into()
            }
            MissingReason::Cut(file, reason) => {
                self.cut.insert(file);
                self.problem(name, MissingReason::Broken(reason))
            }
            MissingReason::Broken(reason) => {
                let text = reason.as_str().into();
                self.broken.add(name, reason);
                text
            }
        }
    }

    fn notice(&mut self, findings: Vec<Finding>) {
        for mut finding in findings {
            finding.place.clear();
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }

    fn format(&self, metadata: &[Metadata<'_>]) -> FormatInfo {
        let infos = metadata.iter().flat_map(Metadata::storage_infos);
        let files: HashSet<&Text> = infos.map(|info| &info.file).collect();
        FormatInfo {
            id: "torch-dcp",
            name: match self.is_megatron {
                true => "Megatron distributed checkpoint",
                false => "PyTorch distributed checkpoint",
            },
            version: metadata.first().map_or(String::new(), |first| first.version.clone()),
            producer: String::new(),
            facts: vec![
                ("Joined".into(), self.line(&files)),
                ("Files".into(), files.len().to_string()),
                ("Chunks of tensors".into(), self.chunks.to_string()),
            ],
            ..FormatInfo::default()
        }
    }

    /// Returns the line about the checkpoint: ranks, tensors, missing ranks.
    fn line(&self, files: &HashSet<&Text>) -> String {
        let ranks: HashSet<u64> =
            files.iter().filter_map(|file| rank_in(base(&file.to_lossy()))).collect();
        let kind = if self.is_megatron { "Megatron torch_dist" } else { "DCP" };
        let absent: Vec<&String> = self.absent.keys().chain(&self.cut).collect();
        let is_there = |name: &&String| self.files.find(name).is_some();
        let (is, are) = match absent.iter().filter(|name| is_there(name)).count() {
            0 => ("is missing", "are missing"),
            there if there < absent.len() => ("is missing", "are missing or damaged"),
            _ if self.absent.is_empty() => ("is cut short", "are cut short"),
            _ => ("can't be read", "can't be read"),
        };
        let missing = match (self.incomplete, absent.as_slice()) {
            (0, _) => String::new(),
            (count, []) => format!(", {count} incomplete"),
            (count, [one]) => format!(", {count} incomplete: {one} {is}"),
            (count, more) => format!(", {count} incomplete: {} files {are}", more.len()),
        };
        let (ranks, tensors) =
            (counted(ranks.len() as u64, "rank"), counted(self.tensors, "tensor"));
        format!("{kind}, {ranks}, {tensors}{missing}")
    }

    fn finish(self) -> Vec<Finding> {
        let Self { mut findings, absent, broken, unread, files, .. } = self;
        findings.extend(unread.findings(files));
        if !absent.is_empty() {
            let things: u64 = absent.values().sum();
            let count = absent.len();
            let names: Vec<String> = absent.into_keys().collect();
            let shown = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if count > 5 { " and more" } else { "" };
            let are = match names.iter().any(|name| files.find(name).is_some()) {
                false if count == 1 => "is missing",
                false => "are missing",
                true if count == 1 => "can't be read",
                true => "are missing or can't be read",
            };
            let title = match count {
                1 => format!("The file {shown} {are}"),
                _ => format!("{count} files {are}: {shown}{more}"),
            };
            let detail = match names.iter().all(|name| is_own(name)) {
                true => "Where the pieces of its rank are is not known.".to_owned(),
                false => {
                    format!("{things} tensors and values, or chunks of them, were stored there.")
                }
            };
            findings.push(
                Finding::new(Grade::Damage, title)
                    .detail(detail)
                    .advice("Open the whole folder of the checkpoint.")
                    .missing(names),
            );
        }
        findings.extend(broken.findings());
        findings
    }
}

enum MissingReason {
    /// Its file is not in the set.
    Absent(String),
    /// Its file ends before it; with the reason.
    Cut(String, String),
    Broken(String),
}

/// Returns a placeholder for a value that could not be read.
fn unread(class: &str, reason: Text) -> Value {
    Value::Opaque(Box::new(Opaque::reference(
        Global::new("torch.distributed.checkpoint.metadata", class),
        Some(format!("<missing: {reason}>").into()),
    )))
}
