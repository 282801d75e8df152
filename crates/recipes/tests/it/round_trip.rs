//! Converting from Hugging Face to Cerebras and back gives identical tensors, for every family with
//! both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::original::Case;
use statelens_checkpoint::{Checkpoint, Tensor, Value};
use statelens_recipes::families;

/// A family (with its headless variant), the end of some keys, and the reason why they differ.
type Known = (&'static str, &'static str, &'static str);

const NOT_IN_CEREBRAS: &str = "Cerebras's implementation has no such layer";
const BUFFER: &str = "a buffer that follows from the config, which the original makes, too";

/// Keys that are missing after the round trip.
const LOST: &[Known] = &[
    ("dragon", "pooler.dense.weight", NOT_IN_CEREBRAS),
    ("dragon", "pooler.dense.bias", NOT_IN_CEREBRAS),
    ("vit", "pooler.dense.weight", NOT_IN_CEREBRAS),
    ("vit", "pooler.dense.bias", NOT_IN_CEREBRAS),
    ("roberta", "pooler.dense.weight", NOT_IN_CEREBRAS),
    ("roberta", "pooler.dense.bias", NOT_IN_CEREBRAS),
    ("gptj", "attn.bias", BUFFER),
    ("gptj", "attn.masked_bias", BUFFER),
    ("gpt2", "transformer.unknown.weight", "no rule covers it, and it is left out as asked"),
    (
        "t5",
        "EncDecAttention.relative_attention_bias.weight",
        "not used: positions are told in attention to oneself",
    ),
    ("esm-2", "rotary_embeddings.inv_freq", BUFFER),
    ("llama", "rotary_emb.inv_freq", BUFFER),
    ("esm-2", "position_embeddings.weight", "not used where positions are rotary"),
    ("esm-2", "contact_head.regression.weight", NOT_IN_CEREBRAS),
    ("esm-2", "contact_head.regression.bias", NOT_IN_CEREBRAS),
    ("llava", "vision_tower.x.weight", "the image model is in a folder of its own"),
    ("llava", "visual_projection.weight", NOT_IN_CEREBRAS),
    ("llava", "text_projection.weight", NOT_IN_CEREBRAS),
    ("llava", "text_model.x.weight", "of CLIP only the image model is used"),
    ("llava", "logit_scale", NOT_IN_CEREBRAS),
    ("mmsimple-llava", "vision_tower.x.weight", "the image model is in a folder of its own"),
    ("mmsimple-llava", "visual_projection.weight", NOT_IN_CEREBRAS),
    ("mmsimple-llava", "text_projection.weight", NOT_IN_CEREBRAS),
    ("mmsimple-llava", "text_model.x.weight", "of CLIP only the image model is used"),
    ("mmsimple-llava", "logit_scale", NOT_IN_CEREBRAS),
];

/// Keys that are new after the round trip.
const MORE: &[Known] = &[
    ("dpo", "attn.bias", BUFFER),
    ("dpo", "attn.masked_bias", BUFFER),
    ("gpt2", "attn.bias", BUFFER),
    ("gpt2", "attn.masked_bias", BUFFER),
    ("santacoder", "attn.bias", BUFFER),
    ("santacoder", "attn.masked_bias", BUFFER),
    ("gpt-neox", "attention.bias", BUFFER),
    ("gpt-neox", "attention.masked_bias", BUFFER),
    ("gpt-neox", "rotary_emb.inv_freq", BUFFER),
    ("bert", "position_ids", BUFFER),
    ("bert-qa", "position_ids", BUFFER),
    ("bert-sequence-classifier", "position_ids", BUFFER),
    ("bert-token-classifier", "position_ids", BUFFER),
    ("dragon", "position_ids", BUFFER),
    ("dpr", "position_ids", BUFFER),
    ("roberta", "position_ids", BUFFER),
    (
        "llava",
        "mm_projector.0.weight",
        "a projector is made where the checkpoint has none, as the original makes it",
    ),
    ("llava", "mm_projector.0.bias", "as its weight"),
    ("llava", "mm_projector.2.weight", "as that of the first"),
    ("llava", "mm_projector.2.bias", "as its weight"),
    (
        "roberta",
        "lm_head.decoder.bias",
        "zeros where the file has none, as the original makes them",
    ),
];

/// Keys whose elements differ after the round trip.
const OTHER: &[Known] = &[
    (
        "gemma2",
        "norm.weight",
        "1 is added on the way and rounded to the dtype, as the original does",
    ),
    ("roberta", "lm_head.bias", "of the head's two biases the decoder's is the one that is used"),
];

/// Families that the original has but does not find.
const REFUSED_BY_THE_ORIGINAL: [&str; 2] = ["santacoder-headless", "starcoder-headless"];

/// The original lacks Qwen2, so it has no cases (`tests/interop/models.py` tests its round trip);
/// ViT has those of its headless variant.
const WITHOUT_CASES: [&str; 2] = ["qwen2", "vit"];

#[test]
fn round_trips_through_cerebras_bit_for_bit() {
    let mut wrong = String::new();
    let mut covered: BTreeMap<String, usize> = BTreeMap::new();
    let mut seen: BTreeSet<&Known> = BTreeSet::new();
    for case in Case::all() {
        let there = case.text("src_fmt") == "hf" && case.has_tensors();
        let goes = case.text("status") == "ok" || REFUSED_BY_THE_ORIGINAL.contains(&&*case.family);
        if !there || !goes || case.text("command").contains("convert-config") {
            continue;
        }
        let (old, new) =
            there_and_back(&case).unwrap_or_else(|why| panic!("{}: {why}", case.name()));
        let family = case.family.trim_end_matches("-headless");
        let mut known = |list: &'static [Known], key: &str| {
            let found = list.iter().find(|(own, end, _)| *own == family && key.ends_with(end));
            seen.extend(found);
            found.is_some()
        };
        let same = covered.entry(case.family.clone()).or_default();
        for (key, tensor) in &old {
            let what = match new.get(key) {
                Some(other) if other == tensor => {
                    *same += 1;
                    continue;
                }
                Some(_) if known(OTHER, key) => continue,
                Some(_) => "is another",
                None if known(LOST, key) => continue,
                None => "is lost",
            };
            writeln!(wrong, "{}: {key} {what}", case.name()).unwrap();
        }
        for key in new.keys().filter(|key| !old.contains_key(*key)) {
            if !known(MORE, key) {
                writeln!(wrong, "{}: {key} was not there", case.name()).unwrap();
            }
        }
    }
    println!("{covered:#?}");
    assert!(wrong.is_empty(), "{wrong}");
    let listed = LOST.iter().chain(MORE).chain(OTHER);
    let outdated: Vec<&Known> = listed.filter(|known| !seen.contains(known)).collect();
    assert!(outdated.is_empty(), "nothing is so any more: {outdated:#?}");
    assert!(covered.values().all(|same| *same > 3), "{covered:#?}");
    let both = |name: &&str| {
        let recipe = families::find(name).unwrap();
        recipe.blocks.iter().any(|block| {
            block.left.iter().any(|format| format.is_hf())
                && block.right.iter().any(|format| format.is_cerebras())
        })
    };
    let missing: Vec<&str> = families::names()
        .filter(both)
        .filter(|name| !covered.contains_key(*name) && !WITHOUT_CASES.contains(name))
        .collect();
    assert!(missing.is_empty(), "no case goes there: {missing:?}");
}

/// Dtype, shape and bytes of the tensors.
type Tensors = BTreeMap<String, (String, Vec<u64>, Vec<u8>)>;

fn there_and_back(case: &Case) -> Result<(Tensors, Tensors), String> {
    let (hf, cs) = (case.format("src_fmt")?, case.format("tgt_fmt")?);
    let (source, config) = case.source(hf)?;
    let (there, config) = case.carry(&source, &config, hf, cs)?;
    let (back, _) = case.carry(&there[0].1, &config, cs, hf)?;
    let mut new = Tensors::new();
    for (part, checkpoint) in &back {
        let prefix = part.as_ref().map_or(String::new(), |part| format!("{part}/"));
        collect(checkpoint, &prefix, &mut new);
    }
    let mut old = Tensors::new();
    collect(&source, "", &mut old);
    Ok((old, new))
}

fn collect(checkpoint: &Checkpoint, prefix: &str, into: &mut Tensors) {
    for leaf in checkpoint.leaves() {
        let key: Vec<String> = leaf.key.parts.iter().map(crate::original::part_text).collect();
        let Some((_, tensor)) = checkpoint.tensor_of(leaf.target) else {
            assert!(!matches!(checkpoint.value(leaf.target), Value::Tensor(_)));
            continue;
        };
        into.insert(format!("{prefix}{}", key.join("/")), read(checkpoint, tensor));
    }
}

fn read(checkpoint: &Checkpoint, tensor: &Tensor) -> (String, Vec<u64>, Vec<u8>) {
    let numel = tensor.numel().unwrap();
    let bytes = statelens_tensor::elements(&checkpoint.files, tensor, 0..numel).unwrap();
    (tensor.dtype.name().to_owned(), tensor.shape.clone(), bytes)
}
