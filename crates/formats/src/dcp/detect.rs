//! Telling it apart.

use statelens_checkpoint::{FileId, FileSet};

use crate::archive::ZIP;
use crate::paths::folder;
use crate::{Probe, Score};

/// The module whose classes the metadata is made of; of the second one before release 2.0.
const MODULES: [&[u8]; 2] =
    [b"torch.distributed.checkpoint.metadata", b"torch.distributed._shard.checkpoint.metadata"];
/// The first opcode of a pickle.
const PROTO: u8 = 0x80;

/// How sure this format is: the pickle of the metadata, or an archive of a rank.
pub fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    if is_metadata(head) {
        return Score::Exact;
    }
    // The first archive of such a file looks like any other of torch's.
    match is_rank(probe.name()) && head.starts_with(ZIP) {
        true => Score::Member,
        false => Score::No,
    }
}

/// Whether a file that starts like that is the metadata.
fn is_metadata(head: &[u8]) -> bool {
    let head = &head[..head.len().min(256)];
    head.first() == Some(&PROTO)
        && MODULES.iter().any(|module| head.windows(module.len()).any(|bytes| bytes == *module))
}

/// Whether that is the name of what a rank wrote.
fn is_rank(name: &str) -> bool {
    name.ends_with(".distcp")
}

/// The metadata of the checkpoint that `main` is of: it lies in the same folder.
pub(super) fn metadata(files: &FileSet, main: FileId) -> Option<FileId> {
    let name = files.name(main);
    if !is_rank(name) {
        return Some(main);
    }
    files.find(&format!("{}.metadata", folder(name)))
}
