//! Split GGUF models: `split.no`, `split.count` and `split.tensors.count`, as `llama-gguf-split`
//! writes them (<https://github.com/ggml-org/llama.cpp/pull/6187>).

use statelens_checkpoint::grouped;

use super::Findings;
use super::files::Numbered;
use super::rules::GGUF_SPLIT;
use super::sets::ShardSet;
use super::shard::Shard;

/// Compares what each part says about the set with the set.
pub(super) fn check(set: &ShardSet, findings: &mut Findings<'_>) {
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
