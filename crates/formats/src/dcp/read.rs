use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use statelens_checkpoint::{
    Builder, ByteOrder, Checkpoint, DType, Deferred, Error, FileId, FileSet, Finding, FormatInfo,
    Global, Grade, Layout, Limits, Locate, Opaque, Progress, Result, Span, Tensor, Text, Value,
    ValueId,
};
use statelens_pickle::{Pickle, ScanOptions};

use super::detect::metadata;
use super::grid::{Chunk, assemble};
use super::metadata::{EntryKind, Metadata, MetadataEntry, StorageInfo};
use super::tree::ContainerTree;
use crate::paths::folder;
use crate::stray;
use crate::torch;
use crate::unread::Unread;

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    progress.check(0, 0)?;
    let main = find_metadata(&files)?;
    let pickle = read_pickle(&files, main, limits)?;
    let findings = pickle.scan(&ScanOptions::default());
    let mut metadata = Metadata::new(&pickle, limits)?;
    let mut reading = DcpReading::new(&files, main, findings);
    let mut builder = Builder::new(limits);
    let mut tree = ContainerTree::new();
    let total = metadata.len() as u64;
    for number in 0..metadata.len() {
        if number % 256 == 0 {
            progress.check(number as u64, total)?;
        }
        let entry = metadata.entry(number)?;
        let value = reading.value(&metadata, &entry, &mut builder)?;
        tree.insert(&metadata.path(&entry.name)?, value, limits)?;
    }
    let root = tree.build(&mut builder)?;
    let format = reading.format(&metadata);
    let findings = reading.finish();
    builder.finish(root, format, files, findings)
}

/// Returns the locations of all stored items in the files of the set, in order.
pub(crate) fn places(files: &FileSet, limits: &Limits) -> Result<Vec<Span>> {
    let main = find_metadata(files)?;
    let pickle = read_pickle(files, main, limits)?;
    let metadata = Metadata::new(&pickle, limits)?;
    let reading = DcpReading::new(files, main, Vec::new());
    let mut spans: Vec<Span> =
        metadata.storage_infos().filter_map(|info| reading.span(info).ok()).collect();
    spans.sort_unstable_by_key(|span| (span.file, span.offset));
    spans.dedup();
    Ok(spans)
}

fn find_metadata(files: &FileSet) -> Result<FileId> {
    let main = files.main()?;
    metadata(files, main).ok_or_else(|| {
        Error::unsupported("this is a part of a distributed checkpoint of PyTorch, and its index, the file .metadata, was not given")
            .expected("the file .metadata in the same folder")
            .advice("Open the whole folder, or .metadata together with its .distcp files.")
    })
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
    /// Number of storages of values so far.
    storages: u32,
    findings: Vec<Finding>,
    /// Files that are not in the set, with the number of items in each.
    absent: BTreeMap<String, u64>,
    broken: Unread,
    chunks: u64,
}

impl<'a> DcpReading<'a> {
    fn new(files: &'a FileSet, main: FileId, findings: Vec<Finding>) -> Self {
        Self {
            files,
            by_name: files.names().map(|(id, name)| (name, id)).collect(),
            folder: folder(files.name(main)),
            storages: 0,
            findings,
            absent: BTreeMap::new(),
            broken: Unread::default(),
            chunks: 0,
        }
    }

    fn value(
        &mut self,
        metadata: &Metadata<'_>,
        entry: &MetadataEntry,
        builder: &mut Builder,
    ) -> Result<ValueId> {
        match &entry.kind {
            EntryKind::Tensor { dtype, shape, chunks } => {
                let layout = match self.tensor(metadata, entry, dtype, shape, chunks) {
                    Ok(layout) => layout,
                    Err(reason) => Layout::Missing(self.problem(&entry.name, reason)),
                };
                let tensor = Tensor::new(dtype.clone(), shape.clone(), layout);
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
        metadata: &Metadata<'_>,
        entry: &MetadataEntry,
        dtype: &DType,
        shape: &[u64],
        chunks: &[(Vec<u64>, Vec<u64>)],
    ) -> Result<Layout, MissingReason> {
        self.chunks += chunks.len() as u64;
        let element: Arc<ChunkElements> = Arc::new(ChunkElements { dtype: dtype.clone() });
        let mut placed = Vec::with_capacity(chunks.len());
        for (at, shape) in chunks {
            let info = metadata.storage_info(&entry.name, Some(at)).ok_or_else(|| {
                MissingReason::Broken("the metadata does not say where one of its chunks is".into())
            })?;
            let layout = Layout::Deferred(Deferred::new(self.span(info)?, element.clone()));
            placed.push(Chunk { at: at.clone(), shape: shape.clone(), layout });
        }
        assemble(shape, placed).map_err(MissingReason::Broken)
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
        let span = match info.and_then(|info| self.span(info)) {
            Ok(span) => span,
            Err(reason) => return Ok(Err(reason)),
        };
        match torch::read::part(self.files.structure(span.file)?, span, self.storages, builder) {
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

    /// Returns the location of a stored item, or the reason why it is not available.
    fn span(&self, info: &StorageInfo) -> Result<Span, MissingReason> {
        let name = info.file.to_lossy();
        if info.transformed {
            return Err(MissingReason::Broken(
                "it was compressed or otherwise transformed when it was saved; save the \
                 checkpoint again without that"
                    .into(),
            ));
        }
        let path = format!("{}{name}", self.folder);
        let file = self.by_name.get(&*path).filter(|id| !stray::is_pointer(self.files, **id));
        let file = file.ok_or(MissingReason::Absent(path))?;
        let len = self.files.len(*file);
        match info.offset.checked_add(info.len) {
            Some(end) if end <= len => Ok(Span { file: *file, offset: info.offset, len: info.len }),
            _ => Err(MissingReason::Broken(format!(
                "{name} ends at byte {len}, before the end of what should be in it; compare its \
                 size with the original"
            ))),
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

    fn format(&self, metadata: &Metadata<'_>) -> FormatInfo {
        let files: std::collections::HashSet<&Text> =
            metadata.storage_infos().map(|info| &info.file).collect();
        FormatInfo {
            id: "torch-dcp",
            name: "PyTorch distributed checkpoint",
            version: metadata.version.clone(),
            producer: String::new(),
            facts: vec![
                ("Files".into(), files.len().to_string()),
                ("Chunks of tensors".into(), self.chunks.to_string()),
            ],
            ..FormatInfo::default()
        }
    }

    fn finish(self) -> Vec<Finding> {
        let Self { mut findings, absent, broken, .. } = self;
        if !absent.is_empty() {
            let things: u64 = absent.values().sum();
            let count = absent.len();
            let names: Vec<String> = absent.into_keys().collect();
            let shown = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if count > 5 { " and more" } else { "" };
            let title = match count {
                1 => format!("The file {shown} is missing"),
                _ => format!("{count} files are missing: {shown}{more}"),
            };
            findings.push(
                Finding::new(Grade::Damage, title)
                    .detail(format!(
                        "{things} tensors and values, or chunks of them, were stored \
                                     there."
                    ))
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
    Broken(String),
}

/// Returns a placeholder for a value that could not be read.
fn unread(class: &str, reason: Text) -> Value {
    Value::Opaque(Box::new(Opaque::reference(
        Global::new("torch.distributed.checkpoint.metadata", class),
        Some(format!("<missing: {reason}>").into()),
    )))
}

/// Finds the elements of a chunk in its archive, a tensor saved on its own.
#[derive(Debug)]
struct ChunkElements {
    dtype: DType,
}

impl Locate for ChunkElements {
    fn locate(&self, files: &FileSet, span: Span, shape: &[u64]) -> Result<Layout> {
        let name = files.name(span.file);
        let mut builder = Builder::new(files.limits());
        let (lowered, _) = torch::read::part(files.structure(span.file)?, span, 0, &mut builder)
            .map_err(|error| error.at(span.offset).in_file(name))?;
        let wrong = |what: String| {
            Err(Error::damaged(format!("a chunk of a tensor {what}")).at(span.offset).in_file(name))
        };
        let tensor = match builder.value(lowered.root) {
            Some(Value::Tensor(id)) => builder.tensor_mut(*id).cloned(),
            _ => None,
        };
        let Some(tensor) = tensor else { return wrong("is not a tensor".into()) };
        if tensor.dtype != self.dtype || tensor.shape != shape {
            return wrong(format!(
                "is {} of shape {:?}, the metadata says {} of shape {shape:?}",
                tensor.dtype, tensor.shape, self.dtype
            ));
        }
        if tensor.byte_order == ByteOrder::Big {
            return Err(Error::unsupported("a chunk of a tensor is big-endian").in_file(name));
        }
        if tensor.conjugate || tensor.negate || tensor.quantizer.is_some() {
            return wrong("is not plain: conjugated, negated or quantised".into());
        }
        Ok(tensor.layout)
    }
}
