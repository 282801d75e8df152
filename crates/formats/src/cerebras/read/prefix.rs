//! Checkpoints in S3, as `cstorch.save` of releases 2.5 to 2.10 writes them to `s3://bucket/key`: an
//! object for each tensor, array and pickled value, and `__METADATA__`, which describes them.
//!
//! The reader takes everything from `__METADATA__`. It reads the objects of pickled values, but none
//! of a tensor.

use std::rc::Rc;
use std::sync::Arc;

use statelens_checkpoint::{
    Array, ByteOrder, Checkpoint, DType, Deferred, Error, FileId, FileSet, Finding, FormatInfo,
    Grade, Layout, Limits, Locate, Packed, Packing, Progress, Result, Span, Tensor, Text, Value,
    ValueId, float_repr, numel, size_text,
};
use statelens_tensor::unpacked;

use super::current::{self, Container, LinkTarget, StoredValue};
use super::elements::retype;
use super::{CerebrasReading, unread};
use crate::cerebras::metadata::{Entries, ObjectFacts};
use crate::paths::folder;
use crate::source_damage;

/// The maximum bytes of a pickled value.
const MAX_PICKLE: u64 = 256 << 20;

/// Opens a checkpoint at its `__METADATA__`. The other files of the folder are its objects.
pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let prefix = Rc::new(Prefix::open(&files, limits)?);
    let spec = prefix.entries.text(b"__spec__")?.filter(|spec| !spec.is_empty()).cloned();
    let spec = spec.ok_or_else(|| {
        Error::damaged("`__METADATA__` does not describe a state dict: it has no `__spec__`")
            .advice("It may not have been written by `cstorch.save`.")
    })?;
    let version = prefix.entries.version();
    let release = prefix.entries.text(b"__cstorch_version__").ok().flatten();
    let producer = release.map(|release| format!("cerebras-pytorch {release}"));
    let format = FormatInfo {
        id: "cerebras-s3",
        name: "Cerebras S3",
        version: version.map_or_else(|| "0.5".into(), float_repr),
        producer: producer.unwrap_or_default(),
        ..FormatInfo::default()
    };
    if progress.hears() {
        current::report_first(prefix.clone(), &spec, progress)?;
    }
    let mut reading = CerebrasReading::new(&files, None, limits);
    reading.about_version(version, true, prefix.entries.is_complete());
    let mark = prefix.entries.text(source_damage::MARK.as_bytes()).ok().flatten();
    reading.findings.extend(mark.map(|text| source_damage::carried(&text.to_lossy())));
    let root = current::read(&mut reading, prefix.clone(), spec, progress)?;
    reading.findings.extend(prefix.moved());
    let findings = reading.findings();
    reading.builder.finish(root, format, files.clone(), findings)
}

/// Returns the entries of `__METADATA__`, which is the main file.
pub(crate) fn entries(files: &FileSet, limits: &Limits) -> Result<Entries> {
    let main = files.main()?;
    let len = files.len(main);
    Limits::check("bytes of `__METADATA__`", len, limits.structure)?;
    Entries::parse(&files.read_vec(main, 0, len)?)
}

/// Returns the address of the checkpoint, if the name of its main file has one.
pub(crate) fn address(files: &FileSet) -> Option<&str> {
    let name = files.main().map_or("", |main| files.name(main));
    folder(name).strip_suffix('/').filter(|address| address.contains("://"))
}

/// Returns the object with this name.
pub(crate) fn find(files: &FileSet, name: &str) -> Option<FileId> {
    let top = folder(files.main().map_or("", |main| files.name(main)));
    files.find(&format!("{top}{name}"))
}

/// Returns what the header of an object says; `None` where objects have no headers, as on disk.
pub(crate) fn header(files: &FileSet, id: FileId) -> Result<Option<ObjectFacts>> {
    let described = files.source(id)?.described()?;
    let header = described.and_then(|described| described.metadata);
    header.map(|header| ObjectFacts::parse(&header)).transpose()
}

/// Reads a whole body: of `len` bytes before the compression, if that is known.
pub(crate) fn body(files: &FileSet, id: FileId, facts: &ObjectFacts) -> Result<Vec<u8>> {
    let stored = files.len(id);
    Limits::check("bytes of a pickled value", stored, MAX_PICKLE)?;
    let bytes = files.read_vec(id, 0, stored)?;
    if facts.compressed != Some(true) {
        return Ok(bytes);
    }
    let len = facts.plain_len.ok_or_else(|| Error::damaged("its metadata has no `data_sizes`"))?;
    Limits::check("bytes of a pickled value", len, MAX_PICKLE)?;
    unpacked(Packing::Zstd, &bytes, len)?.ok_or_else(|| {
        Error::damaged(format!("its Zstandard frame does not hold {}", size_text(len)))
            .in_file(files.name(id))
    })
}

/// A folder of objects.
struct Prefix {
    files: FileSet,
    entries: Entries,
    address: Option<String>,
    /// The addresses at which the checkpoint was written, from which it was moved.
    former: std::cell::RefCell<std::collections::BTreeMap<String, u64>>,
}

impl Prefix {
    fn open(files: &FileSet, limits: &Limits) -> Result<Self> {
        let entries = entries(files, limits)?;
        let address = address(files).map(str::to_owned);
        Ok(Self { files: files.clone(), entries, address, former: Default::default() })
    }

    /// Returns a finding about links that name the address where the checkpoint was before.
    fn moved(&self) -> Option<Finding> {
        let former = self.former.borrow();
        let (address, count) = former.iter().next()?;
        let values = if *count == 1 { "1 tensor names" } else { &format!("{count} tensors name") };
        Some(
            Finding::new(
                Grade::Warning,
                format!("The checkpoint was moved: {values} {address} as the place of its values"),
            )
            .detail(
                "A run on Cerebras systems links each weight to the address at which it was \
                 written. The values are read from the objects next to `__METADATA__`.",
            )
            .advice("The Cerebras library refuses it. Convert it to a new address.")
            .refused(),
        )
    }

    /// Returns the file of an object. Counts objects that are missing.
    fn find(&self, reading: &mut CerebrasReading<'_>, name: &Text) -> Result<Option<FileId>> {
        let name = name.as_str().ok_or_else(|| {
            Error::damaged(format!("an object can't have the name {name}: it is not UTF-8"))
        })?;
        let found = find(&self.files, name);
        if found.is_none() {
            *reading.absent.entry(name.to_owned()).or_default() += 1;
        }
        Ok(found)
    }

    /// Returns the tensor in an object.
    fn tensor(
        &self,
        file: FileId,
        facts: ObjectFacts,
        linked: bool,
        value: &StoredValue<'_>,
    ) -> Result<Tensor> {
        let is_bool = facts.dtype == Some(DType::Bool);
        let described = facts.numpy.is_some();
        // Only the header of an object that the library did not write itself has its dtype.
        let facts = match described || linked && !is_bool {
            true => facts,
            false => match header(&self.files, file)? {
                Some(header) => facts.or(header),
                None => facts.without_header(linked, self.files.len(file)),
            },
        };
        let without = |name: &str| Error::damaged(format!("its metadata has no `{name}`"));
        let (stored, order) = facts.elements()?.ok_or_else(|| without("dtypes"))?;
        let in_body = facts.numpy.as_ref().map(|(shape, _)| shape);
        let is_array = value.class == "NumpyArraySerializer";
        let shape = if is_array { in_body } else { facts.shape.as_ref().or(in_body) };
        let shape = shape.ok_or_else(|| without("shapes"))?.clone();
        let too_large = || Error::damaged("a tensor has more bytes than fit 64 bits");
        let elements = numel(&shape).ok_or_else(too_large)?;
        if in_body.is_some_and(|body| numel(body) != Some(elements)) {
            return Err(Error::damaged("its metadata has two shapes that contradict each other"));
        }
        let len = stored.bytes_of(elements).ok_or_else(too_large)?;
        let span = Span { file, offset: 0, len };
        let layout = match (described || facts.numpy.is_some(), facts.compressed) {
            (false, None) if linked => Layout::Deferred(Deferred::new(
                span,
                Arc::new(Headed { dtype: stored.clone(), bytes: len }),
            )),
            (_, Some(true)) => frame(Span { len: self.files.len(file), ..span }, len),
            _ => Layout::Span(span),
        };
        let mut tensor = Tensor::new(stored, shape, layout);
        tensor.byte_order = order;
        if let Some(dtype) = facts.dtype.filter(|_| !is_array) {
            retype(&mut tensor, dtype);
        }
        if is_array && value.about.is_true("is_bfloat16") {
            retype(&mut tensor, DType::BF16);
        }
        Ok(tensor)
    }
}

fn frame(span: Span, len: u64) -> Layout {
    Layout::Packed(Packed { span, packing: Packing::Zstd, skip: 0, len })
}

impl Container for Prefix {
    fn text(&self, name: &[u8]) -> Result<Option<Text>> {
        Ok(self.entries.text(name)?.cloned())
    }

    fn texts_ahead(&self, _: &[&Text]) -> Result<()> {
        Ok(())
    }

    fn objects_ahead(&self, _: &[&Text]) -> Result<()> {
        Ok(())
    }

    fn object(
        &self,
        reading: &mut CerebrasReading<'_>,
        name: &Text,
        value: StoredValue<'_>,
    ) -> Result<(ValueId, Vec<(Text, Text)>)> {
        let facts = |about: current::Metadata<'_>| ObjectFacts::of(about.document, about.id);
        let facts = match value.target {
            Some(target) => facts(value.about).or(facts(target)),
            None => facts(value.about),
        };
        let Some(file) = self.find(reading, name)? else {
            let why = format!("the object {name} is missing");
            let missing = match (facts.dtype, facts.shape) {
                (Some(dtype), Some(shape)) => reading.missing_tensor(dtype, shape, why)?,
                _ => unread(&why),
            };
            return Ok((reading.builder.push(missing)?, Vec::new()));
        };
        if value.class == "ObjectSerializer" {
            let body = body(&self.files, file, &facts)?;
            return Ok((reading.pickled(&body, value.key)?, Vec::new()));
        }
        let tensor = self.tensor(file, facts, value.target.is_some(), &value)?;
        let found = match (reading.tensor(tensor)?, value.class) {
            (Value::Tensor(tensor), "NumpyArraySerializer") => {
                Value::Array(Array { tensor, scalar: false })
            }
            (found, _) => found,
        };
        Ok((reading.builder.push(found)?, Vec::new()))
    }

    fn target(&self, path: &str, link: StoredValue<'_>) -> LinkTarget {
        let address = self.address.as_deref();
        // The key of a nested value ends in the step to it.
        let key = link.key.as_bytes();
        let flat = key.strip_suffix(b".0").unwrap_or(key);
        let Some(own) = link.own_link(flat, address) else { return LinkTarget::Elsewhere };
        if own.moved {
            *self.former.borrow_mut().entry(path.to_owned()).or_default() += 1;
        }
        LinkTarget::Same
    }
}

/// A body whose header says whether it is compressed.
#[derive(Debug)]
struct Headed {
    /// The dtype of the elements in the body, and their number of bytes.
    dtype: DType,
    bytes: u64,
}

impl Locate for Headed {
    fn locate(&self, files: &FileSet, span: Span, shape: &[u64]) -> Result<Layout> {
        let described = files.source(span.file)?.described()?;
        let name = files.name(span.file);
        let len = described.as_ref().map_or_else(|| files.len(span.file), |found| found.len);
        let facts = match described.and_then(|found| found.metadata) {
            Some(header) => ObjectFacts::parse(&header).map_err(|error| error.in_file(name))?,
            None => ObjectFacts::default(),
        };
        let elements = facts.elements()?;
        let is_other = elements.is_some_and(|(dtype, order)| {
            dtype.itemsize() != self.dtype.itemsize() || order == ByteOrder::Big
        }) || facts.shape.is_some_and(|found| found != shape);
        if is_other {
            return Err(
                Error::damaged("its header and `__METADATA__` contradict each other").in_file(name)
            );
        }
        Ok(match facts.compressed {
            Some(true) => frame(Span { len, ..span }, self.bytes),
            Some(false) => Layout::Span(span),
            // Without a header, as on disk, the length says which it is.
            None if len == self.bytes => Layout::Span(span),
            None => frame(Span { len, ..span }, self.bytes),
        })
    }
}
