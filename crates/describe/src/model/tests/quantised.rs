//! Layouts of quantised weights.

use super::*;

#[test]
fn quantised_tensors_of_pytorch_count() {
    let entries = [
        tensor("fc.weight", "qint8", &[3, 2]),
        tensor("embed.weight", "quint4x2", &[5, 2]),
        tensor("fc.steps", "int64", &[7]),
    ];
    let model = Model::of_entries(&entries, None);
    assert_eq!(model.number("parameters"), Some(16));
}

/// Tensors as written by AutoGPTQ, AutoAWQ, bitsandbytes, compressed-tensors, transformers, MLX,
/// quanto and torchao, with the expected name, bits, block, and number of values.
#[test]
fn recognises_quantised_layouts() {
    type Tensors = &'static [(&'static str, &'static str, &'static [u64])];
    let cases: [(Tensors, &str, Option<u64>, &str, u64); 20] = [
        (
            &[
                ("l.qweight", "int32", &[8, 32]),
                ("l.qzeros", "int32", &[2, 4]),
                ("l.scales", "float16", &[2, 32]),
                ("l.g_idx", "int32", &[64]),
            ],
            "GPTQ",
            Some(4),
            "32 in a row",
            32 * 64,
        ),
        (
            &[
                ("l.qweight", "int32", &[6, 32]),
                ("l.qzeros", "int32", &[2, 3]),
                ("l.scales", "float16", &[2, 32]),
            ],
            "GPTQ",
            Some(3),
            "32 in a row",
            32 * 64,
        ),
        (
            &[
                ("l.qweight", "int32", &[64, 4]),
                ("l.qzeros", "int32", &[2, 4]),
                ("l.scales", "float16", &[2, 32]),
            ],
            "AWQ",
            Some(4),
            "32 in a row",
            32 * 64,
        ),
        (
            &[
                ("m.weight", "uint8", &[256, 1]),
                ("m.weight.absmax", "float32", &[8]),
                ("m.weight.quant_map", "float32", &[16]),
                ("m.weight.quant_state.bitsandbytes__nf4", "uint8", &[76]),
            ],
            "bitsandbytes nf4",
            Some(4),
            "64 in a run",
            512,
        ),
        (
            &[
                ("m.weight", "int8", &[6, 32]),
                ("m.SCB", "float32", &[6]),
                ("m.bias", "float32", &[6]),
            ],
            "bitsandbytes int8",
            Some(8),
            "a row",
            6 * 32,
        ),
        (
            &[
                ("l.weight", "float8_e4m3fn", &[200, 300]),
                ("l.weight_scale_inv", "float32", &[2, 3]),
            ],
            "fp8 with scales",
            Some(8),
            "128 \u{d7} 128",
            60_000,
        ),
        (
            &[("l.weight", "float8_e4m3fn", &[8, 64]), ("l.weight_scale", "bfloat16", &[2, 2])],
            "fp8 with scales",
            Some(8),
            "4 \u{d7} 32",
            512,
        ),
        (
            &[("l.weight", "int8", &[8, 64]), ("l.weight_scale", "bfloat16", &[8, 1])],
            "int8 with scales",
            Some(8),
            "a row",
            512,
        ),
        (
            &[("l.weight_packed", "uint8", &[8, 32]), ("l.weight_scale", "uint8", &[8, 2])],
            "MXFP4",
            Some(4),
            "32 in a row",
            512,
        ),
        (
            &[
                ("l.weight_global_scale", "float32", &[1]),
                ("l.weight_packed", "uint8", &[8, 32]),
                ("l.weight_scale", "float8_e4m3fn", &[8, 4]),
            ],
            "NVFP4",
            Some(4),
            "16 in a row",
            512,
        ),
        (
            &[
                ("l.weight_packed", "int32", &[16, 8]),
                ("l.weight_scale", "bfloat16", &[16, 2]),
                ("l.weight_zero_point", "int32", &[2, 2]),
                ("l.weight_shape", "int64", &[2]),
            ],
            "compressed-tensors, packed",
            Some(4),
            "32 in a row",
            16 * 64,
        ),
        (
            &[("l.weight", "uint32", &[3, 8]), ("l.scales", "uint8", &[3, 4])],
            "MLX nvfp4",
            Some(4),
            "16 in a row",
            3 * 64,
        ),
        (
            &[
                ("l.weight", "uint32", &[3, 16]),
                ("l.scales", "float32", &[3, 2]),
                ("l.biases", "float32", &[3, 2]),
            ],
            "MLX affine",
            None,
            "",
            48,
        ),
        (
            &[
                ("m.experts.gate_up_proj_blocks", "uint8", &[2, 6, 2, 16]),
                ("m.experts.gate_up_proj_scales", "uint8", &[2, 6, 2]),
                ("m.experts.gate_up_proj_bias", "bfloat16", &[2, 6]),
            ],
            "MXFP4",
            Some(4),
            "32 in a row",
            2 * 6 * 64,
        ),
        (
            &[
                ("q_proj.weight._data._data", "uint8", &[8, 128]),
                ("q_proj.weight._scale", "float32", &[16, 1]),
                ("q_proj.weight._shift", "float32", &[16, 1]),
            ],
            "quanto",
            Some(4),
            "128 in a row",
            16 * 128,
        ),
        (
            &[("l.weight._data", "int8", &[8, 128]), ("l.weight._scale", "float32", &[8, 1])],
            "quanto int8",
            Some(8),
            "a row",
            8 * 128,
        ),
        (
            &[
                ("l.weight.qdata", "int8", &[8, 64]),
                ("l.weight.scale", "bfloat16", &[4, 8]),
                ("l.weight.zero_point", "bfloat16", &[4, 8]),
            ],
            "torchao int4",
            Some(4),
            "32 in a row",
            8 * 128,
        ),
        (
            &[
                ("l.weight.qdata", "int8", &[8, 64]),
                ("l.weight.scale", "float32", &[8, 1]),
                ("l.weight.zero_point", "int8", &[8, 1]),
            ],
            "torchao int8",
            Some(8),
            "a row",
            8 * 64,
        ),
        (
            &[
                ("l._weight_qdata", "uint8", &[32, 32]),
                ("l._weight_scale", "float8_e4m3fn", &[32, 4]),
                ("l._weight_per_tensor_scale", "float32", &[]),
            ],
            "torchao FP4",
            Some(4),
            "16 in a row",
            32 * 64,
        ),
        (
            &[("l.weight.qdata", "float8_e4m3fn", &[8, 64]), ("l.weight.scale", "float32", &[])],
            "torchao FP8",
            Some(8),
            "a tensor",
            8 * 64,
        ),
    ];
    for (tensors, layout, bits, block, params) in cases {
        let entries: Vec<LeafSummary> =
            tensors.iter().map(|(key, dtype, shape)| tensor(key, dtype, shape)).collect();
        let model = Model::of_entries(&entries, None);
        let [found] = &model.quantised[..] else { panic!("{layout}: {:?}", model.quantised) };
        assert_eq!(
            (found.layout.as_str(), found.bits, found.block.as_str()),
            (layout, bits, block)
        );
        assert_eq!((found.tensors, found.params), (1, params), "{layout}");
        let extra: u64 = entries
            .iter()
            .filter(|entry| entry.key.ends_with("bias") && entry.dtype.contains("float"))
            .map(|entry| entry.params)
            .sum();
        assert_eq!(model.number("parameters"), Some(params + extra), "{layout}");
        let helpers: u64 = entries.iter().map(|entry| entry.bytes).sum();
        assert_eq!(found.bytes, helpers - extra * if extra == 12 { 2 } else { 4 }, "{layout}");
    }
    // The scales of inputs and outputs, which quanto writes, too, are of the layer.
    let entries = [
        tensor("l.weight._data", "int8", &[8, 128]),
        tensor("l.weight._scale", "float32", &[8, 1]),
        tensor("l.input_scale", "float32", &[]),
        tensor("l.output_scale", "float32", &[]),
    ];
    assert_eq!(Model::of_entries(&entries, None).number("parameters"), Some(8 * 128));
    // With its config, MLX's affine layout is recognised, too.
    let entries = [tensor("l.weight", "uint32", &[3, 16]), tensor("l.scales", "float32", &[3, 2])];
    let config = Config::new("config.json", [("quantization.bits".to_owned(), "4".to_owned())]);
    let model = Model::of_entries(&entries, Some(&config));
    assert_eq!(
        (model.quantised[0].block.as_str(), model.quantised[0].params),
        ("64 in a row", 3 * 128)
    );
}

#[test]
fn recognises_gguf_blocks_by_dtype() {
    // A block of Q4_K: 256 values in 144 bytes.
    let mut entry = tensor("blk.0.attn_q.weight", "Q4_K", &[2, 256]);
    entry.bytes = 2 * 144;
    let mut name = tensor("metadata.general.architecture", "", &[]);
    (name.kind, name.value, name.params, name.bytes) = (LeafKind::Str, "'llama'".into(), 0, 0);
    let mut heads = name.clone();
    (heads.key, heads.kind, heads.value) =
        ("metadata.llama.attention.head_count".into(), LeafKind::Int, "4".into());
    let model = Model::of_entries(&[entry, name, heads], None);
    assert_eq!(model.quantised[0].layout, "Q4_K");
    assert_eq!(model.quantised[0].block, "256 in a row");
    assert_eq!(model.quantised[0].bits_per_weight(), Some(4.5));
    assert_eq!(model.number("heads"), Some(4));
    assert_eq!(
        model.fact("family").unwrap().source,
        FactSource::File("metadata: general.architecture".into())
    );
}
