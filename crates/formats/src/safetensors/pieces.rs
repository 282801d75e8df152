//! Safetensors that the ranks of `torch.distributed.checkpoint` write:
//! `shard-00002-model-00001-of-00003.safetensors` is the part that the second rank has of the first
//! of three output files.
//!
//! Each file is a safetensors file with the offsets of its pieces in the metadata
//! `DCP_SHARDING_INFO`. The shape of a whole tensor, and the number of ranks, are not stored: the
//! shape is as large as the pieces reach. Facts: `HuggingFaceStorageWriter` in
//! `torch/distributed/checkpoint/hf_storage.py` and `_hf_utils.py` of release 2.15.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use statelens_checkpoint::json::{Document, JsonNode};
use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictKey, Error, FileId, FileSet, Finding, FormatInfo,
    FormatTraits, Limits, Progress, Result, Tensor, Text, Value, counted, order,
};

use crate::joined::{self, JoinedTensor, Joining, Piece};
use crate::paths::{base, folder};
use crate::{Format, Score};

/// The metadata with the offsets, as JSON.
const INFO: &str = "DCP_SHARDING_INFO";

pub(crate) static FORMAT: Format = Format {
    extensions: &[],
    reads: "shards of all ranks of `torch.distributed.checkpoint`, joined",
    traits: FormatTraits { joins_ranks: true, ..FormatTraits::DEFAULT },
    score: |probe| {
        let head = probe.head();
        let is_json = head.get(8) == Some(&b'{');
        let has_info = || memchr::memmem::find(head, INFO.as_bytes()).is_some();
        match is_json && (ShardName::parse(probe.name()).is_some() || has_info()) {
            true => Score::Exact,
            false => Score::No,
        }
    },
    open: read,
    ..Format::named(&["safetensors-dcp"], "safetensors of ranks")
};

/// The numbers in the name of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardName<'a> {
    /// The rank, counted from 1.
    pub(crate) rank: u64,
    /// The rest of the name: the output file.
    pub(crate) output: &'a str,
}

impl<'a> ShardName<'a> {
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let (rank, output) = base(name).strip_prefix("shard-")?.split_once('-')?;
        let is_digits = |text: &str| text.len() >= 5 && text.bytes().all(|it| it.is_ascii_digit());
        let (at, of) =
            output.strip_suffix(".safetensors")?.strip_prefix("model-")?.split_once("-of-")?;
        (is_digits(rank) && is_digits(at) && is_digits(of)).then_some(())?;
        Some(Self { rank: rank.parse().ok()?, output })
    }
}

/// The pieces of a tensor that were read so far.
struct Pieces {
    dtype: DType,
    pieces: Vec<Piece>,
    /// The reason why it can't be read.
    broken: Option<String>,
}

fn read(files: FileSet, limits: &Limits, progress: &mut dyn Progress) -> Result<Checkpoint> {
    let main = files.main()?;
    let top = folder(files.name(main));
    let mut shards: Vec<(u64, FileId)> = Vec::new();
    let mut outputs: BTreeSet<&str> = BTreeSet::new();
    if ShardName::parse(files.name(main)).is_some() {
        for (id, name) in files.names().filter(|(_, name)| folder(name) == top) {
            if let Some(name) = ShardName::parse(name) {
                shards.push((name.rank, id));
                outputs.insert(name.output);
            }
        }
    } else {
        shards.push((1, main));
    }
    shards.sort_unstable_by_key(|(rank, id)| (*rank, files.name(*id)));
    Limits::check("shards", shards.len() as u64, limits.members)?;
    let size = shards.iter().fold(0u64, |sum, (_, id)| sum.saturating_add(files.len(*id)));
    let limits = limits.fitted(size);
    let mut tensors: HashMap<Text, Pieces> = HashMap::new();
    let mut findings: Vec<Finding> = Vec::new();
    let mut ranks = BTreeSet::new();
    for (rank, id) in &shards {
        progress.check(0, 0)?;
        let part = super::read::read(files.opened_at(*id), &limits, progress);
        let part = part.map_err(|error| error.in_file(files.name(*id)))?;
        for finding in &part.findings {
            findings.push(finding.clone().place(files.name(*id)));
        }
        add(&part, &files, *id, &mut tensors)?;
        ranks.insert(*rank);
    }
    let last = ranks.last().copied().unwrap_or(1);
    let absent: BTreeSet<u64> =
        (1..last.min(1 << 16)).filter(|rank| !ranks.contains(rank)).collect();
    let mut missing = Vec::new();
    for rank in &absent {
        missing.extend(outputs.iter().map(|output| format!("{top}shard-{rank:05}-{output}")));
    }
    let what = match absent.len() {
        0 => String::new(),
        // In the numbers of the files.
        1 => format!("shard {}", absent.first().copied().unwrap_or(0)),
        count => format!("{count} shards"),
    };
    let mut joining = Joining::new(&files, what, missing);
    let mut builder = Builder::new(&limits);
    let mut keys: Vec<Text> = tensors.keys().cloned().collect();
    order::by(&mut keys, |one: &Text, other| {
        statelens_checkpoint::natural_order(one.as_bytes(), other.as_bytes())
    });
    let mut entries = Vec::with_capacity(keys.len());
    for key in keys {
        let Some(Pieces { dtype, pieces, broken }) = tensors.remove(&key) else { continue };
        let rank = pieces.first().map_or(0, |piece| piece.at.len());
        let reach =
            |axis: usize| pieces.iter().map(|piece| piece.at[axis] + piece.shape[axis]).max();
        let shape: Vec<u64> = (0..rank).map(|axis| reach(axis).unwrap_or(0)).collect();
        let (shape, layout) = match broken {
            Some(reason) => (vec![0], joining.refuse(&key, reason)),
            None if !joined::fits(&shape, &dtype) => {
                let reason = format!("its pieces reach to {shape:?}, which is too large");
                (vec![0], joining.refuse(&key, reason))
            }
            None => {
                let tensor = JoinedTensor { dtype: dtype.clone(), shape: shape.clone(), pieces };
                (shape, joining.join(&key, tensor))
            }
        };
        let tensor = builder.push_tensor(Tensor::new(dtype, shape, layout))?;
        entries.push((DictKey::Str(key), builder.push(Value::Tensor(tensor))?));
    }
    let summary = joining.summary();
    let line = format!(
        "safetensors of ranks, {} found, {}{summary}",
        counted(ranks.len() as u64, "rank"),
        counted(entries.len() as u64, "tensor")
    );
    findings.splice(0..0, joining.findings());
    let (replicas, partial) = (joining.replicas(), joining.partial());
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?;
    let format = FormatInfo {
        id: "safetensors-dcp",
        name: "safetensors of ranks",
        facts: vec![("Joined".into(), line), ("Files".into(), shards.len().to_string())],
        ..FormatInfo::default()
    };
    let mut opened = builder.finish(root, format, files.clone(), findings)?;
    (opened.replicas, opened.partial) = (replicas, partial);
    Ok(opened)
}

/// Adds the pieces in one file.
fn add(
    part: &Checkpoint,
    files: &FileSet,
    id: FileId,
    tensors: &mut HashMap<Text, Pieces>,
) -> Result<()> {
    let name = files.name(id);
    let info = part.raw_attributes(part.root()).iter().find(|(key, _)| *key == *INFO);
    let offsets = match info {
        Some((_, text)) => offsets(&text.to_lossy()).map_err(|error| error.in_file(name))?,
        None => BTreeMap::new(),
    };
    let Value::Dict(dict) = part.value(part.root()) else { return Ok(()) };
    for (key, value) in &dict.entries {
        let (DictKey::Str(key), Some((_, tensor))) = (key, part.tensor_of(*value)) else {
            continue;
        };
        let at = offsets.get(&*key.to_lossy()).cloned();
        let at = at.unwrap_or_else(|| vec![0; tensor.shape.len()]);
        let known = tensors.entry(key.clone()).or_insert_with(|| Pieces {
            dtype: tensor.dtype.clone(),
            pieces: Vec::new(),
            broken: None,
        });
        let shape = tensor.shape.clone();
        let ends = at.iter().zip(&shape).all(|(at, len)| at.checked_add(*len).is_some());
        let first = known.pieces.first();
        let same_rank = first.is_none_or(|first| first.at.len() == at.len());
        if tensor.dtype != known.dtype {
            let other = first.map_or("", |piece| files.name(piece.file));
            known.broken = Some(format!(
                "it has dtype {} in {other}, and {} in {name}",
                known.dtype, tensor.dtype
            ));
        } else if at.len() != shape.len() || !ends || !same_rank {
            known.broken =
                Some(format!("its piece of shape {shape:?} in {name} can't be at {at:?}"));
        } else {
            known.pieces.push(Piece { at, shape, file: id, layout: tensor.layout.clone() });
        }
    }
    Ok(())
}

/// Reads `{"key": {"saved_offsets": [0, 4]}}`.
fn offsets(text: &str) -> Result<BTreeMap<String, Vec<u64>>> {
    let json = Document::parse(text.as_bytes())
        .map_err(|error| error.context(format!("`{INFO}` is not JSON")))?;
    let unclear = || Error::damaged(format!("`{INFO}` is not as torch writes it"));
    let JsonNode::Object(entries) = json.node(json.root()) else { return Err(unclear()) };
    let mut found = BTreeMap::new();
    for (key, value) in entries {
        let list = json.get(*value, "saved_offsets").ok_or_else(unclear)?;
        let JsonNode::Array(items) = json.node(list) else { return Err(unclear()) };
        let numbers: Option<Vec<u64>> =
            items.iter().map(|item| json.python(*item).to_string().parse().ok()).collect();
        found.insert(key.to_lossy().into_owned(), numbers.ok_or_else(unclear)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::joined::tests::fixtures::{
        folder as fixture, open, open_only, survive_damage, texts,
    };
    use crate::torch::tests::{compare, fixtures};
    use statelens_checkpoint::Layout;

    /// Compares a folder with what torch's consolidation gave, whatever the order of the keys.
    fn check(name: &str, files: FileSet) -> Checkpoint {
        let json = fixtures().join(format!("sharded/{name}.expected.json"));
        let json: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
        let checkpoint = open(files).unwrap();
        let leaves = checkpoint.leaves();
        let entries = json["entries"].as_array().unwrap();
        assert_eq!(leaves.len(), entries.len(), "{name}");
        for entry in entries {
            let key = entry["key"].as_str().unwrap();
            let leaf = leaves.iter().find(|leaf| leaf.flat.to_lossy() == key).unwrap();
            assert_eq!(compare(&checkpoint, leaf, entry), Ok(()), "{name}: {key}");
        }
        checkpoint
    }

    #[test]
    fn every_tensor_is_as_torch_consolidates_it() {
        for name in ["hf_w2_shards", "hf_w2_ints", "hf_w4_mesh2_outs"] {
            let files = fixture(&format!("sharded/{name}"), |_| true);
            let sets = crate::sets::sort(&files);
            let [set] = &sets[..] else { panic!("{sets:?}") };
            for main in &set.members {
                let main = files.find(main).unwrap();
                let checkpoint = check(name, files.opened_at(main));
                assert_eq!(checkpoint.format.id, "safetensors-dcp");
                assert_eq!(checkpoint.findings, []);
            }
        }
        // The whole files next to the shards are used.
        let files = fixture("sharded/hf_w2_consolidated", |_| true);
        let index = files.find("model.safetensors.index.json").unwrap();
        assert_eq!(check("hf_w2_consolidated", files.opened_at(index)).format.id, "safetensors");
        let shards = fixture("sharded/hf_w2_consolidated", |name| name.starts_with("sharded/"));
        check("hf_w2_consolidated", shards);
    }

    #[test]
    fn overlaps_and_gaps_are_reported() {
        let checkpoint = open_only(&fixture("sharded/broken_hf_overlap", |_| true)).unwrap();
        let text = texts(&checkpoint);
        assert!(text.contains("embed.weight can't be read"), "{text}");
        assert!(text.contains("shard-00001-model") && text.contains("overlap"), "{text}");
        let files = fixture("sharded/hf_w4_mesh2_outs", |name| !name.starts_with("shard-00002"));
        let checkpoint = open_only(&files).unwrap();
        let finding = &checkpoint.findings[0];
        assert!(finding.title.starts_with("shard 2 is missing"), "{}", finding.title);
        assert!(finding.missing[0].starts_with("shard-00002-model-0000"), "{:?}", finding.missing);
        let lost = checkpoint.tensors().iter();
        assert!(lost.filter(|it| matches!(it.layout, Layout::Missing(_))).count() > 0);
    }

    #[test]
    fn damaged_copies_never_panic() {
        survive_damage("sharded/hf_w4_mesh2_outs");
    }
}
