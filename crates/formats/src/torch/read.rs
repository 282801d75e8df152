//! Reading.

mod folder;
mod records;
mod stream;

use std::sync::Arc;

use records::Records;
use statelens_checkpoint::{
    BlockCache, Builder, ByteOrder, Checkpoint, Error, FileSet, Finding, FormatInfo, Grade, Limits,
    Progress, ReadAt, Result, Span,
};
use statelens_pickle::{Lowered, Pickle};

use crate::archive::Archive;

/// Opens it.
pub fn read(files: FileSet, limits: &Limits, progress: &mut dyn Progress) -> Result<Checkpoint> {
    progress.check(0, 0)?;
    if is_stream(&files)? {
        return stream::read(files, limits, progress);
    }
    decline_tar(&files)?;
    let main = files.main()?;
    let span = Span { file: main, offset: 0, len: files.len(main) };
    let Opened { archive, pickle, facts, mut findings } =
        Opened::open(cache(&files)?, span, limits)?;
    progress.check(0, 0)?;
    let mut builder = Builder::new(limits);
    let mut records = Records::new(&archive, "data", facts.byte_order);
    let lowered = pickle.lower(&mut builder, &mut records)?;
    findings.extend(lowered.findings);
    let constants = archive.count("constants/");
    if constants > 0 {
        findings.push(
            Finding::new(
                Grade::Note,
                format!("{constants} constants of TorchScript are not shown"),
            )
            .detail(
                "A frozen model keeps its weights there, under numbers that only its code \
                     explains.",
            ),
        );
    }
    let format = facts.format(&archive, &pickle);
    builder.finish(lowered.root, format, files, findings)
}

/// An archive that `torch.save` wrote, its pickle read but not yet made a tree of.
struct Opened {
    archive: Archive,
    pickle: Pickle,
    facts: Facts,
    findings: Vec<Finding>,
}

impl Opened {
    /// Opens the archive in that part of a file.
    fn open(source: Arc<dyn ReadAt>, span: Span, limits: &Limits) -> Result<Self> {
        let (archive, mut findings) = folder::open(source, span, limits)?;
        let pickle = data(&archive, limits, &mut findings)?;
        let pickle = statelens_pickle::read(&pickle.bytes, pickle.base, limits)
            .map_err(crate::pickle::read::describe)
            .map_err(|error| error.context(format!("{}data.pkl", archive.root())))?;
        findings.extend(pickle.scan());
        let facts = Facts::read(&archive, limits, &mut findings)?;
        Ok(Self { archive, pickle, facts, findings })
    }
}

/// Adds what an archive that is a part of a file holds to `builder`: its root, how many storages
/// it has, and what was noticed. Its storages are numbered from `first`.
pub(crate) fn part(
    source: Arc<dyn ReadAt>,
    span: Span,
    first: u32,
    builder: &mut Builder,
) -> Result<(Lowered, u32)> {
    let limits = builder.limits().clone();
    let Opened { archive, pickle, facts, mut findings } = Opened::open(source, span, &limits)?;
    let mut records = Records::new(&archive, "data", facts.byte_order).numbered_from(first);
    let mut lowered = pickle.lower(builder, &mut records)?;
    findings.append(&mut lowered.findings);
    Ok((Lowered { findings, ..lowered }, records.count()))
}

/// As [`scan`], for an archive that is a part of a file.
pub(crate) fn scan_part(
    source: Arc<dyn ReadAt>,
    span: Span,
    limits: &Limits,
) -> Result<Vec<Finding>> {
    let (archive, mut findings) = folder::open(source, span, limits)?;
    let pickle = data(&archive, limits, &mut findings)?;
    findings.extend(crate::pickle::read::scan_bytes(&pickle.bytes, pickle.base, limits));
    Ok(findings)
}

/// What the pickle of the file would do to whoever loads it with Python, even if the pickle or
/// the file is broken further on; that it is broken is a finding, too.
pub(crate) fn scan(files: &FileSet, limits: &Limits) -> Result<Vec<Finding>> {
    if is_stream(files)? {
        return stream::scan(files, limits);
    }
    decline_tar(files)?;
    let main = files.main()?;
    scan_part(cache(files)?, Span { file: main, offset: 0, len: files.len(main) }, limits)
}

fn is_stream(files: &FileSet) -> Result<bool> {
    let main = files.main()?;
    let head = files.read_vec(main, 0, files.len(main).min(64))?;
    Ok(statelens_pickle::is_stream(&head))
}

/// Fails for a tar archive, with what to do.
fn decline_tar(files: &FileSet) -> Result<()> {
    let main = files.main()?;
    let head = files.read_vec(main, 0, files.len(main).min(512))?;
    if !super::detect::is_tar(&head) {
        return Ok(());
    }
    Err(match head.starts_with(b"sys_info\0") {
        true => Error::unsupported("this is a checkpoint of PyTorch 0.1, which used tar archives")
            .advice(
                "Load it with PyTorch (`weights_only=False`, if you trust it) and save it again.",
            ),
        false => Error::unsupported("this is a tar archive")
            .advice("Unpack it and open the checkpoint in it."),
    })
}

/// Structure is read through a cache: local headers are small and lie between the records.
fn cache(files: &FileSet) -> Result<Arc<BlockCache>> {
    let source = files.source(files.main()?)?;
    Ok(Arc::new(BlockCache::new(source.clone(), 64 << 10, 256)))
}

/// The bytes of a pickle and where they begin in the file.
struct Raw {
    bytes: Vec<u8>,
    base: u64,
}

fn data(archive: &Archive, limits: &Limits, findings: &mut Vec<Finding>) -> Result<Raw> {
    let record = archive.find("data.pkl").ok_or_else(|| {
        Error::unsupported("this zip file holds no PyTorch checkpoint: it has no data.pkl")
            .advice("If it holds files, unpack it and open the checkpoint in it.")
    })?;
    let (bytes, intact) = archive.read(record, limits)?;
    if !intact {
        findings.push(
            Finding::new(Grade::Danger, "The checksum of data.pkl is wrong")
                .detail("The structure of the checkpoint is not what was written.")
                .advice("Fetch the file again."),
        );
    }
    let base = archive.start(record).unwrap_or(0);
    Ok(Raw { bytes, base })
}

/// What the small records beside the pickle say.
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
                Finding::new(
                    Grade::Warning,
                    format!("The file says that it is version {version} of its format"),
                )
                .detail("torch of release 2 refuses versions above 10."),
            ),
            Err(_) => findings.push(
                Finding::new(Grade::Warning, "The file has no version record")
                    .detail("torch refuses to load it."),
            ),
        }
        let byte_order = match archive.text("byteorder", limits).as_deref() {
            Some("big") => ByteOrder::Big,
            Some("little") | None => ByteOrder::Little,
            Some(other) => {
                return Err(Error::damaged(format!("the record byteorder says {other:?}"))
                    .expected("little or big"));
            }
        };
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
        let script = archive.find("constants.pkl").is_some();
        if script {
            self.facts.push(("TorchScript".into(), "yes; its code is not shown".into()));
        }
        FormatInfo {
            id: "torch-zip",
            name: if script { "TorchScript" } else { "PyTorch zip" },
            version: self.version,
            producer: String::new(),
            facts: self.facts,
        }
    }
}
