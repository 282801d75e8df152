//! Files of joblib: a pickle with embedded array data, which directly follows the `BUILD` of the
//! object that describes the array (`NumpyArrayUnpickler.load_build` in `joblib/numpy_pickle.py`).
//! Nothing in the pickle itself marks this. This module cuts the data out after each such `BUILD`,
//! replaces the descriptor by an empty array, as joblib does, and runs the remaining pickle again.

use std::collections::HashMap;

use statelens_checkpoint::Result;
use statelens_pickle::{Broken, BuiltObject, Node, NodeId, Pickle};

use super::super::section::{exactly, some};
use super::{Blob, Certainty, RUN, Search};

/// The class of the object that describes an array.
const WRAPPER: (&str, &str) = ("joblib.numpy_pickle", "NumpyArrayWrapper");
/// Opcodes that replace the wrapper on the stack by an empty array; the memo keeps the wrapper.
const ARRAY: &[u8] =
    b"0cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R";
/// The number of bytes first read of the pickle after an array.
const WINDOW: u64 = 4 << 10;

/// Returns whether joblib would read array data in the middle of this pickle.
pub(super) fn is_wrapped(pickle: &Pickle) -> bool {
    pickle.globals().iter().any(|used| used.global.is(WRAPPER.0, WRAPPER.1))
        && wrappers(pickle).next().is_some()
}

/// Returns the pickle without the data of its arrays, and its end in the blob. Returns `None` if it
/// is unclear what joblib would read. Pickles embedded in place of arrays are examined on the way.
pub(super) fn run(search: &mut Search<'_>, blob: &Blob, at: u64) -> Result<Option<(Pickle, u64)>> {
    let mut clean: Vec<u8> = Vec::new();
    let (mut next, mut window) = (at, WINDOW);
    let mut known: HashMap<NodeId, usize> = HashMap::new();
    loop {
        let rest = some(&*blob.source, next, window)?;
        let done = clean.len();
        clean.extend(&rest);
        if clean.len() as u64 > search.limits.structure {
            return Ok(None);
        }
        let Some(run) = run_within_budget(search, &clean, blob.base + at) else {
            return Ok(None);
        };
        let pickle = run.as_ref().unwrap_or_else(|broken| &broken.pickle);
        // Applies even if the pickle ends: its end may be that of a pickle embedded in place of an
        // array.
        let Some(id) = fresh(pickle, &known) else {
            match run {
                Ok(pickle) => {
                    let end = next + pickle.end().saturating_sub(done as u64);
                    return Ok(Some((pickle, end)));
                }
                Err(broken) if broken.starved && rest.len() as u64 == window => {
                    clean.truncate(done);
                    window = window.saturating_mul(4);
                    continue;
                }
                Err(_) => return Ok(None),
            }
        };
        // Finds the shortest prefix that sets another state on a wrapper.
        let (mut few, mut enough) = (done, clean.len());
        let mut found = (run.unwrap_or_else(|broken| *broken.pickle), id);
        while few + 1 < enough {
            let middle = few.midpoint(enough);
            let Some(run) = run_within_budget(search, &clean[..middle], 0) else {
                return Ok(None);
            };
            let pickle = run.unwrap_or_else(|broken| *broken.pickle);
            match fresh(&pickle, &known) {
                Some(id) => (enough, found) = (middle, (pickle, id)),
                None => few = middle,
            }
        }
        let (pickle, id) = found;
        // joblib reads the array at the end of the frame, and Python runs the opcodes before that.
        if pickle.has_overlong_frame() {
            return Ok(None);
        }
        let Some(object) = pickle.object(id) else { return Ok(None) };
        known.insert(id, object.states.len());
        let start = next + (enough - done) as u64;
        let Some(end) = Array::of(&pickle, &object).end(search, blob, start)? else {
            return Ok(None);
        };
        clean.truncate(enough);
        clean.extend(ARRAY);
        (next, window) = (end, WINDOW);
    }
}

/// Runs a pickle, or returns `None` if the budget is exhausted.
fn run_within_budget(
    search: &mut Search<'_>,
    bytes: &[u8],
    base: u64,
) -> Option<std::result::Result<Pickle, Broken>> {
    let cost = bytes.len() as u64 * RUN;
    search.spend(cost).then(|| statelens_pickle::read(bytes, base, search.limits))
}

/// Returns the first wrapper with more states than the known number.
fn fresh(pickle: &Pickle, known: &HashMap<NodeId, usize>) -> Option<NodeId> {
    let more = |(id, object): (NodeId, BuiltObject<'_>)| {
        let known = known.get(&id).copied().unwrap_or_default();
        (object.states.len() > known).then_some(id)
    };
    wrappers(pickle).find_map(more)
}

/// Returns the wrappers that have a state.
fn wrappers(pickle: &Pickle) -> impl Iterator<Item = (NodeId, BuiltObject<'_>)> {
    pickle.nodes().filter_map(|(id, _)| {
        let object = pickle.object(id).filter(|object| !object.states.is_empty())?;
        is_wrapper(pickle, object.callable).then_some((id, object))
    })
}

fn is_wrapper(pickle: &Pickle, id: NodeId) -> bool {
    matches!(pickle.node(id), Node::Global(global) if global.is(WRAPPER.0, WRAPPER.1))
}

/// The layout of array data.
struct Array {
    /// The length in bytes; `None` for objects, which are a pickle.
    len: Option<u64>,
    padded: bool,
    clear: bool,
}

impl Array {
    /// Reads the attributes of a wrapper.
    fn of(pickle: &Pickle, object: &BuiltObject<'_>) -> Self {
        let unclear = Self { len: None, padded: false, clear: false };
        let [state] = object.states[..] else { return unclear };
        let field = |name: &str| pickle.field(state, name);
        let padded = field("numpy_array_alignment_bytes");
        let padded = padded.is_some_and(|id| *pickle.node(id) != Node::None);
        let shape = field("shape").and_then(|id| pickle.sequence(id));
        let count = shape.and_then(|shape| {
            shape.iter().try_fold(1_u64, |count, dim| {
                count.checked_mul(u64::try_from(pickle.int(*dim)?).ok()?)
            })
        });
        let Some(elements) = field("dtype").and_then(|id| pickle.dtype_elements(id)) else {
            return unclear;
        };
        let size = elements.size.and_then(|size| u64::try_from(size).ok());
        match (size, count) {
            _ if elements.objects => Self { len: None, padded: false, clear: true },
            (Some(size), Some(count)) => {
                Self { len: Some(size.saturating_mul(count)), padded, clear: true }
            }
            _ => unclear,
        }
    }

    /// Returns the end of the array that begins at `start`, if it is clear.
    fn end(&self, search: &mut Search<'_>, blob: &Blob, start: u64) -> Result<Option<u64>> {
        if !self.clear {
            return Ok(None);
        }
        let Some(len) = self.len else {
            return Ok(search.pickle(blob, start, Certainty::Yes)?.map(|(_, end)| end));
        };
        let padding = match self.padded {
            true => exactly::<1>(&*blob.source, start).map(|[padding]| 1 + u64::from(padding)),
            false => Some(0),
        };
        Ok(padding.and_then(|padding| start.checked_add(padding)?.checked_add(len)))
    }
}
