use std::sync::Arc;

use statelens_checkpoint::{FileSet, Memory};

/// The index is also its own data file, so that there are bytes where its entries point.
pub(crate) fn run(bytes: &[u8]) {
    let source = Arc::new(Memory::from(bytes.to_vec()));
    let mut files = FileSet::default();
    files.push("m.index", source.clone());
    files.push("m.data-00000-of-00001", source);
    crate::examine_files(files);
}
