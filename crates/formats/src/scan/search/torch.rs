//! The tar archives of torch before release 0.2: runs what `legacy_load` unpickles from their
//! members.

use statelens_checkpoint::Result;
use statelens_pickle::{Node, storage_dtype};

use super::super::section::exactly;
use super::{Blob, Certainty, Search};

/// The members that torch unpickles.
pub(super) const NAMES: [&str; 3] = ["storages", "tensors", "pickle"];

/// Runs the pickles of a member in the same order as torch.
pub(super) fn member(search: &mut Search<'_>, blob: &Blob, name: &str) -> Result<()> {
    match name {
        "storages" => storages(search, blob),
        "tensors" => tensors(search, blob),
        "pickle" => search.sequence(blob, 0, Certainty::Yes),
        _ => Ok(()),
    }
}

/// Examines `storages`: a count; for each storage a pickle, the number of elements, and the
/// elements; then a pickle of the views.
fn storages(search: &mut Search<'_>, blob: &Blob) -> Result<()> {
    let region = search.region(blob, 0, "the storages of an archive of torch 0.1");
    // A loader that fails at one of the pickles does not reach the next.
    let Some((pickle, mut at)) = search.pickle(blob, 0, Certainty::Yes)? else {
        region.done();
        return Ok(());
    };
    let Some(count) = pickle.int(pickle.root()) else { return Ok(()) };
    for _ in 0..count {
        let Some((pickle, end)) = search.pickle(blob, at, Certainty::Yes)? else {
            region.done();
            return Ok(());
        };
        let class = match pickle.sequence(pickle.root()) {
            Some([_, _, class]) => *class,
            _ => return Ok(()),
        };
        let dtype = match pickle.node(class) {
            Node::Global(global) => storage_dtype(global).flatten(),
            _ => None,
        };
        let next = exactly::<8>(&*blob.source, end).and_then(|numel| {
            let len = u64::from_le_bytes(numel).checked_mul(dtype?.itemsize())?;
            end.checked_add(8)?.checked_add(len).filter(|next| *next < blob.source.len())
        });
        let Some(next) = next else { return Ok(()) };
        at = next;
    }
    search.pickle(blob, at, Certainty::Yes)?;
    region.done();
    Ok(())
}

/// Examines `tensors`: a count; for each tensor a pickle, its rank (4 bytes of 8), sizes, strides,
/// and its offset.
fn tensors(search: &mut Search<'_>, blob: &Blob) -> Result<()> {
    let region = search.region(blob, 0, "the tensors of an archive of torch 0.1");
    let Some((pickle, mut at)) = search.pickle(blob, 0, Certainty::Yes)? else {
        region.done();
        return Ok(());
    };
    let Some(count) = pickle.int(pickle.root()) else { return Ok(()) };
    for _ in 0..count {
        let Some((_, end)) = search.pickle(blob, at, Certainty::Yes)? else {
            region.done();
            return Ok(());
        };
        let rank = exactly::<4>(&*blob.source, end).map(u32::from_le_bytes);
        let next = rank.and_then(|rank| end.checked_add(16 + 16 * u64::from(rank)));
        let Some(next) = next.filter(|next| *next <= blob.source.len()) else { return Ok(()) };
        at = next;
    }
    region.done();
    Ok(())
}
