use statelens_checkpoint::{FileId, FileSet, rank_in};

use crate::archive::ZIP;
use crate::paths::{base, folder};
use crate::{Probe, Score};

/// The modules of the classes in the metadata; the second is that of releases before 2.0.
const MODULES: [&[u8]; 2] =
    [b"torch.distributed.checkpoint.metadata", b"torch.distributed._shard.checkpoint.metadata"];
const PROTO: u8 = 0x80;

/// Scores the pickle of the metadata, or an archive written by a rank.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    if is_metadata(head) {
        return Score::Exact;
    }
    // The first archive in such a file looks like any other file of `torch.save`.
    match is_rank(probe.name()) && head.starts_with(ZIP) {
        true => Score::Member,
        // The reader reports its fault, and reads the files of the other ranks.
        false if is_rank(probe.name()) || is_own(probe.name()) => Score::Named,
        false => Score::No,
    }
}

/// Returns whether the first bytes are those of the metadata.
fn is_metadata(head: &[u8]) -> bool {
    let head = &head[..head.len().min(256)];
    head.first() == Some(&PROTO)
        && MODULES.iter().any(|module| head.windows(module.len()).any(|bytes| bytes == *module))
}

/// Returns whether the name is that of a file written by a rank.
fn is_rank(name: &str) -> bool {
    name.ends_with(".distcp")
}

/// Finds the metadata of the checkpoint that `main` belongs to, in the same folder: `.metadata`, or
/// that of each rank, `__0.metadata`, if the ranks did not coordinate.
pub(crate) fn metadata(files: &FileSet, main: FileId) -> Vec<FileId> {
    let name = files.name(main);
    let top = folder(name);
    if !is_rank(name) && !is_own(name) {
        return vec![main];
    }
    if let Some(id) = files.find(&format!("{top}.metadata")) {
        return vec![id];
    }
    let own = files.names().filter(|(_, name)| folder(name) == top && is_own(name));
    let mut own: Vec<(u64, FileId)> =
        own.map(|(id, name)| (rank_in(base(name)).unwrap_or(0), id)).collect();
    own.sort_unstable();
    own.into_iter().map(|(_, id)| id).collect()
}

/// Returns whether the name is that of the metadata of one rank: `__0.metadata`.
pub(crate) fn is_own(name: &str) -> bool {
    let number = base(name).strip_prefix("__").and_then(|rest| rest.strip_suffix(".metadata"));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}
