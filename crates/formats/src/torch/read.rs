mod cut;
mod export;
mod first;
mod folder;
mod records;
mod script;
mod stream;
pub(crate) mod tar;

use std::sync::Arc;

use records::Records;
use statelens_checkpoint::{
    Builder, ByteOrder, Checkpoint, Error, FileSet, Finding, FormatInfo, Grade, Limits, Progress,
    ReadAt, Result, Span, ValueId,
};
use statelens_pickle::{Lowered, NodeId, Pickle, ScanOptions};

use crate::archive::{Archive, has_end};
use crate::source_damage;
use crate::torch::weights_only;

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    progress.check(0, 0)?;
    if is_stream(&files)? {
        return stream::read(files, limits, progress);
    }
    if is_tar(&files)? {
        return tar::read(files, limits, progress);
    }
    let main = files.main()?;
    let span = Span { file: main, offset: 0, len: files.len(main) };
    let source = files.structure(main)?;
    first::report_first(&files, limits, progress)?;
    let (mut archive, findings) = match folder::open(source.clone(), span, limits) {
        Ok(opened) => opened,
        Err(error) if !has_end(&*source, span)? => {
            return cut::read(&files, limits)?.ok_or(error);
        }
        Err(error) => return Err(error),
    };
    progress.check(0, 0)?;
    if archive.find("data.pkl").is_none() && export::enter(&mut archive) {
        return export::read(files, source, &archive, findings, limits);
    }
    let OpenedArchive { archive, mut pickle, facts, mut findings } =
        OpenedArchive::of(archive, findings, limits)?;
    progress.check(0, 0)?;
    let mut builder = Builder::new(limits);
    let mut records = Records::new(&archive, "data", facts.byte_order)?;
    let lowered = pickle.lower_all(&mut builder, &mut records, progress)?;
    findings.extend(lowered.findings);
    let first = records.count();
    findings.extend(script::constants(
        &archive,
        facts.byte_order,
        first,
        lowered.root,
        &mut builder,
    )?);
    let format = facts.format(&archive, &pickle);
    // Frees memory before the tree is built.
    drop((pickle, records));
    drop(archive);
    builder.finish(lowered.root, format, files, findings)
}

/// An archive written by `torch.save`, with its pickle read but not yet converted to a tree.
struct OpenedArchive {
    archive: Archive,
    pickle: Pickle,
    facts: Facts,
    findings: Vec<Finding>,
}

impl OpenedArchive {
    /// Reads the pickle and the small records of an archive.
    fn of(archive: Archive, mut findings: Vec<Finding>, limits: &Limits) -> Result<Self> {
        let raw = data(&archive, limits, &mut findings)?;
        let pickle = statelens_pickle::read(&raw.bytes, raw.base, limits);
        // The objects hold everything needed from it.
        drop(raw);
        let pickle = pickle
            .map_err(crate::pickle::read::describe)
            .map_err(|error| error.context(format!("{}data.pkl", archive.root())))?;
        findings.extend(pickle.scan(&ScanOptions::default()));
        let facts = Facts::read(&archive, limits, &mut findings)?;
        Ok(Self { archive, pickle, facts, findings })
    }
}

/// Adds the content of an archive within a file to `builder`. Returns its root, the number of
/// storages, and the findings. Its storages are numbered from `first`.
pub(crate) fn part(
    source: Arc<dyn ReadAt>,
    span: Span,
    first: u32,
    builder: &mut Builder,
) -> Result<(Lowered, u32)> {
    let limits = builder.limits().clone();
    let (archive, findings) = folder::open(source, span, &limits)?;
    let OpenedArchive { archive, pickle, facts, mut findings } =
        OpenedArchive::of(archive, findings, &limits)?;
    let mut records = Records::new(&archive, "data", facts.byte_order)?.numbered_from(first);
    let mut lowered = pickle.lower(builder, &mut records)?;
    findings.append(&mut lowered.findings);
    Ok((Lowered { findings, ..lowered }, records.count()))
}

/// Like [`part`], but each distributed tensor becomes the part of it in this file. `describe` gets
/// the pickle, and the value and the node of each.
pub(crate) fn parts(
    source: Arc<dyn ReadAt>,
    span: Span,
    builder: &mut Builder,
    describe: impl FnOnce(&Pickle, &[(ValueId, NodeId)]),
) -> Result<Lowered> {
    let limits = builder.limits().clone();
    let (archive, findings) = folder::open(source, span, &limits)?;
    let OpenedArchive { archive, pickle, facts, mut findings } =
        OpenedArchive::of(archive, findings, &limits)?;
    let mut records = Records::new(&archive, "data", facts.byte_order)?;
    let (mut lowered, found) = pickle.lower_parts(builder, &mut records)?;
    describe(&pickle, &found);
    findings.append(&mut lowered.findings);
    Ok(Lowered { findings, ..lowered })
}

fn is_stream(files: &FileSet) -> Result<bool> {
    let main = files.main()?;
    let head = files.read_vec(main, 0, files.len(main).min(64))?;
    Ok(statelens_pickle::is_stream(&head))
}

fn is_tar(files: &FileSet) -> Result<bool> {
    let main = files.main()?;
    let head = files.read_vec(main, 0, files.len(main).min(512))?;
    Ok(super::detect::is_tar(&head))
}

/// The bytes of a pickle and their offset in the file.
struct Raw {
    bytes: Vec<u8>,
    base: u64,
}

fn data(archive: &Archive, limits: &Limits, findings: &mut Vec<Finding>) -> Result<Raw> {
    let record = archive.find("data.pkl").ok_or_else(|| {
        let holds = |part: &str| {
            archive.records().iter().any(|record| record.name().contains(part))
        };
        if holds("/model.json") && holds("/code/") {
            return Error::unsupported(
                "this is a TorchScript archive of torch 1.0, which has no pickle",
            )
            .advice("Later releases refuse it, too. Load it with torch 1.0 (`torch.jit.load`), and save its `state_dict()` with `torch.save`.");
        }
        Error::unsupported("this zip file holds no PyTorch checkpoint: it has no data.pkl")
            .coded(crate::archive::ARCHIVE)
            .advice("If it holds files, unpack it and open the checkpoint in it.")
    })?;
    let (bytes, intact) = archive.read(record, limits)?;
    if !intact {
        findings.push(
            Finding::new(Grade::Damage, "The checksum of data.pkl is wrong")
                .detail("The structure of the checkpoint has changed since it was written.")
                .advice("Fetch the file again."),
        );
    }
    let base = archive.start(record).unwrap_or(0);
    Ok(Raw { bytes, base })
}

/// Reads the record `byteorder`, which files of older releases do not have.
fn byte_order(archive: &Archive, limits: &Limits) -> Result<ByteOrder> {
    match archive.text("byteorder", limits).as_deref() {
        Some("big") => Ok(ByteOrder::Big),
        Some("little") | None => Ok(ByteOrder::Little),
        Some(other) => {
            Err(Error::damaged(format!("the record byteorder is {other:?}"))
                .expected("little or big"))
        }
    }
}

/// Returns names and sizes of extra files that the user added to the archive, as facts.
fn extra_files(archive: &Archive, folder: &str) -> impl Iterator<Item = (String, String)> {
    let folder = format!("{}{folder}", archive.root()).into_bytes();
    let extra = archive.records().iter().filter_map(move |record| {
        let name = record.raw_name().strip_prefix(folder.as_slice())?;
        let name = String::from_utf8_lossy(name).into_owned();
        (!name.is_empty())
            .then(|| ("Extra file".to_owned(), format!("{name}, {} bytes", record.len)))
    });
    extra.take(EXTRA_FILES)
}

/// The maximum number of extra files that are listed.
const EXTRA_FILES: usize = 20;

/// The content of the small records next to the pickle.
struct Facts {
    version: String,
    byte_order: ByteOrder,
    facts: Vec<(String, String)>,
}

impl Facts {
    fn read(archive: &Archive, limits: &Limits, findings: &mut Vec<Finding>) -> Result<Self> {
        let mut facts = Vec::new();
        let version = archive.text("version", limits).unwrap_or_default();
        match version.parse::<u64>() {
            Ok(1..=10) => {}
            Ok(version) => findings.push(
                Finding::new(Grade::Warning, format!("The file claims format version {version}"))
                    .detail("torch of release 2 refuses versions above 10.")
                    .refused(),
            ),
            Err(_) => findings.push(
                Finding::new(Grade::Warning, "The file has no version record")
                    .detail("torch refuses to load it.")
                    .refused(),
            ),
        }
        findings.extend(
            archive.text(source_damage::MARK, limits).map(|text| source_damage::carried(&text)),
        );
        let byte_order = byte_order(archive, limits)?;
        for (record, name) in [
            ("byteorder", "Byte order"),
            (".format_version", "Format version"),
            (".storage_alignment", "Storage alignment"),
        ] {
            facts.extend(archive.text(record, limits).map(|text| (name.to_owned(), text)));
        }
        Ok(Self { version, byte_order, facts })
    }

    fn format(mut self, archive: &Archive, pickle: &Pickle) -> FormatInfo {
        self.facts.push(("Records".into(), archive.len().to_string()));
        self.facts.push(("Pickle protocol".into(), pickle.protocol().to_string()));
        self.facts.extend(weights_only::unknown_opcode(pickle));
        let script = archive.find("constants.pkl").is_some();
        if script {
            self.facts.push(("TorchScript".into(), "yes; its code is not shown".into()));
            let lite = archive.find("bytecode.pkl").is_some();
            let bytecode = || ("Bytecode of the lite interpreter".into(), "yes; not shown".into());
            self.facts.extend(lite.then(bytecode));
            self.facts.extend(extra_files(archive, "extra/"));
        }
        FormatInfo {
            id: "torch-zip",
            name: if script { "TorchScript" } else { "PyTorch zip" },
            version: self.version,
            producer: String::new(),
            facts: self.facts,
            ..FormatInfo::default()
        }
    }
}
