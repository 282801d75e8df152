use std::collections::BTreeSet;

use statelens_checkpoint::{Checkpoint, FileId, Layout, Limits, Result, Span, Tensor};

use crate::checks::Checks;
use crate::format_of;

/// Finds the checksums of all files of a checkpoint. Reads only the structures that locate them.
pub fn checks(checkpoint: &Checkpoint, limits: &Limits) -> Result<Checks> {
    let files = &checkpoint.files;
    let own = format_of(checkpoint.format.id).and_then(|format| format.checks);
    if let Some(checks) = own.map(|own| own(checkpoint, files, limits)).transpose()?.flatten() {
        return Ok(checks);
    }
    let main = files.main()?;
    let head = files.read_vec(main, 0, files.len(main).min(HEAD))?;
    let hdf5 = statelens_hdf5::Hdf5File::likely_version(&head);
    // Structures in HDF5 files have checksums from this superblock version on.
    let structure = hdf5.is_some_and(|version| version >= 2);
    let mut checks = Checks { summed: hdf5.is_some(), structure, ..Checks::default() };
    let mut used: BTreeSet<FileId> = checkpoint.tensors().iter().flat_map(files_of).collect();
    used.insert(main);
    // Other data may precede the archives of torch and numpy, which the readers skip. The main file
    // of a set is its index, not an archive.
    let is_set = used.len() > 1 || head.first() == Some(&b'{');
    let behind = matches!(checkpoint.format.id, "torch-zip" | "torch-export" | "npz") && !is_set;
    for file in used {
        let len = files.len(file);
        checks.archive(files, Span { file, offset: 0, len }, behind && file == main, limits)?;
    }
    checks.summed |= !checks.checks.is_empty() || checks.without > 0;
    checks.structure |= !checks.checks.is_empty();
    Ok(checks)
}

/// The range in which the signature of an HDF5 file is searched for.
const HEAD: u64 = 4096;

/// Returns the files that a tensor's layout refers to, without looking up its chunks.
fn files_of(tensor: &Tensor) -> Vec<FileId> {
    let mut found = Vec::new();
    let mut open = vec![&tensor.layout];
    while let Some(layout) = open.pop() {
        match layout {
            Layout::Span(span) => found.push(span.file),
            Layout::Packed(packed) => found.push(packed.span.file),
            Layout::Deferred(deferred) => found.push(deferred.span().file),
            Layout::Strided(strided) => open.push(&strided.storage),
            Layout::Computed(computed) => open.extend(computed.layouts()),
            Layout::Dequantised(parts) => open.extend(parts.layouts()),
            Layout::Concat(concat) => open.extend(concat.parts.iter().map(|part| &part.layout)),
            _ => {}
        }
    }
    found
}
