//! Files of one rank whose tensors can't be joined, because nothing in them says how they were cut.

use statelens_checkpoint::{Checkpoint, DictKey, Finding, Grade, Value, ValueId};

/// Returns the finding for a file of one rank of Megatron (`mp_rank_01_000/model_optim_rng.pt`) or of
/// metaseq (`checkpoint-model_part-0-shard1.pt`), which are shown as they are.
///
/// Megatron-LM: `save_checkpoint` in `megatron/training/checkpointing.py`, without `torch_dist`.
/// metaseq: `shard_metadata` of fairscale's `local_metadata_dict`.
pub(crate) fn finding(checkpoint: &Checkpoint) -> Option<Finding> {
    let root = checkpoint.root();
    if entry(checkpoint, root, "shard_metadata")
        .and_then(|shard| entry(checkpoint, shard, "param_metadata"))
        .is_some()
    {
        return Some(
            Finding::new(Grade::Warning, "This is one shard of metaseq")
                .detail(
                    "Its flat parameters are a part of each tensor, and are shown as they are: \
                     files of metaseq are not joined.",
                )
                .advice("Join them with `consolidate_fsdp_shards` of metaseq."),
        );
    }
    let args = entry(checkpoint, root, "args")?;
    entry(checkpoint, root, "model").or_else(|| entry(checkpoint, root, "model0"))?;
    let size = |name: &str| {
        let id = entry(checkpoint, args, &format!("{name}_model_parallel_size"))?;
        match checkpoint.value(id) {
            Value::Int(size) => size.to_u64(),
            _ => None,
        }
    };
    let sizes = [("tensor", size("tensor")?), ("pipeline", size("pipeline").unwrap_or(1))];
    let cut: Vec<String> = sizes
        .iter()
        .filter(|(_, size)| *size > 1)
        .map(|(name, size)| format!("{size} {name}-parallel"))
        .collect();
    (!cut.is_empty()).then(|| {
        let title = format!("This is one rank of Megatron, of {} ranks", cut.join(" times "));
        Finding::new(Grade::Warning, title)
            .detail(
                "Its tensors are parts, and its layers may be counted from those of its stage. \
                 Nothing in the files says along which dimension a tensor was cut, so they are not \
                 joined.",
            )
            .advice(
                "Name the model: converting it to another layout (GPT-2) joins its ranks. Or save with \
                 Megatron's `--ckpt-format torch_dist`, which is joined for any model.",
            )
    })
}

/// Returns an entry of a dict or an attribute of an object.
fn entry(checkpoint: &Checkpoint, id: ValueId, name: &str) -> Option<ValueId> {
    let Value::Dict(dict) = checkpoint.value(checkpoint.resolve(id)) else { return None };
    let is_it = |key: &DictKey| matches!(key, DictKey::Str(text) if *text == *name);
    dict.entries.iter().find(|(key, _)| is_it(key)).map(|(_, id)| checkpoint.resolve(*id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{Builder, Dict, FileSet, FormatInfo, Int, Limits};

    /// Returns the title for a checkpoint whose root has a dict `outer` with a number.
    fn title(outer: &str, name: &str, number: u64) -> Option<String> {
        let mut builder = Builder::new(&Limits::default());
        let dict = |entries: Vec<(&str, ValueId)>| {
            let entries = entries.into_iter().map(|(key, id)| (key.into(), id)).collect();
            Value::Dict(Dict { entries, ..Dict::default() })
        };
        let number = builder.push(Value::Int(Int::from(number))).unwrap();
        let inner = builder.push(dict(vec![(name, number)])).unwrap();
        let model = builder.push(dict(Vec::new())).unwrap();
        let root = builder.push(dict(vec![(outer, inner), ("model", model)])).unwrap();
        let (format, files) = (FormatInfo::default(), FileSet::default());
        let checkpoint = builder.finish(root, format, files, Vec::new()).unwrap();
        finding(&checkpoint).map(|finding| finding.title)
    }

    #[test]
    fn files_that_are_not_joined_say_so() {
        let of = |size| title("args", "tensor_model_parallel_size", size);
        let expected = "This is one rank of Megatron, of 2 tensor-parallel ranks";
        assert_eq!(of(2).as_deref(), Some(expected));
        assert_eq!(of(1), None);
        assert_eq!(title("args", "lr", 2), None);
        let shard = title("shard_metadata", "param_metadata", 1);
        assert_eq!(shard.as_deref(), Some("This is one shard of metaseq"));
    }
}
