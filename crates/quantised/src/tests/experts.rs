//! Stacked and packed experts.

use super::*;

/// Returns a checkpoint of these one-element tensors of float32, as a GGUF file of the architecture
/// has them.
fn of_architecture(architecture: &str, tensors: &[(&str, f32)]) -> Checkpoint {
    use statelens_checkpoint::{DictKey, Value};
    let tensors: Vec<_> = tensors
        .iter()
        .map(|(name, number)| (*name, "F32", &[1u64][..], number.to_le_bytes().to_vec()))
        .collect();
    let source = open(vec![("model.safetensors".into(), safetensors(&tensors))]);
    let mut builder = source.edit();
    let name = builder.push(Value::Str(architecture.into())).unwrap();
    let Some(Value::Dict(root)) = builder.value_mut(source.root()) else { panic!() };
    root.entries.push((DictKey::Str("metadata.general.architecture".into()), name));
    builder.rebuild(&source).unwrap()
}

/// Names of other architectures than llama, and the norms of gemma, which llama.cpp adds 1 to.
#[test]
fn names_follow_the_architecture_and_the_other_side() {
    for (architecture, own, theirs, number) in [
        ("gemma2", "blk.0.ffn_norm.weight", "model.layers.0.pre_feedforward_layernorm.weight", 2.0),
        (
            "gemma2",
            "blk.0.post_attention_norm.weight",
            "model.layers.0.post_attention_layernorm.weight",
            2.0,
        ),
        (
            "gemma3",
            "blk.0.attn_q_norm.weight",
            "language_model.model.layers.0.self_attn.q_norm.weight",
            2.0,
        ),
        ("llama", "blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight", 3.0),
        ("phi3", "blk.0.attn_qkv.weight", "model.layers.0.self_attn.qkv_proj.weight", 3.0),
        ("phi3", "blk.0.ffn_up.weight", "model.layers.0.mlp.gate_up_proj.weight", 3.0),
        ("gptneox", "blk.0.ffn_up.weight", "gpt_neox.layers.0.mlp.dense_h_to_4h.weight", 3.0),
        ("gpt2", "blk.0.attn_norm.weight", "transformer.h.0.ln_1.weight", 3.0),
        ("gpt2", "blk.0.ffn_up.weight", "blk.0.ffn_up.weight", 3.0),
        ("gptneox", "output.weight", "embed_out.weight", 3.0),
    ] {
        let source = of_architecture(architecture, &[("token_embd.weight", 1.0), (own, 3.0)]);
        let mut theirs_all = vec![(theirs, 0.0)];
        theirs_all
            .extend((architecture == "gpt2").then_some(("transformer.h.0.mlp.c_fc.weight", 0.0)));
        let other = of_architecture("", &theirs_all);
        let named = with_original_names(&source, &other).unwrap().unwrap();
        let bytes = read(&named, tensor(&named, theirs));
        assert_eq!(bytes, f32::to_le_bytes(number), "{architecture}: {own}");
    }
}

/// llama.cpp stores the rows of each head as pairs of one of the first half and one of the second half:
/// for `llama`, and for architectures that are converted like it. Layers may have numbers of their own.
#[test]
fn rows_of_heads_are_in_the_original_order() {
    use statelens_checkpoint::{DictKey, Value};
    let (heads, of_keys, size, width) = (6u64, 2u64, 6u64, 3u64);
    // Row `2 * pair + half` of a head is row `pair + half * size / 2` of the original.
    let reordered = |heads: u64, size: u64| -> Vec<u64> {
        (0..heads * size)
            .map(|row| {
                let (head, at) = (row / size, row % size);
                head * size + at / 2 + at % 2 * size / 2
            })
            .collect()
    };
    let bytes = |rows: &[u64]| -> Vec<u8> {
        let numbers = rows.iter().flat_map(|row| (0..width).map(move |at| row * 10 + at));
        numbers.flat_map(|number| (number as f32).to_le_bytes()).collect()
    };
    let file = |architecture: &str, per_layer: bool| {
        // Three queries share a key: `xverse` takes the keys to be three heads.
        let keys = if architecture == "xverse" { heads / of_keys } else { of_keys };
        let keys = reordered(keys, of_keys * size / keys);
        let queries = reordered(heads, size);
        let tensors = [
            ("token_embd.weight", vec![1u64], vec![0; 4]),
            ("blk.1.attn_q.weight", vec![heads * size, width], bytes(&queries)),
            ("blk.1.attn_k.weight", vec![of_keys * size, width], bytes(&keys)),
        ];
        let tensors: Vec<_> = tensors
            .iter()
            .map(|(name, shape, bytes)| (*name, "F32", &shape[..], bytes.clone()))
            .collect();
        let source = open(vec![("model.safetensors".into(), safetensors(&tensors))]);
        let mut builder = source.edit();
        let mut entries = Vec::new();
        let name = builder.push(Value::Str(architecture.into())).unwrap();
        entries.push(("metadata.general.architecture".to_owned(), name));
        for (field, number) in [("head_count", heads), ("head_count_kv", of_keys)] {
            let value = match per_layer {
                false => Value::Int(number.into()),
                true => {
                    let list = [0, number as u32].iter().flat_map(|it| it.to_le_bytes()).collect();
                    let layout = Layout::Inline(Vec::into(list));
                    let list = Tensor::new(DType::U32, vec![2], layout);
                    Value::Tensor(builder.push_tensor(list).unwrap())
                }
            };
            let value = builder.push(value).unwrap();
            entries.push((format!("metadata.{architecture}.attention.{field}"), value));
        }
        let Some(Value::Dict(root)) = builder.value_mut(source.root()) else { panic!() };
        root.entries.extend(
            entries.into_iter().map(|(key, value)| (DictKey::Str(key.as_str().into()), value)),
        );
        builder.rebuild(&source).unwrap()
    };
    let other = of_architecture("", &[("model.layers.1.self_attn.q_proj.weight", 0.0)]);
    let original = |count: u64| bytes(&(0..count).collect::<Vec<u64>>());
    for (architecture, is_reordered) in [
        ("llama", true),
        ("llama-embed", true),
        ("mistral3", true),
        ("granite", true),
        ("granitemoe", true),
        ("granitehybrid", true),
        ("smollm3", true),
        ("arcee", true),
        ("minicpm", true),
        ("olmo", true),
        ("deci", true),
        ("llada", true),
        ("xverse", true),
        ("llama4", false),
        ("apertus", false),
        ("afmoe", false),
        ("olmo2", false),
        ("qwen3", false),
    ] {
        for per_layer in [false, true] {
            let source = file(architecture, per_layer);
            let named = with_original_names(&source, &other).unwrap().unwrap();
            for (end, count) in [("q_proj", heads * size), ("k_proj", of_keys * size)] {
                let key = format!("model.layers.1.self_attn.{end}.weight");
                let found = read(&named, tensor(&named, &key));
                let same = found == original(count);
                assert_eq!(same, is_reordered, "{architecture} {end}, by layer: {per_layer}");
            }
        }
    }
}

/// llama.cpp's stacks of experts become one tensor for each expert, with the names of the other side.
#[test]
fn experts_of_llama_cpp_get_their_names() {
    let file = |tensors: &[(&str, &[u64], Vec<f32>)]| {
        let tensors: Vec<_> = tensors
            .iter()
            .map(|(name, shape, numbers)| {
                let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                (*name, "F32", *shape, bytes)
            })
            .collect();
        open(vec![("model.safetensors".into(), safetensors(&tensors))])
    };
    let numbers = |from: u32, count: u32| (from..from + count).map(|at| at as f32).collect();
    let stacked = file(&[
        ("token_embd.weight", &[1], vec![0.0]),
        ("blk.3.ffn_gate_exps.weight", &[2, 2, 3], numbers(0, 12)),
        ("blk.3.ffn_up_exps.weight", &[2, 2, 3], numbers(100, 12)),
        ("blk.3.ffn_down_exps.weight", &[2, 3, 2], numbers(200, 12)),
        ("blk.3.ffn_gate_inp.weight", &[2, 3], numbers(300, 6)),
    ]);
    let named = |other: &Checkpoint| with_original_names(&stacked, other).unwrap().unwrap();
    let floats = |checkpoint: &Checkpoint, key: &str| -> Vec<f32> {
        let bytes = read(checkpoint, tensor(checkpoint, key));
        bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
    };
    let keys = |checkpoint: &Checkpoint| -> Vec<String> {
        checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect()
    };
    let qwen = named(&file(&[("model.layers.3.mlp.experts.0.up_proj.weight", &[1], vec![0.0])]));
    assert_eq!(
        floats(&qwen, "model.layers.3.mlp.experts.1.gate_proj.weight"),
        numbers(6, 6) as Vec<f32>
    );
    assert_eq!(tensor(&qwen, "model.layers.3.mlp.experts.0.down_proj.weight").shape, [3, 2]);
    assert!(keys(&qwen).contains(&"model.layers.3.mlp.gate.weight".to_owned()));
    let mixtral = named(&file(&[
        ("model.layers.3.block_sparse_moe.experts.0.w1.weight", &[1], vec![0.0]),
        ("model.layers.3.block_sparse_moe.experts.0.w2.weight", &[1], vec![0.0]),
        ("model.layers.3.block_sparse_moe.experts.0.w3.weight", &[1], vec![0.0]),
        ("model.layers.3.block_sparse_moe.gate.weight", &[1], vec![0.0]),
    ]));
    let w3 = "model.layers.3.block_sparse_moe.experts.0.w3.weight";
    assert_eq!(floats(&mixtral, w3), numbers(100, 6) as Vec<f32>);
    assert!(keys(&mixtral).contains(&"model.layers.3.block_sparse_moe.gate.weight".to_owned()));
    // transformers 5 has the gates and up projections of all experts in one tensor.
    let fused = named(&file(&[
        ("model.layers.3.mlp.experts.gate_up_proj", &[2, 4, 3], numbers(0, 24)),
        ("model.layers.3.mlp.experts.down_proj", &[2, 3, 2], numbers(0, 12)),
    ]));
    let both = floats(&fused, "model.layers.3.mlp.experts.gate_up_proj");
    let expected: Vec<f32> =
        [0, 100, 6, 106].iter().flat_map(|from| numbers(*from, 6) as Vec<f32>).collect();
    assert_eq!(both, expected);
    assert_eq!(
        floats(&fused, "model.layers.3.mlp.experts.down_proj"),
        numbers(200, 12) as Vec<f32>
    );
    assert_eq!(keys(&fused).len(), 4);
    // Granite has them in a linear layer, and a shared expert in two dimensions.
    let granite = file(&[
        ("token_embd.weight", &[1], vec![0.0]),
        ("blk.3.ffn_gate_exps.weight", &[2, 2, 3], numbers(0, 12)),
        ("blk.3.ffn_up_exps.weight", &[2, 2, 3], numbers(100, 12)),
        ("blk.3.ffn_down_exps.weight", &[2, 3, 2], numbers(200, 12)),
        ("blk.3.ffn_gate_inp.weight", &[2, 3], numbers(300, 6)),
        ("blk.3.ffn_gate_shexp.weight", &[1, 3], numbers(400, 3)),
        ("blk.3.ffn_up_shexp.weight", &[1, 3], numbers(500, 3)),
        ("blk.3.ffn_down_shexp.weight", &[3, 1], numbers(600, 3)),
    ]);
    let names = [
        ("block_sparse_moe.input_linear.weight", &[2u64, 4, 3][..], 24),
        ("block_sparse_moe.output_linear.weight", &[2, 3, 2], 12),
        ("block_sparse_moe.router.layer.weight", &[2, 3], 6),
        ("shared_mlp.input_linear.weight", &[2, 3], 6),
        ("shared_mlp.output_linear.weight", &[3, 1], 3),
    ];
    let keyed = names.map(|(name, shape, count)| (format!("model.layers.3.{name}"), shape, count));
    let theirs: Vec<_> = keyed
        .iter()
        .map(|(key, shape, count)| (key.as_str(), *shape, numbers(0, *count)))
        .collect();
    let named = with_original_names(&granite, &file(&theirs)).unwrap().unwrap();
    for (key, shape, _) in &keyed {
        assert_eq!(tensor(&named, key).shape, *shape, "{key}");
    }
    assert_eq!(floats(&named, &keyed[0].0), expected);
    let shared: Vec<f32> = [numbers(400, 3) as Vec<f32>, numbers(500, 3)].concat();
    assert_eq!(floats(&named, &keyed[3].0), shared);
    assert_eq!(keys(&named).len(), 6);
}

/// Packed experts are shown as indices; experts that are packed differently are equal if their
/// indices are. Their weights are not claimed.
#[test]
fn experts_in_words_are_indices() {
    // Four experts of two values: widths of 4, or of 3 and 5 bits.
    let indices = [[1u16, 7], [2, 6], [3, 5], [4, 0]];
    let packed = |widths: &[u16], about: (&str, String)| {
        let words: Vec<u8> = indices
            .chunks(widths.len())
            .flat_map(|experts| {
                (0..2).flat_map(move |at| {
                    let mut shift = 0;
                    let fields = experts.iter().zip(widths).map(|(expert, width)| {
                        shift += width;
                        expert[at] << (shift - width)
                    });
                    fields.sum::<u16>().to_le_bytes()
                })
            })
            .collect();
        let stored = indices.len() / widths.len();
        let mut file = safetensors(&[
            ("l.moe.down_proj", "U16", &[stored as u64, 1, 2], words),
            ("l.moe.codebook", "F32", &[1], vec![0; 4]),
        ]);
        let len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        let mut header: serde_json::Value = serde_json::from_slice(&file[8..8 + len]).unwrap();
        header["__metadata__"] = serde_json::json!({ about.0: about.1 });
        let header = header.to_string();
        file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &file[8 + len..]].concat();
        open(vec![("model.safetensors".into(), file)])
    };
    let schema = |widths: &str| {
        format!(r#"{{"json_value": "{{\"quantization_schema\": {{\"bit_widths\": {widths}}}}}"}}"#)
    };
    let by_key = packed(&[4, 4, 4, 4], ("l.moe.down_proj.__metadata__", schema("[4, 4, 4, 4]")));
    let by_projection = packed(
        &[3, 5],
        (
            "codebook_packing_schema.__metadata__",
            r#"{"string_value": "{\"down_proj\": {\"bit_widths\": [3, 5]}}"}"#.into(),
        ),
    );
    for stored in [by_key, by_projection] {
        let view = shown(&stored).unwrap().unwrap();
        let weight = &view.weights[0];
        assert_eq!(weight.parts, ["l.moe.down_proj", "l.moe.codebook"]);
        let experts = tensor(&view.checkpoint, "l.moe.down_proj");
        assert_eq!((&experts.dtype, &experts.shape[..]), (&DType::U8, &[4u64, 1, 2][..]));
        assert_eq!(read(&view.checkpoint, experts), [1, 7, 2, 6, 3, 5, 4, 0]);
        let alone = with_indices(&stored).unwrap().unwrap();
        assert_eq!(read(&alone.checkpoint, tensor(&alone.checkpoint, "l.moe.down_proj"))[6], 4);
        let why = complete(&self::view(&stored).weights).unwrap_err().to_string();
        assert!(why.contains("l.moe.down_proj") && why.contains("not public"), "{why}");
    }
    let wide = packed(&[4, 4, 4, 4], ("l.moe.down_proj.__metadata__", schema("[9, 9]")));
    let why = complete(&view(&wide).weights).unwrap_err().to_string();
    assert!(why.contains("fields of [9, 9] bits"), "{why}");
}
