//! Weights of torchao, quanto and HQQ.

use super::*;

/// Compares the shape and the numbers of a tensor with an entry of the expected ones.
fn assert_matches(checkpoint: &Checkpoint, entry: &serde_json::Value, name: &str) {
    let key = entry["key"].as_str().unwrap();
    let tensor = tensor(checkpoint, key);
    assert_eq!(serde_json::json!(tensor.shape), entry["shape"], "{name} {key}");
    let hash = Sha256::digest(read(checkpoint, tensor));
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(entry["sha256"], hash, "{name} {key}");
}

/// The tensors of torchao and quanto match what these libraries compute; the codes of four bits of
/// quanto are refused by name.
#[test]
fn objects_of_pickles_match_their_libraries() {
    let folder = fixtures().join("../quantized_torch");
    for name in ["torchao_int8", "torchao_fp8", "quanto_int8", "quanto_fp8"] {
        let text = std::fs::read(folder.join(format!("{name}.expected.json"))).unwrap();
        let expected: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let bytes = std::fs::read(folder.join(format!("{name}.pt"))).unwrap();
        let stored = open(vec![(format!("{name}.pt"), bytes)]);
        let found = view(&stored);
        complete(&found.weights).unwrap();
        let keys: Vec<String> =
            found.checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect();
        assert_eq!(keys, ["0.weight"], "{name}");
        let entry = &expected["entries"][0];
        let bytes = read(&found.checkpoint, tensor(&found.checkpoint, "0.weight"));
        let hash: String =
            Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(entry["sha256"], hash, "{name}");
    }
    let bytes = std::fs::read(folder.join("quanto_int4.pt")).unwrap();
    let found = view(&open(vec![("quanto_int4.pt".into(), bytes)]));
    let why = complete(&found.weights).unwrap_err().to_string();
    assert!(why.contains("0.weight") && why.contains("shape of the weight is not stored"), "{why}");
}

/// Quanto's codes of 2 and 4 bits: the shapes are those of the config, or follow from a bias.
#[test]
fn packed_codes_of_quanto_match_the_library() {
    let folder = fixtures().join("../quantized_torch");
    let config = br#"{"hidden_size": 256, "intermediate_size": 128}"#;
    for name in ["quanto_4bits", "quanto_2bits"] {
        let text = std::fs::read(folder.join(format!("{name}.expected.json"))).unwrap();
        let expected: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let stored = std::fs::read(folder.join(format!("{name}.safetensors"))).unwrap();
        let alone = vec![("model.safetensors".to_owned(), stored)];
        let mut files = alone.clone();
        files.push(("config.json".into(), config.to_vec()));
        let found = view(&open(files));
        complete(&found.weights).unwrap();
        for weight in &found.weights {
            let by_bias = weight.key == "other.weight";
            assert_eq!(weight.inferred.len(), usize::from(by_bias), "{name}: {weight:?}");
        }
        let entries = expected["entries"].as_array().unwrap();
        assert_eq!(entries.len(), 3, "{name}");
        for entry in entries {
            assert_matches(&found.checkpoint, entry, name);
        }
        let refused = view(&open(alone));
        let without: Vec<&str> = refused
            .weights
            .iter()
            .filter(|weight| weight.refused.is_some())
            .map(|weight| weight.key.as_str())
            .collect();
        assert_eq!(without, ["down_proj.weight", "q_proj.weight"], "{name}");
    }
}

/// torchao's integers with groups, MXFP8, MXFP4, and NVFP4 with and without a scale of all scales;
/// in a pickle and in safetensors.
#[test]
fn classes_of_torchao_match_the_library() {
    let folder = fixtures().join("../quantized_torch");
    let text = std::fs::read(folder.join("torchao_floats.expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let entries = expected["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 5);
    for name in ["torchao_floats.pt", "torchao_floats.safetensors"] {
        let stored = std::fs::read(folder.join(name)).unwrap();
        let found = view(&open(vec![(name.into(), stored)]));
        complete(&found.weights).unwrap();
        assert!(found.weights.iter().all(|weight| weight.inferred.is_empty()), "{name}");
        assert_eq!(found.checkpoint.leaves().len(), 5, "{name}");
        for entry in entries {
            assert_matches(&found.checkpoint, entry, name);
        }
    }
    // The scales of one tensor are in another order.
    let swizzled =
        without(&std::fs::read(folder.join("torchao_floats.safetensors")).unwrap(), |header| {
            let about = &mut header["__metadata__"]["nv.weight"];
            let text = about.as_str().unwrap().replace("scales\": false", "scales\": true");
            *about = text.into();
        });
    let why = complete(&view(&open(vec![("model.safetensors".into(), swizzled)])).weights);
    let why = why.unwrap_err().to_string();
    assert!(why.contains("nv.weight") && why.contains("order of GPU tiles"), "{why}");
}

/// Scales of inputs, outputs, and the cache of keys and values are left out with the weight;
/// nothing else is.
#[test]
fn scales_of_activations_are_left_out() {
    let one = || 1f32.to_le_bytes().to_vec();
    let mut tensors = vec![
        ("a.q_proj.weight._data", "I8", &[2u64, 2][..], vec![1, 2, 3, 4]),
        ("a.q_proj.weight._scale", "F32", &[][..], one()),
        ("a.k_proj.weight", "I8", &[2, 2], vec![1, 2, 3, 4]),
        ("a.k_proj.weight_scale", "F32", &[1], one()),
        ("a.k_proj.k_scale", "F32", &[1], one()),
    ];
    let left_out = ["a.q_proj.input_scale", "a.q_proj.output_scale", "a.k_scale", "a.q_scale"];
    tensors.extend(left_out.map(|name| (name, "F32", &[1u64][..], one())));
    let kept = ["a.scale", "b.input_scale", "b.weight", "a.v_scale"];
    tensors.extend(kept.map(|name| (name, "F32", &[1u64][..], one())));
    let stored = open(vec![("model.safetensors".into(), safetensors(&tensors))]);
    let found = view(&stored);
    complete(&found.weights).unwrap();
    let mut keys: Vec<String> =
        found.checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect();
    keys.sort();
    let mut expected = vec!["a.k_proj.weight", "a.q_proj.weight"];
    expected.extend(kept);
    expected.sort_unstable();
    assert_eq!(keys, expected);
    // They are listed with the weight.
    let parts: Vec<&String> = found.weights.iter().flat_map(|weight| &weight.parts).collect();
    assert!(left_out.iter().all(|name| parts.iter().any(|part| part == name)), "{parts:?}");
}

/// The integers of four bits of torchao, of three widths of groups, and in a stack of matrices.
/// Classes whose codes are in another order are refused by name.
#[test]
fn int4_of_torchao_matches_its_formula() {
    let folder = fixtures().join("../quantized_torch");
    let text = std::fs::read(folder.join("torchao_int4.expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let file =
        |name: &str| open(vec![(name.to_owned(), std::fs::read(folder.join(name)).unwrap())]);
    let found = view(&file("torchao_int4.pt"));
    complete(&found.weights).unwrap();
    let entries = expected["entries"].as_array().unwrap();
    assert_eq!((entries.len(), found.checkpoint.leaves().len()), (3, 3));
    for entry in entries {
        let key = entry["key"].as_str().unwrap();
        let tensor = tensor(&found.checkpoint, key);
        assert_eq!(serde_json::json!(tensor.shape), entry["shape"], "{key}");
        let hash = Sha256::digest(read(&found.checkpoint, tensor));
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(entry["sha256"], hash, "{key}");
    }
    let others = view(&file("torchao_others.pt"));
    for (key, why) in [
        ("tile.weight", "Int4TilePackedTo4dTensor has its codes in the order of a kernel"),
        ("plain32.weight", "Int4PlainInt32Tensor has its codes in the order of a kernel"),
        ("nf4.weight", "how NF4Tensor places its codes is not known"),
        ("pre.weight", "multiplies its inputs by `act_pre_scale`"),
    ] {
        let weight = others.weights.iter().find(|weight| weight.key == key).unwrap();
        let refused = weight.refused.as_ref().unwrap().to_string();
        assert!(refused.contains(why), "{key}: {refused}");
        let part = &weight.parts[0];
        assert!(others.checkpoint.leaves().iter().any(|leaf| leaf.flat == **part), "{part}");
    }
}

/// HQQ is recognised and refused by name.
#[test]
fn refuses_hqq() {
    let file = safetensors(&[
        ("l.W_q", "U8", &[4, 32], vec![0; 128]),
        ("l.scale", "F16", &[8, 1], vec![0; 16]),
        ("l.zero", "F16", &[8, 1], vec![0; 16]),
        ("l.bias", "F16", &[8], vec![0; 16]),
    ]);
    let found = view(&open(vec![("model.safetensors".into(), file)]));
    let why = complete(&found.weights).unwrap_err().to_string();
    assert!(why.contains("`l.weight`, HQQ: how HQQ packs its codes is not known"), "{why}");
    assert_eq!(found.weights[0].parts, ["l.W_q", "l.scale", "l.zero"]);
}

/// In safetensors, the class of a tensor of torchao is in the metadata.
#[test]
fn torchao_in_safetensors() {
    let tensors = [
        ("l._weight_qdata", "I8", &[2u64, 2][..], vec![1, 0xfe, 3, 4]),
        ("l._weight_scale", "F32", &[2, 1], [0.5f32, 2.0].map(f32::to_le_bytes).concat()),
        ("l._weight_zero_point", "I8", &[2, 1], vec![0, 1]),
    ];
    let file = safetensors(&tensors);
    let of_class = |class: &str| {
        without(&file, |header| {
            let about = serde_json::json!({"_type": class, "_data": {}}).to_string();
            header.insert("__metadata__".into(), serde_json::json!({"l.weight": about}));
        })
    };
    let found = |file| view(&open(vec![("model.safetensors".into(), file)]));
    let known = found(of_class("Int8Tensor"));
    complete(&known.weights).unwrap();
    assert!(known.weights[0].inferred.is_empty());
    let bytes = read(&known.checkpoint, tensor(&known.checkpoint, "l.weight"));
    let expected = [0.5f32, -1.0, 4.0, 6.0].map(f32::to_le_bytes).concat();
    assert_eq!(bytes, expected);
    assert_eq!(known.checkpoint.leaves().len(), 1);
    assert_eq!(found(file.clone()).weights[0].inferred, ["Int8Tensor"]);
    let why = complete(&found(of_class("UintxTensor")).weights).unwrap_err().to_string();
    assert!(why.contains("how UintxTensor places its codes is not known"), "{why}");
}
