//! The config against the shapes of tensors: layers, hidden size, vocabulary, feed-forward layers,
//! output head, dtype, and parts of the model.

use std::collections::BTreeSet;

use statelens_checkpoint::{counted, grouped, listed, shape_text};

use super::Findings;
use super::config::Config;
use super::document::JsonValue;
use super::layers::{FLOATS, Stack, Stacks, is_other_part};
use super::rules::{
    CONFIG_DTYPE, CONFIG_FEED_FORWARD, CONFIG_HEAD_MISSING, CONFIG_HIDDEN_SIZE, CONFIG_LAYERS,
    CONFIG_NEXT_TOKEN, CONFIG_PART_MISSING, CONFIG_TIED_HEAD, CONFIG_VOCABULARY, PART_MISSING,
};
use super::sets::ShardSet;
use super::shard::TensorEntry;

/// Ends of the keys of the embedding of tokens.
const EMBEDDINGS: [&str; 11] = [
    "embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "embed_in.weight",
    "tok_embeddings.weight",
    "token_embd.weight",
    "shared.weight",
    "backbone.embeddings.weight",
    "backbone.embedding.weight",
    "transformer.w.weight",
    "input_embedding.weight",
];

pub(super) const HIDDEN: [&str; 4] = ["hidden_size", "n_embd", "d_model", "dim"];
const LAYERS: [&str; 5] =
    ["num_layers_per_stack", "num_hidden_layers", "n_layer", "num_layers", "n_layers"];
const NEXT_TOKEN: [&str; 1] = ["num_nextn_predict_layers"];

/// Names of the vocabulary and the embedding of a decoder that has its own.
const DECODER_VOCABULARY: &str = "decoder_vocab_size";
const DECODER_EMBEDDING: &str = "decoder.embed_tokens.weight";

/// Fields whose product is the number of rows for learned prompts, which CPM-Ant has after those of
/// the vocabulary.
const PROMPTS: [&str; 2] = ["prompt_types", "prompt_length"];

/// Fields by which the width of the embedding is not the hidden size.
const OTHER_WIDTHS: [&str; 5] =
    ["word_embed_proj_dim", "embedding_size", "embd_dim", "d_embed", "embed_dim"];

/// Parts of other models that the config of a multimodal model describes, and words in their keys.
const PARTS: [(&str, &[&str]); 2] = [
    ("vision_config", &["vision", "visual", "image", "vit", "siglip", "patch_embed", "clip"]),
    ("audio_config", &["audio", "speech", "sound", "whisper"]),
];

/// Families whose vision part is joined by a projector, and words in its keys.
const PROJECTORS: [(&str, &[&str]); 6] = [
    ("llava", &["multi_modal_projector", "mm_projector"]),
    ("paligemma", &["multi_modal_projector"]),
    ("gemma3", &["multi_modal_projector"]),
    ("internvl", &["multi_modal_projector", "mlp1"]),
    ("qwen2_vl", &["merger"]),
    ("qwen2_5_vl", &["merger"]),
];

/// Tensors of the feed-forward layers: the end of the key, and the dimension of their size.
const FEED_FORWARD: [(&str, usize); 21] = [
    ("mlp.gate_proj.weight", 0),
    ("mlp.up_proj.weight", 0),
    ("mlp.down_proj.weight", 1),
    ("mlp.fc1.weight", 0),
    ("mlp.c_fc.weight", 1),
    ("mlp.dense_h_to_4h.weight", 0),
    ("intermediate.dense.weight", 0),
    ("mlp.gate_up_proj.weight", 0),
    ("DenseReluDense.wo.weight", 1),
    ("mlp.c_fc_0.weight", 0),
    ("mlp.c_fc_1.weight", 0),
    ("feed_forward.gate_proj.weight", 0),
    ("feed_forward.up_proj.weight", 0),
    ("feed_forward.down_proj.weight", 1),
    ("fc1.weight", 0),
    ("ffn.0.weight", 0),
    ("ffn.2.weight", 1),
    ("ffn.w_in.w_0.weight", 0),
    ("ffn.w_in.w_1.weight", 0),
    ("ffn.w_out.weight", 1),
    (EXPERT_OUTPUT, 1),
];

/// The end of the key of the output projection of an expert of Mixtral. Other models have this name
/// for layers whose size is rounded.
const EXPERT_OUTPUT: &str = "w2.weight";

/// Fields of `vision_config` with the number of layers.
const VISION_LAYERS: [&str; 4] = ["num_hidden_layers", "depth", "num_layers", "layers"];

pub(super) fn check(
    set: &ShardSet,
    stacks: &Stacks<'_>,
    config: &Config,
    findings: &mut Findings<'_>,
) {
    layers(set, stacks, config, findings);
    let embedding = embedding(set);
    match embedding {
        Some((file, entry)) => embedding_sizes(file, entry, config, findings),
        None => two_vocabularies(set, config, findings),
    }
    if let Some((_, entry)) = embedding {
        head(set, entry, config, findings);
    }
    if let Some(stack) = stacks.main() {
        feed_forward(stack, config, findings);
        experts(stack, config, findings);
    }
    dtype(set, config, findings);
    parts(set, config, findings);
    if embedding.is_none() && stacks.main().is_none() {
        language(set, config, findings);
    }
    ends(set, stacks, config, findings);
}

/// Reports that a multimodal model has no language part.
fn language(set: &ShardSet, config: &Config, findings: &mut Findings<'_>) {
    let is_declared = config.root().get("text_config").is_some_and(JsonValue::is_object);
    let is_generating =
        config.architectures().iter().any(|name| name.ends_with("ForConditionalGeneration"));
    let is_there =
        |entry: &TensorEntry| entry.key.contains("language") || entry.key.contains("text");
    if is_declared && is_generating && !set.tensors().any(|(_, entry)| is_there(entry)) {
        let text = format!("{} has `text_config`, and no tensor is of that part", config.file());
        findings.add(&CONFIG_PART_MISSING, config.file(), text);
    }
}

/// Reports that a language model with the names of Llama lacks its embedding or its last norm.
fn ends(set: &ShardSet, stacks: &Stacks<'_>, config: &Config, findings: &mut Findings<'_>) {
    let stack = stacks.main().filter(|stack| is_end(stack.path, "model.layers"));
    let is_causal = config.architectures().iter().any(|name| name.ends_with("ForCausalLM"));
    let Some(stack) = stack.filter(|_| is_causal) else { return };
    let outside = |word: &str| {
        let mut keys = set.tensors().map(|(_, entry)| entry.key.as_str());
        keys.any(|key| key.contains(word) && super::layers::split(key).is_none())
    };
    // The norms of some models have no weights.
    let is_norm = |rest: &&str| rest.contains("norm") && rest.ends_with(".weight");
    let is_normed = stack.layers.values().all(|layer| layer.keys().any(is_norm));
    for (word, name, is_expected) in [("embed", "embed_tokens", true), ("norm", "norm", is_normed)]
    {
        if is_expected && !outside(word) {
            let key = format!("{}{name}.weight", stack.path.trim_end_matches("layers"));
            let text = format!("`{key}` is missing");
            findings.add_key(&PART_MISSING, set.name(), &key, text);
        }
    }
}

/// Returns the embedding of tokens, if there is one, or several of one shape.
pub(super) fn embedding(set: &ShardSet) -> Option<(&str, &TensorEntry)> {
    let is_numbered = |key: &str| key.split('.').any(|part| part.parse::<u64>().is_ok());
    let found: Vec<(&str, &TensorEntry)> = set
        .tensors()
        .filter(|(_, entry)| {
            entry.shape.len() == 2
                && EMBEDDINGS.iter().any(|end| is_end(&entry.key, end))
                && !is_other_part(&entry.key)
                && !is_numbered(&entry.key)
        })
        .collect();
    let first = found.first()?;
    found.iter().all(|(_, entry)| entry.shape == first.1.shape).then_some(*first)
}

/// Returns whether a key ends with these parts.
pub(super) fn is_end(key: &str, end: &str) -> bool {
    key.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn layers(set: &ShardSet, stacks: &Stacks<'_>, config: &Config, findings: &mut Findings<'_>) {
    let is_pair = config.root().get("is_encoder_decoder").and_then(JsonValue::bool) == Some(true)
        || config.has(&["decoder_layers", "num_decoder_layers"]);
    let checked: Vec<(Option<&Stack<'_>>, Option<super::config::Field>)> = match is_pair {
        true => vec![
            (
                stacks.ending(&["encoder.layers", "encoder.block"]),
                config.number(&["encoder_layers", "num_layers"]),
            ),
            (
                stacks.ending(&["decoder.layers", "decoder.block"]),
                config.number(&["decoder_layers", "num_decoder_layers", "num_layers"]),
            ),
        ],
        false => {
            let is_vision_only =
                !config.root().get("vision_config").is_some_and(|it| it.is_object())
                    && config.sections().len() == 1;
            let vision = || stacks.of_part(PARTS[0].1).filter(|_| is_vision_only);
            let main = (stacks.main().or_else(vision), config.number(&LAYERS));
            // HRM has two lists of the same length; one of them is the main one.
            let other = stacks.ending(&["H_module.layers"]);
            vec![main, (other, config.number(&["num_layers_per_stack"]))]
        }
    };
    vision_layers(stacks, config, findings);
    let next = config.number(&NEXT_TOKEN).map_or(0, |(_, count)| count);
    for (stack, declared) in checked {
        let (Some(stack), Some((field, count))) = (stack, declared) else { continue };
        let stored = stack.len();
        let with_next = count.saturating_add(next);
        if let Some((list, types)) = config.value(&["layer_types"])
            && !(count..=with_next).contains(&(types.items().count() as u64))
            && types.items().next().is_some()
        {
            let text = format!(
                "`{list}` in {} has {}, and `{field}` is {count}",
                config.file(),
                counted(types.items().count() as u64, "type"),
            );
            findings.add(&CONFIG_LAYERS, config.file(), text);
        }
        if stored != count && !(count < stored && stored <= with_next) {
            other_count(field, count, stack, config, findings);
        }
        let is_next =
            |key: &str| key.contains("mtp") || key.contains("nextn") || key.contains("eh_proj");
        let next_stored = stored.saturating_sub(count);
        if (1..next).contains(&next_stored) {
            let text = format!(
                "`{}` in {} is {next}, and there are {next_stored}",
                NEXT_TOKEN[0],
                config.file()
            );
            findings.add(&CONFIG_NEXT_TOKEN, config.file(), text);
        }
        if next > 0 && stored <= count && !set.tensors().any(|(_, entry)| is_next(&entry.key)) {
            let text = format!(
                "`{}` in {} is {next}, and no tensor is of a layer for multi-token prediction",
                NEXT_TOKEN[0],
                config.file()
            );
            findings.add(&CONFIG_NEXT_TOKEN, config.file(), text);
        }
    }
}

/// Compares the number of layers of the vision part with its config. Layers after those are not
/// loaded, and do no harm.
fn vision_layers(stacks: &Stacks<'_>, config: &Config, findings: &mut Findings<'_>) {
    let (section, words) = PARTS[0];
    let Some(vision) = config.root().get(section) else { return };
    let field = |name: &'static str| Some((name, vision.get(name)?.number()?));
    let (Some((field, count)), Some(stack)) =
        (VISION_LAYERS.into_iter().find_map(field), stacks.of_part(words))
    else {
        return;
    };
    let stored = stack.len();
    // MiniCPM-V stores no last layer, which it does not use.
    let dropped = u64::from(config.flag("drop_vision_last_layer") == Some(true));
    if stored.saturating_add(dropped) < count {
        other_count(&format!("{section}.{field}"), count, stack, config, findings);
    }
}

/// Reports a number of layers that differs from the config.
fn other_count(
    field: &str,
    count: u64,
    stack: &Stack<'_>,
    config: &Config,
    findings: &mut Findings<'_>,
) {
    let (file, layers) = (config.file(), counted(stack.len(), "layer"));
    let text =
        format!("`{field}` in {file} is {count}, and there are {layers} in `{}`", stack.path);
    findings.add_key(&CONFIG_LAYERS, file, stack.path, text);
}

fn embedding_sizes(file: &str, entry: &TensorEntry, config: &Config, findings: &mut Findings<'_>) {
    let (Some(rows), Some(columns)) = (entry.shape.first(), entry.shape.get(1)) else { return };
    let of_decoder =
        config.number(&[DECODER_VOCABULARY]).filter(|_| is_end(&entry.key, DECODER_EMBEDDING));
    if let Some((field, vocabulary)) = of_decoder.or_else(|| config.number(&["vocab_size", "n_vocab"]))
        && vocabulary.saturating_add(prompt_rows(config)) != *rows
        // Its embedding has rows for images after those of the vocabulary.
        && !config.model_type().contains("mllama")
    {
        let prompts = match prompt_rows(config) {
            0 => String::new(),
            rows => format!(" and {} for prompts", grouped(rows)),
        };
        let text = format!(
            "`{field}` in {} is {}{prompts}, and `{}` has {} rows",
            config.file(),
            grouped(vocabulary),
            entry.key,
            grouped(*rows)
        );
        findings.add_key(&CONFIG_VOCABULARY, file, &entry.key, text);
    }
    if let Some((field, hidden)) = config.number(&HIDDEN)
        && hidden != *columns
        && FLOATS.contains(&entry.dtype.as_str())
        && !config.has(&OTHER_WIDTHS)
    {
        let text = format!(
            "`{field}` in {} is {}, and `{}` is {} wide",
            config.file(),
            grouped(hidden),
            entry.key,
            grouped(*columns)
        );
        findings.add_key(&CONFIG_HIDDEN_SIZE, file, &entry.key, text);
    }
}

/// Returns the number of rows of the embedding after those of the vocabulary.
fn prompt_rows(config: &Config) -> u64 {
    let [types, length] = PROMPTS.map(|name| config.number(&[name]).map(|(_, number)| number));
    types.zip(length).map_or(0, |(types, length)| types.saturating_mul(length))
}

/// Compares `tie_word_embeddings` with the output head.
fn head(set: &ShardSet, embedding: &TensorEntry, config: &Config, findings: &mut Findings<'_>) {
    const FIELD: &str = "tie_word_embeddings";
    let Some(tied) = config.flag(FIELD) else { return };
    let is_head = |entry: &TensorEntry| {
        let parts: Vec<&str> = entry.key.split('.').collect();
        let named = ["lm_head", "embed_out", "output", "output_projection", "proj_out"];
        let is_named = parts.iter().any(|part| named.contains(part))
            && super::layers::split(&entry.key).is_none()
            && !is_other_part(&entry.key);
        let is_like = entry.shape == embedding.shape
            && entry.key != embedding.key
            && !EMBEDDINGS.iter().any(|end| is_end(&entry.key, end));
        is_named && !entry.key.ends_with(".bias")
            || is_like && super::layers::split(&entry.key).is_none()
    };
    let head = set.tensors().find(|(_, entry)| is_head(entry));
    match head {
        Some((file, entry)) if tied && !entry.is_alias && entry.shape == embedding.shape => {
            let text =
                format!("`{FIELD}` in {} is true, and `{}` is stored", config.file(), entry.key);
            findings.add_key(&CONFIG_TIED_HEAD, file, &entry.key, text);
        }
        Some((file, entry))
            if tied
                && entry.shape != embedding.shape
                && is_end(&entry.key, "lm_head.weight")
                && prompt_rows(config) == 0 =>
        {
            let text = format!(
                "`{FIELD}` in {} is true, and `{}` is {}, unlike `{}`, which is {}",
                config.file(),
                entry.key,
                shape_text(&entry.shape),
                embedding.key,
                shape_text(&embedding.shape)
            );
            findings.add_key(&CONFIG_VOCABULARY, file, &entry.key, text);
        }
        None if !tied => {
            let kinds = ["CausalLM", "ConditionalGeneration", "LMHeadModel"];
            let has_head = |name: &&str| kinds.iter().any(|kind| name.contains(kind));
            if config.architectures().iter().any(has_head) {
                let text =
                    format!("`{FIELD}` in {} is false, and there is no `lm_head`", config.file());
                findings.add(&CONFIG_HEAD_MISSING, config.file(), text);
            }
        }
        _ => {}
    }
}

/// Compares the embeddings of the two halves of a model whose vocabularies differ.
fn two_vocabularies(set: &ShardSet, config: &Config, findings: &mut Findings<'_>) {
    if !config.has(&[DECODER_VOCABULARY]) {
        return;
    }
    for end in ["encoder.embed_tokens.weight", DECODER_EMBEDDING] {
        if let Some((file, entry)) = set.tensors().find(|(_, entry)| is_end(&entry.key, end)) {
            embedding_sizes(file, entry, config, findings);
        }
    }
}

/// Returns the sizes of feed-forward layers that the config states; empty if it states them in
/// another way than as one number each.
fn feed_forward_sizes(config: &Config) -> Vec<(String, u64)> {
    let words = [
        "intermediate",
        "ffn",
        "ff_dim",
        "n_inner",
        "d_ff",
        "mlp_dim",
        "feed_forward",
        "dff",
        "dim_ff",
    ];
    let mut fields: Vec<(String, u64)> = Vec::new();
    for section in config.sections() {
        for (name, value) in section.entries() {
            if words.iter().any(|word| name.contains(word)) {
                match value.number() {
                    Some(0) => {}
                    // A multiple of the hidden size.
                    Some(_) if name.contains("multipl") => return Vec::new(),
                    Some(number) => fields.push((name, number)),
                    // A list has a size for each layer.
                    None if value.items().next().is_some() => return Vec::new(),
                    None => {}
                }
            }
        }
    }
    fields
}

fn feed_forward(stack: &Stack<'_>, config: &Config, findings: &mut Findings<'_>) {
    let fields = feed_forward_sizes(config);
    let Some((field, size)) =
        fields.iter().find(|(name, _)| name == "intermediate_size").or(fields.first())
    else {
        return;
    };
    let mut wrong: Vec<(&str, &TensorEntry, u64)> = Vec::new();
    let mut all = 0;
    for layer in stack.layers.values() {
        for (rest, (file, entry)) in layer {
            let Some((end, dim)) = FEED_FORWARD.iter().find(|(end, _)| is_end(rest, end)) else {
                continue;
            };
            if *end == EXPERT_OUTPUT && !rest.contains(".experts.") {
                continue;
            }
            let is_plain =
                FLOATS.contains(&entry.dtype.as_str()) || entry.dtype.starts_with("float8");
            let Some(found) = entry.shape.get(*dim).filter(|_| entry.shape.len() == 2 && is_plain)
            else {
                continue;
            };
            let found = if *end == "mlp.gate_up_proj.weight" { *found / 2 } else { *found };
            all += 1;
            let is_declared = |found: u64| fields.iter().any(|(_, size)| *size == found);
            // Some models store the transpose under this name.
            let is_transposed =
                *end == "mlp.c_fc.weight" && entry.shape.iter().any(|dim| is_declared(*dim));
            if !is_declared(found) && !is_transposed {
                wrong.push((file, entry, found));
            }
        }
    }
    // A single layer that differs from the others is a finding of its own.
    if let Some((file, entry, found)) = wrong.first().filter(|_| wrong.len() * 2 > all) {
        let text = format!(
            "`{field}` in {} is {}, and the feed-forward layers have {}: `{}` is {}",
            config.file(),
            grouped(*size),
            grouped(*found),
            entry.key,
            shape_text(&entry.shape)
        );
        findings.add_key(&CONFIG_FEED_FORWARD, file, &entry.key, text);
    }
}

/// Compares the sizes with the experts of the layers. Families store them in either order of
/// dimensions, and with the two projections of the input in one or in two, so each dimension has to
/// be a number of the config, or twice one.
fn experts(stack: &Stack<'_>, config: &Config, findings: &mut Findings<'_>) {
    let names = ["moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"];
    let Some((field, size)) = config.number(&names).filter(|(_, size)| *size > 0) else { return };
    let sections = config.sections();
    let entries = sections.iter().flat_map(|section| section.entries());
    let numbers: BTreeSet<u64> = entries.filter_map(|(_, value)| value.number()).collect();
    let is_stated =
        |dim: u64| numbers.contains(&dim) || dim.is_multiple_of(2) && numbers.contains(&(dim / 2));
    // The size of single experts under their own field is one of the stated sizes.
    let is_single = |rest: &str| field == "intermediate_size" && rest.ends_with("_proj.weight");
    let is_expert = |rest: &str, entry: &TensorEntry| {
        let is_of_experts = rest.contains(".experts.") || rest.starts_with("block_sparse_moe.");
        let is_matrix = entry.shape.len() == 3 || entry.shape.len() == 2 && is_single(rest);
        is_of_experts && is_matrix && FLOATS.contains(&entry.dtype.as_str())
    };
    let fits = |entry: &TensorEntry| entry.shape.iter().rev().take(2).all(|dim| is_stated(*dim));
    let all = stack.layers.values().flatten().filter(|(rest, (_, entry))| is_expert(rest, entry));
    let all: Vec<_> = all.map(|(_, found)| *found).collect();
    let wrong: Vec<_> = all.iter().filter(|(_, entry)| !fits(entry)).collect();
    if let Some((file, entry)) = wrong.first().filter(|_| wrong.len() * 2 > all.len()) {
        let text = format!(
            "`{field}` in {} is {}, and the experts have another size: `{}` is {}",
            config.file(),
            grouped(size),
            entry.key,
            shape_text(&entry.shape)
        );
        findings.add_key(&CONFIG_FEED_FORWARD, file, &entry.key, text);
    }
}

fn dtype(set: &ShardSet, config: &Config, findings: &mut Findings<'_>) {
    let Some((field, value)) = config.value(&["torch_dtype", "dtype"]) else { return };
    let Some(declared) = value.text().map(|text| text.trim_start_matches("torch.")) else { return };
    if !FLOATS.contains(&declared) || config.quantization().is_some() {
        return;
    }
    let stored: BTreeSet<&str> = set.tensors().map(|(_, entry)| entry.dtype.as_str()).collect();
    let floats: Vec<&str> = stored.iter().copied().filter(|name| FLOATS.contains(name)).collect();
    let is_quantised = stored.iter().any(|name| name.starts_with("float8") || *name == "uint8");
    if !floats.is_empty() && !floats.contains(&declared) && !is_quantised {
        let text = format!(
            "`{field}` in {} is {declared}, and the tensors are {}",
            config.file(),
            listed(&floats, 4)
        );
        findings.add(&CONFIG_DTYPE, config.file(), text);
    }
}

/// Reports parts that the config describes and of which nothing is stored.
fn parts(set: &ShardSet, config: &Config, findings: &mut Findings<'_>) {
    // A language model that was extracted from a multimodal one may keep the config.
    if config.architectures().iter().any(|name| name.ends_with("ForCausalLM")) {
        return;
    }
    for (field, words) in PARTS {
        let section = config.root().get(field);
        if !section.is_some_and(|it| it.is_object() && it.entries().next().is_some()) {
            continue;
        }
        let is_of_part = |entry: &TensorEntry| {
            let key = entry.key.to_ascii_lowercase();
            words.iter().any(|word| key.contains(word))
        };
        if !set.tensors().any(|(_, entry)| is_of_part(entry)) {
            let text = format!("{} has `{field}`, and no tensor is of that part", config.file());
            findings.add(&CONFIG_PART_MISSING, config.file(), text);
        }
    }
    let family = PROJECTORS.iter().find(|(family, _)| config.model_type().starts_with(family));
    if let Some((family, words)) = family
        && config.root().get(PARTS[0].0).is_some()
        && !set.tensors().any(|(_, entry)| words.iter().any(|word| entry.key.contains(word)))
    {
        let name = words.first().unwrap_or(&"");
        let text =
            format!("{family} has a projector between its parts, and no tensor is of `{name}`");
        findings.add(&CONFIG_PART_MISSING, config.file(), text);
    }
}
