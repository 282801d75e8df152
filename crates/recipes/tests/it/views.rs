//! Conversions are views: they read nothing, and a round trip returns the spans of the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictKey, FileSet, FormatInfo, Layout, Limits, ReadAt, Result,
    Span, Tensor, Value,
};
use statelens_recipes::config::{self, Language};
use statelens_recipes::conversion::{ModelOptions, RouteStep, StepConfigs, convert};
use statelens_recipes::{Implementation, families};

/// A file that counts the bytes read from it.
#[derive(Debug, Default)]
struct CountedFile(AtomicU64);

impl ReadAt for CountedFile {
    fn len(&self) -> u64 {
        1 << 40
    }
    fn read_at(&self, _: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        buffer.fill(1);
        Ok(())
    }
}

/// Returns a checkpoint of consecutive tensors in one file.
fn checkpoint(tensors: &[(&str, &[u64])]) -> (Checkpoint, Arc<CountedFile>) {
    let source = Arc::new(CountedFile::default());
    let mut files = FileSet::default().within(&Limits::default());
    let file = files.push("model.safetensors", source.clone());
    let mut builder = Builder::new(&Limits::default());
    let mut entries = Vec::new();
    let mut offset = 0;
    for (key, shape) in tensors {
        let len = 2 * shape.iter().product::<u64>();
        let layout = Layout::Span(Span { file, offset, len });
        offset += len;
        let tensor = Tensor::new(DType::BF16, shape.to_vec(), layout);
        let tensor = builder.push_tensor(tensor).unwrap();
        let value = builder.push(Value::Tensor(tensor)).unwrap();
        entries.push((DictKey::from(*key), value));
    }
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    (builder.finish(root, FormatInfo::default(), files, Vec::new()).unwrap(), source)
}

fn stage(from: &str, to: &str, hf: &str, cs: &str) -> StepConfigs {
    let json = |text: &str| config::parse(text, Language::Json).unwrap();
    let step = RouteStep { from: from.parse().unwrap(), to: to.parse().unwrap() };
    StepConfigs { step, left: json(hf), right: json(cs) }
}

fn layouts(checkpoint: &Checkpoint) -> Vec<(String, Layout)> {
    let leaves = checkpoint.leaves().into_iter();
    leaves
        .map(|leaf| {
            let (_, tensor) = checkpoint.tensor_of(leaf.target).unwrap();
            (leaf.flat.to_string(), tensor.layout.clone())
        })
        .collect()
}

/// Converts a Hugging Face model to Cerebras.
fn to_cerebras(family: &str, source: &Checkpoint, hf: &str, cs: &str) -> Vec<(String, Layout)> {
    let recipe = families::find(family).unwrap();
    let stages = [stage("hf", "cs-2.9", hf, cs)];
    let done =
        convert(source, &recipe, &stages, &config::Value::Null, ModelOptions::default()).unwrap();
    layouts(&done.parts[0].1)
}

/// Converts in both directions without writing in between; the result must be the spans of the
/// file.
fn there_and_back(family: &str, tensors: &[(&str, &[u64])], hf: &str, cs: &str) {
    let (source, read) = checkpoint(tensors);
    let recipe = families::find(family).unwrap();
    let stages = [stage("hf", "cs-2.9", hf, cs), stage("cs-2.9", "hf", hf, cs)];
    let requested = ModelOptions::default();
    let there = convert(&source, &recipe, &stages[..1], &config::Value::Null, requested).unwrap();
    assert!(there.parts[0].1.leaves().len() >= tensors.len());
    let back = convert(&source, &recipe, &stages, &config::Value::Null, requested).unwrap();
    let (old, new) = (layouts(&source), layouts(&back.parts[0].1));
    for (key, layout) in &old {
        let found = new.iter().find(|(own, _)| own == key);
        assert_eq!(found.map(|(_, layout)| layout), Some(layout), "{key}");
    }
    assert_eq!(read.0.load(Ordering::Relaxed), 0, "{family}");
}

#[test]
fn round_trips_a_70_gb_rotary_model_as_spans() {
    let (hidden, kv, ffn) = (8192, 1024, 28672);
    there_and_back(
        "llama",
        &[
            ("model.embed_tokens.weight", &[32000, hidden]),
            ("model.layers.0.self_attn.q_proj.weight", &[hidden, hidden]),
            ("model.layers.0.self_attn.k_proj.weight", &[kv, hidden]),
            ("model.layers.0.self_attn.v_proj.weight", &[kv, hidden]),
            ("model.layers.0.mlp.gate_proj.weight", &[ffn, hidden]),
            ("model.norm.weight", &[hidden]),
        ],
        "{}",
        r#"{"num_heads": 64, "rotary_dim": 128, "attention_module": "multiquery_attention",
            "extra_attention_params": {"num_kv_groups": 8}}"#,
    );
}

#[test]
fn round_trips_joined_and_transposed_weights_as_spans() {
    there_and_back(
        "gpt2",
        &[
            ("transformer.h.0.attn.c_attn.weight", &[1024, 3072]),
            ("transformer.h.0.mlp.c_fc.weight", &[1024, 4096]),
        ],
        "{}",
        r#"{"num_heads": 16}"#,
    );
    there_and_back(
        "gpt-neox",
        &[("gpt_neox.layers.0.attention.query_key_value.weight", &[3072, 1024])],
        "{}",
        r#"{"num_heads": 16, "rotary_dim": 64}"#,
    );
    there_and_back(
        "falcon",
        &[("transformer.h.0.self_attention.query_key_value.weight", &[9216, 8192])],
        r#"{"model_type": "falcon"}"#,
        r#"{"num_heads": 128, "attention_module": "multiquery_attention",
            "extra_attention_params": {"num_kv_groups": 8}}"#,
    );
}

#[test]
fn reports_keys_without_a_rule_with_the_nearest_rule() {
    let (source, _) = checkpoint(&[
        ("model.layers.0.self_attn.x_proj.weight", &[4]),
        ("other", &[4]),
        ("model.norm.weight", &[4]),
    ]);
    let recipe = families::find("llama").unwrap();
    let stages = [stage("hf", "cs-2.9", "{}", "{}")];
    let failed = convert(&source, &recipe, &stages, &config::Value::Null, ModelOptions::default());
    let error = failed.unwrap_err().to_string();
    for part in
        ["2 keys", "x_proj", "`other`", "model.layers.{n}.self_attn", "--drop-unmatched-keys"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    let requested = ModelOptions { drop_unmatched: true, ..ModelOptions::default() };
    let done = convert(&source, &recipe, &stages, &config::Value::Null, requested).unwrap();
    assert_eq!((done.unmatched.len(), done.parts[0].1.leaves().len()), (2, 2));
}

/// Applies a recipe to some keys that are converted together.
fn grouped(
    recipe: &str,
    keys: &[&str],
    back: bool,
) -> Result<statelens_recipes::conversion::ModelConversion, String> {
    let tensors: Vec<(&str, &[u64])> = keys.iter().map(|key| (*key, &[2, 2][..])).collect();
    let (source, _) = checkpoint(&tensors);
    let recipe = families::parse("mine.recipe", recipe).map_err(|error| error.to_string())?;
    let (from, to) = if back { ("other", "hf") } else { ("hf", "other") };
    let stages = [stage(from, to, "{}", "{}")];
    let done = convert(&source, &recipe, &stages, &config::Value::Null, ModelOptions::default());
    done.map_err(|error| error.to_string())
}

#[test]
fn refuses_an_incomplete_group() {
    let recipe = "family mine\nbetween hf and other\nqkv <-> [q,k,v] : split(1; q 1, k 1, v 1)\n";
    let error = grouped(recipe, &["k", "v"], true).unwrap_err();
    assert!(error.contains("`k`: `q` belongs to it, but isn't in the checkpoint"), "{error}");
    assert_eq!(grouped(recipe, &["q", "k", "v"], true).unwrap().parts[0].1.leaves().len(), 1);
}

#[test]
fn refuses_two_tensors_under_one_key() {
    for rules in ["{any}.w -> w", "a.w -> w\nb.w -> w"] {
        let recipe = format!("family mine\nbetween hf and other\n{rules}\n");
        let error = grouped(&recipe, &["a.w", "b.w"], false).unwrap_err();
        assert!(error.contains("`b.w`: `a.w` becomes `w`, too"), "{error}");
        assert!(error.contains("The rule is in line "), "{error}");
    }
}

#[test]
fn refuses_experts_beyond_the_config() {
    let key = |expert: u64| format!("model.layers.0.block_sparse_moe.experts.{expert}.w1.weight");
    let keys = [key(0), key(1), key(2)];
    let tensors: Vec<(&str, &[u64])> = keys.iter().map(|key| (&**key, &[2, 3][..])).collect();
    let (source, _) = checkpoint(&tensors);
    let recipe = families::find("mixtral").unwrap();
    let run = |experts: u64| {
        let cs = format!(r#"{{"moe": {{"num_experts": {experts}}}}}"#);
        let stages = [stage("hf", "cs-2.9", "{}", &cs)];
        let done =
            convert(&source, &recipe, &stages, &config::Value::Null, ModelOptions::default())?;
        Ok::<_, statelens_checkpoint::Error>(layouts(&done.parts[0].1).len())
    };
    assert_eq!(run(3).unwrap(), 1);
    assert!(run(2).unwrap_err().to_string().contains("experts.2"));
    assert!(run(4).unwrap_err().to_string().contains("experts.3"));
}

#[test]
fn converts_with_a_user_recipe() {
    let text = include_str!("../../../../docs/recipes.md");
    let start = text.find("# Hugging Face's GPT-2 <-> my model.").unwrap();
    let end = text[start..].find("```").unwrap();
    let recipe = families::parse("mine.recipe", &text[start..start + end]).unwrap();
    let (source, _) = checkpoint(&[
        ("transformer.wte.weight", &[10, 4]),
        ("transformer.h.0.attn.c_attn.weight", &[4, 12]),
        ("transformer.h.0.attn.masked_bias", &[]),
        ("transformer.ln_f.weight", &[4]),
    ]);
    let stages = [stage("hf", "mine", r#"{"n_head": 2}"#, "{}")];
    let done =
        convert(&source, &recipe, &stages, &config::Value::Null, ModelOptions::default()).unwrap();
    let keys: Vec<String> = layouts(&done.parts[0].1).into_iter().map(|(key, _)| key).collect();
    assert_eq!(
        keys.join(" "),
        "embed.weight layer_0.attention.query.weight layer_0.attention.key.weight \
         layer_0.attention.value.weight norm.weight head_norm.weight"
    );
    let hf: Implementation = "hf".parse().unwrap();
    assert!(recipe.blocks[0].towards("mine".parse().unwrap(), hf).is_some());
}

/// safetensors files keep one key of a tied tensor: for T5's embedding, `shared`. The original
/// treats that key as a copy and drops it, and the embedding with it.
#[test]
fn keeps_an_embedding_saved_only_as_shared() {
    let tensors: [(&str, &[u64]); 3] = [
        ("shared.weight", &[97, 32]),
        ("encoder.final_layer_norm.weight", &[32]),
        ("decoder.final_layer_norm.weight", &[32]),
    ];
    let hf = r#"{"model_type": "t5", "d_model": 32, "tie_word_embeddings": true}"#;
    let cs = r#"{"model": {"name": "t5", "share_embedding_weights": true}}"#;
    let (source, _) = checkpoint(&tensors);
    let recipe = families::find("t5").unwrap();
    let stages = [stage("hf", "cs-2.9", hf, cs)];
    let null = config::Value::Null;
    let there = convert(&source, &recipe, &stages, &null, ModelOptions::default()).unwrap();
    let written = layouts(&there.parts[0].1);
    let shared = &layouts(&source)[0].1;
    for side in ["encoder", "decoder"] {
        let key = format!("{side}_embeddings.word_embeddings.weight");
        let found = written.iter().find(|(own, _)| own.ends_with(&key));
        assert_eq!(found.map(|(_, layout)| layout), Some(shared), "{key}: {written:?}");
    }
    there_and_back("t5", &tensors, hf, cs);
}

/// The same for BERT's bias over the vocabulary.
#[test]
fn keeps_a_bias_saved_only_for_predictions() {
    let tensors: [(&str, &[u64]); 2] =
        [("bert.embeddings.word_embeddings.weight", &[97, 32]), ("cls.predictions.bias", &[97])];
    let hf = r#"{"model_type": "bert", "hidden_size": 32, "max_position_embeddings": 64}"#;
    let cs = r#"{"model": {"name": "bert", "hidden_size": 32, "max_position_embeddings": 64}}"#;
    let (source, _) = checkpoint(&tensors);
    let recipe = families::find("bert").unwrap();
    let stages = [stage("hf", "cs-2.9", hf, cs)];
    let null = config::Value::Null;
    let there = convert(&source, &recipe, &stages, &null, ModelOptions::default()).unwrap();
    let written = layouts(&there.parts[0].1);
    let found = written.iter().find(|(own, _)| own.ends_with("classifier.ffn.0.linear_layer.bias"));
    assert_eq!(found.map(|(_, layout)| layout), Some(&layouts(&source)[1].1), "{written:?}");
}

/// Llama's layers with a bias on queries, keys and values: their rows are in rotary order, too.
#[test]
fn qwen2_is_llama_with_biases() {
    let cs = r#"{"num_heads": 4, "rotary_dim": 8, "attention_module": "multiquery_attention",
        "extra_attention_params": {"num_kv_groups": 2}}"#;
    let tensors: [(&str, &[u64]); 6] = [
        ("model.layers.0.self_attn.q_proj.weight", &[32, 32]),
        ("model.layers.0.self_attn.q_proj.bias", &[32]),
        ("model.layers.0.self_attn.k_proj.weight", &[16, 32]),
        ("model.layers.0.self_attn.k_proj.bias", &[16]),
        ("model.layers.0.self_attn.v_proj.weight", &[16, 32]),
        ("model.layers.0.self_attn.v_proj.bias", &[16]),
    ];
    there_and_back("qwen2", &tensors, "{}", cs);
    let (source, _) = checkpoint(&tensors);
    let written = to_cerebras("qwen2", &source, "{}", cs);
    let found = |end: &str| written.iter().find(|(key, _)| key.ends_with(end)).unwrap().1.clone();
    let before = layouts(&source);
    for (name, turned) in [("q", true), ("k", true), ("v", false)] {
        let own = before.iter().find(|(key, _)| key.ends_with(&format!("{name}_proj.bias")));
        let same = found(&format!("proj_{name}_dense_layer.bias")) == own.unwrap().1;
        assert_eq!(same, !turned, "{name}");
    }
}

/// The original concatenates the rows in float32, whatever the dtype of the weights is, and fails.
#[test]
fn packs_starcoder_heads_in_16_bits() {
    there_and_back(
        "starcoder",
        &[
            ("transformer.h.0.attn.c_attn.weight", &[96, 32]),
            ("transformer.h.0.attn.c_attn.bias", &[96]),
        ],
        r#"{"model_type": "gpt_bigcode", "multi_query": false}"#,
        r#"{"num_heads": 4}"#,
    );
}

/// The original looks for the embeddings of the head under a name that models without a head lack.
#[test]
fn created_head_is_tied_to_the_embeddings() {
    let tensors: [(&str, &[u64]); 2] =
        [("word_embeddings.weight", &[97, 32]), ("ln_f.weight", &[32])];
    let (source, _) = checkpoint(&tensors);
    let hf = r#"{"model_type": "falcon", "tie_word_embeddings": true}"#;
    let written = to_cerebras("falcon-headless", &source, hf, r#"{"num_heads": 4}"#);
    let head = written.iter().find(|(key, _)| key.ends_with("lm_head.weight"));
    assert_eq!(head.map(|(_, layout)| layout), Some(&layouts(&source)[0].1), "{written:?}");
}

#[test]
fn random_head_is_reproducible() {
    let tensors: [(&str, &[u64]); 2] =
        [("word_embeddings.weight", &[97, 32]), ("ln_f.weight", &[32])];
    let (source, _) = checkpoint(&tensors);
    let head = |hf: &str| {
        let written = to_cerebras("falcon-headless", &source, hf, r#"{"num_heads": 4}"#);
        written.into_iter().find(|(key, _)| key.ends_with("lm_head.weight")).unwrap().1
    };
    let untied = head(r#"{"model_type": "falcon", "tie_word_embeddings": false}"#);
    assert!(matches!(untied, Layout::Computed(_)), "{untied:?}");
    assert_eq!(untied, head(r#"{"model_type": "falcon", "tie_word_embeddings": false}"#));
    // If the config doesn't say so, the original fails; transformers ties the head.
    assert_eq!(head(r#"{"model_type": "falcon"}"#), layouts(&source)[0].1);
}
