//! Files of joblib: a pickle with the bytes of arrays in it, each right behind the opcode that says
//! what the array is (`NumpyArrayWrapper` in `joblib/numpy_pickle.py`). Nothing in a pickle says
//! that it is so: the bytes are cut out where the wrapper has been given its state, and what is left
//! is run anew.

use std::collections::HashSet;

use statelens_checkpoint::Result;
use statelens_pickle::{BuiltObject, Node, NodeId, Pickle};

use super::super::section::{exactly, some};
use super::{Blob, Search, Sure};

/// What stands for an array.
const WRAPPER: (&str, &str) = ("joblib.numpy_pickle", "NumpyArrayWrapper");
/// Arrays in one file that are stepped over.
const MOST: usize = 10_000;
/// What is read of the pickle at first behind an array.
const WINDOW: u64 = 4 << 10;

/// Whether a pickle that breaks off does so for the bytes of an array.
pub(super) fn is_wrapped(pickle: &Pickle) -> bool {
    wrappers(pickle).next().is_some()
}

/// The pickle without the bytes of its arrays, and where it ends in the blob; `None` if that is no
/// pickle, either. Pickles in place of arrays are looked at on the way.
pub(super) fn run(search: &mut Search<'_>, blob: &Blob, at: u64) -> Result<Option<(Pickle, u64)>> {
    let mut clean: Vec<u8> = Vec::new();
    let (mut next, mut window) = (at, WINDOW);
    let mut known: HashSet<NodeId> = HashSet::new();
    while known.len() < MOST {
        let rest = some(&*blob.source, next, window)?;
        let done = clean.len();
        clean.extend(&rest);
        if !search.spend(clean.len() as u64) || clean.len() as u64 > search.limits.structure {
            return Ok(None);
        }
        let run = statelens_pickle::read(&clean, blob.base + at, search.limits);
        let pickle = run.as_ref().unwrap_or_else(|broken| &broken.pickle);
        // Even one that ends: what ends it may be a pickle in place of an array.
        if wrappers(pickle).all(|(id, _)| known.contains(&id)) {
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
        }
        // The shortest beginning that gives one more wrapper its state.
        let (mut few, mut enough) = (done, clean.len());
        while few + 1 < enough {
            let middle = few.midpoint(enough);
            search.spend(middle as u64);
            match fresh(search, &clean[..middle], &known) {
                Some(_) => enough = middle,
                None => few = middle,
            }
        }
        let Some((id, array)) = fresh(search, &clean[..enough], &known) else { return Ok(None) };
        known.insert(id);
        let start = next + (enough - done) as u64;
        let Some(end) = array.end(search, blob, start)? else { return Ok(None) };
        clean.truncate(enough);
        (next, window) = (end, WINDOW);
    }
    Ok(None)
}

/// The first wrapper with a state that is not known yet, in the beginning of a pickle.
fn fresh(search: &Search<'_>, bytes: &[u8], known: &HashSet<NodeId>) -> Option<(NodeId, Array)> {
    let pickle = match statelens_pickle::read(bytes, 0, search.limits) {
        Ok(pickle) => pickle,
        Err(broken) => *broken.pickle,
    };
    let (id, object) = wrappers(&pickle).find(|(id, _)| !known.contains(id))?;
    Some((id, Array::of(&pickle, &object)))
}

fn wrappers(pickle: &Pickle) -> impl Iterator<Item = (NodeId, BuiltObject<'_>)> {
    pickle.nodes().filter_map(|(id, _)| {
        let object = pickle.object(id).filter(|object| !object.states.is_empty())?;
        let global = pickle.global(object.callable)?;
        global.is(WRAPPER.0, WRAPPER.1).then_some((id, object))
    })
}

/// How the bytes of an array lie.
struct Array {
    /// `None` for objects, which are a pickle.
    len: Option<u64>,
    padded: bool,
    clear: bool,
}

impl Array {
    fn of(pickle: &Pickle, object: &BuiltObject<'_>) -> Self {
        let field = |name: &str| object.states.last().and_then(|state| pickle.field(*state, name));
        let padded = field("numpy_array_alignment_bytes");
        let padded = padded.is_some_and(|id| *pickle.node(id) != Node::None);
        let shape = field("shape").and_then(|id| pickle.sequence(id));
        let count = shape.and_then(|shape| {
            shape.iter().try_fold(1_u64, |count, dim| {
                count.checked_mul(u64::try_from(pickle.int(*dim)?).ok()?)
            })
        });
        let size = field("dtype").and_then(|id| itemsize(pickle, id));
        match (size, count) {
            (Some(None), _) => Self { len: None, padded: false, clear: true },
            (Some(Some(size)), Some(count)) => {
                Self { len: Some(size.saturating_mul(count)), padded, clear: true }
            }
            _ => Self { len: None, padded, clear: false },
        }
    }

    /// Where the array that begins at `start` ends, if it lies in the blob.
    fn end(&self, search: &mut Search<'_>, blob: &Blob, start: u64) -> Result<Option<u64>> {
        if !self.clear {
            return Ok(None);
        }
        let Some(len) = self.len else {
            return Ok(search.pickle(blob, start, Sure::Yes)?.map(|(_, end)| end));
        };
        let padding = match self.padded {
            true => exactly::<1>(&*blob.source, start).map(|[padding]| 1 + u64::from(padding)),
            false => Some(0),
        };
        let end = padding.and_then(|padding| start.checked_add(padding)?.checked_add(len));
        Ok(end.filter(|end| *end <= blob.source.len()))
    }
}

/// The bytes of an element of `numpy.dtype('f8', …)`; `Some(None)` if it is an object.
fn itemsize(pickle: &Pickle, dtype: NodeId) -> Option<Option<u64>> {
    let (global, args) = pickle.call(dtype)?;
    let name = pickle.str(*args.first()?)?;
    if !global.is("numpy", "dtype") {
        return None;
    }
    let state = pickle.state(dtype).and_then(|state| pickle.sequence(state));
    let flags = state.and_then(|state| pickle.int(*state.last()?)).unwrap_or(0);
    let (kind, digits) = name.trim_start_matches(['<', '>', '|', '=']).split_at_checked(1)?;
    match kind {
        "O" => Some(None),
        _ if flags & 1 != 0 => Some(None),
        "U" => digits.parse::<u64>().ok().map(|letters| Some(letters.saturating_mul(4))),
        _ => digits.parse().ok().map(Some),
    }
}
