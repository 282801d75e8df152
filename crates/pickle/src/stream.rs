//! The stream that `torch.save` wrote before release 1.6, and still writes inside other pickles: a
//! magic number, a version, facts about the machine, the object, the keys of its storages, each a
//! separate pickle, then the storages one after another (`_legacy_save` in
//! `torch/serialization.py`).

use std::collections::HashMap;

use statelens_checkpoint::{Int, Limits};

use crate::graph::damaged;
use crate::{Broken, Node, Pickle, read};

/// The first of the pickles, as `LONG1`.
const MAGIC: &[u8] =
    &[crate::opcode::LONG1, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, b'.'];
/// The same as spelled in protocols 0 and 1.
const MAGIC_TEXT: &[u8] = b"L119547037146038801333356L\n.";
/// Maximum number of bytes before it: `PROTO` and a frame.
const PREFIX: usize = 11;

#[derive(Debug)]
pub struct PickleStream {
    pub pickle: Pickle,
    /// The other pickles, which torch loads, too: the magic number, the version, facts about the
    /// machine, and the keys of the storages.
    pub others: Vec<Pickle>,
    /// The storages in the order of the stream: key, and bytes per element of the class under which
    /// the object names it; `None` if the object does not name it.
    pub storages: Vec<(String, Option<u64>)>,
    /// Offset of the first storage from the start of the stream. Each storage is its number of
    /// elements as a little-endian `i64`, followed by the elements.
    pub end: u64,
}

impl PickleStream {
    /// Returns the bytes of a storage, if `bytes` are the whole stream.
    pub(crate) fn storage<'a>(&self, bytes: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
        let mut rest = bytes.get(usize::try_from(self.end).ok()?..)?;
        for (key, unit) in &self.storages {
            let (numel, data) = rest.split_first_chunk::<8>()?;
            let len = u64::from_le_bytes(*numel).checked_mul((*unit)?)?;
            let (data, after) = data.split_at_checked(usize::try_from(len).ok()?)?;
            if key == wanted {
                return Some(data);
            }
            rest = after;
        }
        None
    }
}

/// Returns whether a file that starts like this is such a stream.
pub fn is_stream(head: &[u8]) -> bool {
    if head.starts_with(MAGIC_TEXT) {
        return true;
    }
    let head = &head[..head.len().min(PREFIX + MAGIC.len())];
    head.first() == Some(&crate::opcode::PROTO)
        && head.windows(MAGIC.len()).any(|bytes| bytes == MAGIC)
}

/// Reads the pickles of a stream that begins at `base` of a file; `bytes` may continue after them.
///
/// The error contains the pickles before the broken one, and the readable part of that one: torch
/// loads each before it checks the contents.
pub fn read_stream(bytes: &[u8], base: u64, limits: &Limits) -> Result<PickleStream, Broken> {
    let mut at = 0;
    let mut pickles: Vec<Pickle> = Vec::new();
    while pickles.len() < PICKLES {
        match read(&bytes[at as usize..], base + at, limits) {
            Ok(pickle) => {
                at += pickle.end();
                pickles.push(pickle);
            }
            Err(broken) => return Err(Broken { before: pickles, ..broken }),
        }
        let wrong = match (pickles.len(), pickles.last()) {
            (1, Some(magic)) => {
                *magic.node(magic.root()) != Node::Int(Int::from_le_bytes(&MAGIC[2..12]))
            }
            (2, Some(version)) => version.int(version.root()) != Some(1001),
            _ => false,
        };
        if wrong {
            return Err(broken(pickles, "this is not a stream of torch's version 1001"));
        }
    }
    let names: Option<Vec<String>> = pickles.last().and_then(|keys| {
        let ids = keys.sequence(keys.root())?;
        ids.iter().map(|id| Some(keys.text(*id)?.to_lossy().into_owned())).collect()
    });
    let Some(names) = names else {
        return Err(broken(pickles, "the keys of its storages are not a list of strings"));
    };
    let pickle = pickles.remove(OBJECT);
    let units = units(&pickle);
    let storages = names.into_iter().map(|key| {
        let unit = units.get(&key).copied();
        (key, unit)
    });
    Ok(PickleStream { storages: storages.collect(), pickle, others: pickles, end: at })
}

/// How many pickles a stream begins with, and which of them is the object.
const PICKLES: usize = 5;
const OBJECT: usize = 3;

fn broken(before: Vec<Pickle>, what: &str) -> Broken {
    Broken {
        error: damaged(what),
        starved: false,
        needed: 0,
        cut_name: None,
        unset_memo: false,
        pickle: Box::default(),
        open: Vec::new(),
        before,
    }
}

/// Returns the bytes per element of each storage that the object names.
fn units(pickle: &Pickle) -> HashMap<String, u64> {
    let names = pickle.nodes().filter_map(|(_, node)| match node {
        Node::Persistent(id) => pickle.storage_name(*id),
        _ => None,
    });
    names.map(|name| (name.key.clone(), name.unit())).collect()
}
