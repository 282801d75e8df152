//! The stream format of releases before 1.6: pickles, then the storages.

use std::collections::HashMap;

use statelens_checkpoint::{
    Builder, Checkpoint, Error, FileId, FileSet, Finding, FormatInfo, Grade, Layout, Limits,
    Progress, ReadAt, Result, Span, grouped,
};
use statelens_pickle::{Broken, PickleStream, ScanOptions, Storage, Storages, read_stream};

use crate::torch::weights_only;

pub(super) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let stream = pickles(&files, limits)?.map_err(crate::pickle::read::describe)?;
    progress.check(0, 0)?;
    let mut findings = stream.scan(&ScanOptions::default());
    let mut storages = StreamStorages::read(&files, &stream, limits)?;
    findings.extend(storages.cut.take());
    let mut builder = Builder::new(limits);
    let lowered = stream.pickle.lower(&mut builder, &mut storages)?;
    findings.extend(lowered.findings);
    let mut facts = vec![
        ("Storages".into(), stream.storages.len().to_string()),
        ("Pickle protocol".into(), stream.pickle.protocol().to_string()),
    ];
    facts.extend(weights_only::unknown_opcode(&stream.pickle));
    let format = FormatInfo {
        id: "torch-legacy",
        name: "PyTorch stream",
        version: "1001".into(),
        producer: String::new(),
        facts,
        ..FormatInfo::default()
    };
    builder.finish(lowered.root, format, files, findings)
}

/// Reads the pickles at the start. Their length is not stored, so this reads more bytes as long as
/// they are incomplete.
fn pickles(files: &FileSet, limits: &Limits) -> Result<Result<PickleStream, Broken>> {
    let main = files.main()?;
    let most = files.len(main).min(limits.structure);
    let mut len = most.min(1 << 20);
    loop {
        let bytes = files.read_vec(main, 0, len)?;
        match read_stream(&bytes, 0, limits) {
            Err(broken) if broken.starved && len < most => len = most.min(len.saturating_mul(4)),
            done => return Ok(done),
        }
    }
}

/// The locations of the storages.
struct StreamStorages {
    storages: HashMap<String, Storage>,
    /// A finding if the file ends before the last storage does.
    cut: Option<Finding>,
}

impl StreamStorages {
    /// Visits the storages in order, since each stores only its own length.
    fn read(files: &FileSet, stream: &PickleStream, limits: &Limits) -> Result<Self> {
        Limits::check("storages of the file", stream.storages.len() as u64, limits.members)?;
        let main = files.main()?;
        let source = files.structure(main)?;
        let end = files.len(main);
        let mut at = stream.end;
        let mut storages = HashMap::with_capacity(stream.storages.len());
        for (number, (key, unit)) in (0..).zip(&stream.storages) {
            let mut numel = [0; 8];
            let Some(data) = at.checked_add(8).filter(|data| *data <= end) else { break };
            source.read_at(at, &mut numel)?;
            let numel = u64::from_le_bytes(numel);
            let Some(unit) = unit else {
                return Err(Error::damaged(format!(
                    "the object does not name storage {key}, so its length is not known"
                ))
                .at(at));
            };
            let len = numel.checked_mul(*unit);
            let next = len.and_then(|len| data.checked_add(len)).filter(|next| *next <= end);
            let (Some(len), Some(next)) = (len, next) else { break };
            at = next;
            let layout = Layout::Span(Span { file: FileId(main.0), offset: data, len });
            storages.insert(key.clone(), Storage { number, layout, len });
        }
        let (whole, all) = (storages.len(), stream.storages.len());
        let cut = (whole < all).then(|| {
            Finding::new(Grade::Damage, "The file is cut short")
                .detail(format!(
                    "{} of {} storages are whole, and their tensors can be used. torch refuses the \
                     file.",
                    grouped(whole as u64),
                    grouped(all as u64)
                ))
                .place(format!("byte {at}"))
                .advice("Copy or download it again.")
        });
        Ok(Self { storages, cut })
    }
}

impl Storages for StreamStorages {
    fn storage(&mut self, key: &str, len: u64) -> Storage {
        if let Some(storage) = self.storages.get(key) {
            return storage.clone();
        }
        let number = self.storages.len() as u32;
        let layout = Layout::Missing(format!("the file has no whole storage {key:?}").into());
        let storage = Storage { number, layout, len };
        self.storages.insert(key.to_owned(), storage.clone());
        storage
    }
}
