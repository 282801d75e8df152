//! The tar archives of releases before 0.2: `sys_info`, `pickle` (the object), `tensors` and
//! `storages`. The object refers to its tensors by number. Each of the last two members is a pickle
//! with a count, then a pickle and binary fields for each entry (`legacy_load` in
//! `torch/serialization.py`).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Error, FileId, FileSet, FormatInfo, Layout, Limits, Progress,
    ReadAt, Result, Span, Structure, Tensor, TensorClass, try_alloc,
};
use statelens_pickle::{Node, NodeId, Pickle, ScanOptions, Storage, Storages};

use crate::checks::{Algorithm, Check, Checks};

/// The block size of a tar archive.
const BLOCK: u64 = 512;
/// The position of the checksum in a header.
const SUM: Range<usize> = 148..156;
/// The number of bytes first read of a small pickle.
const GUESS: u64 = 1 << 10;

pub(super) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let tar = Tar::open(&files, limits)?;
    let pickle = tar.object(limits)?.map_err(crate::pickle::read::describe)?;
    progress.check(0, 0)?;
    let mut findings = pickle.scan(&ScanOptions::default());
    let mut table = TarStorages::read(&tar, limits)?;
    progress.check(0, 0)?;
    let mut builder = Builder::new(limits);
    let lowered = pickle.lower(&mut builder, &mut table)?;
    findings.extend(lowered.findings);
    let format = FormatInfo {
        id: "torch-tar",
        name: "PyTorch tar",
        version: "0.1".into(),
        producer: String::new(),
        facts: vec![
            ("Storages".into(), table.storages.len().to_string()),
            ("Tensors".into(), table.tensors.len().to_string()),
            ("Pickle protocol".into(), pickle.protocol().to_string()),
        ],
        ..FormatInfo::default()
    };
    builder.finish(lowered.root, format, files, findings)
}

struct Tar {
    file: FileId,
    source: Arc<Structure>,
    pickle: Span,
    tensors: Span,
    storages: Span,
}

impl Tar {
    fn open(files: &FileSet, limits: &Limits) -> Result<Self> {
        let file = files.main()?;
        let source = files.structure(file)?;
        let members = members(&source, file, limits)?;
        let find = |name: &str| {
            let found = members.iter().find(|(member, _)| member == name).map(|(_, span)| *span);
            found.ok_or_else(|| match members.iter().any(|(member, _)| member == "sys_info") {
                true => Error::damaged(format!("the archive has no member {name:?}"))
                    .expected("the members of a checkpoint of PyTorch 0.1"),
                false => Error::unsupported("this is a tar archive, not a checkpoint")
                    .coded(crate::archive::ARCHIVE)
                    .advice("Unpack it and open the checkpoint in it."),
            })
        };
        Ok(Self {
            file,
            pickle: find("pickle")?,
            tensors: find("tensors")?,
            storages: find("storages")?,
            source,
        })
    }

    fn object(&self, limits: &Limits) -> Result<Result<Pickle, statelens_pickle::Broken>> {
        let Span { offset, len, .. } = self.pickle;
        Limits::check("bytes of the pickle", len, limits.structure)?;
        let mut bytes = try_alloc::zeros(len)?;
        self.source.read_at(offset, &mut bytes)?;
        Ok(statelens_pickle::read(&bytes, offset, limits))
    }
}

/// Returns the checksums of the headers of all members.
pub(crate) fn checks(files: &FileSet, limits: &Limits) -> Result<Checks> {
    let file = files.main()?;
    let mut checks = Checks::default();
    headers(&*files.structure(file)?, limits, &mut |at, header, _| {
        let what = name(header);
        let Some(expected) = number(&header[SUM]).and_then(|sum| u32::try_from(sum).ok()) else {
            let error = Error::damaged("the header of a member has no checksum").at(at);
            checks.broken.push((what, error.in_file(files.name(file))));
            return;
        };
        let bytes = |byte: usize| if SUM.contains(&byte) { b' ' } else { header[byte] };
        let unsigned: u32 = (0..header.len()).map(|byte| u32::from(bytes(byte))).sum();
        // Some old programs treat bytes as signed.
        let signed: i64 = (0..header.len()).map(|byte| i64::from(bytes(byte).cast_signed())).sum();
        let found = if signed == i64::from(expected) { expected } else { unsigned };
        let layout = Layout::Span(Span { file, offset: at, len: BLOCK });
        let (algorithm, found) = (Algorithm::Tar, Some(found));
        checks.checks.push(Check { what, algorithm, layout, expected, found });
    })?;
    Ok(checks)
}

/// Returns names and locations of the members that are regular files.
fn members(source: &Structure, file: FileId, limits: &Limits) -> Result<Vec<(String, Span)>> {
    let mut members = Vec::new();
    headers(source, limits, &mut |at, header, len| {
        if matches!(header[156], 0 | b'0') {
            members.push((name(header), Span { file, offset: at + BLOCK, len }));
        }
    })?;
    Ok(members)
}

fn name(header: &[u8]) -> String {
    let name = header[..100].split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name);
    name.strip_prefix("./").unwrap_or(&name).to_owned()
}

/// Calls `each` for every header, with its offset, its bytes, and the length of its member.
fn headers(
    source: &Structure,
    limits: &Limits,
    each: &mut dyn FnMut(u64, &[u8; BLOCK as usize], u64),
) -> Result<()> {
    let (mut at, mut count) = (0, 0);
    loop {
        let mut header = [0; BLOCK as usize];
        if source.len() - at < BLOCK {
            return Ok(());
        }
        source.read_at(at, &mut header)?;
        if header.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let broken = |what: &str| {
            Error::damaged(format!("a member of the tar archive {what}"))
                .at(at)
                .advice("The file may be cut short: compare its size with the original.")
        };
        let len = number(&header[124..136]).ok_or_else(|| broken("has no length"))?;
        let data = at + BLOCK;
        let end = data.checked_add(len).filter(|end| *end <= source.len());
        let end = end.ok_or_else(|| broken("runs past the end of the file"))?;
        Limits::check("members of the archive", count, limits.members)?;
        count += 1;
        each(at, &header, len);
        // The last member may lack its padding.
        at = end.next_multiple_of(BLOCK).min(source.len());
    }
}

/// Parses a number in octal digits, or in binary if the first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if let [0x80, rest @ ..] = field {
        let (high, low) = rest.split_at_checked(rest.len() - 8)?;
        let low = u64::from_be_bytes(low.try_into().ok()?);
        return high.iter().all(|byte| *byte == 0).then_some(low);
    }
    let text = std::str::from_utf8(field).ok()?;
    u64::from_str_radix(text.trim_matches([' ', '\0']), 8).ok()
}

struct MemberReader<'a> {
    source: &'a Structure,
    limits: &'a Limits,
    at: u64,
    end: u64,
}

impl<'a> MemberReader<'a> {
    fn new(tar: &'a Tar, member: Span, limits: &'a Limits) -> Self {
        let end = member.offset + member.len;
        Self { source: &tar.source, limits, at: member.offset, end }
    }

    fn cut(&self) -> Error {
        Error::damaged("a member of the tar archive ends too early").at(self.at)
    }

    /// Reads the next pickle. Its length is not stored, so this reads more bytes as long as it is
    /// incomplete.
    fn pickle(&mut self) -> Result<Pickle> {
        let most = (self.end - self.at).min(self.limits.structure);
        let mut len = most.min(GUESS);
        loop {
            let mut bytes = try_alloc::zeros(len)?;
            self.source.read_at(self.at, &mut bytes)?;
            match statelens_pickle::read(&bytes, self.at, self.limits) {
                Ok(pickle) => {
                    self.at += pickle.end();
                    return Ok(pickle);
                }
                Err(broken) if broken.starved && len < most => len = most.min(len * 4),
                Err(broken) => return Err(crate::pickle::read::describe(broken)),
            }
        }
    }

    /// Reads a pickle with the number of entries that follow. Each takes at least `least` bytes.
    fn count(&mut self, least: u64) -> Result<u64> {
        let pickle = self.pickle()?;
        let count = pickle.int(pickle.root()).and_then(|count| u64::try_from(count).ok());
        let count = count.ok_or_else(|| self.unclear("does not begin with a count"))?;
        Limits::check("tensors or storages of the file", count, self.limits.members)?;
        if count > (self.end - self.at) / least {
            return Err(self.cut());
        }
        Ok(count)
    }

    fn long(&mut self) -> Result<i64> {
        let mut bytes = [0; 8];
        self.skip(8)?;
        self.source.read_at(self.at - 8, &mut bytes)?;
        Ok(i64::from_le_bytes(bytes))
    }

    /// Skips `len` bytes and returns their offset.
    fn skip(&mut self, len: u64) -> Result<u64> {
        let start = self.at;
        let next = start.checked_add(len).filter(|next| *next <= self.end);
        self.at = next.ok_or_else(|| self.cut())?;
        Ok(start)
    }

    fn unclear(&self, what: &str) -> Error {
        Error::damaged(format!("a member of the tar archive {what}")).at(self.at)
    }
}

/// The storages and tensors by number.
struct TarStorages {
    storages: HashMap<i64, (Storage, DType)>,
    tensors: HashMap<i64, Tensor>,
}

impl TarStorages {
    fn read(tar: &Tar, limits: &Limits) -> Result<Self> {
        let mut table = Self { storages: HashMap::new(), tensors: HashMap::new() };
        table.read_storages(tar, limits)?;
        table.read_tensors(tar, limits)?;
        Ok(table)
    }

    fn read_storages(&mut self, tar: &Tar, limits: &Limits) -> Result<()> {
        let mut reader = MemberReader::new(tar, tar.storages, limits);
        for number in 0..reader.count(10)? {
            let pickle = reader.pickle()?;
            let (key, dtype) = match pickle.sequence(pickle.root()) {
                Some([key, _location, class]) => (pickle.int(*key), element(&pickle, *class)),
                _ => (None, None),
            };
            let (Some(key), Some(dtype)) = (key, dtype) else {
                return Err(reader.unclear("does not describe a storage"));
            };
            let numel = u64::try_from(reader.long()?).ok();
            let len = numel.and_then(|numel| numel.checked_mul(dtype.itemsize()));
            let len = len.ok_or_else(|| reader.unclear("has a storage without a valid length"))?;
            let offset = reader.skip(len)?;
            let layout = Layout::Span(Span { file: tar.file, offset, len });
            let storage = Storage { number: number as u32, layout, len };
            self.storages.insert(key, (storage, dtype));
        }
        // Next come views of other storages: number, number of the base storage, first element,
        // number of elements.
        let views = reader.pickle()?;
        for view in views.sequence(views.root()).unwrap_or_default() {
            let numbers: Option<Vec<i64>> = views
                .sequence(*view)
                .and_then(|view| view.iter().map(|number| views.int(*number)).collect());
            let part = match numbers.as_deref() {
                Some([key, root, offset, numel]) => {
                    self.part(*root, *offset, *numel).map(|part| (*key, part))
                }
                _ => None,
            };
            let Some((key, part)) = part else {
                return Err(reader.unclear("has a view that is not inside its storage"));
            };
            self.storages.insert(key, part);
        }
        Ok(())
    }

    /// Returns a part of a storage. It has the same number, since it shares the memory.
    fn part(&self, root: i64, offset: i64, numel: i64) -> Option<(Storage, DType)> {
        let (storage, dtype) = self.storages.get(&root)?;
        let unit = dtype.itemsize();
        let start = u64::try_from(offset).ok()?.checked_mul(unit)?;
        let len = u64::try_from(numel).ok()?.checked_mul(unit)?;
        start.checked_add(len).filter(|end| *end <= storage.len)?;
        let Layout::Span(span) = &storage.layout else { return None };
        let layout = Layout::Span(Span { offset: span.offset + start, len, ..*span });
        Some((Storage { number: storage.number, layout, len }, dtype.clone()))
    }

    fn read_tensors(&mut self, tar: &Tar, limits: &Limits) -> Result<()> {
        let mut reader = MemberReader::new(tar, tar.tensors, limits);
        for _ in 0..reader.count(18)? {
            let pickle = reader.pickle()?;
            let ids = match pickle.sequence(pickle.root()) {
                Some([key, storage, _class]) => pickle.int(*key).zip(pickle.int(*storage)),
                _ => None,
            };
            let known = ids.and_then(|(key, storage)| Some((key, self.storages.get(&storage)?)));
            let Some((key, (storage, dtype))) = known else {
                return Err(reader.unclear("has a tensor without a storage"));
            };
            // A 32-bit integer in a 64-bit field.
            let rank = reader.long()? as u32;
            Limits::check("dimensions of a tensor", rank.into(), limits.rank)?;
            let sizes = (0..rank).map(|_| reader.long()).collect::<Result<Vec<i64>>>()?;
            let strides = (0..rank).map(|_| reader.long()).collect::<Result<Vec<i64>>>()?;
            let shape: Option<Vec<u64>> =
                sizes.into_iter().map(|size| u64::try_from(size).ok()).collect();
            let offset = u64::try_from(reader.long()?).ok();
            let (Some(shape), Some(offset)) = (shape, offset) else {
                return Err(reader.unclear("has a tensor with negative numbers"));
            };
            let unit = dtype.itemsize();
            let layout = statelens_pickle::view(
                &storage.layout,
                storage.len,
                unit,
                offset,
                &shape,
                &strides,
            );
            let layout = layout.unwrap_or_else(|reason| Layout::Missing(reason.into()));
            let mut tensor = Tensor::new(dtype.clone(), shape, layout);
            tensor.storage = Some(storage.number);
            self.tensors.insert(key, tensor);
        }
        Ok(())
    }
}

impl Storages for TarStorages {
    fn storage(&mut self, key: &str, len: u64) -> Storage {
        let layout = Layout::Missing(format!("the file has no storage {key:?}").into());
        Storage { number: u32::MAX, layout, len }
    }

    fn tensor(&mut self, key: &str) -> Option<Tensor> {
        let key = key.parse().ok()?;
        if let Some(tensor) = self.tensors.get(&key) {
            return Some(tensor.clone());
        }
        // A storage as a value of its own.
        let (storage, dtype) = self.storages.get(&key)?;
        let shape = vec![storage.len / dtype.itemsize().max(1)];
        let mut tensor = Tensor::new(dtype.clone(), shape, storage.layout.clone());
        tensor.storage = Some(storage.number);
        tensor.class = TensorClass::Other("torch.storage.TypedStorage".into());
        Some(tensor)
    }
}

fn element(pickle: &Pickle, class: NodeId) -> Option<DType> {
    match pickle.node(class) {
        Node::Global(global) => statelens_pickle::storage_dtype(global)?,
        _ => None,
    }
}
