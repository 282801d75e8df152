//! Hostile configs: every table processes them without a panic, in bounded time and memory, and
//! reports errors.

use statelens_checkpoint::has_word;
use statelens_fixtures::times;
use statelens_recipes::Implementation;
use statelens_recipes::config::{Families, Language, List, Map, Value, parse};

/// Returns values that hardly any rule expects.
fn odd() -> Vec<Value> {
    let list: List = [Value::Int(1), Value::Null, Value::from("gelu")].into_iter().collect();
    let map: Map =
        [("type", Value::Null), ("factor", Value::from("x")), ("num_kv_groups", Value::Int(0))]
            .into_iter()
            .collect();
    vec![
        Value::Null,
        Value::Bool(true),
        Value::Int(0),
        Value::Int(-1),
        Value::Int(i64::MAX),
        Value::Int(i64::MIN),
        Value::BigInt("9".repeat(400)),
        Value::Float(f64::NAN),
        Value::Float(f64::INFINITY),
        Value::Float(-0.0),
        Value::from(""),
        Value::from("mlp99999999999999999999x_gelu"),
        list.into(),
        map.into(),
        Map::new().into(),
    ]
}

fn formats() -> Vec<Implementation> {
    let releases = Implementation::RELEASES
        .iter()
        .map(|&(major, minor)| Implementation::cerebras(major, minor));
    let dpo = ["cs-2.1-dpo", "cs-2.9-dpo", "cs-2.1-no-dpo", "cs-2.4-backbone"];
    let dpo = dpo.iter().map(|name| name.parse().unwrap());
    std::iter::once(Implementation::HuggingFace).chain(releases).chain(dpo).collect()
}

/// Converts a config with every key of `keys` between every pair of neighbouring formats of every
/// model.
fn each(value: &Value, keys: &[&str], all: bool) -> (usize, usize) {
    let families = Families::known().unwrap();
    let section: Map = keys.iter().map(|key| (*key, value.clone())).collect();
    let inner: Map = [("model", Value::Map(section.clone()))].into_iter().collect();
    let (mut done, mut refused) = (0, 0);
    // Aliases of a model have the same tables.
    const NAMES: &str = "
        llamaV2 code-llama wizardlm octocoder wizardcoder sqlcoder ul2 flan-ul2 transformer
    ";
    for model in families.models() {
        if !all && (model.ends_with("-headless") || has_word(NAMES, model)) {
            continue;
        }
        let parts = families.parts(model).unwrap();
        for pair in families.pairs(model).unwrap() {
            if !all && !pair.left[0].is_hf() {
                continue;
            }
            let ends = [(pair.left[0], *pair.right.last().unwrap()), (pair.right[0], pair.left[0])];
            for (source, target) in ends {
                let config: Value = match (source.is_hf(), parts.is_empty()) {
                    (true, true) => section.clone().into(),
                    (true, false) => parts
                        .iter()
                        .map(|part| (part.as_str(), Value::Map(section.clone())))
                        .collect::<Map>()
                        .into(),
                    (false, _) => inner.clone().into(),
                };
                match families.convert(model, source, target, &config) {
                    Ok(converted) => {
                        done += 1;
                        assert!(!converted.config.to_yaml().is_empty());
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(error.to_string().len() < 2000, "{error}");
                    }
                }
            }
        }
    }
    (done, refused)
}

const KEYS: &str = "
    vocab_size hidden_size n_embd n_head num_heads num_attention_heads num_key_value_heads n_head_kv
    num_kv_heads rope_scaling alibi_scaling pos_scaling_factor extra_attention_params
    attention_module hidden_act nonlinearity encoder_nonlinearity feed_forward_proj rotary_dim
    rotary_pct image_size patch_size num_local_experts num_experts_per_tok router_aux_loss_coef moe
    mm_projector_type mm_vision_select_layer tune_mm_mlp_adapter projector freeze
    image_feature_select_layer_idx image_feature_select_mode image_model_list id2label num_labels
    problem_type max_position_embeddings pad_token_id token_dropout projection_dim q_encoder
    scale_similarity softmax_temperature mup_width_scale mup_output_alpha output_logits_scale
    embeddings_scale scale_qk_dot_by_d attention_inner_dim head_dim query_pre_attn_scalar
    attention_logits_alpha filter_size bias multi_query new_decoder_architecture parallel_attn
    num_ln_in_parallel_attn transformer_decoder
";

#[test]
fn odd_values_never_break_a_table() {
    let keys: Vec<&str> = KEYS.split_ascii_whitespace().collect();
    for value in odd().into_iter().step_by(times(3, 1)) {
        let (done, refused) = each(&value, &keys, true);
        assert!(done + refused > 100);
    }
    // Each key alone, with the defaults.
    for value in odd().iter().step_by(times(21, 7)) {
        for key in &keys {
            each(value, &[key], false);
        }
    }
}

#[test]
fn converts_or_refuses_every_pair_of_formats() {
    let families = Families::known().unwrap();
    let config =
        parse("{model: {hidden_size: 8}, optimizer: {optimizer_type: SGD}}", Language::Yaml)
            .unwrap();
    for model in
        ["bert", "gpt2", "t5", "llava", "dpo", "falcon", "gpt-backbone", "all", "", "no such model"]
    {
        for source in formats() {
            for target in formats() {
                if let Err(error) = families.convert(model, source, target, &config) {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}

#[test]
fn refuses_output_far_larger_than_the_input() {
    let families = Families::known().unwrap();
    let wide: String = (0..50_000).map(|key| format!("k{key}: 1, ")).collect();
    let groups: String = (0..50_000).map(|key| format!("g{key}: {{}}, ")).collect();
    let text =
        format!("{{model: {{}}, sparsity: {{a: {{{wide}}}, param_name_patterns: {{{groups}}}}}}}");
    let config = parse(&text, Language::Yaml).unwrap();
    let error = families
        .convert("gpt2", Implementation::cerebras(2, 1), Implementation::cerebras(2, 2), &config)
        .unwrap_err();
    assert!(error.to_string().contains("500,000"), "{error}");
    let text = format!(
        "{{model: {{name: gpt2, sliding_window_every_other_decoder_layer: true, num_hidden_layers: 10000, \
         num_heads: {{{wide}}}}}}}"
    );
    let config = parse(&text, Language::Yaml).unwrap();
    let nested: Implementation = "cs-2.4-backbone".parse().unwrap();
    let error = families
        .convert("gpt-backbone", Implementation::cerebras(2, 4), nested, &config)
        .unwrap_err();
    assert!(error.to_string().contains("500,000"), "{error}");
}

/// Tables that can't be read are refused, and so are those whose values grow with each line.
#[test]
fn refuses_hostile_tables() {
    let read = |prepare: &str| {
        let text = format!(
            "models: {{m: {{name: m, converters: ['hf <-> cs-2.9 by t']}}}}\n\
             tables: {{t: {{mup: kept, prepare: [{prepare}], rules: ['* copied']}}}}"
        );
        Families::read(&[("m", &text)])
    };
    let repeated = |sign: &str| format!("'hf a := {}'", sign.repeat(400));
    for line in [
        "'a := 1'",
        "'hf a'",
        "'hf a := '",
        "'hf refuse a'",
        "'hf do flatten'",
        "'hf a := b('",
        "'hf refuse \"{a\"'",
        "'hf a := 1 when 2 unless 3'",
        "{hf: 1}",
        &repeated("("),
        &repeated("["),
        &repeated("{a:"),
        &repeated("-"),
        &repeated("not "),
        &repeated("1 if "),
        &repeated("1 + 1 "),
    ] {
        let error = read(line).map(|_| line).unwrap_err();
        assert!(error.to_string().len() < 4000, "{error}");
    }
    let config = parse(r#"{"a": {}}"#, Language::Json).unwrap();
    let ends = (Implementation::HuggingFace, Implementation::cerebras(2, 9));
    for (line, said) in [
        ("'hf a := [a, a]'", "500,000"),
        ("'hf a := {a: a, b: a}'", "500,000"),
        ("'hf a := [a]'", "200 levels"),
        ("'hf a.b := a'", "200 levels"),
    ] {
        let families = read(&vec![line; 1000].join(", ")).unwrap();
        let error = families.convert("m", ends.0, ends.1, &config).unwrap_err().to_string();
        assert!(error.contains(said), "{line}: {error}");
    }
}

/// Changes, removes and inserts bytes in texts; texts that can be parsed are written and parsed
/// again.
#[test]
fn corrupted_texts_are_refused_or_round_trip() {
    let root = statelens_fixtures::path("recipes");
    let seeds: Vec<Vec<u8>> = [
        "bert/v.fwd.cs2.3-to-cs2.4/in/params.yaml",
        "gpt2/config_only_sparsity_groups.cs2.1-to-cs2.2/in/params.yaml",
        "llama/llama3_rope.hf-to-cs2.9/in/config.json",
    ]
    .iter()
    .map(|name| std::fs::read(root.join(name)).unwrap())
    .collect();
    const PIECES: [&str; 24] = [
        "&a ", "*a", "<<: ", "- ", "? ", ": ", "{", "}", "[", "]", "'", "\"", "|\n", ">\n",
        "!!str ", "#", "\t", "\n", "---\n", "...\n", "1e-5", "~", "\u{85}", "\\u0041",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut read = 0;
    for round in 0..6000 {
        let seed = &seeds[round % seeds.len()];
        let mut text = seed[..seed.len().min(40 + next(600))].to_vec();
        for _ in 0..=next(3) {
            let at = next(text.len() + 1);
            match next(3) {
                0 => drop(text.splice(at..at, PIECES[next(PIECES.len())].bytes())),
                1 => drop(text.drain(at..text.len().min(at + next(8)))),
                _ => text.insert(at, next(128) as u8),
            }
        }
        let text = String::from_utf8_lossy(&text);
        for language in [Language::Yaml, Language::Json] {
            let Ok(value) = parse(&text, language) else { continue };
            read += 1;
            let written = value.to_yaml();
            let again = parse(&written, Language::Yaml);
            let again =
                again.unwrap_or_else(|error| panic!("{error}\n{text}\n--- written\n{written}"));
            assert_eq!(again.to_yaml(), written, "{text}");
            assert!(parse(&value.to_json(), Language::Json).is_ok());
        }
    }
    assert!(read > 500, "{read}");
}
