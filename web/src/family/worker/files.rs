//! Determines the files that a model consists of: the open one, or several together.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, FileId, FileSet, Result, Unwatched};
use statelens_recipes::adapter::{self, CONFIG, FILES};
use statelens_recipes::config::{Language, parse};
use statelens_recipes::conversion::OPTIMIZER_FILE;
use statelens_recipes::parts;

use super::library;
use crate::family::message::FamilyRequest;
use crate::worker::opened::OpenCheckpoint;

/// Maximum size of a config in bytes: more than any has.
pub(crate) const MAX_CONFIG_SIZE: u64 = 16 << 20;

/// The model to convert.
pub(super) struct SourceModel {
    /// The checkpoint, or several joined into one.
    pub(super) checkpoint: Arc<Checkpoint>,
    /// Whether the optimizer's state, which a trainer writes to a separate file, is included.
    pub(super) of_trainer: bool,
}

/// Finds the optimizer's state that Hugging Face's trainer has saved next to the open file.
pub(super) fn optimizer(files: &FileSet) -> Option<FileId> {
    let main = files.main().ok()?;
    let folder = files.name(main).rsplit_once('/').map_or("", |(folder, _)| folder);
    let name = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    files.find(&format!("{name}{OPTIMIZER_FILE}")).filter(|id| *id != main)
}

/// Finds the adapter that PEFT has saved next to the open file; otherwise the only one among the
/// files.
pub(super) fn adapter(files: &FileSet) -> Option<FileId> {
    let main = files.main().ok()?;
    let split = |id| files.name(id).rsplit_once('/').unwrap_or(("", files.name(id)));
    let is_adapter = |id: &FileId| FILES.contains(&split(*id).1);
    if is_adapter(&main) {
        return None;
    }
    let all: Vec<FileId> = files.iter().map(|(id, _)| id).filter(is_adapter).collect();
    let sibling = all.iter().copied().find(|id| split(*id).0 == split(main).0);
    sibling.or(match all[..] {
        [only] => Some(only),
        _ => None,
    })
}

/// Returns the model with the adapter folded into it.
fn folded(open: &OpenCheckpoint, adapter: FileId) -> Result<Checkpoint> {
    let files = &open.checkpoint.files;
    let name = files.name(adapter);
    let sibling = match name.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{CONFIG}"),
        None => CONFIG.to_owned(),
    };
    let config = files.find(&sibling).ok_or_else(|| {
        Error::refused(format!("there is no {CONFIG} next to the adapter"))
            .in_file(name)
            .advice("It has the scale of the adapter. Open it with the model and the adapter.")
    })?;
    let bytes = files.read_vec(config, 0, files.len(config).min(MAX_CONFIG_SIZE))?;
    let text = String::from_utf8_lossy(&bytes);
    let config = parse(&text, Language::Json).map_err(|error| error.in_file(CONFIG))?;
    let parts = [("model".to_owned(), files.main()?), ("adapter".to_owned(), adapter)];
    Ok(adapter::fold(&joined(open, &parts)?, &config)?.checkpoint)
}

/// Joins several files into one checkpoint.
fn joined(open: &OpenCheckpoint, all: &[(String, FileId)]) -> Result<Checkpoint> {
    parts::of_set(&open.checkpoint.files, all, &open.limits, &mut |files| {
        statelens_formats::open(files, &open.limits, &mut Unwatched)
    })
}

impl SourceModel {
    /// Returns the open checkpoint, joined with the other ranks, or with the adapter or optimizer
    /// next to it if requested.
    pub(super) fn of(open: &OpenCheckpoint, request: &FamilyRequest) -> Result<Self> {
        let files = &open.checkpoint.files;
        let mut all = Vec::new();
        let ranked = library::ranked(files);
        if let Some(adapter) = adapter(files).filter(|_| request.fold && ranked.is_none()) {
            let checkpoint = Arc::new(folded(open, adapter)?);
            return Ok(Self { checkpoint, of_trainer: false });
        }
        let optimizer = optimizer(files).filter(|_| request.with_optimizer && ranked.is_none());
        if let Some(ranked) = ranked {
            let ids = ranked.files.iter().filter_map(|name| files.find(name)).enumerate();
            all.extend(ids.map(|(rank, id)| (rank.to_string(), id)));
        } else if let Some(optimizer) = optimizer {
            all.extend([("model".to_owned(), files.main()?), ("optimizer".to_owned(), optimizer)]);
        } else {
            return Ok(Self { checkpoint: open.checkpoint.clone(), of_trainer: false });
        }
        Ok(Self { checkpoint: Arc::new(joined(open, &all)?), of_trainer: optimizer.is_some() })
    }
}
