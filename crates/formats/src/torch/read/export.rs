//! Reads the output of `torch.export.save`: `.pt2`, a zip archive with the program as JSON, and the
//! weights.
//!
//! Since release 2.7, the weights are raw bytes, one record for each storage, described by
//! `data/weights/MODEL_weights_config.json`; the same holds for constants
//! (`torch/export/pt2_archive`, `torch/_export/serde/schema.py`). Before, and in the first of these
//! archives, they are files of `torch.save` inside the archive. The program is not shown.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::json::{Document, Id, JsonNode};
use statelens_checkpoint::{
    Builder, ByteOrder, Checkpoint, DType, Dict, DictKey, FileSet, Finding, FormatInfo, Grade,
    Layout, Limits, ReadAt, Result, Tensor, TensorClass, Text, Value, ValueId, order,
};
use statelens_pickle::Storage;

use super::part;
use crate::archive::Archive;
use crate::unreadable_parts::Unread;

/// The record that every newer archive has in its folder.
const FORMAT: &str = "archive_format";
/// The program, in older archives.
const PROGRAM: &str = "serialized_exported_program.json";
/// The tensors in older archives: files of `torch.save`.
const PARTS: [&str; 2] = ["serialized_state_dict.pt", "serialized_constants.pt"];

/// Enters the folder of the records, if this is an exported program.
pub(super) fn enter(archive: &mut Archive) -> bool {
    if archive.find(PROGRAM).is_some() {
        return true;
    }
    let root = archive.records().iter().find_map(|record| {
        let root = record.raw_name().strip_suffix(FORMAT.as_bytes())?;
        let root = std::str::from_utf8(root).ok()?;
        (root.is_empty() || root.find('/') == Some(root.len() - 1)).then(|| root.to_owned())
    });
    root.map(|root| archive.enter(root)).is_some()
}

pub(super) fn read(
    files: FileSet,
    source: Arc<dyn ReadAt>,
    archive: &Archive,
    findings: Vec<Finding>,
    limits: &Limits,
) -> Result<Checkpoint> {
    let mut reading = ExportReading {
        source,
        archive,
        limits,
        byte_order: super::byte_order(archive, limits)?,
        builder: Builder::new(limits),
        storages: 0,
        findings,
        unread: Unread::default(),
    };
    let early = archive.find(PROGRAM).is_some();
    let root = match early {
        true => reading.early()?,
        false => reading.models()?,
    };
    let text = |name: &str| archive.text(name, limits);
    let mut facts = vec![("Records".to_owned(), archive.len().to_string())];
    if !early {
        let models = models(archive);
        facts.push(("Models".into(), models.join(", ")));
    }
    facts.push(("Program".into(), "there; it is not shown".into()));
    facts.extend(super::extra_files(archive, if early { "extra_files/" } else { "extra/" }));
    let format = FormatInfo {
        id: "torch-export",
        name: "PyTorch export",
        version: text(if early { "version" } else { "archive_version" }).unwrap_or_default(),
        producer: String::new(),
        facts,
        ..FormatInfo::default()
    };
    let ExportReading { builder, mut findings, unread, .. } = reading;
    findings.extend(unread.findings());
    builder.finish(root, format, files, findings)
}

/// Returns the names of the models, sorted.
fn models(archive: &Archive) -> Vec<String> {
    let folder = format!("{}models/", archive.root());
    let names = archive.records().iter().filter_map(|record| {
        let name = record.raw_name().strip_prefix(folder.as_bytes())?.strip_suffix(b".json")?;
        String::from_utf8(name.to_vec()).ok()
    });
    let mut names: Vec<String> = names.collect();
    order::natural(&mut names);
    names.dedup();
    names
}

struct ExportReading<'a> {
    source: Arc<dyn ReadAt>,
    archive: &'a Archive,
    limits: &'a Limits,
    byte_order: ByteOrder,
    builder: Builder,
    /// Number of storages so far.
    storages: u32,
    findings: Vec<Finding>,
    unread: Unread,
}

impl ExportReading<'_> {
    fn early(&mut self) -> Result<ValueId> {
        let mut entries = DictEntries::default();
        for record in PARTS {
            self.saved(record, &mut entries)?;
        }
        self.finish(entries)
    }

    /// Reads a newer archive. Several models become a dict of dicts.
    fn models(&mut self) -> Result<ValueId> {
        let names = models(self.archive);
        if names.is_empty() {
            self.findings.push(
                Finding::new(Grade::Warning, "The archive holds no exported program").detail(
                    "It may hold one that is compiled (AOTInductor): the weights are in the code.",
                ),
            );
        }
        let mut dicts = Vec::new();
        for name in &names {
            let mut entries = DictEntries::default();
            for folder in ["weights", "constants"] {
                self.configured(folder, name, &mut entries)?;
            }
            dicts.push((name.as_str(), self.finish(entries)?));
        }
        match dicts[..] {
            [(_, only)] => Ok(only),
            _ => {
                let entries = dicts.into_iter().map(|(name, id)| (DictKey::from(name), id));
                let entries = entries.collect();
                self.builder.push(Value::Dict(Dict { entries, ..Dict::default() }))
            }
        }
    }

    fn finish(&mut self, entries: DictEntries) -> Result<ValueId> {
        if entries.twice > 0 {
            self.findings.push(Finding::new(
                Grade::Warning,
                format!("{} constants have the names of weights and are not shown", entries.twice),
            ));
        }
        let entries = entries.entries;
        self.builder.push(Value::Dict(Dict { entries, ..Dict::default() }))
    }

    /// Adds the content of a file of `torch.save` in the archive, which must be a dict.
    fn saved(&mut self, record: &str, entries: &mut DictEntries) -> Result<()> {
        let Some(found) = self.archive.find(record) else { return Ok(()) };
        let Some(root) = self.part(record, self.archive.layout(found)?)? else { return Ok(()) };
        // Its entries move to the common dict.
        let slot = self.builder.value_mut(root);
        match slot.map(|slot| std::mem::replace(slot, Value::None)) {
            Some(Value::Dict(dict)) => {
                for (key, id) in dict.entries {
                    entries.add(key, id);
                }
            }
            Some(other) => {
                if let Some(slot) = self.builder.value_mut(root) {
                    *slot = other;
                }
                entries.add(record.into(), root);
            }
            None => {}
        }
        Ok(())
    }

    /// Reads a file of `torch.save` in the archive. Returns `None` and adds a problem if it can't
    /// be read.
    fn part(&mut self, name: &str, layout: Layout) -> Result<Option<ValueId>> {
        let Layout::Span(span) = layout else {
            self.unread.add(&name.into(), "it is compressed in the archive".into());
            return Ok(None);
        };
        match part(self.source.clone(), span, self.storages, &mut self.builder) {
            Ok((lowered, storages)) => {
                self.storages = self.storages.saturating_add(storages);
                self.findings.extend(lowered.findings);
                Ok(Some(lowered.root))
            }
            Err(error) if error.kind() == statelens_checkpoint::ErrorKind::Limit => Err(error),
            Err(error) => {
                self.unread.add(&name.into(), error.to_string());
                Ok(None)
            }
        }
    }

    /// Adds the tensors of a model that are described by a config.
    fn configured(&mut self, folder: &str, model: &str, entries: &mut DictEntries) -> Result<()> {
        let config = format!("data/{folder}/{model}_{folder}_config.json");
        let Some(record) = self.archive.find(&config) else {
            // The first archives of the newer kind have no config.
            return self.saved(&format!("data/{folder}/{model}.pt"), entries);
        };
        let (bytes, _) = self.archive.read(record, self.limits)?;
        let document = Document::parse(&bytes)
            .map_err(|error| error.context(format!("the record {config}")))?;
        let described = document.get(document.root(), "config");
        let described = match described.map(|id| document.node(id)) {
            Some(JsonNode::Object(described)) => described,
            _ => {
                return Err(statelens_checkpoint::Error::damaged(format!(
                    "the record {config} describes no tensors"
                )));
            }
        };
        let mut storages = HashMap::new();
        for (name, id) in described {
            let payload = Payload { document: &document, id: *id };
            if let Some(value) = self.payload(folder, name, &payload, &mut storages)? {
                entries.add(DictKey::Str(name.clone()), value);
            }
        }
        Ok(())
    }

    fn payload(
        &mut self,
        folder: &str,
        name: &Text,
        payload: &Payload<'_>,
        storages: &mut HashMap<Text, Storage>,
    ) -> Result<Option<ValueId>> {
        let Some(path) = payload.text("path_name") else {
            self.unread.add(name, "the archive does not name its record".into());
            return Ok(None);
        };
        let lossy = path.to_lossy();
        if ["custom_obj_", "opaque_obj_"].iter().any(|start| lossy.starts_with(start)) {
            let title = format!("The object {} is not shown", name.to_lossy());
            self.findings.push(Finding::new(Grade::Note, title).detail("It is not a tensor."));
            return Ok(None);
        }
        let record = format!("data/{folder}/{lossy}");
        let found = self.archive.find(&record);
        if payload.flag("use_pickle") {
            return match found.map(|found| self.archive.layout(found)).transpose()? {
                Some(layout) => self.part(&record, layout),
                None => {
                    self.unread.add(name, format!("the archive has no record {record:?}"));
                    Ok(None)
                }
            };
        }
        let storage = match storages.get(&path) {
            Some(storage) => storage.clone(),
            None => {
                let (layout, len) = match found {
                    Some(found) => match self.archive.layout(found) {
                        Ok(layout) => (layout, found.len),
                        Err(error) => (Layout::Missing(error.what().into()), found.len),
                    },
                    None => {
                        let reason = format!("the archive has no record {record:?}");
                        (Layout::Missing(reason.into()), u64::MAX)
                    }
                };
                let storage = Storage { number: self.storages, layout, len };
                self.storages = self.storages.saturating_add(1);
                storages.insert(path.clone(), storage.clone());
                storage
            }
        };
        let tensor = match payload.tensor(&storage, self.limits) {
            Ok(tensor) if tensor.dtype.itemsize() > 1 => {
                Tensor { byte_order: self.byte_order, ..tensor }
            }
            Ok(tensor) => tensor,
            Err(reason) => {
                self.unread.add(name, reason);
                return Ok(None);
            }
        };
        if let Layout::Missing(reason) = &tensor.layout {
            self.unread.add(name, reason.to_lossy().into_owned());
        }
        let tensor = self.builder.push_tensor(tensor)?;
        Ok(Some(self.builder.push(Value::Tensor(tensor))?))
    }
}

/// Entries of a dict, with unique keys.
#[derive(Default)]
struct DictEntries {
    entries: Vec<(DictKey, ValueId)>,
    names: HashSet<String>,
    twice: u64,
}

impl DictEntries {
    fn add(&mut self, key: DictKey, id: ValueId) {
        match self.names.insert(key.to_string()) {
            true => self.entries.push((key, id)),
            false => self.twice += 1,
        }
    }
}

/// The description of a tensor in a config.
struct Payload<'a> {
    document: &'a Document,
    id: Id,
}

impl Payload<'_> {
    fn text(&self, name: &str) -> Option<Text> {
        self.document.field(self.id, name)?.text().cloned()
    }

    fn flag(&self, name: &str) -> bool {
        self.document.field(self.id, name).is_some_and(JsonNode::is_true)
    }

    /// Returns the tensor as a view of its storage.
    fn tensor(&self, storage: &Storage, limits: &Limits) -> Result<Tensor, String> {
        let document = self.document;
        let meta = document.get(self.id, "tensor_meta");
        let field = |name: &str| document.get(meta?, name);
        let natural = |id: Id| match document.node(id) {
            JsonNode::Int(value) => value.to_u64(),
            _ => None,
        };
        // A dimension is a number, or an expression that depends on the program.
        let dimension = |id: Id| natural(document.get(id, "as_int")?);
        let numbers = |name: &str| {
            let items = document.items(field(name)?);
            let few = items.len() as u64 <= limits.rank;
            few.then(|| items.iter().map(|id| dimension(*id)).collect::<Option<Vec<u64>>>())?
        };
        match field("layout").and_then(natural) {
            Some(STRIDED) => {}
            _ => return Err("it is not dense".into()),
        }
        let dtype = field("dtype").and_then(natural).and_then(dtype);
        let dtype = dtype.ok_or("its dtype is unknown")?;
        let shape = numbers("sizes").ok_or("its shape is not a list of natural numbers")?;
        let strides = numbers("strides").and_then(|strides| {
            strides.into_iter().map(|stride| i64::try_from(stride).ok()).collect::<Option<Vec<_>>>()
        });
        let strides = strides.ok_or("its strides are not a list of natural numbers")?;
        let offset = field("storage_offset").and_then(dimension);
        let offset = offset.ok_or("its offset is not a natural number")?;
        let layout = statelens_pickle::view(
            &storage.layout,
            storage.len,
            dtype.itemsize(),
            offset,
            &shape,
            &strides,
        )?;
        let parameter = self.flag("is_param");
        let grad = field("requires_grad").is_some_and(|id| document.node(id).is_true());
        Ok(Tensor {
            storage: Some(storage.number),
            // torch restores this flag only for parameters.
            requires_grad: parameter && grad,
            class: if parameter { TensorClass::Parameter } else { TensorClass::Tensor },
            ..Tensor::new(dtype, shape, layout)
        })
    }
}

/// The layout of dense tensors (`Layout` in the schema).
const STRIDED: u64 = 7;

/// Returns the dtype with this number (`ScalarType` in the schema).
fn dtype(number: u64) -> Option<DType> {
    let name = match number {
        1 => "uint8",
        2 => "int8",
        3 => "int16",
        4 => "int32",
        5 => "int64",
        6 => "float16",
        7 => "float32",
        8 => "float64",
        9 => "complex32",
        10 => "complex64",
        11 => "complex128",
        12 => "bool",
        13 => "bfloat16",
        28 => "uint16",
        29 => "float8_e4m3fn",
        30 => "float8_e5m2",
        31 => "float8_e4m3fnuz",
        32 => "float8_e5m2fnuz",
        33 => "float8_e8m0fnu",
        34 => "uint32",
        35 => "uint64",
        _ => return None,
    };
    DType::from_torch_name(name)
}
