//! GGUF models: the sizes in their metadata
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>), and split ones: `split.no`, `split.count` and `split.tensors.count`, as `llama-gguf-split`
//! writes them (<https://github.com/ggml-org/llama.cpp/pull/6187>).

use statelens_checkpoint::grouped;

use super::Findings;
use super::files::Numbered;
use super::rules::{GGUF_METADATA, GGUF_SPLIT, GGUF_TOKENIZER};
use super::sets::ShardSet;
use super::shard::{Shard, TensorEntry};
use super::sizes::is_end;

/// Compares the metadata with the tensors, and the facts about the set in each part with the set.
pub(super) fn check(set: &ShardSet, findings: &mut Findings<'_>) {
    split(set, findings);
    // A missing part would be reported again as missing layers.
    let described = set.shards.iter().filter(|_| set.is_complete()).find_map(|shard| {
        let architecture = text_of(shard, "general.architecture")?;
        let kind = text_of(shard, "general.type").unwrap_or("model");
        (kind == "model").then_some((shard, architecture))
    });
    if let Some((shard, architecture)) = described.filter(|_| set.tensors().next().is_some()) {
        sizes(set, shard, architecture, findings);
        tokenizer(set, shard, findings);
    }
}

fn text_of<'a>(shard: &'a Shard, name: &str) -> Option<&'a str> {
    shard.metadata.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Compares the numbers of layers and experts, and the widths.
fn sizes(set: &ShardSet, shard: &Shard, architecture: &str, findings: &mut Findings<'_>) {
    let number = |field: &str| -> Option<(String, u64)> {
        let name = format!("{architecture}.{field}");
        let value = text_of(shard, &name)?.parse().ok()?;
        Some((name, value))
    };
    let layer = |key: &str| key.strip_prefix("blk.")?.split('.').next()?.parse::<u64>().ok();
    let layers = set.tensors().filter_map(|(_, entry)| layer(&entry.key)).max();
    if let (Some((name, count)), Some(last)) = (number("block_count"), layers) {
        let stored = last.saturating_add(1);
        // Layers that only predict further tokens may be left out.
        let further = number("nextn_predict_layers").map_or(0, |(_, further)| further);
        if stored > count || stored.saturating_add(further) < count {
            let text = format!(
                "`{name}` in {} is {}, and there are {} layers `blk.N`",
                shard.file,
                grouped(count),
                grouped(stored)
            );
            findings.add(&GGUF_METADATA, &shard.file, text);
        }
    }
    for size in &SIZES {
        let Some((name, expected)) = number(size.field).filter(|(_, expected)| *expected > 0)
        else {
            continue;
        };
        let differs = |entry: &TensorEntry| {
            let found = entry.shape.get(size.at).filter(|_| entry.shape.len() == size.dimensions);
            let found = found.filter(|_| is_end(&entry.key, size.tensor))?;
            (*found != expected).then_some(*found)
        };
        let found = set.tensors().find_map(|(file, entry)| Some((file, entry, differs(entry)?)));
        if let Some((file, entry, found)) = found {
            let text = format!(
                "`{name}` is {}, and `{}` in {file} has {} {}",
                grouped(expected),
                entry.key,
                grouped(found),
                size.word
            );
            findings.add_key(&GGUF_METADATA, file, &entry.key, text);
        }
    }
}

/// A size that the metadata give.
struct StatedSize {
    /// The field, after the name of the architecture.
    field: &'static str,
    /// The end of the keys of the tensors that have it.
    tensor: &'static str,
    /// Their number of dimensions, and which of them has the size.
    dimensions: usize,
    at: usize,
    word: &'static str,
}

impl StatedSize {
    const fn of(
        field: &'static str,
        tensor: &'static str,
        (dimensions, at): (usize, usize),
        word: &'static str,
    ) -> Self {
        Self { field, tensor, dimensions, at, word }
    }
}

const SIZES: [StatedSize; 4] = [
    StatedSize::of("embedding_length", "token_embd.weight", (2, 1), "columns"),
    StatedSize::of("vocab_size", "token_embd.weight", (2, 0), "rows"),
    StatedSize::of("feed_forward_length", "ffn_down.weight", (2, 1), "columns"),
    StatedSize::of("expert_count", "ffn_down_exps.weight", (3, 0), "experts"),
];

/// Ids of tokens in the metadata.
const TOKEN_IDS: [&str; 8] =
    ["bos", "eos", "eot", "eom", "unknown", "separator", "padding", "mask"];

/// Compares the tokens with the embedding, and with what the metadata say about them.
fn tokenizer(set: &ShardSet, shard: &Shard, findings: &mut Findings<'_>) {
    let length = |name: &str| {
        let name = format!("tokenizer.ggml.{name}");
        shard.lengths.iter().find(|(known, _)| *known == name).map(|(_, length)| *length)
    };
    let Some(tokens) = length("tokens") else { return };
    let embedding = set.tensors().find(|(_, entry)| entry.key == "token_embd.weight");
    if let Some((file, entry)) = embedding
        && let [rows, _] = entry.shape.as_slice()
        && *rows != tokens
    {
        let text = format!(
            "the tokenizer in {} has {} tokens, and `token_embd.weight` has {} rows",
            shard.file,
            grouped(tokens),
            grouped(*rows)
        );
        findings.add_key(&GGUF_TOKENIZER, file, &entry.key, text);
    }
    for name in ["scores", "token_type"] {
        if let Some(length) = length(name).filter(|length| *length != tokens) {
            let text = format!(
                "`tokenizer.ggml.{name}` in {} has {} entries for {} tokens",
                shard.file,
                grouped(length),
                grouped(tokens)
            );
            findings.add(&GGUF_TOKENIZER, &shard.file, text);
        }
    }
    for name in TOKEN_IDS {
        let name = format!("tokenizer.ggml.{name}_token_id");
        let id = text_of(shard, &name).and_then(|text| text.parse::<u64>().ok());
        // The ids -1 and the largest one mean that no token is set.
        if let Some(id) = id.filter(|id| *id >= tokens && *id < u64::from(u32::MAX)) {
            let text = format!(
                "`{name}` in {} is {}, and there are {} tokens",
                shard.file,
                grouped(id),
                grouped(tokens)
            );
            findings.add(&GGUF_TOKENIZER, &shard.file, text);
        }
    }
}

/// Compares what each part says about the set with the set.
fn split(set: &ShardSet, findings: &mut Findings<'_>) {
    let number = |shard: &Shard, name: &str| -> Option<u64> {
        let (_, value) = shard.metadata.iter().find(|(known, _)| known == name)?;
        value.parse().ok()
    };
    let readable: Vec<&Shard> = set.shards.iter().filter(|shard| shard.is_readable).collect();
    let count = (set.shards.len() + set.missing.len()) as u64;
    for shard in &readable {
        let file = &shard.file;
        if let Some(said) = number(shard, "split.count").filter(|said| *said > 1 && *said != count)
        {
            let text = format!(
                "`split.count` in {file} is {said}, and there are {count} parts by their names"
            );
            findings.add(&GGUF_SPLIT, file, text);
            break;
        }
    }
    for shard in &readable {
        let file = &shard.file;
        let first = set
            .shards
            .iter()
            .chain(None)
            .filter_map(|one| Numbered::parse(&one.file))
            .map(|one| one.number)
            .min();
        let at = Numbered::parse(file).zip(first);
        let at = at.map(|(it, first)| it.number - first.min(1));
        if let (Some(said), Some(at)) = (number(shard, "split.no"), at)
            && said != at
        {
            let text = format!("`split.no` in {file} is {said}, and its name says {at} (from 0)");
            findings.add(&GGUF_SPLIT, file, text);
        }
    }
    if !set.missing.is_empty() || readable.len() != set.shards.len() {
        return;
    }
    let sum: u64 = readable.iter().map(|shard| shard.tensors.len() as u64).sum();
    for shard in &readable {
        if let Some(said) = number(shard, "split.tensors.count").filter(|said| *said != sum) {
            let text = format!(
                "`split.tensors.count` in {} is {}, and the parts have {} tensors",
                shard.file,
                grouped(said),
                grouped(sum)
            );
            findings.add(&GGUF_SPLIT, &shard.file, text);
            break;
        }
    }
}
