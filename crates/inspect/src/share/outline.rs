//! The outline: what every kind of summary is made from, and what a link comes to again.

use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, Finding, Leaf, Sparse, Value, separator};

use crate::fold::Foldable;
use crate::statistics::Statistics;
use crate::summary::slot;
use crate::{Count, State, Summary, dtype_of, kind_of, shape_of, text_of};

use super::Fingerprint;

/// What is in a checkpoint, without its tensors' values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outline {
    /// The name of the file that was opened, without its folder.
    pub name: String,
    /// The format's short name: `cerebras-h5`.
    pub format_id: String,
    /// The format's name for people: `Cerebras HDF5`.
    pub format: String,
    /// The format's version; may be empty.
    pub version: String,
    /// What wrote it; may be empty.
    pub producer: String,
    /// Length of the files together.
    pub size: u64,
    /// One for each leaf, in file order.
    pub entries: Vec<Entry>,
    /// What the reader noticed.
    pub findings: Vec<Finding>,
    /// The fingerprint of the content, if the content was read.
    pub content: Option<Fingerprint>,
}

/// A leaf.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Entry {
    /// The key, joined with dots.
    pub key: String,
    /// What it is, links followed: `tensor`, `int`, ….
    pub kind: &'static str,
    /// The dtype of a tensor or array by torch's name; else empty.
    pub dtype: String,
    /// The shape of a tensor or array.
    pub shape: Vec<u64>,
    /// How many values a tensor holds.
    pub params: u64,
    /// Its logical bytes.
    pub bytes: u64,
    /// The value as text, cut if long; of a tensor what is known without reading it.
    pub value: String,
    /// The key of the leaf that this one is, if it is a link.
    pub link: Option<String>,
    /// Statistics of a tensor, if they were computed.
    pub statistics: Option<Statistics>,
}

/// What a list of entries comes to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Totals {
    /// Leaves, links included.
    pub leaves: u64,
    /// Leaves that are links to others.
    pub links: u64,
    /// Tensors and arrays, each counted once.
    pub all: Count,
    /// The same by dtype, in order of first appearance.
    pub by_dtype: Vec<(String, Count)>,
    /// The same by what stands before the first dot of the key, or the first slash where those part
    /// names.
    pub by_state: Vec<(String, State)>,
}

impl Outline {
    /// Of an open checkpoint, whose leaves are `leaves`; reads nothing. Folders are left out of
    /// its name, and out of the names of files that findings tell of.
    pub fn new(checkpoint: &Checkpoint, leaves: &[Leaf]) -> Self {
        let files = Summary::new(checkpoint, leaves).files;
        let main = checkpoint.files.main().map_or("", |main| checkpoint.files.name(main));
        let folders: Vec<&str> = checkpoint
            .files
            .iter()
            .filter_map(|(_, file)| file.name.rfind(['/', '\\']).map(|at| &file.name[..=at]))
            .collect();
        let findings = checkpoint.findings.iter().map(|finding| homeless(finding, &folders));
        Self {
            name: base_name(main).to_owned(),
            format_id: checkpoint.format.id.to_owned(),
            format: checkpoint.format.name.to_owned(),
            version: checkpoint.format.version.clone(),
            producer: checkpoint.format.producer.clone(),
            size: files.iter().fold(0, |sum: u64, (_, len)| sum.saturating_add(*len)),
            entries: leaves.iter().map(|leaf| Entry::new(checkpoint, leaf)).collect(),
            findings: findings.collect(),
            content: None,
        }
    }

    /// Counts.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals { leaves: self.entries.len() as u64, ..Totals::default() };
        let (mut states, mut dtypes) = (HashMap::new(), HashMap::new());
        let dot = self.separator();
        for entry in &self.entries {
            let name = entry.key.split(dot).next().unwrap_or_default();
            let state = slot(&mut totals.by_state, &mut states, name);
            state.leaves += 1;
            if entry.link.is_some() {
                totals.links += 1;
            } else if entry.is_tensor() {
                add(&mut state.tensors, entry);
                add(&mut totals.all, entry);
                add(slot(&mut totals.by_dtype, &mut dtypes, &entry.dtype), entry);
            }
        }
        totals
    }

    /// What stands between the parts of keys.
    pub(super) fn separator(&self) -> char {
        separator(&self.format_id, &mut self.entries.iter().map(|entry| &*entry.key))
    }

    /// The format with its version: `Cerebras HDF5 0.5`.
    pub fn format_text(&self) -> String {
        format!("{} {}", self.format, self.version).trim().to_owned()
    }
}

impl Entry {
    /// Of a leaf.
    pub fn new(checkpoint: &Checkpoint, leaf: &Leaf) -> Self {
        let dtype = dtype_of(checkpoint, leaf.target);
        let (params, bytes) = match checkpoint.value(leaf.target) {
            Value::Sparse(sparse) => sparse_size(checkpoint, sparse),
            _ => checkpoint.tensor_of(leaf.target).map_or((0, 0), |(_, tensor)| {
                (tensor.numel().unwrap_or(u64::MAX), tensor.nbytes().unwrap_or(u64::MAX))
            }),
        };
        Self {
            key: leaf.flat.to_lossy().into_owned(),
            kind: kind_of(checkpoint, leaf),
            dtype: dtype.map(|dtype| dtype.name().to_owned()).unwrap_or_default(),
            shape: shape_of(checkpoint, leaf.target).map(<[u64]>::to_vec).unwrap_or_default(),
            params,
            bytes,
            // The value itself; what it is a link to stands beside it.
            value: text_of(checkpoint, leaf.target),
            link: leaf.alias_of.as_ref().map(|key| key.to_lossy().into_owned()),
            statistics: None,
        }
    }

    /// Whether it has a dtype and a shape.
    pub fn is_tensor(&self) -> bool {
        is_tensor(self.kind)
    }

    /// The dtype, or the kind of what has none.
    pub fn type_word(&self) -> &str {
        if self.dtype.is_empty() { self.kind } else { &self.dtype }
    }
}

impl Foldable for Entry {
    fn key(&self) -> &str {
        &self.key
    }

    fn kind(&self) -> &str {
        self.kind
    }

    fn dtype(&self) -> &str {
        &self.dtype
    }

    fn shape(&self) -> &[u64] {
        &self.shape
    }

    fn is_tensor(&self) -> bool {
        is_tensor(self.kind)
    }

    fn link(&self) -> Option<&str> {
        self.link.as_deref()
    }

    fn params(&self) -> u64 {
        self.params
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn value(&self) -> &str {
        &self.value
    }
}

/// Whether what is of this kind has a dtype and a shape.
pub(super) fn is_tensor(kind: &str) -> bool {
    matches!(kind, "tensor" | "ndarray" | "sparse")
}

fn add(count: &mut Count, entry: &Entry) {
    count.tensors += 1;
    count.elements = count.elements.saturating_add(entry.params);
    count.bytes = count.bytes.saturating_add(entry.bytes);
}

/// The values and bytes that a sparse tensor stores.
fn sparse_size(checkpoint: &Checkpoint, sparse: &Sparse) -> (u64, u64) {
    let parts =
        sparse.parts.iter().filter_map(|(name, id)| Some((*name, checkpoint.tensor_of(*id)?.1)));
    parts.fold((0, 0), |(params, bytes): (u64, u64), (name, tensor)| {
        let count = if name == "values" { tensor.numel().unwrap_or(0) } else { 0 };
        (params.saturating_add(count), bytes.saturating_add(tensor.nbytes().unwrap_or(0)))
    })
}

/// The name of a file without its folders.
pub(super) fn base_name(name: &str) -> &str {
    let name = name.trim_end_matches(['/', '\\']);
    name.rsplit(['/', '\\']).next().unwrap_or(name)
}

/// A finding without the folders of files.
fn homeless(finding: &Finding, folders: &[&str]) -> Finding {
    let mut finding = finding.clone();
    for folder in folders {
        for text in
            [&mut finding.title, &mut finding.detail, &mut finding.place, &mut finding.advice]
        {
            if text.contains(folder) {
                *text = text.replace(folder, "");
            }
        }
        for name in &mut finding.missing {
            *name = name.replace(folder, "");
        }
    }
    finding
}
