//! Compares every value with what the libraries read, and breaks the parts one by one.

mod experts;
mod faults;
mod libraries;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use statelens_checkpoint::{
    Checkpoint, CodeValues, DType, FileSet, Groups, Layout, Limits, Memory, Tensor, Unwatched,
};

use super::{
    Dequantisation, ScaleFault, complete, dequantise, scale_faults, shown, with_indices,
    with_original_names,
};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/quantized")
}

fn open(files: Vec<(String, Vec<u8>)>) -> Checkpoint {
    let mut set = FileSet::default();
    for (name, bytes) in files {
        set.push(name, std::sync::Arc::new(Memory::from(bytes)));
    }
    statelens_formats::open(set, &Limits::default(), &mut Unwatched).unwrap()
}

/// Returns the files of a fixture, the weights first.
fn files(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = fixtures().join(name);
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_by_key(|name| name == "config.json");
    names
        .into_iter()
        .map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap()))
        .collect()
}

fn view(checkpoint: &Checkpoint) -> Dequantisation {
    dequantise(checkpoint, None).unwrap().expect("quantised weights")
}

fn tensor<'a>(checkpoint: &'a Checkpoint, key: &str) -> &'a Tensor {
    let leaves = checkpoint.leaves();
    let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap_or_else(|| panic!("no {key}"));
    checkpoint.tensor_of(leaf.target).unwrap().1
}

fn read(checkpoint: &Checkpoint, tensor: &Tensor) -> Vec<u8> {
    let numel = tensor.numel().unwrap();
    statelens_tensor::elements(&checkpoint.files, tensor, 0..numel).unwrap()
}

fn names() -> Vec<String> {
    let entries = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn every_scheme_matches_its_library() {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for name in names() {
        let text = std::fs::read(fixtures().join(format!("{name}.expected.json"))).unwrap();
        let expected: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let stored = open(files(&name));
        let found = view(&stored);
        for weight in &found.weights {
            assert!(weight.refused.is_none(), "{name}: {weight:?}");
            assert!(weight.inferred.is_empty(), "{name}: {weight:?}");
        }
        let mut keys: Vec<String> =
            found.checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect();
        keys.sort();
        let entries = expected["entries"].as_array().unwrap();
        let mut wanted: Vec<&str> =
            entries.iter().map(|entry| entry["key"].as_str().unwrap()).collect();
        wanted.sort_unstable();
        assert_eq!(keys, wanted, "{name}");
        for entry in entries {
            let tensor = tensor(&found.checkpoint, entry["key"].as_str().unwrap());
            let shape: Vec<u64> = serde_json::from_value(entry["shape"].clone()).unwrap();
            assert_eq!(tensor.shape, shape, "{name}: {}", entry["key"]);
            let bytes = read(&found.checkpoint, tensor);
            let hash: String =
                Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            if entry["sha256"] != hash {
                let first = bytes.as_chunks().0.iter().take(4);
                let first: Vec<f32> = first.map(|four| f32::from_le_bytes(*four)).collect();
                wrong.push(format!("{name}: {} {first:?} {}", entry["key"], entry["first"]));
            }
            compared += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(compared, 48);
}

/// Squares decide, also if there are as many as rows: in a single row, or with a height of one.
#[test]
fn squares_of_one_row_have_the_stated_width() {
    let one = 0x38; // 1.0 as float8_e4m3fn
    let scales: Vec<u8> = [2f32, 3.0].iter().flat_map(|scale| scale.to_le_bytes()).collect();
    let file = safetensors(&[
        ("l.weight", "F8_E4M3", &[1, 100], vec![one; 100]),
        ("l.weight_scale_inv", "F32", &[1, 2], scales),
    ]);
    let config =
        br#"{"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}}"#;
    for config in [Some(config.to_vec()), None] {
        let mut files = vec![("model.safetensors".to_owned(), file.clone())];
        files.extend(config.clone().map(|config| ("config.json".to_owned(), config)));
        let found = view(&open(files));
        let bytes = read(&found.checkpoint, tensor(&found.checkpoint, "l.weight"));
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
        assert_eq!(values, [vec![2.0; 64], vec![3.0; 36]].concat());
        let inferred: &[&str] = if config.is_some() { &[] } else { &["groups of 64"] };
        assert_eq!(found.weights[0].inferred, inferred);
    }
}

/// MXFP8 of compressed-tensors: a scale of one byte is an exponent, 127 being that of 1.
#[test]
fn scales_of_one_byte_are_exponents() {
    let file = safetensors(&[
        ("l.weight", "F8_E4M3", &[1, 64], vec![0x38; 64]),
        ("l.weight_scale", "U8", &[1, 2], vec![128, 126]),
    ]);
    let found = view(&open(vec![("model.safetensors".to_owned(), file)]));
    let bytes = read(&found.checkpoint, tensor(&found.checkpoint, "l.weight"));
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
    assert_eq!(values, [[2.0; 32], [0.5; 32]].concat());
}

/// Experts that are stacked in one tensor, as transformers 5 names them.
#[test]
fn stacked_experts_of_float8_have_scales_after_their_name() {
    let scales: Vec<u8> =
        [1f32, 2.0, 3.0, 4.0].iter().flat_map(|scale| scale.to_le_bytes()).collect();
    let stored = open(vec![
        (
            "model.safetensors".to_owned(),
            safetensors(&[
                ("mlp.experts.down_proj", "F8_E4M3", &[2, 3, 4], vec![0x38; 24]),
                ("mlp.experts.down_proj_scale_inv", "F32", &[2, 2, 1], scales),
            ]),
        ),
        (
            "config.json".to_owned(),
            br#"{"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 4]}}"#
                .to_vec(),
        ),
    ]);
    let found = view(&stored);
    let bytes = read(&found.checkpoint, tensor(&found.checkpoint, "mlp.experts.down_proj"));
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
    let expected = [[1.0; 8].as_slice(), &[2.0; 4], &[3.0; 8], &[4.0; 4]].concat();
    assert_eq!(values, expected);
    assert_eq!(found.checkpoint.leaves().len(), 1);
}

/// Any range of elements is the same part of the whole.
#[test]
fn parts_match_the_whole() {
    for name in names() {
        let stored = open(files(&name));
        let found = view(&stored);
        let files = &found.checkpoint.files;
        for weight in &found.weights {
            let tensor = tensor(&found.checkpoint, &weight.key);
            let whole = read(&found.checkpoint, tensor);
            let numel = tensor.numel().unwrap();
            let (middle, row) = (numel / 2, *tensor.shape.last().unwrap());
            let ranges = [0..1, 1..numel - 1, middle..middle + 3, row - 1..row + 1, 0..row];
            for range in ranges.into_iter().chain((0..numel).step_by(97).map(|at| at..at + 1)) {
                let part = statelens_tensor::elements(files, tensor, range.clone()).unwrap();
                let bytes = range.start as usize * 4..range.end as usize * 4;
                assert_eq!(part, whole[bytes], "{name}: {} {range:?}", weight.key);
            }
        }
    }
}

/// Reading one element reads the code, scale and zero point that it needs, in any scheme; and
/// tables and lists of groups, which all elements share.
#[test]
fn slices_read_little() {
    /// Returns the bytes of tables and lists of groups.
    fn shared(tensor: &Tensor) -> u64 {
        let Layout::Dequantised(of) = &tensor.layout else { return 0 };
        let table = match &of.values {
            CodeValues::Stored(table) => table.nbytes().unwrap(),
            _ => 0,
        };
        let listed = of.groups.iter().map(|groups| match groups {
            Groups::Listed(list, _) => list.nbytes().unwrap(),
            Groups::Every(_) => 0,
        });
        table + listed.sum::<u64>() + shared(&of.scales.tensor)
    }
    let mut checked = 0;
    for name in names() {
        let stored = open(files(&name));
        let found = view(&stored);
        for weight in &found.weights {
            let tensor = tensor(&found.checkpoint, &weight.key);
            let numel = tensor.numel().unwrap();
            for at in [0, numel / 2 + 1, numel - 1] {
                let fed = fed(&stored.files, tensor, at..at + 1);
                // A code in one or two words, a scale, a zero point or bias, a scale of all scales.
                let most = shared(tensor) + 8 + 4 + 4 + 4;
                assert!(fed > 0 && fed <= most, "{name}: {} reads {fed} bytes", weight.key);
                checked += 1;
            }
        }
    }
    assert!(checked >= 3 * 30, "{checked}");
    let stored = open(files("fp8_block"));
    let found = view(&stored);
    // A code of one byte and a scale of four.
    assert_eq!(fed(&stored.files, tensor(&found.checkpoint, "l.weight"), 700..701), 5);
}

/// Returns the number of bytes of the file that reading a range of elements takes.
fn fed(files: &FileSet, tensor: &Tensor, range: std::ops::Range<u64>) -> u64 {
    let mut gather =
        statelens_tensor::Gather::new(files, tensor, range, statelens_tensor::BUDGET).unwrap();
    let mut fed = 0;
    loop {
        match gather.need() {
            statelens_tensor::Need::Done => return fed,
            statelens_tensor::Need::Step => gather.step(files, &mut |_| Ok(())).unwrap(),
            statelens_tensor::Need::Feed(span) => {
                let bytes = files.read_vec(span.file, span.offset, span.len).unwrap();
                fed += span.len;
                gather.feed(&bytes, &mut |_| Ok(())).unwrap();
            }
        }
    }
}

#[test]
fn numbers_have_the_requested_dtype() {
    let stored = open(files("awq_gemm"));
    let found = dequantise(&stored, Some(&DType::BF16)).unwrap().unwrap();
    let tensor = tensor(&found.checkpoint, "l.weight");
    assert_eq!((&tensor.dtype, tensor.nbytes()), (&DType::BF16, Some(32 * 64 * 2)));
    assert_eq!(read(&found.checkpoint, tensor)[..2], [0xb0, 0x3e]);
    assert!(matches!(tensor.layout, Layout::Dequantised(_)));
}

/// Returns a safetensors file without some tensors, or with others instead.
fn without(
    bytes: &[u8],
    edit: impl Fn(&mut serde_json::Map<String, serde_json::Value>),
) -> Vec<u8> {
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    edit(header.as_object_mut().unwrap());
    let header = header.to_string();
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&bytes[8 + len..]);
    out
}

/// Without one of its parts, or if a shape contradicts the others, a weight is refused by name, and
/// its parts stay.
#[test]
fn refuses_missing_and_contradicting_parts() {
    for (name, part) in [
        ("awq_gemm", "scales"),
        ("awq_gemm", "qzeros"),
        ("gptq_4bit", "qzeros"),
        ("gptq_4bit", "scales"),
        ("bnb_4bit", "absmax"),
        ("bnb_4bit", "quant_map"),
        ("bnb_4bit", "quant_state.bitsandbytes__nf4"),
        ("bnb_4bit", "nested_quant_map"),
        ("ct_pack_w4_sym", "weight_scale"),
        ("ct_nvfp4", "weight_scale"),
        ("mlx_affine", "scales"),
        ("mlx_affine", "biases"),
        ("mxfp4_moe", "gate_up_proj_scales"),
        ("bnb_int8", "SCB"),
        ("ct_int8", "weight_scale"),
        ("ct_fp8", "weight_scale"),
        ("ct_nvfp4", "weight_global_scale"),
        ("ct_pack_w4_asym", "weight_zero_point"),
        ("fp8_block", "weight_scale_inv"),
        ("gptq_4bit_actorder", "g_idx"),
    ] {
        let mut cut = files(name);
        let key_ends = |key: &str| key.ends_with(&format!(".{part}"));
        cut[0].1 = without(&cut[0].1, |header| header.retain(|key, _| !key_ends(key)));
        let stored = open(cut);
        let found = view(&stored);
        let refused: Vec<_> = found.weights.iter().filter(|it| it.refused.is_some()).collect();
        let [first, ..] = refused[..] else { panic!("{name} without {part}") };
        let why = first.refused.as_ref().unwrap().to_string();
        assert!(why.contains(&format!("{part}` is missing")), "{name}: {why}");
        assert!(complete(&found.weights).unwrap_err().to_string().contains(&first.key), "{name}");
        for part in &first.parts {
            assert!(found.checkpoint.leaves().iter().any(|leaf| leaf.flat == **part), "{part}");
        }
    }
    // Half of the scales.
    for (name, part) in [
        ("awq_gemm", "scales"),
        ("gptq_3bit", "scales"),
        ("bnb_4bit", "absmax"),
        ("bnb_int8", "SCB"),
        ("ct_pack_w4_sym", "weight_scale"),
        ("ct_int8", "weight_scale"),
        ("ct_fp8_block", "weight_scale"),
        ("ct_mxfp4", "weight_scale"),
        ("fp8_block", "weight_scale_inv"),
        ("mlx_modes", "scales"),
        ("mxfp4_moe", "gate_up_proj_scales"),
    ] {
        let mut cut = files(name);
        cut[0].1 = without(&cut[0].1, |header| {
            for (key, tensor) in
                header.iter_mut().filter(|(key, _)| key.ends_with(&format!(".{part}")))
            {
                let offsets = &mut tensor["data_offsets"];
                let (start, end) = (offsets[0].as_u64().unwrap(), offsets[1].as_u64().unwrap());
                let dims = tensor["shape"].as_array_mut().unwrap().iter_mut();
                let mut even = dims.filter(|dim| dim.as_u64().unwrap() % 2 == 0);
                let dim = even.next().unwrap_or_else(|| panic!("{key}"));
                *dim = (dim.as_u64().unwrap() / 2).into();
                tensor["data_offsets"][1] = (start + (end - start) / 2).into();
            }
        });
        let found = view(&open(cut));
        for weight in found.weights.iter().filter(|it| !it.scheme.contains("nested")) {
            let why = weight.refused.as_ref().unwrap_or_else(|| panic!("{name} {weight:?}"));
            assert!(why.to_string().contains("expected"), "{name}: {why}");
        }
    }
}

/// Returns the file of a compressed weight of ones in 2 rows of 64, with this many scales in each row,
/// and a config with this text for `weights`.
fn compressed(groups: u64, config: Option<&str>) -> Checkpoint {
    let ones = vec![0x99; 2 * 32];
    let scales = vec![[0u8, 0x3c]; 2 * groups as usize].concat();
    let shape = [2i64, 64].iter().flat_map(|dim| dim.to_le_bytes()).collect();
    let file = safetensors(&[
        ("l.weight_packed", "I32", &[2, 8], ones),
        ("l.weight_scale", "F16", &[2, groups], scales),
        ("l.weight_shape", "I64", &[2], shape),
    ]);
    let mut files = vec![("model.safetensors".to_owned(), file)];
    files.extend(config.map(|weights| {
        let groups = format!(r#"{{"group_0": {{"weights": {{"num_bits": 4, {weights}}}}}}}"#);
        let text = format!(r#"{{"quantization_config": {{"config_groups": {groups}}}}}"#);
        ("config.json".to_owned(), text.into_bytes())
    }));
    open(files)
}

/// Groups of another size would give other scales to some columns.
#[test]
fn groups_must_have_the_stated_size() {
    for (groups, config, refused) in [
        (4, Some(r#""group_size": 16"#), None),
        (3, Some(r#""group_size": 24"#), None),
        (1, Some(r#""group_size": 16"#), None),
        (1, Some(r#""strategy": "channel", "group_size": null"#), None),
        (4, None, None),
        (3, Some(r#""group_size": 16"#), Some("4 groups of 16")),
        (3, None, Some("how large the groups are")),
        (4, Some(r#""group_size": 16, "actorder": "weight""#), None),
        (4, Some(r#""group_size": 16, "actorder": "group""#), Some("weight_g_idx` is missing")),
        (1, Some(r#""actorder": "group""#), None),
    ] {
        let found = view(&compressed(groups, config));
        let why = found.weights[0].refused.as_ref().map(ToString::to_string);
        match refused {
            Some(text) => assert!(why.as_ref().is_some_and(|why| why.contains(text)), "{why:?}"),
            None => assert_eq!(why, None, "{groups} {config:?}"),
        }
    }
}

/// `dynamic` of GPTQModel gives modules other settings than those of the whole model.
#[test]
fn modules_may_have_bits_of_their_own() {
    let parts = |name: &str, bits: u64| {
        let codes = vec![0u8; (64 * bits / 32 * 32 * 4) as usize];
        let zeros = vec![0u8; (2 * 32 * bits / 32 * 4) as usize];
        [
            (format!("{name}.qweight"), "I32", vec![64 * bits / 32, 32], codes),
            (format!("{name}.qzeros"), "I32", vec![2, 32 * bits / 32], zeros),
            (format!("{name}.scales"), "F16", vec![2, 32], vec![0u8; 128]),
        ]
    };
    let all = [parts("a", 4), parts("b", 8), parts("c", 3)].concat();
    let all: Vec<(&str, &str, &[u64], Vec<u8>)> = all
        .iter()
        .map(|(name, dtype, shape, bytes)| (&**name, *dtype, &shape[..], bytes.clone()))
        .collect();
    let file = safetensors(&all);
    let schemes = |dynamic: &str| -> Vec<(String, bool)> {
        let config = format!(
            r#"{{"quantization_config": {{"quant_method": "gptq", "bits": 4, "group_size": 64, {dynamic}
            "checkpoint_format": "gptq"}}}}"#
        );
        let files = vec![
            ("model.safetensors".to_owned(), file.clone()),
            ("config.json".to_owned(), config.into_bytes()),
        ];
        let weights = view(&open(files)).weights.into_iter();
        weights.map(|weight| (weight.scheme, weight.refused.is_some())).collect()
    };
    let of = |scheme: &str| (scheme.to_owned(), false);
    assert_eq!(
        schemes(r#""dynamic": {"+:b": {"bits": 8, "group_size": 32}, "+:c": {"bits": 3}},"#),
        [of("GPTQ, 4 bits"), of("GPTQ, 8 bits"), of("GPTQ, 3 bits")]
    );
    assert!(schemes("").iter().skip(1).all(|(_, refused)| *refused));
}

/// Codes with more or fewer dimensions are refused, not shown as if they were plain.
#[test]
fn other_dimensions_are_refused() {
    let file = safetensors(&[
        ("l.qweight", "I32", &[2, 8, 32], vec![0; 2048]),
        ("l.scales", "F16", &[2, 1, 32], vec![0; 128]),
        ("e.w_blocks", "U8", &[2, 3, 1, 15], vec![0; 90]),
        ("e.w_scales", "U8", &[2, 3, 1], vec![0; 6]),
        ("f.w_blocks", "U8", &[3, 1, 16], vec![0; 48]),
        ("f.w_scales", "U8", &[3, 1], vec![0; 3]),
    ]);
    let found = view(&open(vec![("model.safetensors".to_owned(), file)]));
    let mut refused: Vec<String> = found
        .weights
        .iter()
        .map(|weight| format!("{}: {}", weight.key, weight.refused.as_ref().unwrap()))
        .collect();
    refused.sort();
    assert_eq!(
        refused,
        [
            "e.w: the codes are of shape [2, 3, 1, 15]; expected 16 bytes in the last dimension, for \
             32 codes.",
            "f.w: the codes are of shape [3, 1, 16]; expected four dimensions.",
            "l.weight: the codes are of shape [2, 8, 32]; expected two dimensions.",
        ]
    );
}

/// The channels of a convolution have a scale each.
#[test]
fn convolutions_have_scales_for_their_channels() {
    let scales = [1f32, 2.0].iter().flat_map(|scale| scale.to_le_bytes()).collect();
    let file = safetensors(&[
        ("c.weight._data", "I8", &[2, 3, 1, 2], vec![1; 12]),
        ("c.weight._scale", "F32", &[2, 1, 1, 1], scales),
    ]);
    let found = view(&open(vec![("model.safetensors".to_owned(), file)]));
    let weight = tensor(&found.checkpoint, "c.weight");
    assert_eq!(weight.shape, [2, 3, 1, 2]);
    let bytes = read(&found.checkpoint, weight);
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
    assert_eq!(values, [[1.0; 6], [2.0; 6]].concat());
}

/// A group or a code that is out of range is an error when it is read, and names the place.
#[test]
fn refuses_groups_out_of_range() {
    let mut broken = files("gptq_4bit_actorder");
    let bytes = &mut broken[0].1;
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let at = 8 + len + header["l.g_idx"]["data_offsets"][0].as_u64().unwrap() as usize;
    for group in [4i32, -1, i32::MAX] {
        bytes[at..at + 4].copy_from_slice(&group.to_le_bytes());
        let stored = open(vec![
            ("model.safetensors".into(), bytes.clone()),
            files("gptq_4bit_actorder").pop().unwrap(),
        ]);
        let found = view(&stored);
        let tensor = tensor(&found.checkpoint, "l.weight");
        let error = statelens_tensor::elements(&stored.files, tensor, 0..1).unwrap_err();
        assert!(error.to_string().contains(&format!("group {group}")), "{error}");
    }
}

/// Without a config, what shapes leave open is inferred, and said.
#[test]
fn says_what_is_inferred() {
    for (name, inferred) in [
        ("gptq_4bit", &["4 bits", "the first version of the format"][..]),
        ("awq_gemm", &["the version gemm"]),
        ("ct_pack_w4_sym", &["4 bits"]),
        ("fp8_block", &["squares of 128 × 128"]),
        ("mlx_npz", &["4 bits in groups of 64"]),
    ] {
        let mut alone = files(name);
        alone.pop();
        let stored = open(alone);
        let found = view(&stored);
        assert_eq!(found.weights[0].inferred, inferred, "{name}");
    }
    // Without a config, the two versions look alike.
    let second = |files| {
        let stored = open(files);
        let found = view(&stored);
        read(&found.checkpoint, tensor(&found.checkpoint, "l.weight"))
    };
    let mut alone = files("gptq_2bit_v2");
    alone.pop();
    assert_ne!(second(alone), second(files("gptq_2bit_v2")));
}

/// Other orders of nibbles give other values.
#[test]
fn wrong_orders_are_seen() {
    use std::sync::Arc;

    use statelens_checkpoint::CodePacking;

    for (name, other) in [
        ("awq_gemm", CodePacking::AlongRow(4)),
        ("bnb_4bit", CodePacking::AlongRow(4)),
        ("ct_mxfp4", CodePacking::HighFirst),
        ("ct_nvfp4", CodePacking::HighFirst),
        ("ct_pack_w4_sym", CodePacking::Interleaved),
        ("gptq_4bit", CodePacking::AlongRow(4)),
        ("mlx_half", CodePacking::Interleaved),
        ("mxfp4_moe", CodePacking::HighFirst),
    ] {
        let stored = open(files(name));
        let found = view(&stored);
        let right = tensor(&found.checkpoint, &found.weights[0].key);
        let Layout::Dequantised(of) = &right.layout else { panic!("{name}") };
        let mut wrong = (**of).clone();
        wrong.codes.packing = other;
        let layout = Layout::Dequantised(Arc::new(wrong));
        let wrong = Tensor { layout, ..right.clone() };
        assert_ne!(read(&stored, right), read(&stored, &wrong), "{name}");
    }
}

#[test]
fn plain_checkpoints_have_none() {
    let folder = fixtures().join("../safetensors");
    let file = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let file = file.filter(|path| path.extension().is_some_and(|end| end == "safetensors"));
    for path in file.filter(|path| !path.to_string_lossy().contains("x_")).take(5) {
        let bytes = std::fs::read(&path).unwrap();
        let stored = open(vec![("model.safetensors".into(), bytes)]);
        assert!(dequantise(&stored, None).unwrap().is_none(), "{path:?}");
    }
}

/// For inspection, scales stay next to the weights.
#[test]
fn scales_stay_visible() {
    let stored = open(files("gptq_4bit"));
    let view = shown(&stored).unwrap().unwrap();
    let keys: Vec<String> =
        view.checkpoint.leaves().iter().map(|leaf| leaf.flat.to_string()).collect();
    assert!(keys.iter().any(|key| key == "l.scales") && keys.iter().any(|key| key == "l.weight"));
    assert!(!keys.iter().any(|key| key == "l.qweight"), "{keys:?}");
}

/// The numbers of torch's quantised dtypes are those of `Tensor.dequantize` of torch 2.15.
#[test]
fn dtypes_of_torch_match_torch() {
    let file = fixtures().join("../torch/zip_quantized.pt");
    let stored = open(vec![("zip_quantized.pt".into(), std::fs::read(file).unwrap())]);
    let found = view(&stored);
    complete(&found.weights).unwrap();
    for (key, hash) in [
        ("pt", "cad916f4a24c80e25d71050ee9a862a0818e0d206ec8bfb85bbec4828a68ec0e"),
        ("pt_q8", "1aac405df0e41dd55a53cd7d06ab2881987baa920f05150684d06210873c58dc"),
        ("pt_q32", "58c3287faf48785f30c22512dc90feed3e7cc4aa1c8c4073ab5ca8ee90348259"),
    ] {
        let bytes = read(&found.checkpoint, tensor(&found.checkpoint, key));
        let found: String =
            Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, hash, "{key}");
    }
    // For each channel, torch multiplies in 64 bits: within one unit in the last place.
    let expected = [0.8f32, -1.3, -0.5, -0.2, -1.2, -1.4, -1.5, -0.3, -0.6, 0.4, 0.8, -0.4];
    let bytes = read(&found.checkpoint, tensor(&found.checkpoint, "pc"));
    assert_eq!(bytes.len(), 4 * expected.len());
    for (number, expected) in bytes.as_chunks().0.iter().zip(expected) {
        let number = f32::from_le_bytes(*number);
        assert!(number.to_bits().abs_diff(expected.to_bits()) <= 1, "{number} {expected}");
    }
}

/// Returns a safetensors file.
fn safetensors(tensors: &[(&str, &str, &[u64], Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        let entry = serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
        header.insert((*name).to_owned(), entry);
        data.extend_from_slice(bytes);
    }
    let header = serde_json::Value::from(header).to_string();
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&data);
    out
}

/// The layout of `WQLinear_GEMV` in AutoAWQ: nibbles along the inputs, groups that are padded to
/// eight.
#[test]
fn gemv_of_awq_matches_its_formula() {
    let (outputs, inputs, groups) = (3u32, 64u32, 2u32);
    let code = |row: u32, column: u32| (row * 7 + column * 5 + column / 9) % 16;
    let zero = |row: u32, group: u32| (row + 3 * group + 6) % 16;
    let words = |count: u32, of: &dyn Fn(u32, u32) -> u32| -> Vec<u8> {
        let all = (0..outputs).flat_map(|row| (0..count).map(move |word| (row, word)));
        let word = |(row, word)| {
            (0..8).fold(0u32, |all, at| all | of(row, word * 8 + at) << (4 * at)).to_le_bytes()
        };
        all.flat_map(word).collect()
    };
    // float16: 1, 2, then padding of NaN that is not read.
    let scales = (0..outputs).flat_map(|_| [0x3c00u16, 0x4000].into_iter().chain([0x7e00; 6]));
    let file = safetensors(&[
        ("l.qweight", "I32", &[3, 8], words(8, &code)),
        (
            "l.qzeros",
            "I32",
            &[3, 1],
            words(1, &|row, at| if at < groups { zero(row, at) } else { 0 }),
        ),
        ("l.scales", "F16", &[3, 8], scales.flat_map(u16::to_le_bytes).collect()),
    ]);
    let config = br#"{"quantization_config": {"quant_method": "awq", "version": "gemv", "bits": 4, "group_size": 32}}"#;
    let stored =
        open(vec![("model.safetensors".into(), file), ("config.json".into(), config.to_vec())]);
    let found = view(&stored);
    complete(&found.weights).unwrap();
    let bytes = read(&found.checkpoint, tensor(&found.checkpoint, "l.weight"));
    let numbers: Vec<f32> =
        bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
    let number = |row: u32, column: u32| {
        let group = column / 32;
        (code(row, column) as f32 - zero(row, group) as f32) * (1 << group) as f32
    };
    let expected: Vec<f32> =
        (0..outputs).flat_map(|row| (0..inputs).map(move |column| number(row, column))).collect();
    assert_eq!(numbers, expected);
}

/// Layouts that are not known are refused by name.
#[test]
fn refuses_the_layout_of_marlin() {
    let file = safetensors(&[
        ("l.B", "I32", &[4, 128], vec![0; 2048]),
        ("l.s", "F16", &[1, 64], vec![0; 128]),
    ]);
    let found = view(&open(vec![("model.safetensors".into(), file)]));
    let why = complete(&found.weights).unwrap_err().to_string();
    assert!(why.contains("`l.weight`, GPTQ in the format marlin"), "{why}");
}

/// Quadratic time would take minutes.
#[test]
fn finds_50_000_renamed_weights() {
    const COUNT: usize = 50_000;
    let config =
        br#"{"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 8}}"#;
    let parts = [("qweight", "I32", 8, 32), ("qzeros", "I32", 1, 4), ("scales", "F16", 8, 16)];
    let (mut entries, mut end) = (Vec::new(), 0);
    for (at, (name, dtype, columns, bytes)) in
        (0..COUNT).flat_map(|at| parts.map(|part| (at, part)))
    {
        let start = end;
        end += bytes;
        entries.push(format!(
            r#""m{at}.{name}":{{"dtype":"{dtype}","shape":[1,{columns}],"data_offsets":[{start},{end}]}}"#
        ));
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + end, 0);
    let files = [("model.safetensors".to_owned(), file), ("config.json".to_owned(), config.into())];
    let found = view(&open(files.into()));
    assert_eq!(found.weights.len(), COUNT);
    assert_eq!(found.weights[COUNT - 1].key, format!("m{}.weight", COUNT - 1));
    assert!(found.weights.iter().all(|weight| weight.refused.is_none()), "{:?}", found.weights[0]);
}
