//! Safetensors that the ranks of `torch.distributed.checkpoint` write:
//! `shard-00002-model-00001-of-00003.safetensors` is the part that the second rank has of the first
//! of three output files.
//!
//! Each file is a safetensors file with the offsets of its pieces in the metadata
//! `DCP_SHARDING_INFO`. The shape of a whole tensor, and the number of ranks, are not stored: the
//! shape is as large as the pieces reach. The keys are in the order of torch's reader and consolidation
//! for a folder that lists its files by name: file by file, each sorted by bytes. Facts: `HuggingFaceStorageWriter` in
//! `torch/distributed/checkpoint/hf_storage.py` and `_hf_utils.py` of release 2.15.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use statelens_checkpoint::json::{Document, JsonNode};
use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictKey, Error, FileId, FileSet, Finding, FormatInfo,
    FormatTraits, Grade, Limits, Progress, Result, Tensor, Text, Value, ValueId, counted, in_order,
    order,
};

use crate::joined::{self, JoinedTensor, Joining, Piece, UnreadFiles};
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
        let is_named = ShardName::parse(probe.name()).is_some();
        match is_json && (is_named || has_info()) {
            true => Score::Exact,
            // The reader reports its fault, and joins the other shards.
            false if is_named => Score::Named,
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
    let mut tensors = PiecesByKey::default();
    let mut findings: Vec<Finding> = Vec::new();
    let (mut ranks, mut absent) = (BTreeSet::new(), BTreeSet::new());
    let mut unread = UnreadFiles::default();
    let open = |at: usize, progress: &mut dyn Progress| {
        let id = shards[at].1;
        let part = super::read::read(files.opened_at(id), &limits, progress)
            .and_then(|part| Ok((offsets_of(&part)?, part)));
        joined::of_content(&files, id, part)
    };
    in_order(files.workers(), shards.len(), progress, open, |at, part| {
        let (rank, id) = shards[at];
        ranks.insert(rank);
        match part {
            Ok((offsets, part)) => {
                for finding in &part.findings {
                    findings.push(finding.clone().place(files.name(id)));
                }
                tensors.add(&part, &offsets, &files, id);
            }
            Err(error) => {
                unread.add(id, error);
                absent.insert(rank);
            }
        }
        Ok(())
    })?;
    if let Some(error) = unread.first().filter(|_| tensors.all.is_empty()) {
        return Err(error.clone());
    }
    let last = ranks.last().copied().unwrap_or(1);
    let mut missing: Vec<String> = shards
        .iter()
        .filter(|(_, id)| unread.has(*id))
        .map(|(_, id)| files.name(*id).to_owned())
        .collect();
    for rank in (1..last.min(1 << 16)).filter(|rank| !ranks.contains(rank)) {
        absent.insert(rank);
        missing.extend(outputs.iter().map(|output| format!("{top}shard-{rank:05}-{output}")));
    }
    findings.extend(unread.findings(&files));
    let what = match absent.len() {
        0 => String::new(),
        // In the numbers of the files.
        1 => format!("shard {}", absent.first().copied().unwrap_or(0)),
        count => format!("{count} shards"),
    };
    let mut joining = Joining::new(&files, what, missing);
    let mut builder = Builder::new(&limits);
    let mut entries = Vec::with_capacity(tensors.all.len());
    for (key, Pieces { dtype, pieces, broken }) in tensors.all {
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
    if ShardName::parse(files.name(main)).is_none() && !entries.is_empty() {
        let title = "Its name does not say which rank wrote it";
        findings.push(
            Finding::new(Grade::Note, title)
                .detail("If there were several ranks, these are parts of tensors.")
                .advice(
                    "Give the files of all ranks the names that torch writes, such as \
                     `shard-00001-model-00001-of-00001.safetensors`, and open the folder.",
                ),
        );
    }
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

/// The pieces of all tensors, in the order of the keys.
#[derive(Default)]
struct PiecesByKey {
    all: Vec<(Text, Pieces)>,
    places: HashMap<Text, usize>,
}

impl PiecesByKey {
    /// Adds the pieces in one file.
    fn add(
        &mut self,
        part: &Checkpoint,
        offsets: &BTreeMap<String, Vec<u64>>,
        files: &FileSet,
        id: FileId,
    ) {
        let name = files.name(id);
        let Value::Dict(dict) = part.value(part.root()) else { return };
        let tensor = |(key, value): &(DictKey, ValueId)| match key {
            DictKey::Str(key) => Some((key.clone(), part.tensor_of(*value)?.1)),
            _ => None,
        };
        let mut found: Vec<(Text, &Tensor)> = dict.entries.iter().filter_map(tensor).collect();
        order::by(&mut found, |one: &(Text, &Tensor), other| {
            one.0.as_bytes().cmp(other.0.as_bytes())
        });
        for (key, tensor) in found {
            let at = offsets.get(&*key.to_lossy()).cloned();
            let at = at.unwrap_or_else(|| vec![0; tensor.shape.len()]);
            let place = *self.places.entry(key.clone()).or_insert(self.all.len());
            if place == self.all.len() {
                let (dtype, pieces) = (tensor.dtype.clone(), Vec::new());
                self.all.push((key, Pieces { dtype, pieces, broken: None }));
            }
            let known = &mut self.all[place].1;
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
    }
}

/// Returns the offsets of the pieces in one file; empty if it does not have them.
fn offsets_of(part: &Checkpoint) -> Result<BTreeMap<String, Vec<u64>>> {
    let info = part.raw_attributes(part.root()).iter().find(|(key, _)| *key == *INFO);
    info.map_or_else(|| Ok(BTreeMap::new()), |(_, text)| offsets(&text.to_lossy()))
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
        damaged, folder as fixture, missing, open, open_only, survive_damage, texts,
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

    /// A single file under another name may be a part, or all.
    #[test]
    fn file_with_another_name_is_noted() {
        let whole = fixture("sharded/hf_w2_shards", |_| true);
        let (id, file) = whole.iter().next().unwrap();
        let bytes = whole.read_vec(id, 0, file.source.len()).unwrap();
        let titles = |name: &str| -> Vec<String> {
            let mut files = FileSet::default();
            files
                .push(name, std::sync::Arc::new(statelens_checkpoint::Memory::from(bytes.clone())));
            let findings = open(files).unwrap().findings;
            findings.into_iter().map(|finding| finding.title).collect()
        };
        assert_eq!(titles("weights.safetensors"), ["Its name does not say which rank wrote it"]);
        assert_eq!(titles("shard-00001-model-00001-of-00001.safetensors"), [""; 0]);
    }

    #[test]
    fn damaged_shard_counts_as_missing() {
        let folder = "sharded/hf_w4_mesh2_outs";
        for output in ["00001", "00002"] {
            // The other part of the rank is still there.
            let file = format!("shard-00002-model-{output}-of-00002.safetensors");
            let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
            let checkpoint = open_only(&damaged(folder, &file, half)).unwrap();
            let finding = &checkpoint.findings[0];
            assert_eq!(finding.title, format!("shard 2 can't be read: {file}"));
            assert_eq!(finding.missing, [file.as_str()]);
            assert!(!missing(&checkpoint).is_empty(), "{}", texts(&checkpoint));
            let reason = texts(&checkpoint);
            assert!(reason.contains(&format!("{file} can't be read")), "{reason}");
        }
        let empty = |_: &[u8]| Vec::new();
        let first = "shard-00001-model-00001-of-00002.safetensors";
        let checkpoint = open_only(&damaged(folder, first, empty)).unwrap();
        assert!(texts(&checkpoint).contains("the file is empty"), "{}", texts(&checkpoint));
        let error = open_only(&damaged(folder, ".safetensors", empty)).unwrap_err();
        assert!(error.to_string().contains("the file is empty"), "{error}");
    }

    /// Torch's reader and consolidation take the keys of each file sorted by bytes.
    #[test]
    fn keys_are_in_the_order_of_torch() {
        for name in ["sharded/hf_w2_shards", "sharded/hf_w4_mesh2_outs"] {
            let files = fixture(name, |name| name.starts_with("shard-"));
            let mut expected: Vec<String> = Vec::new();
            for (id, file) in files.iter() {
                let bytes = files.read_vec(id, 0, file.source.len()).unwrap();
                let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
                let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
                let mut keys: Vec<&String> = header.as_object().unwrap().keys().collect();
                keys.sort();
                for key in keys.into_iter().filter(|key| *key != "__metadata__") {
                    if !expected.contains(key) {
                        expected.push(key.clone());
                    }
                }
            }
            let leaves = open_only(&files).unwrap().leaves();
            let keys: Vec<String> = leaves.iter().map(|leaf| leaf.flat.to_string()).collect();
            assert_eq!(keys, expected, "{name}");
        }
    }

    #[test]
    fn damaged_copies_never_panic() {
        survive_damage("sharded/hf_w4_mesh2_outs");
    }
}
