//! Which files a model is in: that which is open, or several together.

use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, FileId, FileSet, Result, Unwatched};
use statelens_recipes::conversion::OPTIMIZER_FILE;
use statelens_recipes::parts;

use super::library;
use crate::protocol::family::Asked;
use crate::worker::session::Open;

/// What is converted.
pub(super) struct Model {
    /// The checkpoint, or several as one.
    pub(super) checkpoint: Arc<Checkpoint>,
    /// An optimizer's state in a file of its own is in it.
    pub(super) of_trainer: bool,
}

/// The optimizer's state that Hugging Face's trainer has left beside the open file.
pub(super) fn optimizer(files: &FileSet) -> Option<FileId> {
    let main = files.main().ok()?;
    let folder = files.name(main).rsplit_once('/').map_or("", |(folder, _)| folder);
    let name = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    files.find(&format!("{name}{OPTIMIZER_FILE}")).filter(|id| *id != main)
}

impl Model {
    /// What is open, with the other ranks and with the optimizer beside it, if that is asked for.
    pub(super) fn of(open: &Open, asked: &Asked) -> Result<Self> {
        let files = &open.checkpoint.files;
        let mut all = Vec::new();
        let ranked = library::ranked(files);
        let optimizer = optimizer(files).filter(|_| asked.with_optimizer && ranked.is_none());
        if let Some(ranked) = ranked {
            let ids = ranked.files.iter().filter_map(|name| files.find(name)).enumerate();
            all.extend(ids.map(|(rank, id)| (rank.to_string(), id)));
        } else if let Some(optimizer) = optimizer {
            all.extend([("model".to_owned(), files.main()?), ("optimizer".to_owned(), optimizer)]);
        } else {
            return Ok(Self { checkpoint: open.checkpoint.clone(), of_trainer: false });
        }
        let joined = parts::of_set(files, &all, &open.limits, &mut |files| {
            statelens_formats::open(files, &open.limits, &mut Unwatched)
        })?;
        Ok(Self { checkpoint: Arc::new(joined), of_trainer: optimizer.is_some() })
    }
}
