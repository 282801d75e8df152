//! Opening: finds which file to open, reads its structure, and tells it as rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use statelens_checkpoint::{
    BlockCache, Checkpoint, FileSet, Leaf, Limits, Progress, ReadAt, Sparse, Value,
};
use statelens_inspect::{dtype_of, kind_of, missing, shape_of, value_text};
use web_sys::File;

use crate::protocol::{ErrorText, FileName, Finding, FromWorker, Opened, Severity};
use crate::rows::{Kind, PackedRows, Row};
use crate::worker::{Open, blob, now, planning, post, text};

/// Blocks of the cache: a call costs the same whatever it reads, so few and large ones.
const BLOCK: usize = 1 << 20;
/// How many blocks are kept for each file.
const BLOCKS: usize = 24;
/// Files that are tried before a drop of many is given up.
const TRIES: usize = 8;

const EXTENSIONS: [&str; 11] =
    ["mdl", "pt", "pth", "bin", "ckpt", "h5", "hdf5", "pkl", "pickle", "h5py", "keras"];

/// Opens the files as one checkpoint.
///
/// # Errors
/// The text of why the file that was asked for can't be opened; of a drop of several, the first.
pub fn open(
    names: &[FileName],
    files: Vec<File>,
    asked: Option<u32>,
) -> Result<(Open, Opened), Box<ErrorText>> {
    let began = now();
    let sources: Vec<Arc<dyn ReadAt>> = blob::sources(files)
        .into_iter()
        .map(|source| Arc::new(BlockCache::new(Arc::new(source), BLOCK, BLOCKS)) as Arc<dyn ReadAt>)
        .collect();
    let order = candidates(names, asked);
    let mut failed: Option<(usize, ErrorText)> = None;
    for &main in order.iter().take(TRIES) {
        match open_one(names, &sources, main) {
            Ok(checkpoint) => {
                let others = order
                    .iter()
                    .copied()
                    .filter(|&other| other != main && looks_like(&names[other].path));
                let mut opened =
                    told(&checkpoint, names, main, others.map(|other| other as u32).collect());
                if let Some((at, error)) = &failed {
                    opened.0.findings.push(not_opened(&names[*at].path, error));
                }
                let (read, calls) = blob::spent();
                (opened.0.read, opened.0.calls, opened.0.millis) = (read, calls, now() - began);
                let (opened, leaves) = opened;
                return Ok((
                    Open { checkpoint: Arc::new(checkpoint), leaves: leaves.into() },
                    opened,
                ));
            }
            Err(error) => {
                let head = head(&sources[main]);
                failed.get_or_insert((main, text::explain(*error, &names[main].path, &head)));
            }
        }
    }
    Err(Box::new(failed.map_or_else(
        || text::error(&statelens_checkpoint::Error::io("no file was given")),
        |(_, error)| error,
    )))
}

/// The files in the order in which they are tried: the one that was asked for, else those whose
/// names look like checkpoints. The name decides nothing but the order.
fn candidates(names: &[FileName], asked: Option<u32>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|&at| (Some(at as u32) != asked, !looks_like(&names[at].path), at));
    order
}

fn looks_like(path: &str) -> bool {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

fn open_one(
    names: &[FileName],
    sources: &[Arc<dyn ReadAt>],
    main: usize,
) -> Result<Checkpoint, Box<ErrorText>> {
    let mut set = FileSet::default();
    let rest = (0..names.len()).filter(|&at| at != main);
    let order: Vec<usize> = std::iter::once(main).chain(rest).collect();
    for &at in &order {
        set.push(names[at].path.clone(), sources[at].clone());
    }
    blob::set_order(order);
    statelens_formats::open(set, &Limits::default(), &mut Watch { last: now() })
        .map_err(|error| Box::new(text::error(&error)))
}

fn head(source: &Arc<dyn ReadAt>) -> Vec<u8> {
    let mut head = vec![0; source.len().min(1024) as usize];
    if source.read_at(0, &mut head).is_err() {
        head.clear();
    }
    head
}

/// Tells the page how far it is, four times a second at most.
struct Watch {
    last: f64,
}

impl Progress for Watch {
    fn report(&mut self, done: u64, _total: u64) -> bool {
        let time = now();
        if time - self.last >= 250.0 {
            self.last = time;
            let (read, calls) = blob::spent();
            post(&FromWorker::Opening { doing: String::new(), keys: done, read, calls });
        }
        // Opening is stopped by ending the worker: it could not hear the wish.
        true
    }
}

fn not_opened(name: &str, error: &ErrorText) -> Finding {
    Finding {
        severity: Severity::Warning,
        title: format!("{name} could not be opened"),
        text: format!("{} {}", error.title, error.text).trim().to_owned(),
        advice: String::new(),
        place: error.place.clone(),
        call: Vec::new(),
        keys: Vec::new(),
        missing: false,
    }
}

/// What the page is told about an open checkpoint, and its leaves by row.
fn told(
    checkpoint: &Checkpoint,
    names: &[FileName],
    main: usize,
    others: Vec<u32>,
) -> (Opened, Vec<Leaf>) {
    let leaves = checkpoint.leaves();
    let rows: Vec<Row> = leaves.iter().map(|leaf| row(checkpoint, leaf)).collect();
    let absent: BTreeSet<String> = checkpoint
        .tensors()
        .iter()
        .filter_map(|tensor| missing(tensor).map(|why| why.to_lossy().into_owned()))
        .take(10_000)
        .collect();
    let findings = checkpoint
        .findings
        .iter()
        .map(|found| {
            let mut finding = text::finding(found);
            if rows.iter().any(|row| row.key == finding.place) {
                finding.keys.push(finding.place.clone());
            }
            finding.missing = names_missing_file(&found.title, &absent);
            finding
        })
        .collect();
    let opened = Opened {
        name: names[main].path.clone(),
        main: main as u32,
        others,
        format_id: planning::target_of(checkpoint.format.id),
        format: checkpoint.format.name.to_owned(),
        version: checkpoint.format.version.clone(),
        producer: checkpoint.format.producer.clone(),
        size: blob::touched_size(),
        rows: PackedRows::pack(&rows),
        findings,
        targets: planning::targets(),
        missing: absent.into_iter().take(100).collect(),
        millis: 0.0,
        read: 0,
        calls: 0,
    };
    (opened, leaves)
}

/// Whether a finding names a file that tensors are missing for.
fn names_missing_file(title: &str, absent: &BTreeSet<String>) -> bool {
    title
        .split_whitespace()
        .map(|word| word.trim_matches(['`', ',', '.', ':', '"']))
        .filter(|word| word.contains('.'))
        .any(|word| absent.iter().any(|why| why.contains(word)))
}

/// One leaf as a row.
fn row(checkpoint: &Checkpoint, leaf: &Leaf) -> Row {
    let kind = kind(kind_of(checkpoint, leaf));
    let shape = shape_of(checkpoint, leaf.id).map(<[u64]>::to_vec).unwrap_or_default();
    let (params, bytes) = match checkpoint.value(leaf.target) {
        Value::Sparse(sparse) => sparse_size(checkpoint, sparse),
        _ => checkpoint.tensor_of(leaf.id).map_or((0, 0), |(_, tensor)| {
            (tensor.numel().unwrap_or(u64::MAX), tensor.nbytes().unwrap_or(u64::MAX))
        }),
    };
    // The value itself; what it is a link to stands beside it.
    let itself = Leaf { alias_of: None, ..leaf.clone() };
    Row {
        key: leaf.flat.to_lossy().into_owned(),
        kind,
        dtype: if kind.has_shape() {
            dtype_of(checkpoint, leaf.id).map(|dtype| dtype.name().to_owned()).unwrap_or_default()
        } else {
            String::new()
        },
        shape,
        params,
        bytes,
        value: value_text(checkpoint, &itself),
        link: leaf.alias_of.as_ref().map(|key| key.to_lossy().into_owned()),
    }
}

/// The values and bytes that a sparse tensor stores.
fn sparse_size(checkpoint: &Checkpoint, sparse: &Sparse) -> (u64, u64) {
    let parts =
        sparse.parts.iter().filter_map(|(name, id)| Some((*name, checkpoint.tensor_of(*id)?.1)));
    parts.fold((0, 0), |(params, bytes), (name, tensor)| {
        let count = if name == "values" { tensor.numel().unwrap_or(0) } else { 0 };
        (params + count, bytes + tensor.nbytes().unwrap_or(0))
    })
}

fn kind(word: &str) -> Kind {
    match word {
        "tensor" | "sparse" => Kind::Tensor,
        "ndarray" => Kind::Array,
        "int" => Kind::Int,
        "float" => Kind::Float,
        "bool" => Kind::Bool,
        "str" => Kind::Str,
        "none" => Kind::None,
        "complex" => Kind::Complex,
        "bytes" => Kind::Bytes,
        "dict" => Kind::Dict,
        "list" => Kind::List,
        "tuple" => Kind::Tuple,
        "set" => Kind::Set,
        "link" => Kind::Link,
        _ => Kind::Object,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_the_file_that_is_missing() {
        let absent =
            BTreeSet::from(["the data is in the file b.mdl, which was not given".to_owned()]);
        assert!(names_missing_file("4 values are in the file b.mdl, which was not given", &absent));
        assert!(!names_missing_file("The checkpoint was not finished.", &absent));
        assert!(!names_missing_file("4 values are in the file b.mdl", &BTreeSet::new()));
    }

    #[test]
    fn what_was_asked_for_comes_first_and_then_what_looks_like_a_checkpoint() {
        let names: Vec<FileName> = ["a/readme.md", "a/model.PT", "a/x.json", "a/state.mdl"]
            .map(|path| FileName { path: path.into(), size: 1 })
            .into();
        assert_eq!(candidates(&names, None), [1, 3, 0, 2]);
        assert_eq!(candidates(&names, Some(3)), [3, 1, 0, 2]);
    }
}
