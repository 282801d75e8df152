use std::sync::Arc;

use statelens_checkpoint::{FileSet, Memory};

const METADATA: &[u8] = include_bytes!("../../tests/fixtures/dcp_single/.metadata");
const RANK: &[u8] = include_bytes!("../../tests/fixtures/dcp_single/__0_0.distcp");

/// Replaces one file of a sound checkpoint: an archive replaces the rank's file, any other input the
/// metadata.
pub(crate) fn run(bytes: &[u8]) {
    let archive = bytes.starts_with(b"PK");
    let (metadata, rank) = if archive { (METADATA, bytes) } else { (bytes, RANK) };
    let mut files = FileSet::default();
    files.push(".metadata", Arc::new(Memory::from(metadata.to_vec())));
    files.push("__0_0.distcp", Arc::new(Memory::from(rank.to_vec())));
    crate::examine_files(files);
}
