//! The tensors of a GGUF file under the names and in the order that they have in Hugging Face's
//! models, so that both can be compared.
//!
//! Source: `gguf/tensor_mapping.py` of the package gguf 0.19, and the classes of models in `conversion`
//! of <https://github.com/ggml-org/llama.cpp> (earlier in `convert_hf_to_gguf.py`), where
//! `LlamaModel.permute` in `llama.py` is the order of rows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use statelens_checkpoint::{
    Arithmetic, Builder, Checkpoint, Computed, Concat, DType, DictKey, Error, Layout, Part, Result,
    Strided, Tensor, Value, ValueId, contiguous_strides,
};

/// Paths of language models, the most common first: of the layers, and of the other tensors.
const PATHS: [(&str, &str); 7] = [
    ("model.layers", "model"),
    ("model.text_model.layers", "model.text_model"),
    ("model.language_model.layers", "model.language_model"),
    ("language_model.model.layers", "language_model.model"),
    ("transformer.h", "transformer"),
    ("h", ""),
    ("gpt_neox.layers", "gpt_neox"),
];

/// Names outside of the layers, without the path of the language model.
const TOP: [(&str, &[&str]); 3] = [
    ("token_embd", &["embed_tokens", "wte", "word_embeddings", "embed_in"]),
    ("position_embd", &["wpe"]),
    ("output_norm", &["norm", "ln_f", "final_layernorm", "final_layer_norm"]),
];

/// Names of the output head, which is next to the language model.
const HEADS: [&str; 3] = ["lm_head", "language_model.lm_head", "embed_out"];

/// Names within a layer: llama.cpp's, and those of Hugging Face's models, the most common one first.
const LAYER: [(&str, &[&str]); 25] = [
    ("attn_norm", &["input_layernorm", "ln_1", "ln_attn"]),
    ("attn_norm_2", &["ln_mlp"]),
    ("attn_qkv", &["self_attn.qkv_proj", "attn.c_attn"]),
    ("attn_q", &["self_attn.q_proj", "attn.q_proj"]),
    ("attn_k", &["self_attn.k_proj", "attn.k_proj"]),
    ("attn_v", &["self_attn.v_proj", "attn.v_proj"]),
    (
        "attn_output",
        &[
            "self_attn.o_proj",
            "self_attn.dense",
            "attn.c_proj",
            "attn.out_proj",
            "attention.dense",
            "self_attention.dense",
        ],
    ),
    ("attn_q_norm", &["self_attn.q_norm"]),
    ("attn_k_norm", &["self_attn.k_norm"]),
    // With norms before and after both, that after the attention is `post_attention_norm`.
    ("ffn_norm", &["pre_feedforward_layernorm", "post_attention_layernorm", "ln_2"]),
    ("ffn_gate", &["mlp.gate_proj"]),
    ("ffn_up", &["mlp.up_proj", "mlp.gate_up_proj", "mlp.c_fc", "mlp.fc1", "mlp.dense_h_to_4h"]),
    (
        "ffn_down",
        &[
            "mlp.down_proj",
            "mlp.c_proj",
            "mlp.fc2",
            "mlp.dense_4h_to_h",
            "shared_mlp.output_linear",
        ],
    ),
    ("post_attention_norm", &["post_attention_layernorm"]),
    ("post_ffw_norm", &["post_feedforward_layernorm"]),
    (
        "ffn_gate_inp",
        &["mlp.gate", "block_sparse_moe.gate", "block_sparse_moe.router.layer", "mlp.router"],
    ),
    ("exp_probs_b", &["mlp.gate.e_score_correction"]),
    ("ffn_gate_inp_shexp", &["mlp.shared_expert_gate"]),
    ("ffn_gate_shexp", &["mlp.shared_expert.gate_proj", "mlp.shared_experts.gate_proj"]),
    ("ffn_up_shexp", &["mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"]),
    (
        "ffn_down_shexp",
        &[
            "mlp.shared_expert.down_proj",
            "mlp.shared_experts.down_proj",
            "shared_mlp.output_linear",
        ],
    ),
    // An asterisk replaces the number of an expert. Without it, the experts are one tensor.
    ("ffn_gate_exps", &["mlp.experts.*.gate_proj", "block_sparse_moe.experts.*.w1"]),
    ("ffn_up_exps", &["mlp.experts.*.up_proj", "block_sparse_moe.experts.*.w3"]),
    (
        "ffn_down_exps",
        &[
            "mlp.experts.*.down_proj",
            "block_sparse_moe.experts.*.w2",
            "mlp.experts.down_proj",
            "block_sparse_moe.output_linear",
        ],
    ),
    ("attn_sinks", &["self_attn.sinks"]),
];

/// Two tensors of a layer whose rows follow each other in one tensor of Hugging Face's model: the
/// experts of transformers 5, and those and the shared one of `granitemoe`.
const FUSED: [[&str; 3]; 4] = [
    ["ffn_gate_exps.weight", "ffn_up_exps.weight", "mlp.experts.gate_up_proj"],
    ["ffn_gate_exps.weight", "ffn_up_exps.weight", "block_sparse_moe.input_linear.weight"],
    ["ffn_gate_shexp.weight", "ffn_up_shexp.weight", "shared_mlp.input_linear.weight"],
    ["ffn_gate.weight", "ffn_up.weight", "shared_mlp.input_linear.weight"],
];

/// The most layers whose numbers of heads are read.
const MAX_LAYERS: u64 = 65_536;

/// The most experts of a layer that become tensors of their own.
const MAX_EXPERTS: u64 = 4_096;

/// Architectures whose rows of `attn_q` and `attn_k` llama.cpp reorders, for its rotary embedding:
/// those of classes that inherit from `LlamaModel`, unless they set `undo_permute = False` (`llama4`,
/// `apertus`) or skip it (`afmoe`), and of those that do the same in their own `modify_tensors`.
const REORDERED: [&str; 13] = [
    "llama",
    "llama-embed",
    "mistral3",
    "granite",
    "granitemoe",
    "granitehybrid",
    "smollm3",
    "arcee",
    "minicpm",
    "olmo",
    "deci",
    "llada",
    "xverse",
];

/// The architecture whose rows of `attn_k` llama.cpp reorders as if it had as many heads as there
/// are queries for each key (`XverseModel._reverse_hf_permute`).
const GROUPED: &str = "xverse";

/// The architecture whose matrices llama.cpp transposes, so that they can't be compared, and their
/// names.
const TRANSPOSED: (&str, [&str; 4]) =
    ("gpt2", ["attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight"]);

/// Architectures whose norms llama.cpp stores with 1 added (`norm.weight` in
/// `convert_hf_to_gguf.py`).
const SHIFTED: [&str; 4] = ["gemma", "gemma2", "gemma3", "nemotron"];

/// Returns the checkpoint with the names of Hugging Face; `None` if it does not have llama.cpp's.
/// Where models differ in their names, those of `other` are taken; experts that are stacked in one
/// tensor become one for each, unless `other` has them in one as well.
pub fn with_original_names(source: &Checkpoint, other: &Checkpoint) -> Result<Option<Checkpoint>> {
    let Value::Dict(root) = source.value(source.root()) else { return Ok(None) };
    let name = |key: &DictKey| match key {
        DictKey::Str(name) => Some(name.to_lossy().into_owned()),
        _ => None,
    };
    if !root.entries.iter().any(|(key, _)| name(key).as_deref() == Some("token_embd.weight")) {
        return Ok(None);
    }
    let architecture = text(source, "metadata.general.architecture").unwrap_or_default();
    let of_queries = heads(source, &format!("metadata.{architecture}.attention.head_count"))?;
    let of_keys = heads(source, &format!("metadata.{architecture}.attention.head_count_kv"))?;
    let of_keys = if of_keys.is_empty() { of_queries.clone() } else { of_keys };
    let reordered = REORDERED.contains(&&*architecture);
    let shifted = SHIFTED.contains(&&*architecture);
    let names = OtherNames::of(other);
    let by_name: HashMap<String, &Tensor> = root
        .entries
        .iter()
        .filter_map(|(key, id)| Some((name(key)?, source.tensor_of(*id)?.1)))
        .collect();
    let mut builder = source.edit();
    let mut entries = Vec::new();
    for (key, id) in &root.entries {
        let Some(own) = name(key) else { continue };
        if own == "metadata" {
            continue;
        }
        let mut add = |builder: &mut Builder, key: &str, tensor: Tensor| -> Result<()> {
            let tensor = builder.push_tensor(tensor)?;
            entries.push((DictKey::Str(key.into()), builder.push(Value::Tensor(tensor))?));
            Ok(())
        };
        if let Some((key, both, is_first)) = fused(&own, &by_name, &names)? {
            if is_first {
                add(&mut builder, &key, both)?;
            }
            continue;
        }
        let is_transposed =
            architecture == TRANSPOSED.0 && TRANSPOSED.1.iter().any(|end| own.ends_with(end));
        let renamed = original(&own, &names).filter(|_| !is_transposed);
        if let (Some(pattern), Some((_, stacked))) =
            (renamed.as_ref().filter(|name| name.contains('*')), source.tensor_of(*id))
            && let Some(count) = stacked.shape.first().copied()
            && stacked.shape.len() == 3
            && count <= MAX_EXPERTS
        {
            for expert in 0..count {
                let name = pattern.replace('*', &expert.to_string());
                add(&mut builder, &name, matrix(stacked, expert)?)?;
            }
            continue;
        }
        let renamed = renamed.filter(|name| !name.contains('*'));
        let mut steps = own.split('.').skip(1);
        let layer = steps.next().and_then(|layer| layer.parse::<usize>().ok());
        let of_layer = match (steps.next(), layer) {
            (Some("attn_q"), Some(layer)) => at_layer(&of_queries, layer),
            (Some("attn_k"), Some(layer)) => {
                match (at_layer(&of_queries, layer), at_layer(&of_keys, layer)) {
                    (Some(queries), Some(keys)) if architecture == GROUPED && queries != keys => {
                        queries.checked_div(keys)
                    }
                    (_, keys) => keys,
                }
            }
            _ => None,
        };
        if let (true, Some(heads), Some((tensor, stored))) =
            (reordered, of_layer, source.tensor_of(*id))
            && let Some(place) = builder.tensor_mut(tensor)
        {
            *place = in_order(stored, heads)?;
        }
        if shifted
            && own.ends_with("norm.weight")
            && let Some((tensor, stored)) = source.tensor_of(*id)
            && let Some(place) = builder.tensor_mut(tensor)
            && let DType::F32 | DType::F16 | DType::BF16 = stored.dtype
        {
            let of = Tensor { dtype: DType::F32, ..stored.clone() };
            let less = Computed { of, steps: vec![Arithmetic::Add(-1.0)], product: None };
            let layout = Layout::Computed(Arc::new(less));
            *place = Tensor::new(DType::F32, stored.shape.clone(), layout);
        }
        entries.push((DictKey::Str(renamed.unwrap_or(own).as_str().into()), *id));
    }
    if let Some(Value::Dict(dict)) = builder.value_mut(source.root()) {
        dict.entries = entries;
    }
    builder.rebuild(source).map(Some)
}

/// The names of the other side of a comparison.
struct OtherNames {
    /// The shapes of tensors, by flat key.
    shapes: HashMap<String, Vec<u64>>,
    /// The keys without their last step.
    modules: HashSet<String>,
}

impl OtherNames {
    fn of(other: &Checkpoint) -> Self {
        let (mut shapes, mut modules) = (HashMap::new(), HashSet::new());
        for leaf in other.each_leaf() {
            let Some((_, tensor)) = other.tensor_of(leaf.target) else { continue };
            let key = leaf.flat.to_lossy().into_owned();
            modules.extend(key.rsplit_once('.').map(|(module, _)| module.to_owned()));
            shapes.insert(key, tensor.shape.clone());
        }
        Self { shapes, modules }
    }

    fn has(&self, module: &str) -> bool {
        let module = module.replace('*', "0");
        self.modules.contains(&module) || self.shapes.contains_key(&module)
    }
}

/// Returns Hugging Face's name of a tensor. An asterisk replaces the number of an expert.
fn original(name: &str, others: &OtherNames) -> Option<String> {
    // The first name that the other side has, else the most common one.
    let found =
        |names: Vec<String>| names.iter().find(|name| others.has(name)).or(names.first()).cloned();
    let listed = |list: &[(&str, &'static [&'static str])], own: &str| {
        list.iter().find(|(known, _)| *known == own).map(|(_, names)| *names)
    };
    let (own, end) = name.rsplit_once('.')?;
    let module = match own.strip_prefix("blk.") {
        None if own == "output" => found(HEADS.map(str::to_owned).to_vec())?,
        None => {
            let names = listed(&TOP, own)?;
            let below = |path: &str, name: &&str| match path {
                "" => (*name).to_owned(),
                path => format!("{path}.{name}"),
            };
            let all = PATHS.iter().flat_map(|(_, path)| names.iter().map(|it| below(path, it)));
            found(all.collect())?
        }
        Some(own) => {
            let (layer, own) = own.split_once('.')?;
            let names = listed(&LAYER, own)?.iter();
            let all = names.flat_map(|name| {
                PATHS.iter().map(move |(path, _)| format!("{path}.{layer}.{name}"))
            });
            found(all.collect())?
        }
    };
    match (module.ends_with("e_score_correction"), others.shapes.contains_key(&module)) {
        (true, _) => Some(format!("{module}_{end}")),
        // Some models have experts as parameters of a module, not as modules.
        (_, true) => Some(module),
        (_, false) => Some(format!("{module}.{end}")),
    }
}

/// Returns the tensor of Hugging Face's model that consists of this one and another: its key, and
/// whether this is the first one. `None` unless the other side has it.
fn fused(
    own: &str,
    stored: &HashMap<String, &Tensor>,
    others: &OtherNames,
) -> Result<Option<(String, Tensor, bool)>> {
    let layer = own.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let Some((layer, name)) = layer else { return Ok(None) };
    for [first, second, fused] in FUSED.iter().filter(|it| it[..2].contains(&name)) {
        let part = |name: &str| stored.get(&format!("blk.{layer}.{name}"));
        let mut keys = PATHS.iter().map(|(path, _)| format!("{path}.{layer}.{fused}"));
        let found = keys.find_map(|key| Some((others.shapes.get(&key)?, key)));
        if let (Some(one), Some(two), Some((shape, key))) = (part(first), part(second), found)
            && let Some(both) = joined(one, two, shape)?
        {
            return Ok(Some((key, both, name == *first)));
        }
    }
    Ok(None)
}

/// Returns the numbers of heads that the metadata state: one for all layers, or one for each.
fn heads(source: &Checkpoint, key: &str) -> Result<Vec<u64>> {
    let Some(leaf) = source.each_leaf().find(|leaf| leaf.flat == key) else {
        return Ok(Vec::new());
    };
    match source.value(leaf.target) {
        Value::Int(number) => Ok(number.to_u64().into_iter().collect()),
        _ => match source.tensor_of(leaf.target) {
            Some((_, list)) if list.numel().is_some_and(|layers| layers <= MAX_LAYERS) => {
                let list = Tensor { dtype: DType::I64, ..list.clone() };
                let count = list.numel().unwrap_or(0);
                let bytes = statelens_tensor::elements(&source.files, &list, 0..count)?;
                let numbers = bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
                // A layer without attention has no heads.
                Ok(numbers.map(|number| u64::try_from(number).unwrap_or(0)).collect())
            }
            _ => Ok(Vec::new()),
        },
    }
}

/// Returns the number of heads in a layer.
fn at_layer(heads: &[u64], layer: usize) -> Option<u64> {
    match heads {
        [all] => Some(*all),
        each => each.get(layer).copied(),
    }
}

/// Returns the text of a plain value.
fn text(source: &Checkpoint, key: &str) -> Option<String> {
    let leaf: ValueId = source.each_leaf().find(|leaf| leaf.flat == key)?.target;
    match source.value(leaf) {
        Value::Str(text) => Some(text.to_lossy().into_owned()),
        _ => None,
    }
}

/// Returns the number of elements, or of blocks, in the last dimension.
fn units(tensor: &Tensor, width: u64) -> u64 {
    match &tensor.stored {
        DType::Blocks(block) => width / block.elements.max(1),
        _ => width,
    }
}

fn too_large() -> Error {
    Error::damaged("a tensor too large to count")
}

/// Returns a tensor whose elements, or blocks, are those of a layout of `shape`, from `offset` on.
fn view(
    like: &Tensor,
    shape: Vec<u64>,
    [from, dims]: [&[u64]; 2],
    layout: &Layout,
    offset: u64,
) -> Result<Tensor> {
    let numel = from.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim));
    let each = match &like.stored {
        DType::Blocks(block) => block.bytes,
        dtype => dtype.itemsize(),
    };
    let view = Strided {
        storage: Arc::new(layout.clone()),
        storage_len: numel.and_then(|numel| numel.checked_mul(each)).ok_or_else(too_large)?,
        offset,
        strides: contiguous_strides(dims).ok_or_else(too_large)?,
    };
    Ok(Tensor { shape, layout: Layout::Strided(view), storage: None, ..like.clone() })
}

/// Returns a matrix of a stack.
fn matrix(stack: &Tensor, index: u64) -> Result<Tensor> {
    let [matrices, rows, columns] = stack.shape[..] else { return Ok(stack.clone()) };
    let width = units(stack, columns);
    let offset = rows.checked_mul(width).and_then(|size| size.checked_mul(index));
    let (from, dims) = ([matrices, rows, width], [rows, width]);
    let shape = vec![rows, columns];
    view(stack, shape, [&from, &dims], &stack.layout, offset.ok_or_else(too_large)?)
}

/// Returns two matrices, or two stacks of them, whose rows follow each other: `None` unless the result
/// has this shape.
fn joined(first: &Tensor, second: &Tensor, shape: &[u64]) -> Result<Option<Tensor>> {
    let ([outer @ .., rows, columns], [.., more, _]) = (&first.shape[..], &second.shape[..]) else {
        return Ok(None);
    };
    let with = |rows: u64, columns: u64| [outer, &[rows, columns]].concat();
    let all = with(rows.saturating_add(*more), *columns);
    let alike = first.dtype == second.dtype && first.stored == second.stored;
    if !alike || outer.len() > 1 || shape != all || second.shape != with(*more, *columns) {
        return Ok(None);
    }
    let width = units(first, *columns);
    let part = |tensor: &Tensor, rows: u64| Part {
        shape: with(rows, width),
        layout: tensor.layout.clone(),
    };
    let parts = vec![part(first, *rows), part(second, *more)];
    let layout = Layout::Concat(Concat { axis: outer.len(), parts });
    let dims = with(rows.saturating_add(*more), width);
    view(first, all, [&dims, &dims], &layout, 0).map(Some)
}

/// Returns a tensor with its rows in the order that they have outside of llama.cpp: those of a head
/// are stored as pairs of one of the first half and one of the second half.
fn in_order(tensor: &Tensor, heads: u64) -> Result<Tensor> {
    let each = match &tensor.stored {
        DType::Blocks(block) => block.elements,
        _ => 1,
    };
    let (rows, width) = match tensor.shape[..] {
        [rows] => (rows, 1),
        [rows, columns] => (rows, columns / each.max(1)),
        _ => return Ok(tensor.clone()),
    };
    let whole = heads.checked_mul(2).filter(|halves| *halves > 0 && rows.is_multiple_of(*halves));
    let Some(halves) = whole else { return Ok(tensor.clone()) };
    let half = rows / halves;
    let step = |count: u64| {
        count.checked_mul(width).and_then(|step| i64::try_from(step).ok()).ok_or_else(too_large)
    };
    let shape = vec![heads, 2, half, width];
    let len =
        tensor.numel().and_then(|numel| tensor.stored.bytes_of(numel)).ok_or_else(too_large)?;
    let view = Strided {
        storage: Arc::new(tensor.layout.clone()),
        storage_len: len,
        offset: 0,
        strides: vec![step(2 * half)?, step(1)?, step(2)?, 1],
    };
    // The rows of the view are those of a matrix.
    let part = Part { shape, layout: Layout::Strided(view) };
    let matrix: Vec<u64> = match tensor.shape.len() {
        1 => vec![rows],
        _ => vec![rows, width],
    };
    let layout = Layout::Strided(Strided {
        storage: Arc::new(Layout::Concat(Concat { axis: 0, parts: vec![part] })),
        storage_len: len,
        offset: 0,
        strides: contiguous_strides(&matrix).ok_or_else(too_large)?,
    });
    Ok(Tensor { layout, storage: None, ..tensor.clone() })
}
